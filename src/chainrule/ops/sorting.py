"""Order along a dimension: sort, argsort, topk, kthvalue, median, mode.

All are a stable order (`backends`' `sort`) and a gather along it, so that the gradient goes to the
element whose index is returned. NaN counts as the largest. All of this is PyTorch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, apply, untracked
from chainrule.ops.extrema import PICK, equals_or_both_nan, not_empty, shared_by_ties
from chainrule.ops.reductions import kept_shape, one_dim

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


class sort_result(NamedTuple):  # noqa: N801 - PyTorch's way to name a result
    """Values in order along a dimension, and where they were."""

    values: Tensor
    indices: Tensor


class topk_result(NamedTuple):  # noqa: N801
    """The largest (or smallest) elements along a dimension, and where they are."""

    values: Tensor
    indices: Tensor


class kthvalue_result(NamedTuple):  # noqa: N801
    """The k-th smallest elements along a dimension, and where they are."""

    values: Tensor
    indices: Tensor


class median_result(NamedTuple):  # noqa: N801
    """The lower medians along a dimension, and where they are."""

    values: Tensor
    indices: Tensor


class mode_result(NamedTuple):  # noqa: N801
    """The most frequent elements along a dimension, and where they are."""

    values: Tensor
    indices: Tensor


# The order.


def _order(b: Any, x: Any, dim: int, descending: bool) -> Any:
    """The stable order of `x` along `dim`, int64."""
    if b.dtype_of(x).is_half:
        x = b.cast(x, dtypes.float32)
    if not descending:
        return b.argsort(x, dim)
    # Backwards, so that equal elements keep their order when the result is read backwards.
    return (x.shape[dim] - 1) - b.flip(b.argsort(b.flip(x, (dim,)), dim), (dim,))


def _ready(input: Any, dim: int, name: str) -> tuple[Any, int]:
    """`input` with at least one dimension, and `dim` counted from 0."""
    if input.dtype.is_complex:
        raise DTypeError(f"{name} of complex tensors: complex numbers have no order")
    d = one_dim(dim, len(input._a.shape))
    return (input if input._a.shape else views.reshape(input, (1,))), d


def _picked(input: Any, x: Any, index: Any, d: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The elements of `x` at `index` along `d`, and the index, both under `shape`."""
    if not input._a.shape:
        shape = ()
    return apply(PICK, (x, index), (d, shape)), views.reshape(index, shape)


