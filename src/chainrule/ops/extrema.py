"""Largest and smallest elements, where they are, and their kin among truth values: any, all.

Ties share the gradient evenly, except that `max` and `min` along one dimension give it to the
element whose index they return. NaN wins everywhere. All of this is PyTorch's.
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.autograd.value import Value
from chainrule.errors import DTypeError, ShapeError
from chainrule.ops._apply import ArrayRule, apply, to_dtype, untracked
from chainrule.ops.named import maximum, minimum
from chainrule.ops.reductions import Dims, kept_shape, one_dim, reduced_dims

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def shared_by_ties(b: Any, g: Any, tied: Any, dims: tuple[int, ...]) -> Any:
    """`g` split evenly among the `tied` elements over `dims`; NaN where there are none.

    They are counted in int64: a half type would stop counting at 2,048.
    """
    count = b.cast(b.count_nonzero(tied, dims, True), b.dtype_of(g))
    return b.cast(tied, b.dtype_of(g)) * (g / b.where(b.eq(count, 0.0), nan, count))


def equals_or_both_nan(b: Any, x: Any, y: Any) -> Any:
    """Where `x` is `y`, NaN included."""
    return b.logical_or(b.eq(x, y), b.logical_and(b.isnan(x), b.isnan(y)))


def _extreme_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    x, y = saved
    dims, _, nan_ties = n.attrs
    kept = kept_shape(x.shape, dims)
    y = b.reshape(y, kept)
    tied = equals_or_both_nan(b, x, y) if nan_ties else b.eq(x, y)
    return (shared_by_ties(b, b.reshape(g, kept), tied, dims),)


def _amax_forward(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool, nan_ties: bool) -> Any:
    return b.amax(x, dims, keepdim) if dims else b.copy(x)


def _amin_forward(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool, nan_ties: bool) -> Any:
    return b.amin(x, dims, keepdim) if dims else b.copy(x)


AMAX = ArrayRule("amax", _amax_forward, _extreme_vjp, (0, "y"))
AMIN = ArrayRule("amin", _amin_forward, _extreme_vjp, (0, "y"))


def not_empty(shape: tuple[int, ...], dims: tuple[int, ...], name: str) -> None:
    """Raise `ShapeError` where `name` would be asked of no elements."""
    for d in dims:
        if not shape[d]:
            rest = [i for i, n in enumerate(shape) if n]
            advice = f"pass a dim that is not empty ({rest[0]})" if rest else "check numel() first"
            raise ShapeError(
                f"{name} of no elements: dimension {d} of shape {shape} has size 0, and there is "
                f"no {name} to give; {advice}"
            )


def amax(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    axis: Dims = None,
    keepdims: bool = False,
) -> Tensor:
    """The largest element over `dim` (all by default); ties share the gradient evenly."""
    return _extreme(AMAX, input, axis if dim is None else dim, keepdim or keepdims)


def amin(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    axis: Dims = None,
    keepdims: bool = False,
) -> Tensor:
    """The smallest element over `dim` (all by default); ties share the gradient evenly."""
    return _extreme(AMIN, input, axis if dim is None else dim, keepdim or keepdims)


def _tensor_of(input: Any, name: str) -> Any:
    if not isinstance(input, Value):
        raise DTypeError(f"{name} takes a tensor, not {type(input).__name__}: use cr.tensor")
    return input


def _extreme(
    rule: ArrayRule, input: Tensor, dim: Dims, keepdim: bool, nan_ties: bool = False
) -> Tensor:
    shape = _tensor_of(input, rule.name).shape
    dims = reduced_dims(dim, len(shape))
    not_empty(shape, dims, rule.name)
    return apply(rule, (input,), (dims, keepdim, nan_ties))


# With the index: the value is what stands there, and so the gradient goes there.


class max_result(NamedTuple):  # noqa: N801 - PyTorch's way to name it
    """The largest elements along a dimension, and where they are."""

    values: Tensor
    indices: Tensor


class min_result(NamedTuple):  # noqa: N801
    """The smallest elements along a dimension, and where they are."""

    values: Tensor
    indices: Tensor


def _pick_forward(b: Any, x: Any, index: Any, dim: int, shape: tuple[int, ...]) -> Any:
    return b.reshape(b.gather(x, dim, index), shape)


def _pick_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    (index,), (dim, _) = saved, n.attrs
    shape = n.parents[0].shape  # pyright: ignore[reportOptionalMemberAccess]
    return b.scatter_add(shape, dim, index, b.reshape(g, tuple(index.shape))), None


PICK = ArrayRule("pick", _pick_forward, _pick_vjp, (1,))


def _with_index(name: str, input: Any, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    shape = _tensor_of(input, name).shape
    d = one_dim(dim, len(shape))
    x = input if shape else input.reshape(1)
    not_empty(x.shape, (d,), name)
    find = _argmax if name == "max" else _argmin
    index: Any = untracked(f"arg{name}", (x,), find, d, True)
    reduced = kept_shape(shape, (d,)) if keepdim else (*shape[:d], *shape[d + 1 :])
    return apply(PICK, (x, index), (d, reduced)), index.reshape(reduced)


def max(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    other: Any = None,
    axis: int | None = None,
    keepdims: bool = False,
) -> Any:
    """The largest element; with `dim` a pair (values, indices); with a second tensor `maximum`.

    Of all elements, ties share the gradient evenly; along a dimension the one at the returned
    index takes it. Raises `ShapeError` where there is no element.
    """
    if isinstance(dim, Value) or other is not None:
        return maximum(input, dim if other is None else other)
    dim = axis if dim is None else dim
    if dim is None:
        return _extreme(AMAX, input, None, keepdim or keepdims, nan_ties=True)
    return max_result(*_with_index("max", input, dim, keepdim or keepdims))


def min(
    input: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    other: Any = None,
    axis: int | None = None,
    keepdims: bool = False,
) -> Any:
    """The smallest element; with `dim` a pair (values, indices); with a second tensor `minimum`."""
    if isinstance(dim, Value) or other is not None:
        return minimum(input, dim if other is None else other)
    dim = axis if dim is None else dim
    if dim is None:
        return _extreme(AMIN, input, None, keepdim or keepdims, nan_ties=True)
    return min_result(*_with_index("min", input, dim, keepdim or keepdims))


def _argmax(b: Any, x: Any, dim: int, keepdim: bool) -> Any:
    return b.argmax(_counted(b, x), dim, keepdim)


def _argmin(b: Any, x: Any, dim: int, keepdim: bool) -> Any:
    return b.argmin(_counted(b, x), dim, keepdim)


def _counted(b: Any, x: Any) -> Any:
    """Bools as integers: PyTorch has no argmax of them."""
    return b.cast(x, dtypes.uint8) if b.dtype_of(x) is dtypes.bool else x


def argmax(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    axis: int | None = None,
    keepdims: bool = False,
) -> Tensor:
    """The index of the largest element along `dim`, or in row-major order of all; the first of
    several, int64.
    """
    return _arg("argmax", _argmax, input, axis if dim is None else dim, keepdim or keepdims)


def argmin(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    axis: int | None = None,
    keepdims: bool = False,
) -> Tensor:
    """The index of the smallest element along `dim`, or in row-major order of all; the first of
    several, int64.
    """
    return _arg("argmin", _argmin, input, axis if dim is None else dim, keepdim or keepdims)


def _arg(name: str, find: Any, input: Any, dim: int | None, keepdim: bool) -> Tensor:
    shape = input.shape
    if dim is None:
        x, d = input.reshape(-1), 0
        reduced = (1,) * len(shape) if keepdim else ()
    else:
        d = one_dim(dim, len(shape))
        x = input if shape else input.reshape(1)
        reduced = kept_shape(shape, (d,)) if keepdim else (*shape[:d], *shape[d + 1 :])
    not_empty(x.shape, (d,), name)
    return untracked(name, (x,), find, d, True).reshape(reduced)


# Truth values.


def count_nonzero(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """How many elements over `dim` (all by default) are not zero, int64."""
    dims = reduced_dims(dim, input.ndim)
    return untracked("count_nonzero", (input,), _count_forward, dims, keepdim)


def _count_forward(b: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    return b.count_nonzero(x, dims, keepdim)


def any(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    axis: Dims = None,
    keepdims: bool = False,
) -> Tensor:
    """Whether any element over `dim` is non-zero (NaN is); bool, but uint8 for uint8."""
    return _truth("any", input, axis if dim is None else dim, keepdim or keepdims)


def all(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    axis: Dims = None,
    keepdims: bool = False,
) -> Tensor:
    """Whether all elements over `dim` are non-zero (NaN is); bool, but uint8 for uint8."""
    return _truth("all", input, axis if dim is None else dim, keepdim or keepdims)


def _truth(name: str, input: Any, dim: Dims, keepdim: bool) -> Tensor:
    if input.dtype.is_complex:
        raise DTypeError(f"{name} of complex tensors: complex dtypes are storage only")
    ndim = input.ndim
    empty = dim is not None and not isinstance(dim, int) and not len(dim)
    dims = (
        () if empty else reduced_dims(dim, ndim)
    )  # as PyTorch: any and all over () reduce nothing

    def forward(b: Any, x: Any) -> Any:
        return getattr(b, name)(b.ne(x, 0), dims, keepdim)

    out = untracked(name, (input,), forward)
    return to_dtype(out, dtypes.uint8) if input.dtype is dtypes.uint8 else out
