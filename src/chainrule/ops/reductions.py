"""Sums and their relatives: each linear one is stated with its transpose.

`dim`/`keepdim` and NumPy's `axis`/`keepdims` are both taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.dtypes import DType
from chainrule.ops._apply import ArrayRule, apply, to_dtype
from chainrule.ops.views import checked_dim

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

Dims = int | Sequence[int] | None


def reduced_dims(dim: Dims, ndim: int) -> tuple[int, ...]:
    """The dimensions to reduce, counted from 0; None and () mean all."""
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, int):
        return (checked_dim(dim, ndim),) if ndim else checked_scalar(dim)
    dims = tuple(checked_dim(d, ndim) for d in dim)
    return dims or tuple(range(ndim))


def checked_scalar(dim: int) -> tuple[int, ...]:
    """A 0-d tensor takes dim 0 and −1, as in PyTorch, and reduces nothing."""
    checked_dim(dim, 1)
    return ()


def kept_shape(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """`shape` with size 1 along `dims`: what `keepdim` would have given."""
    return tuple(1 if d in dims else n for d, n in enumerate(shape))


def _sum_forward(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    return b.sum(x, dims, keepdim)


def _sum_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    dims, keepdim = n.attrs
    shape = n.parents[0].shape  # pyright: ignore[reportOptionalMemberAccess]
    if not keepdim:
        g = b.reshape(g, kept_shape(shape, dims))
    return (b.expand(g, shape),)


SUM = ArrayRule("sum", _sum_forward, _sum_vjp)


def sum(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    axis: Dims = None,
    keepdims: bool = False,
) -> Tensor:
    """The sum over `dim` (all by default); integers and bools sum as int64, halves in float32."""
    x: Any = input
    if dtype is not None:
        x = to_dtype(x, dtype)
    elif x.dtype.category < 2:
        x = to_dtype(x, dtypes.int64)
    dims = reduced_dims(axis if dim is None else dim, x.ndim)
    return apply(SUM, (x,), (dims, keepdim or keepdims))
