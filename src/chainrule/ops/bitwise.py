"""Bits of integers and truth of bools: `&`, `|`, `^` and `~`, which have no gradient.

Promotion is that of the other elementwise operations; relies on Python's own operators, which
both raw backends have.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.autograd.value import Value, new_value, raw_of
from chainrule.dtypes import check_fits
from chainrule.errors import DTypeError
from chainrule.ops._apply import coerce, common_backend, to_dtype
from chainrule.ops.elementwise import result_dtype

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

    Operand = Any  # a tensor, an array or a number


def _bitwise(name: str, operation: Callable[..., Any], *args: Any) -> Any:
    operands, kind = coerce(args, name)
    b = common_backend(operands, name)
    dtype = result_dtype(operands, range(len(operands)))
    if dtype.category > 1:
        raise DTypeError(f"{name} is for integers and bools, not {dtype.name}: compare first")
    for a in operands:
        if not isinstance(a, Value):
            check_fits(a, dtype, name)
    raws = [
        raw_of(to_dtype(a, dtype))
        if isinstance(a, Value)
        else b.cast(b.from_numpy(np.asarray(a)), dtype)
        for a in operands
    ]
    return new_value(kind, b.asarray(operation(*raws)))


def bitwise_and(input: Operand, other: Operand, /) -> Tensor:
    """The bits that both have; of bools, whether both are true. Raises `DTypeError` for floats."""
    return _bitwise("bitwise_and", operator.and_, input, other)


def bitwise_or(input: Operand, other: Operand, /) -> Tensor:
    """The bits that either has; of bools, whether one is true. Raises `DTypeError` for floats."""
    return _bitwise("bitwise_or", operator.or_, input, other)


def bitwise_xor(input: Operand, other: Operand, /) -> Tensor:
    """The bits that one has; of bools, whether they differ. Raises `DTypeError` for floats."""
    return _bitwise("bitwise_xor", operator.xor, input, other)


def bitwise_not(input: Tensor, /) -> Tensor:
    """Every bit turned over; of bools, the contrary. Raises `DTypeError` for floats."""
    return _bitwise("bitwise_not", operator.invert, input)
