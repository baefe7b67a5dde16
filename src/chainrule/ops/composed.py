"""Elementwise functions that are plain compositions of the rows of the calculus table.

Values and gradients at edges are those of the parts, chosen to be PyTorch's. Relies on `named`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.autograd.value import Value, new_value, raw_of
from chainrule.errors import DivisionByZeroError, DTypeError, InputError, ShapeError
from chainrule.ops import named
from chainrule.ops._apply import ArrayRule, apply, coerce, common_backend, to_dtype
from chainrule.ops.elementwise import result_dtype
from chainrule.ops.inplace import in_place
from chainrule.ops.masking import clamp, masked_fill

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

    Operand = Any  # a tensor, an array or a number


def _floating(name: str, x: Any) -> None:
    if not isinstance(x, Value) or x.dtype.category != 2:  # pyright: ignore
        kind = x.dtype.name if isinstance(x, Value) else type(x).__name__  # pyright: ignore
        raise DTypeError(f"{name} needs a floating-point tensor, not {kind}")


# Activations.


def selu(input: Tensor) -> Tensor:
    """λ x for x > 0, else λ α (eˣ − 1): keeps mean 0 and variance 1 (Klambauer et al. 2017)."""
    _floating("selu", input)
    return named.mul(named.elu(input, 1.6732632423543772), 1.0507009873554805)


def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x for x > 0, else α (exp(x/α) − 1); smooth at 0 for every α."""
    if not alpha:
        raise InputError("celu: alpha is 0: it must not be")
    scaled = named.mul(named.elu(named.div(input, alpha)), alpha)
    return named.where(named.gt(input, 0.0), input, scaled)


def hardsigmoid(input: Tensor) -> Tensor:
    """min(max(x + 3, 0), 6) / 6, with gradient 0 at ±3."""
    _floating("hardsigmoid", input)
    return named.div(named.relu6(named.add(input, 3.0)), 6.0)


def hardswish(input: Tensor) -> Tensor:
    """x min(max(x + 3, 0), 6) / 6."""
    _floating("hardswish", input)
    return named.div(named.mul(input, named.relu6(named.add(input, 3.0))), 6.0)


def tanhshrink(input: Tensor) -> Tensor:
    """x − tanh x."""
    return named.sub(input, named.tanh(input))


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x drawn towards 0 by λ, 0 within ±λ, with gradient 0 at ±λ."""
    if lambd < 0:
        raise InputError(f"softshrink: lambd is {lambd}: it must not be negative")
    _floating("softshrink", input)
    return named.sub(input, clamp(input, -lambd, lambd))


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > λ, else 0."""
    within = named.le(named.abs(input), lambd)
    return masked_fill(input, within, 0)


def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """x where it is above the threshold (or NaN), else `value`."""
    return masked_fill(input, named.le(input, threshold), value)


# Of one tensor.


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """ln(x / (1 − x)); with `eps`, of x held between eps and 1 − eps."""
    return named.logit(input if eps is None else clamp(input, eps, 1.0 - eps))


def frac(input: Tensor) -> Tensor:
    """The part after the point, with the sign of x; gradient 1."""
    _floating("frac", input)
    return named.sub(input, named.trunc(input))


def deg2rad(input: Tensor) -> Tensor:
    """π x / 180."""
    return named.mul(input, math.pi / 180.0)


def rad2deg(input: Tensor) -> Tensor:
    """180 x / π."""
    return named.mul(input, 180.0 / math.pi)


def sgn(input: Tensor) -> Tensor:
    """The sign: −1, 0 or 1."""
    return named.sign(input)


def signbit(input: Tensor) -> Tensor:
    """Whether the sign bit is set: −0 has it."""
    if input.dtype.category != 2:
        return named.lt(input, 0)
    return named.lt(named.copysign(1.0, input), 0.0)


def isposinf(input: Tensor) -> Tensor:
    """Whether an element is +∞."""
    return named.eq(input, float("inf"))


def isneginf(input: Tensor) -> Tensor:
    """Whether an element is −∞."""
    return named.eq(input, float("-inf"))


_LARGEST = {
    dtypes.float64: float(np.finfo(np.float64).max),
    dtypes.float32: float(np.finfo(np.float32).max),
    dtypes.float16: 65504.0,
    dtypes.bfloat16: float.fromhex("0x1.fep127"),
}


