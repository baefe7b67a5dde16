"""Elementwise operations: every primitive of the calculus table as an eager function.

`forms` holds the common call; `_slow` is every other one (promotion, half types, other devices,
arrays). Both record the rule that `rules` printed from the table. Values and gradients at edges
are the table's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule import dtypes
from chainrule.autograd.node import MAKERS, Node
from chainrule.autograd.state import is_grad_enabled
from chainrule.autograd.value import Value, backend_for, new_value, raw_of, user_place
from chainrule.backends import numpy as numpy_backend
from chainrule.calculus.expr import Expr
from chainrule.calculus.table import TABLE
from chainrule.dtypes import DType
from chainrule.errors import DivisionByZeroError, DTypeError, InputError, ShapeError
from chainrule.ops import forms
from chainrule.ops._apply import coerce, common_backend, to_dtype
from chainrule.ops.rules import rule_for
from chainrule.storage import CLOCK

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

new = object.__new__
MAKERS.append(globals())

Operation = Callable[..., "Tensor"]


def _slow(name: str, *args: Any) -> Any:
    """Any operands: numbers, arrays, mixed dtypes, half types, any device."""
    primitive = TABLE[name]
    operands: list[Any]
    try:
        operands, kind = coerce(args, name)
    except DTypeError:
        if any(isinstance(a, Expr) for a in args):
            return primitive(*args)  # symbols: the expression itself, for `show.formula`
        raise
    backend = common_backend(operands, name)
    values = [i for i, a in enumerate(operands) if isinstance(a, Value)]
    typed = [i for i in range(len(operands)) if not (name == "where" and i == 0)]
    dtype = result_dtype(operands, typed)
    if primitive.result == "float" and dtype.category < 2:
        dtype = dtypes.float32
    if dtype is dtypes.bool and name == "square":
        dtype = dtypes.int64  # a product of bools is one, a power counts: PyTorch's
    if dtype.is_complex:
        raise DTypeError(f"{name} of complex tensors: complex dtypes are storage only")
    if name == "where" and isinstance(operands[0], Value):
        condition = backend.dtype_of(operands[0]._a)
        if condition is not dtypes.bool:
            raise DTypeError(f"where needs a bool condition, not {condition.name}")
    for i in values:
        if i in typed and operands[i].dtype is not dtype:
            operands[i] = to_dtype(operands[i], dtype)
    half = dtype.is_half
    raws = [raw_of(a) if isinstance(a, Value) else a for a in operands]
    shown = raws
    if half:
        shown = [
            backend.cast(r, dtypes.float32) if i in values and i in typed else r
            for i, r in enumerate(raws)
        ]
    elif dtype.category < 2:
        shown = [int(r) if isinstance(r, float) and r.is_integer() else r for r in raws]
        if dtype.category == 1 and primitive.result == "same":
            _check_numbers(name, operands, dtype)
        if name == "pow":
            _check_exponent(shown[1])
        elif name in ("remainder", "fmod"):
            _check_divisor(name, shown[1])
        elif name == "sign" and dtype is dtypes.bool:  # NumPy has none
            shown = [backend.cast(raws[0], dtypes.uint8)]
    out = _compute(backend, name, shown, operands)
    wanted = dtypes.bool if primitive.result == "bool" else dtype
    out = backend.asarray(out)
    if backend.dtype_of(out) is not wanted:
        out = backend.cast(out, wanted)
    t = new_value(kind, out)
    parents = tuple(a.node if isinstance(a, Value) else None for a in operands)
    # A step (floor, sign) is recorded too, with gradient 0: PyTorch's results require grad.
    tracked = primitive.result != "bool" and dtype.category == 2
    if tracked and is_grad_enabled() and any(p is not None for p in parents):
        kinds = "".join("T" if isinstance(a, Value) else "S" for a in operands)
        constants: list[float | None] = [None] * len(operands)
        if name == "pow" and kinds == "TS":
            constants[1] = float(operands[1])
        need = tuple(p is not None for p in parents)
        rule = rule_for(name, kinds, need, tuple(constants), backend.name, half)
        n = t.node = new(Node)
        n.rule = rule
        n.saved = rule.keep(*operands, out)
        n.parents = parents
        n.code, n.lasti = user_place(3)
        n.shape = tuple(out.shape)
        n.stamp = CLOCK.now
        n.hooks = n.storage = None
    return t


def _compute(backend: Any, name: str, raws: list[Any], operands: Sequence[Any]) -> Any:
    try:
        if backend is not numpy_backend and not any(isinstance(a, Value) for a in operands):
            raise InputError(f"{name} needs a tensor")
        return getattr(backend, name)(*raws)
    except (ValueError, RuntimeError) as wrong:
        shapes = [tuple(r.shape) for r in raws if hasattr(r, "shape")]
        if len(shapes) > 1 and not _broadcastable(shapes):
            raise ShapeError(
                f"{name}: shapes {' and '.join(map(str, shapes))} do not broadcast: compared "
                "from the right, each pair of sizes must be equal or contain a 1"
            ) from None
        raise InputError(f"{name}: {wrong}") from None
    except TypeError as wrong:
        raise DTypeError(f"{name}: {wrong}") from None
    except OverflowError:
        raise InputError(f"{name}: a number is too large for any floating dtype") from None


def _check_numbers(name: str, operands: Sequence[Any], dtype: DType) -> None:
    """NumPy raises `OverflowError`, PyTorch wraps: here both refuse in words."""
    for a in operands:
        if isinstance(a, int):
            dtypes.check_fits(a, dtype, name)


def _check_exponent(exponent: Any) -> None:
    if (exponent < 0) if isinstance(exponent, int) else (exponent < 0).any():
        raise InputError(
            "pow: an integer to a negative power is no integer: convert one with .to(cr.float32)"
        )


def _check_divisor(name: str, divisor: Any) -> None:
    if not divisor if isinstance(divisor, int) else (divisor == 0).any():
        raise DivisionByZeroError(f"{name}: division by zero of integers")


def _broadcastable(shapes: Sequence[tuple[int, ...]]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def result_dtype(operands: Sequence[Any], typed: Sequence[int]) -> DType:
    """The dtype that the operands at the places `typed` promote to."""
    dimensioned: list[DType] = []
    zero_dim: list[DType] = []
    numbers: list[DType] = []
    for i in typed:
        a = operands[i]
        if isinstance(a, Value):
            (dimensioned if len(a._a.shape) else zero_dim).append(backend_for(a._a).dtype_of(a._a))
        elif isinstance(a, bool):
            numbers.append(dtypes.bool)
        else:
            numbers.append(dtypes.int64 if isinstance(a, int) else dtypes.float32)
    return dtypes.promote_ranked(dimensioned, zero_dim, numbers)


def _slow_form(name: str) -> Callable[..., Any]:
    primitive = TABLE[name]
    least = primitive.arity - len(primitive.defaults)

    def slow(*args: Any) -> Any:
        if not least <= len(args) <= primitive.arity:
            raise TypeError(f"{name} takes {least} to {primitive.arity} operands, got {len(args)}")
        return _slow(name, *args, *primitive.defaults[len(args) - least :])

    return slow


def operation(name: str) -> Operation:
    """The eager operation of a primitive of the table."""
    row = TABLE[name]
    slow = _slow_form(name)
    fn = getattr(numpy_backend, name)
    op: Operation = slow
    if row.differentiable and row.result != "bool" and row.arity == 1:
        op = forms.unary(name, fn, slow)
    elif row.differentiable and row.result != "bool" and row.arity == 2:
        # pow prints a rule for each fixed exponent, which only `_slow` asks for.
        number = slow if name == "pow" else forms.with_number(name, fn, slow)
        op = forms.binary(name, fn, slow, number, row.defaults[0] if row.defaults else None)
    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"Elementwise {row.formula}, for tensors that broadcast." + (
        f" Edges: {row.edges}." if row.edges else ""
    )
    op.__module__ = "chainrule"
    return op


def reflected(name: str) -> Operation:
    """The operator with the tensor on the right: `reflected("sub")(x, 2.0)` is `2.0 - x`."""
    slow = _slow_form(name)
    number = None
    if name != "pow":
        number = forms.with_number(name, getattr(numpy_backend, name), slow, number_first=True)

    def op(a: Any, b: Any, /) -> Any:
        return slow(b, a)

    return op if number is None else _dispatch(number, op)


def _dispatch(number: Operation, general: Operation) -> Operation:
    def op(a: Any, b: Any, /) -> Any:
        return number(a, b) if type(b) is float or type(b) is int else general(a, b)

    return op
