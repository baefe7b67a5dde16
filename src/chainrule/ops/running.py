"""Running results along a dimension: cumprod, cummax, cummin, logcumsumexp, diff.

The gradients of a running product and of a running log-sum-exp are one linear recurrence each,
rᵢ = gᵢ + aᵢ rᵢ₊₁, solved by doubling: no division, so that zeros are no special case, and
differentiable once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.dtypes import DType
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import named, views
from chainrule.ops._apply import ArrayRule, apply, to_dtype, untracked
from chainrule.ops.extrema import PICK
from chainrule.ops.joining import cat
from chainrule.ops.reductions import floating, one_dim

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


class cummax_result(NamedTuple):  # noqa: N801 - PyTorch's way to name it
    """The largest elements so far, and where they are."""

    values: Tensor
    indices: Tensor


class cummin_result(NamedTuple):  # noqa: N801
    """The smallest elements so far, and where they are."""

    values: Tensor
    indices: Tensor


def _along(dim: int, start: int | None, stop: int | None) -> tuple[slice, ...]:
    return (*[slice(None)] * dim, slice(start, stop))


def recurrence(b: Any, g: Any, a: Any, dim: int) -> Any:
    """r with rᵢ = gᵢ + aᵢ rᵢ₊₁ along `dim`, where `a` is shorter by one; in log₂ n rounds.

    After a round of step s, rᵢ holds the terms gᵢ … gᵢ₊₂ₛ₋₁ and aᵢ the product of as many factors.
    """
    size = g.shape[dim]
    step = 1
    while step < size:
        reach = size - step
        r = g[_along(dim, 0, reach)] + a * g[_along(dim, step, None)]
        g = b.concat([r, g[_along(dim, reach, None)]], dim)
        if 2 * step < size:
            a = a[_along(dim, 0, reach - step)] * a[_along(dim, step, None)]
        step *= 2
    return g


# Product.


def _cumprod_forward(b: Any, x: Any, dim: int) -> Any:
    return b.cumprod(x, dim) if x.shape else b.copy(x)


def _cumprod_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    """∂/∂xᵢ is (the product before i) Σⱼ gⱼ (the product of i+1 … j)."""
    (x, y), (dim,) = saved, n.attrs
    if not g.shape or not g.shape[dim]:
        return (g,)
    one = b.full((*g.shape[:dim], 1, *g.shape[dim + 1 :]), 1.0, g)
    before = b.concat([one, y[_along(dim, 0, -1)]], dim)
    return (before * recurrence(b, g, x[_along(dim, 1, None)], dim),)


CUMPROD = ArrayRule("cumprod", _cumprod_forward, _cumprod_vjp, (0, "y"))


def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The running product along `dim`; integers and bools as int64, halves in float32."""
    x: Any = input
    if dtype is not None:
        x = to_dtype(x, dtype)
    elif x.dtype.category < 2:
        x = to_dtype(x, dtypes.int64)
    return apply(CUMPROD, (x,), (one_dim(dim, len(x._a.shape)),))


# Log-sum-exp.


def _logcumsumexp_forward(b: Any, x: Any, dim: int) -> Any:
    return b.logcumsumexp(x, dim) if x.shape and x.shape[dim] else b.copy(x)


def _exp_of_difference(b: Any, x: Any, y: Any) -> Any:
    """exp(x − y) for x ≤ y; 0 where x is −∞, 1 where both are +∞, also in the derivative."""
    none = b.eq(x, float("-inf"))
    full = b.eq(x, float("inf"))
    either = b.logical_or(none, full)
    zero = b.zeros((), x)
    e = b.exp(b.where(either, zero, x) - b.where(either, zero, y))
    return b.where(none, zero, b.where(full, zero + 1.0, e))


def _logcumsumexp_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    """∂/∂xᵢ is Σⱼ gⱼ exp(xᵢ − yⱼ); with yᵢ ≤ yⱼ every factor is at most 1."""
    (x, y), (dim,) = saved, n.attrs
    if not g.shape or not g.shape[dim]:
        return (g,)
    decay = _exp_of_difference(b, y[_along(dim, 0, -1)], y[_along(dim, 1, None)])
    return (_exp_of_difference(b, x, y) * recurrence(b, g, decay, dim),)


LOGCUMSUMEXP = ArrayRule("logcumsumexp", _logcumsumexp_forward, _logcumsumexp_vjp, (0, "y"))


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log Σ exp of the elements so far along `dim`, without overflow."""
    x = floating(input, "logcumsumexp", None)
    return apply(LOGCUMSUMEXP, (x,), (one_dim(dim, len(x._a.shape)),))


# Extremes.


def _running_place(b: Any, x: Any, dim: int, name: str) -> Any:
    """Where the extreme so far is: of equals the last, and the last NaN once there is one."""
    if b.dtype_of(x).is_half:
        x = b.cast(x, dtypes.float32)
    size = x.shape[dim]
    if not size:
        return b.cast(x, dtypes.int64)
    shape = [1] * len(x.shape)
    shape[dim] = size
    place = b.reshape(b.arange(size), tuple(shape))
    best = getattr(b, name)(x, dim)
    here = b.logical_or(b.eq(x, best), b.isnan(x))
    return b.cummax(b.where(here, place, 0), dim)


def _running_extreme(name: str, input: Any, dim: int) -> tuple[Any, Any]:
    shape = tuple(input._a.shape)
    if input.dtype.is_complex:
        raise DTypeError(f"{name} of complex tensors: complex numbers have no order")
    d = one_dim(dim, len(shape))
    x = input if shape else views.reshape(input, (1,))
    index: Any = untracked(name, (x,), _running_place, d, name)
    return apply(PICK, (x, index), (d, shape)), views.reshape(index, shape)


def cummax(input: Tensor, dim: int) -> cummax_result:
    """The largest element so far along `dim`, and its index: the last of equals; NaN wins."""
    return cummax_result(*_running_extreme("cummax", input, dim))


def cummin(input: Tensor, dim: int) -> cummin_result:
    """The smallest element so far along `dim`, and its index: the last of equals; NaN wins."""
    return cummin_result(*_running_extreme("cummin", input, dim))


# Differences.


def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Differences of neighbours along `dim`, `n` times over; of bools whether they differ."""
    shape = tuple(input._a.shape)
    if not shape:
        raise ShapeError("diff takes at least one dimension: a single number has no neighbour")
    if n < 0:
        raise InputError(f"diff: n is {n}: it must not be negative")
    d = views.checked_dim(dim, len(shape))
    if not n:
        return views.clone(input)
    parts = [t for t in (prepend, input, append) if t is not None]
    x: Any = cat(parts, d) if len(parts) > 1 else input
    for _ in range(min(n, x._a.shape[d])):
        size = x._a.shape[d]
        if not size:
            break
        later, sooner = views.narrow(x, d, 1, size - 1), views.narrow(x, d, 0, size - 1)
        x = named.ne(later, sooner) if x.dtype is dtypes.bool else named.sub(later, sooner)
    return views.clone(x) if x is input else x
