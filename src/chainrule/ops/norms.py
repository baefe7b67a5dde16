"""Vector norms of any order over any dimensions; the gradient at a zero vector is 0.

‖x‖ₚ = (Σ|x|ᵖ)^(1/p), the largest and the smallest |x| for ±∞, and the number of non-zeros for 0.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from chainrule.autograd.node import Node
from chainrule.dtypes import DType
from chainrule.errors import InputError
from chainrule.ops._apply import ArrayRule, apply
from chainrule.ops.extrema import equals_or_both_nan, not_empty, shared_by_ties
from chainrule.ops.reductions import Dims, floating, kept_shape, reduced_dims

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def _norm_forward(b: Any, x: Any, p: float, dims: tuple[int, ...], keepdim: bool) -> Any:
    with b.quiet():  # a sum that overflows is inf, as PyTorch says without a word
        if p == 2:
            return b.sqrt(b.sum(x * x, dims, keepdim))
        if p == 0:
            return b.cast(b.count_nonzero(x, dims, keepdim), b.dtype_of(x))
        size = b.abs(x)
        if p == inf:
            return b.amax(size, dims, keepdim)
        if p == -inf:
            return b.amin(size, dims, keepdim)
        if p == 1:
            return b.sum(size, dims, keepdim)
        return b.pow(b.sum(b.pow(size, p), dims, keepdim), 1.0 / p)


def _norm_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    """x |x|^(p−2) g / y^(p−1), with 0 wherever x or y is 0."""
    p, dims, _ = n.attrs
    x, y = saved
    kept = kept_shape(x.shape, dims)
    g, y = b.reshape(g, kept), b.reshape(y, kept)
    if p == 0:
        return (None,)
    if p == 1:
        return (b.sign(x) * g,)
    if p in (inf, -inf):
        tied = equals_or_both_nan(b, b.abs(x), y)
        return (b.sign(x) * shared_by_ties(b, g, tied, dims),)
    zero = b.eq(y, 0.0)
    safe = b.where(zero, 1.0, y)
    if p == 2:
        return (x * b.where(zero, 0.0, g / safe),)
    if p > 2:
        return (x * b.pow(b.abs(x), p - 2.0) * b.where(zero, 0.0, g / b.pow(safe, p - 1.0)),)
    # Below 2 the power of |x| is infinite at 0, where the gradient is 0.
    none = b.eq(x, 0.0)
    steep = b.pow(b.abs(b.where(none, 1.0, x)), p - 1.0)
    scale = b.where(zero, 0.0, g / b.pow(safe, p - 1.0))
    return (b.sign(x) * steep * scale,)


NORM = ArrayRule("norm", _norm_forward, _norm_vjp, (0, "y"))


def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    *,
    axis: Dims = None,
    keepdims: bool = False,
) -> Tensor:
    """The p-norm over `dim` (all elements by default); "fro" and None are 2, the Euclidean norm.

    Halves are computed in float32. Raises `DTypeError` for integers, `ShapeError` for the largest
    or smallest of no elements.
    """
    if p is None or p == "fro":
        p = 2.0
    if isinstance(p, str):
        raise InputError(f"norm p={p!r} is not known: pass a number, inf, -inf or 'fro'")
    x = floating(input, "norm", dtype)
    dims = reduced_dims(axis if dim is None else dim, x.ndim)
    if p == inf or p < 0:
        not_empty(x.shape, dims, f"norm with p = {p}")
    return apply(NORM, (x,), (float(p), dims, keepdim or keepdims))
