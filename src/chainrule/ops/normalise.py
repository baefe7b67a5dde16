"""Softmax and its relatives: exponentials over a dimension, shifted by the largest element.

A row that is −∞ throughout has log-sum-exp −∞ and softmax NaN, and a −∞ beside finite numbers
has weight 0, as in PyTorch. Backends may offer faster forms of the same formulas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.dtypes import DType
from chainrule.ops._apply import ArrayRule, apply, to_dtype
from chainrule.ops.reductions import Dims, floating, kept_shape, one_dim, reduced_dims

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def _logsumexp_forward(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    if 0 in tuple(x.shape):
        top: Any = 0.0
    else:
        top = b.amax(x, dims, True)
        top = b.where(b.isfinite(top), top, 0.0)
    with b.quiet():
        total = b.log(b.sum(b.exp(x - top), dims, True)) + top
    if keepdim:
        return total
    return b.reshape(total, tuple([n for d, n in enumerate(x.shape) if d not in dims]))


def _logsumexp_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    x, y = saved
    kept = kept_shape(x.shape, n.attrs[0])
    return (b.reshape(g, kept) * b.exp(x - b.reshape(y, kept)),)


LOGSUMEXP = ArrayRule("logsumexp", _logsumexp_forward, _logsumexp_vjp, (0, "y"))


def logsumexp(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    axis: Dims = None,
    keepdims: bool = False,
) -> Tensor:
    """log Σ exp(x) over `dim`, without overflow; −∞ of no elements. Integers become float32."""
    x: Any = input
    if x.dtype.category < 2:
        x = to_dtype(x, dtypes.float32)
    x = floating(x, "logsumexp", None)
    dims = reduced_dims(axis if dim is None else dim, x.ndim)
    return apply(LOGSUMEXP, (x,), (dims, keepdim or keepdims))


def _softmax_forward(b: Any, x: Any, dim: int) -> Any:
    return b.softmax(x, dim)


def _softmax_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    (y,), (dim,) = saved, n.attrs
    fused = getattr(b, "softmax_vjp", None)
    if fused is not None:
        return (fused(g, y, dim),)
    dims = (dim,) if y.shape else ()
    return (y * (g - b.sum(g * y, dims, True)),)


SOFTMAX = ArrayRule("softmax", _softmax_forward, _softmax_vjp, ("y",))


def softmax(
    input: Tensor,
    dim: int | None = None,
    dtype: DType | None = None,
    *,
    axis: int | None = None,
) -> Tensor:
    """exp(x) / Σ exp(x) along `dim`, which must be given; computed in `dtype` if it is."""
    return _along(SOFTMAX, input, axis if dim is None else dim, dtype)


def _log_softmax_forward(b: Any, x: Any, dim: int) -> Any:
    return b.log_softmax(x, dim)


def _log_softmax_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    (y,), (dim,) = saved, n.attrs
    fused = getattr(b, "log_softmax_vjp", None)
    if fused is not None:
        return (fused(g, y, dim),)
    dims = (dim,) if y.shape else ()
    return (g - b.exp(y) * b.sum(g, dims, True),)


LOG_SOFTMAX = ArrayRule("log_softmax", _log_softmax_forward, _log_softmax_vjp, ("y",))


def log_softmax(
    input: Tensor,
    dim: int | None = None,
    dtype: DType | None = None,
    *,
    axis: int | None = None,
) -> Tensor:
    """x − log Σ exp(x) along `dim`, which must be given; computed in `dtype` if it is."""
    return _along(LOG_SOFTMAX, input, axis if dim is None else dim, dtype)


def _along(rule: ArrayRule, input: Tensor, dim: int | None, dtype: DType | None) -> Tensor:
    if dim is None:
        raise TypeError(f"{rule.name} needs the dimension to normalise over: dim=-1 is the last")
    x = floating(input, rule.name, dtype)
    return apply(rule, (x,), (one_dim(dim, x.ndim),))
