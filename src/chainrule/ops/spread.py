"""Variance and standard deviation: how far elements are from their mean.

The mean is subtracted before squaring (E x² − (E x)² cancels), in `float32` for half types.
Degrees of freedom are count − correction, as PyTorch has it; none left gives NaN (or ∞).
"""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING, Any

from chainrule.autograd.node import Node
from chainrule.errors import InputError
from chainrule.ops._apply import ArrayRule, apply
from chainrule.ops.reductions import (
    Dims,
    count_along,
    floating,
    kept_shape,
    mean,
    reduced_dims,
)

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def _centred(b: Any, x: Any, dims: tuple[int, ...]) -> Any:
    return x - b.sum(x, dims, True) / (count_along(x.shape, dims) or 1)


def _var_forward(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool, correction: float) -> Any:
    with b.quiet():
        squares = b.sum_of_squared_deviations(x, dims, keepdim)
        freedom = count_along(x.shape, dims) - correction
        return squares / freedom if freedom > 0 else squares / (squares * 0.0)


def _var_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    """2 (x − mean) g / freedom; without freedom PyTorch's: NaN at the mean, ∞ elsewhere."""
    (x, *_), (dims, _, correction) = saved, n.attrs
    count = count_along(x.shape, dims)
    g = b.reshape(g, kept_shape(x.shape, dims))
    if count - correction > 0:
        fused = getattr(b, "deviations_times", None)
        factor = g * (2.0 / (count - correction))
        return (fused(x, dims, factor) if fused else _centred(b, x, dims) * factor,)
    off = b.ne(_centred(b, x, dims), 0.0)
    return (b.where(off, b.full((), inf, x), b.full((), nan, x)) * g,)


def _std_forward(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool, correction: float) -> Any:
    return b.sqrt(_var_forward(b, x, dims, keepdim, correction))


def _std_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    """The variance's, times 1 / 2y; 0 where the deviation is 0, as PyTorch has it."""
    x, y = saved
    flat = b.eq(y, 0.0)
    half = g * 0.5 / b.where(flat, 1.0, y)
    return _var_vjp(b, b.where(flat, 0.0, half), (x,), n)


VAR = ArrayRule("var", _var_forward, _var_vjp, (0,))
STD = ArrayRule("std", _std_forward, _std_vjp, (0, "y"))


def _spread(
    rule: ArrayRule,
    input: Tensor,
    dim: Dims | bool,
    unbiased: bool | None,
    correction: float | None,
    keepdim: bool,
) -> Tensor:
    if isinstance(dim, bool):  # PyTorch's short form var(unbiased)
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise InputError(f"{rule.name} takes correction or unbiased, not both")
    if correction is None:
        correction = 0 if unbiased is False else 1
    x = floating(input, rule.name, None)
    return apply(rule, (x,), (reduced_dims(dim, x.ndim), keepdim, correction))


def var(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    axis: Dims = None,
    keepdims: bool = False,
) -> Tensor:
    """The variance over `dim` (all by default), divided by count − `correction` (1 by default).

    `unbiased=False` is correction 0. Raises `DTypeError` for integers.
    """
    where = axis if dim is None else dim
    return _spread(VAR, input, where, unbiased, correction, keepdim or keepdims)


def std(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    axis: Dims = None,
    keepdims: bool = False,
) -> Tensor:
    """The standard deviation over `dim`: the root of `var`, with gradient 0 where it is 0."""
    where = axis if dim is None else dim
    return _spread(STD, input, where, unbiased, correction, keepdim or keepdims)


def var_mean(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The variance and the mean over `dim`."""
    spread = _spread(VAR, input, dim, unbiased, correction, keepdim)
    return spread, mean(input, None if isinstance(dim, bool) else dim, keepdim)


def std_mean(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean over `dim`."""
    spread = _spread(STD, input, dim, unbiased, correction, keepdim)
    return spread, mean(input, None if isinstance(dim, bool) else dim, keepdim)
