"""Element types and how they promote.

A `DType` is a singleton; two dtypes are the same exactly when they are the same object.
Promotion is PyTorch's: dimensioned tensors outrank 0-d tensors, which outrank Python numbers,
and a lower rank matters only when its category (bool < integer < float < complex) is higher.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any, Literal

from chainrule.errors import DTypeError, InputError

Category = Literal[0, 1, 2, 3]  # bool, integer, floating, complex


class DType:
    """The type of one element: its name, its size in bytes and its category."""

    __slots__ = ("category", "itemsize", "name")

    def __init__(self, name: str, itemsize: builtins.int, category: Category) -> None:
        self.name = name
        self.itemsize = itemsize
        self.category: Category = category

    @property
    def is_floating_point(self) -> builtins.bool:
        """Whether elements are real floating-point numbers."""
        return self.category == 2

    @property
    def is_complex(self) -> builtins.bool:
        """Whether elements are complex numbers."""
        return self.category == 3

    @property
    def is_half(self) -> builtins.bool:
        """Whether elements have two bytes and are computed with in float32."""
        return self.category == 2 and self.itemsize == 2

    def __repr__(self) -> str:
        return f"chainrule.{self.name}"

    def __reduce__(self) -> str:
        return self.name  # unpickles and deep-copies to the singleton


bool = DType("bool", 1, 0)
uint8 = DType("uint8", 1, 1)
int8 = DType("int8", 1, 1)
int16 = DType("int16", 2, 1)
int32 = DType("int32", 4, 1)
int64 = DType("int64", 8, 1)
float16 = DType("float16", 2, 2)
bfloat16 = DType("bfloat16", 2, 2)
float32 = DType("float32", 4, 2)
float64 = DType("float64", 8, 2)
complex64 = DType("complex64", 8, 3)
complex128 = DType("complex128", 16, 3)

ALL: tuple[DType, ...] = (
    bool,
    uint8,
    int8,
    int16,
    int32,
    int64,
    float16,
    bfloat16,
    float32,
    float64,
    complex64,
    complex128,
)
BY_NAME: dict[str, DType] = {d.name: d for d in ALL}

# PyTorch's short names.
half, float, double, short, int, long, cfloat, cdouble = (
    float16,
    float32,
    float64,
    int16,
    int32,
    int64,
    complex64,
    complex128,
)


_BUILTINS: dict[type[Any], DType] = {
    builtins.float: float64,
    builtins.int: int64,
    builtins.bool: bool,
    complex: complex128,
}


def as_dtype(dtype: Any) -> DType:
    """A dtype as people give it: one of ours, or Python's float, int, bool or complex.

    Those are float64, int64, bool and complex128, as in PyTorch. Raises `DTypeError` for others.
    """
    if isinstance(dtype, DType):
        return dtype
    found = _BUILTINS.get(dtype) if isinstance(dtype, type) else None
    if found is None:
        name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
        name = name.rpartition(".")[2]
        hint = f"use cr.{name}" if name in BY_NAME else "use cr.float32, cr.int64, …"
        raise DTypeError(f"{dtype!r} is no dtype of chainrule: {hint}")
    return found


def promote(a: DType, b: DType) -> DType:
    """The smallest dtype of PyTorch's lattice that holds both `a` and `b`."""
    if a is b:
        return a
    if a.category > b.category:
        a, b = b, a
    if a.category < b.category:
        if b is complex64 and a is float64:
            return complex128
        return b
    if a.itemsize == b.itemsize:  # the same size and category: uint8 + int8, float16 + bfloat16
        return int16 if a.category == 1 else float32
    return a if a.itemsize > b.itemsize else b


def integer_range(dtype: DType) -> tuple[builtins.int, builtins.int]:
    """The smallest and the largest number of an integer dtype."""
    bits = 8 * dtype.itemsize
    return (0, 2**bits - 1) if dtype is uint8 else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def check_fits(number: builtins.float, dtype: DType, name: str = "") -> None:
    """Raise `InputError` for a number that an integer dtype cannot hold: none wraps around."""
    if dtype.category != 1 or isinstance(number, builtins.bool):
        return
    low, high = integer_range(dtype)
    if not low <= number <= high:  # NaN too
        raise InputError(
            f"{name}{': ' * (name != '')}{number} is out of the range of {dtype.name}: "
            f"{low} to {high}"
        )


def promote_ranked(
    dimensioned: Iterable[DType],
    zero_dim: Iterable[DType] = (),
    numbers: Iterable[DType] = (),
) -> DType:
    """PyTorch's result type of operands given by rank; at least one operand is needed."""
    result: DType | None = None
    for rank in (dimensioned, zero_dim, numbers):
        here: DType | None = None
        for dtype in rank:
            here = dtype if here is None else promote(here, dtype)
        if here is not None and (result is None or here.category > result.category):
            result = here if result is None else promote(result, here)
    if result is None:
        raise TypeError("promotion needs at least one operand")
    return result