def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> sort_result:
    """The elements in order along `dim`, and their indices; always stable, NaN last.

    `descending` puts the largest, and NaN, first.
    """
    x, d = _ready(input, dim, "sort")
    index = untracked("sort", (x,), _order, d, bool(descending))
    return sort_result(*_picked(input, x, index, d, tuple(x._a.shape)))


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that put the elements in order along `dim`, int64; always stable."""
    x, d = _ready(input, dim, "argsort")
    index: Any = untracked("argsort", (x,), _order, d, bool(descending))
    return views.reshape(index, tuple(input._a.shape))


def msort(input: Tensor) -> Tensor:
    """The elements in order along the first dimension."""
    return sort(input, 0).values


def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> topk_result:
    """The `k` largest (or smallest) elements along `dim` in order, and their indices.

    Of equal elements the first come first; `sorted=False` sorts as well.
    """
    x, d = _ready(input, dim, "topk")
    shape = tuple(x._a.shape)
    if not 0 <= k <= shape[d]:
        raise InputError(f"topk: k is {k}, dimension {d} has {shape[d]} elements: use 0 to that")
    order: Any = untracked("topk", (x,), _order, d, bool(largest))
    index = views.contiguous(views.narrow(order, d, 0, k))
    if not input._a.shape and k == 0:
        return topk_result(views.narrow(x, 0, 0, 0), index)
    return topk_result(*_picked(input, x, index, d, (*shape[:d], k, *shape[d + 1 :])))


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> kthvalue_result:
    """The `k`-th smallest element (from 1) along `dim`, and its index."""
    x, d = _ready(input, dim, "kthvalue")
    size = x._a.shape[d]
    if not 1 <= k <= size:
        raise InputError(f"kthvalue: k is {k}, dimension {d} has {size} elements: use 1 to that")
    order: Any = untracked("kthvalue", (x,), _order, d, False)
    index = views.contiguous(views.narrow(order, d, k - 1, 1))
    return kthvalue_result(*_picked(input, x, index, d, _reduced(x, d, keepdim)))


def _reduced(x: Any, d: int, keepdim: bool) -> tuple[int, ...]:
    shape = tuple(x._a.shape)
    return kept_shape(shape, (d,)) if keepdim else (*shape[:d], *shape[d + 1 :])


# The median: the lower of two, and NaN if there is one, at the first place where one is.


def _median_place(b: Any, x: Any, dim: int, ignore_nan: bool) -> Any:
    order = _order(b, x, dim, False)
    size = x.shape[dim]
    numbers = b.count_nonzero(b.logical_not(b.isnan(x)), (dim,), True)
    if ignore_nan:
        middle = b.maximum(numbers - 1, 0) // 2
    else:
        middle = b.where(numbers < size, numbers, (size - 1) // 2)
    return b.gather(order, dim, middle)


MEDIAN = ArrayRule(
    "median",
    lambda b, x, ignore_nan: b.reshape(b.gather(x, 0, _median_place(b, x, 0, ignore_nan)), ()),
    lambda b, g, saved, n: _median_vjp(b, g, saved, n),
    (0, "y"),
)


def _median_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    x, y = saved
    return (shared_by_ties(b, g, equals_or_both_nan(b, x, y), (0,)),)


def _median(name: str, input: Any, dim: int | None, keepdim: bool) -> Any:
    ignore_nan = name == "nanmedian"
    if dim is None:
        x, _ = _ready(views.reshape(input, (-1,)), 0, name)
        if not x._a.shape[0]:
            return _of_nothing(x, name)
        return apply(MEDIAN, (x,), (ignore_nan,))
    x, d = _ready(input, dim, name)
    not_empty(tuple(x._a.shape), (d,), name)
    index = untracked(name, (x,), _median_place, d, ignore_nan)
    return median_result(*_picked(input, x, index, d, _reduced(x, d, keepdim)))


def _of_nothing(x: Any, name: str) -> Any:
    if x.dtype.category < 2:
        raise ShapeError(f"{name} of no elements: integers have no NaN to answer with")
    return x.sum() * float("nan")


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements, or with `dim` a pair (values, indices); NaN wins.

    Of all elements, ties share the gradient; along a dimension the one at the index takes it.
    """
    return _median("median", input, dim, keepdim)


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """`median` of what is not NaN; NaN where nothing else is."""
    return _median("nanmedian", input, dim, keepdim)


# The mode: the longest run of equals in sorted order.


def _mode_place(b: Any, x: Any, dim: int) -> Any:
    order = _order(b, x, dim, False)
    s = b.gather(x, dim, order)
    size = s.shape[dim]
    shape = [1] * len(s.shape)
    shape[dim] = size
    place = b.reshape(b.arange(size), tuple(shape))
    before = (*[slice(None)] * dim, slice(0, -1))
    after = (*[slice(None)] * dim, slice(1, None))
    begins = b.concat(
        [b.full(kept_shape(s.shape, (dim,)), True, s == s), s[after] != s[before]], dim
    )
    start = b.cummax(b.where(begins, place, 0), dim)
    longest = b.argmax(place - start, dim, True)  # the first of the longest: the smallest value
    return b.gather(order, dim, longest)


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> mode_result:
    """The most frequent element along `dim`, the smallest of several, and the last place it has."""
    x, d = _ready(input, dim, "mode")
    not_empty(tuple(x._a.shape), (d,), "mode")
    index = untracked("mode", (x,), _mode_place, d)
    return mode_result(*_picked(input, x, index, d, _reduced(x, d, keepdim)))
