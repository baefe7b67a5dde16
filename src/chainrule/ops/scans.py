"""Running sums, and products: each partial result depends on the elements before it.

A running sum is linear, and its transpose runs the other way. A product's gradient is made of
products of the others, never of y / x, so that zeros are no special case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.dtypes import DType
from chainrule.ops._apply import ArrayRule, apply, to_dtype
from chainrule.ops.reductions import Dims, count_along, one_dim, reduced_dims

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def _summable(x: Any, dtype: DType | None) -> Any:
    if dtype is not None:
        return to_dtype(x, dtype)
    return to_dtype(x, dtypes.int64) if x.dtype.category < 2 else x


def _cumsum_forward(b: Any, x: Any, dim: int) -> Any:
    return b.cumsum(x, dim) if x.shape else b.copy(x)


def _cumsum_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    (dim,) = n.attrs
    if not g.shape:
        return (g,)
    return (b.flip(b.cumsum(b.flip(g, (dim,)), dim), (dim,)),)


CUMSUM = ArrayRule("cumsum", _cumsum_forward, _cumsum_vjp)


def cumsum(
    input: Tensor, dim: int | None = None, *, dtype: DType | None = None, axis: int | None = None
) -> Tensor:
    """The running sum along `dim`; integers and bools as int64, halves in float32."""
    dim = axis if dim is None else dim
    if dim is None:
        raise TypeError("cumsum needs the dimension to run along: cumsum(x, 0)")
    x = _summable(input, dtype)
    return apply(CUMSUM, (x,), (one_dim(dim, x.ndim),))


def _prod_forward(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    return b.prod(x, dims, keepdim) if dims else b.copy(x)


def _prod_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    """Multiply halves together until one is left, then walk back: each half gets g times the other."""
    (x,), (dims, _) = saved, n.attrs
    shape = tuple(x.shape)
    rest = tuple([d for d in range(len(shape)) if d not in dims])
    order = (*rest, *dims)
    count = count_along(shape, dims)
    outer = tuple([shape[d] for d in rest])
    if not count or 0 in outer:
        return (x * 0.0,)
    row = b.reshape(b.permute(x, order), (*outer, count))
    last = len(outer)
    halves: list[tuple[Any, Any, bool]] = []
    while row.shape[-1] > 1:
        half = row.shape[-1] // 2
        odd = row.shape[-1] % 2 == 1
        left, right = row[..., :half], row[..., half : 2 * half]
        halves.append((left, right, odd))
        joined = left * right
        row = b.concat([joined, row[..., 2 * half :]], last) if odd else joined
    down = b.reshape(g, (*outer, 1))
    for left, right, odd in reversed(halves):
        half = left.shape[-1]
        inner = down[..., :half]
        parts = [inner * right, inner * left]
        if odd:
            parts.append(down[..., half:])
        down = b.concat(parts, last)
    back = b.reshape(down, tuple([shape[d] for d in order]))
    inverse = [0] * len(order)
    for i, d in enumerate(order):
        inverse[d] = i
    return (b.permute(back, tuple(inverse)),)


PROD = ArrayRule("prod", _prod_forward, _prod_vjp, (0,))


def prod(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    axis: Dims = None,
    keepdims: bool = False,
) -> Tensor:
    """The product over `dim` (all by default); integers and bools as int64, halves in float32."""
    x = _summable(input, dtype)
    dims = reduced_dims(axis if dim is None else dim, x.ndim)
    return apply(PROD, (x,), (dims, keepdim or keepdims))
