"""Sums and means, and how every reduction reads its dimensions; each states its transpose.

`dim`/`keepdim` and NumPy's `axis`/`keepdims` are both taken. Half types accumulate in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import TYPE_CHECKING, Any

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.dtypes import DType
from chainrule.errors import DTypeError, ShapeError
from chainrule.ops._apply import ArrayRule, apply, to_dtype
from chainrule.ops.views import checked_dim

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

Dims = int | Sequence[int] | None


def reduced_dims(dim: Dims, ndim: int) -> tuple[int, ...]:
    """The dimensions to reduce, counted from 0; None and () mean all.

    Raises `ShapeError` where one is given twice, `IndexRangeError` where there is none such.
    """
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, int):
        return (one_dim(dim, ndim),) if ndim else checked_scalar(dim)
    given: Any = dim
    if type(given) is str or not getattr(given, "ndim", hasattr(given, "__iter__")):
        return reduced_dims(one_dim(given, ndim), ndim)  # pyright: ignore[reportArgumentType]
    dims = tuple([one_dim(d, ndim) for d in dim])
    if len(set(dims)) != len(dims):
        raise ShapeError(f"dim {tuple(dim)} names a dimension twice: give each once")
    return dims if ndim and dims else tuple(range(ndim))


def one_dim(dim: int, ndim: int) -> int:
    """`dim` counted from 0; a 0-d tensor takes 0 and −1, as in PyTorch."""
    return checked_dim(dim, ndim or 1)


def checked_scalar(dim: int) -> tuple[int, ...]:
    """A 0-d tensor takes dim 0 and −1, as in PyTorch, and reduces nothing."""
    checked_dim(dim, 1)
    return ()


def kept_shape(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """`shape` with size 1 along `dims`: what `keepdim` would have given."""
    return tuple([1 if d in dims else n for d, n in enumerate(shape)])


def count_along(shape: Sequence[int], dims: Sequence[int]) -> int:
    """How many elements each reduction over `dims` takes in."""
    count = 1
    for d in dims:
        count *= shape[d]
    return count


def floating(x: Any, name: str, dtype: DType | None) -> Any:
    """`x` in `dtype`, or as it is if it is floating-point; raises `DTypeError` otherwise."""
    if dtype is not None:
        x = to_dtype(x, dtype)
    have = x.dtype
    if have.category != 2:
        raise DTypeError(
            f"{name} needs a floating-point tensor, this is {have.name}: convert with .to(cr.float32)"
        )
    return x


# Sum: its transpose is expand.


def _sum_forward(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    return b.sum(x, dims, keepdim) if dims else b.copy(x)


def _sum_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    dims, keepdim = n.attrs
    shape = n.parents[0].shape  # pyright: ignore[reportOptionalMemberAccess]
    if not keepdim and len(dims) < len(shape):
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


def _mean_forward(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    count = count_along(x.shape, dims)
    total = b.sum(x, dims, keepdim)
    return total / count if count else total * nan


def _mean_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    dims, _ = n.attrs
    shape = n.parents[0].shape  # pyright: ignore[reportOptionalMemberAccess]
    return _sum_vjp(b, g / (count_along(shape, dims) or 1), saved, n)


MEAN = ArrayRule("mean", _mean_forward, _mean_vjp)


def mean(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    axis: Dims = None,
    keepdims: bool = False,
) -> Tensor:
    """The mean over `dim` (all by default); NaN of no elements. Halves accumulate in float32.

    Raises `DTypeError` for integers and bools: pass a floating `dtype`.
    """
    x = floating(input, "mean", dtype)
    dims = reduced_dims(axis if dim is None else dim, x.ndim)
    return apply(MEAN, (x,), (dims, keepdim or keepdims))
