"""`scatter_reduce` and `index_reduce`: what meets at one place becomes its sum, mean, product or extreme.

Sum and mean are `scatter_add`. An extreme shares its gradient among the elements that are it. A
product's gradient is made of products of the others, never of y / x: the elements are put in order
of their places, and two linear recurrences give the products before and after each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.autograd.value import backend_for, new_value, raw_of
from chainrule.errors import InputError, ShapeError
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, apply
from chainrule.ops.extrema import equals_or_both_nan
from chainrule.ops.gathering import scatter_add
from chainrule.ops.indexing import index_get
from chainrule.ops.inplace import in_place
from chainrule.ops.named import add, div
from chainrule.ops.placing import along, flat_places, same_dtype, scatter
from chainrule.ops.running import recurrence

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """`input` with `src[i, j]` reduced into `[index[i, j], j]` for dim = 0.

    `reduce` is "sum", "prod", "mean", "amax" or "amin"; without `include_self` the places that
    are written start from nothing. Means of integers are rounded down.
    """
    if reduce not in REDUCTIONS:
        raise InputError(
            f"scatter_reduce: reduce is one of {', '.join(REDUCTIONS)}: got {reduce!r}"
        )
    same_dtype("scatter_reduce", input, src)
    x, d, index, part = along("scatter_reduce", input, dim, index, src)
    if reduce in ("sum", "mean"):
        out = _summed(x, d, index, part, reduce == "mean", include_self)
    else:
        out = _reduced(x, d, index, part, reduce, include_self)
    return out if input._a.shape else views.reshape(out, ())


def _summed(x: Any, d: int, index: Any, part: Any, mean: bool, include_self: bool) -> Any:
    shape = tuple(x._a.shape)
    base = x if include_self else scatter(x, d, index, 0)
    total = add(base, scatter_add(shape, d, index, part))
    if not mean:
        return total
    b = backend_for(x._a)
    raw = raw_of(index)
    count = b.scatter_add(shape, d, raw, b.ones_like(raw))
    count = count + 1 if include_self else b.maximum(count, 1)
    if x.dtype.category == 2:
        return div(total, new_value(type(x), b.cast(count, x.dtype)))
    return new_value(type(x), b.cast(b.asarray(raw_of(total) // count), x.dtype))


def _reduced(x: Any, d: int, index: Any, part: Any, reduce: str, include_self: bool) -> Any:
    """An extreme or a product, of flattened places; those of a product are put in order."""
    shape = tuple(x._a.shape)
    places = flat_places(index, shape, d)
    b = backend_for(x._a)
    if not include_self:
        x = scatter(x, d, index, _neutral(x.dtype, reduce))
    drawn = views.reshape(part, (-1,))
    kind = type(x)
    if reduce == "prod":
        order = new_value(kind, b.argsort(raw_of(places), 0))
        drawn, places = index_get(drawn, (order,)), index_get(places, (order,))
    rule = SEGMENT_PROD if reduce == "prod" else SEGMENT_AMAX if reduce == "amax" else SEGMENT_AMIN
    counts = new_value(kind, b.asarray(_counts_itself(b, raw_of(places), shape, include_self)))
    return views.reshape(apply(rule, (views.reshape(x, (-1,)), drawn, places, counts)), shape)


def _counts_itself(b: Any, places: Any, shape: tuple[int, ...], include_self: bool) -> Any:
    """Where the element that was there before is one of those that are reduced, flat."""
    size = 1
    for n in shape:
        size *= n
    if include_self:
        return b.arange(size) >= 0
    return b.eq(b.scatter_add((size,), 0, places, b.ones_like(places)), 0)


def _neutral(dtype: Any, reduce: str) -> Any:
    """What changes nothing when it is reduced with anything."""
    if reduce == "prod":
        return 1
    low = reduce == "amax"
    if dtype.category == 2:
        return float("-inf") if low else float("inf")
    if dtype is dtypes.bool:
        return not low
    bits = 8 * dtype.itemsize
    if dtype is dtypes.uint8:
        return 0 if low else 255
    return -(2 ** (bits - 1)) if low else 2 ** (bits - 1) - 1


# The inputs of the rules: the flat tensor, the elements, their places, and where the tensor's own
# elements count.


def _extreme_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    x, s, places, counts, y = saved
    there = b.gather(y, 0, places)
    own = b.cast(b.logical_and(equals_or_both_nan(b, x, y), counts), b.dtype_of(g))
    drawn = b.cast(equals_or_both_nan(b, s, there), b.dtype_of(g))
    number = own + b.scatter_add(tuple(x.shape), 0, places, drawn)
    share = g / b.where(b.eq(number, 0.0), b.full((), 1.0, g), number)
    gx = own * share if n.parents[0] is not None else None
    gs = drawn * b.gather(share, 0, places) if n.parents[1] is not None else None
    return gx, gs, None, None


SEGMENT_AMAX = ArrayRule(
    "scatter amax",
    lambda b, x, s, places, counts: b.scatter_extreme(x, places, s, "amax"),
    _extreme_vjp,
    (0, 1, 2, 3, "y"),
)
SEGMENT_AMIN = ArrayRule(
    "scatter amin",
    lambda b, x, s, places, counts: b.scatter_extreme(x, places, s, "amin"),
    _extreme_vjp,
    (0, 1, 2, 3, "y"),
)


def _prod_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    x, s, places, counts = saved
    size = s.shape[0]
    if not size:
        return b.where(counts, g, b.zeros((), g)), g[:0], None, None
    dtype = b.dtype_of(g)
    one, zero = b.full((1,), 1.0, g), b.zeros((1,), g)
    same = b.cast(b.eq(places[1:], places[:-1]), dtype)  # as the one before
    follows = b.concat([zero, same], 0)
    drawn = b.gather(x, 0, places)
    # Before: xₚ where a place begins, else (the product before the neighbour) times the neighbour.
    start = (1.0 - follows) * drawn
    factor = same * s[:-1]
    before = b.flip(recurrence(b, b.flip(start, (0,)), b.flip(factor, (0,)), 0), (0,))
    # After: 1 where a place ends, else (the product after the neighbour) times the neighbour.
    after = recurrence(b, b.concat([1.0 - same, one], 0), same * s[1:], 0)
    gs = b.gather(g, 0, places) * before * after
    first = (1.0 - follows) * (s * after)  # all of a place's, at its first
    written = b.scatter_add(tuple(x.shape), 0, places, 1.0 - follows)
    product = b.scatter_add(tuple(x.shape), 0, places, first) + (1.0 - written)
    return b.where(counts, g * product, b.zeros((), g)), gs, None, None


SEGMENT_PROD = ArrayRule(
    "scatter prod",
    lambda b, x, s, places, counts: b.scatter_extreme(x, places, s, "prod"),
    _prod_vjp,
    (0, 1, 2, 3),
)


# By slices.


def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """`scatter_reduce` of whole slices at the places of a 1-D `index`: mean, prod, amax or amin."""
    if reduce not in REDUCTIONS[1:]:
        raise InputError(
            f"index_reduce: reduce is one of {', '.join(REDUCTIONS[1:])}: got {reduce!r}"
        )
    rank = len(source._a.shape)
    if len(index._a.shape) > 1 or rank != len(input._a.shape):
        raise ShapeError(
            f"index_reduce: an index of shape {tuple(index._a.shape)} and a source of "
            f"{tuple(source._a.shape)} for an input of {tuple(input._a.shape)}"
        )
    if rank:
        d = views.checked_dim(dim, rank)
        if source._a.shape[d] != (index._a.shape[0] if index._a.shape else 1):
            raise ShapeError(
                f"index_reduce: {tuple(index._a.shape)} places for {source._a.shape[d]} slices"
            )
        index = views.reshape(index, [-1 if e == d else 1 for e in range(rank)])
        index = views.expand(index, tuple(source._a.shape))
    return scatter_reduce(input, dim, index, source, reduce, include_self=include_self)


def _of_a_copy(operation: Callable[..., Any]) -> Callable[..., Any]:
    """The operation in place: its rules read views of the input as it was."""

    def on_a_copy(input: Any, *args: Any, **kwargs: Any) -> Any:
        return operation(views.clone(input), *args, **kwargs)

    on_a_copy.__name__ = operation.__name__
    return in_place(on_a_copy)


scatter_reduce_ = _of_a_copy(scatter_reduce)
index_reduce_ = _of_a_copy(index_reduce)