def nan_to_num(
    input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN replaced by `nan`, the infinities by the largest and smallest number or what is given.

    What is replaced has gradient 0.
    """
    x: Any = input
    if x.dtype.category != 2:
        return masked_fill(x, named.ne(x, x), 0)
    most = _LARGEST[x.dtype]
    high, low = most if posinf is None else posinf, -most if neginf is None else neginf
    x = masked_fill(x, named.isnan(x), 0.0 if nan is None else nan)
    unknown = named.isinf(input)
    return named.where(unknown, _signed(input, high, low), x)


def _signed(input: Any, high: float, low: float) -> Any:
    raw = raw_of(input)
    b = common_backend((input,), "nan_to_num")
    chosen = b.where(b.gt(raw, 0.0), b.full((), high, raw), b.full((), low, raw))
    return new_value(type(input), b.asarray(chosen))


# Of several.


def heaviside(input: Tensor, values: Operand) -> Tensor:
    """0 below 0, 1 above it (0 at NaN), `values` at 0."""
    step = to_dtype(named.gt(input, 0), input.dtype)
    return named.where(named.eq(input, 0), values, step)


def logical_xor(input: Operand, other: Operand) -> Tensor:
    """Whether exactly one is true; NaN is true."""
    return named.ne(named.ne(input, 0), named.ne(other, 0))


def addcmul(input: Tensor, tensor1: Operand, tensor2: Operand, *, value: float = 1) -> Tensor:
    """input + value · tensor1 · tensor2."""
    product = named.mul(tensor1, tensor2)
    return named.add(input, product if value == 1 else named.mul(product, value))


def addcdiv(input: Tensor, tensor1: Operand, tensor2: Operand, *, value: float = 1) -> Tensor:
    """input + value · tensor1 / tensor2."""
    scaled = tensor1 if value == 1 else named.mul(tensor1, value)
    return named.add(input, named.div(scaled, tensor2))


def logaddexp2(input: Operand, other: Operand) -> Tensor:
    """log₂(2ᵃ + 2ᵇ), without overflow."""
    two = math.log(2.0)
    return named.div(named.logaddexp(named.mul(input, two), named.mul(other, two)), two)


# Whole division, which is a step: gradient 0; and shifts.


def _raw(name: str, fn: Callable[..., Any], whole: bool, *args: Any) -> Any:
    """`fn` on raw arrays of the promoted dtype."""
    operands, kind = coerce(args, name)
    b = common_backend(operands, name)
    dtype = result_dtype(operands, range(len(operands)))
    if whole and dtype.category != 1:
        raise DTypeError(f"{name} is for integers, not {dtype.name}")
    work = dtypes.float32 if dtype.is_half else dtype
    raws = [
        b.cast(raw_of(a) if isinstance(a, Value) else b.from_numpy(np.asarray(a)), work)
        for a in operands
    ]
    with b.quiet():
        out = b.asarray(fn(*raws))
    return new_value(kind, b.cast(out, dtype))


def _floor_forward(b: Any, x: Any, y: Any) -> Any:
    with b.quiet():
        return x // y


def _flat(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    return tuple([None if p is None else b.zeros(p.shape, g) for p in n.parents])


FLOOR_DIVIDE = ArrayRule("floor_divide", _floor_forward, _flat)


def floor_divide(input: Operand, other: Operand) -> Tensor:
    """⌊a / b⌋, exact, with gradient 0; integers stay integers.

    Raises `DivisionByZeroError` for integers over 0.
    """
    operands, _ = coerce((input, other), "floor_divide")
    below: Any = operands[1]
    dtype = result_dtype(operands, range(2))
    if dtype.category == 2:
        pair = [to_dtype(t, dtype) for t in _tensors(operands)]
        return apply(FLOOR_DIVIDE, pair)
    if dtype.category < 2:
        zeros = raw_of(below) == 0 if isinstance(below, Value) else np.asarray(below == 0)
        if bool(zeros.any()):
            raise DivisionByZeroError("floor_divide: division by zero of integers")
    return _raw("floor_divide", operator.floordiv, False, input, other)


def _tensors(operands: list[Any]) -> list[Any]:
    """Numbers as 0-d tensors beside the tensors, which then all broadcast."""
    like = next(t for t in operands if isinstance(t, Value))
    b = common_backend(operands, "floor_divide")
    made = [
        t
        if isinstance(t, Value)
        else new_value(type(like), b.from_numpy(np.asarray(t, np.float64)))
        for t in operands
    ]
    try:
        np.broadcast_shapes(*[tuple(t._a.shape) for t in made])
    except ValueError:
        shapes = " and ".join(str(tuple(t._a.shape)) for t in made)
        raise ShapeError(f"floor_divide: shapes {shapes} do not broadcast") from None
    return made


def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """a / b; with `rounding_mode` "trunc" or "floor" rounded towards 0 or down, gradient 0."""
    if rounding_mode is None:
        return named.div(input, other)
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode != "trunc":
        raise InputError(f'div: rounding_mode is None, "trunc" or "floor", got {rounding_mode!r}')
    operands, _ = coerce((input, other), "div")
    if result_dtype(operands, range(2)).category == 2:
        return named.trunc(named.div(input, other))
    quotient = floor_divide(input, other)
    short = named.logical_and(named.lt(quotient, 0), named.ne(named.mul(quotient, other), input))
    return named.add(quotient, to_dtype(short, quotient.dtype))


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """To the nearest integer, or to `decimals` places (negative: of tens); halves to even."""
    if not decimals:
        return named.round(input)
    _floating("round with decimals", input)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return named.div(named.round(named.mul(input, scale)), scale)
    return named.mul(named.round(named.div(input, scale)), scale)


def bitwise_left_shift(input: Operand, other: Operand) -> Tensor:
    """a · 2ᵇ of integers, within their bits."""
    return _raw("bitwise_left_shift", operator.lshift, True, input, other)


def bitwise_right_shift(input: Operand, other: Operand) -> Tensor:
    """⌊a / 2ᵇ⌋ of integers."""
    return _raw("bitwise_right_shift", operator.rshift, True, input, other)


def clamp_max(input: Tensor, max: Operand) -> Tensor:
    """`clamp` from above alone."""
    return clamp(input, None, max)


def clamp_min(input: Tensor, min: Operand) -> Tensor:
    """`clamp` from below alone."""
    return clamp(input, min)


addcmul_ = in_place(addcmul)
addcdiv_ = in_place(addcdiv)
nan_to_num_ = in_place(nan_to_num)
floor_divide_ = in_place(floor_divide)
