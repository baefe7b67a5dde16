"""Finding and counting: searchsorted, bucketize, bincount, histc, unique, isin.

Their results are places, counts and copies that carry no gradient, as in PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chainrule import dtypes
from chainrule.autograd.value import Value, backend_for, new_value, raw_of
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import views
from chainrule.ops._apply import common_backend
from chainrule.ops.gathering import gather

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where each value would go in the ascending last dimension of `sorted_sequence`, int64.

    Left of equal elements, or with `right` (`side="right"`) after them. A 1-D sequence serves
    values of any shape; else both agree in all but the last size. `sorter` is the order that
    sorts the sequence.
    """
    if side not in (None, "left", "right"):
        raise InputError(f'searchsorted: side is "left" or "right", got {side!r}')
    if side == "left" and right:
        raise InputError('searchsorted: side="left" contradicts right=True')
    ordered: Any = sorted_sequence
    values: Any = input
    kind = type(ordered)
    number = not isinstance(input, Value)
    b = backend_for(ordered._a)
    raw = b.full((), input, raw_of(ordered)) if number else raw_of(input)
    if not number:
        common_backend((ordered, input), "searchsorted")
    shape, have = tuple(raw.shape), tuple(ordered._a.shape)
    if not have:
        raise ShapeError("searchsorted: the sequence needs a dimension")
    if len(have) > 1 and (len(shape) != len(have) or shape[:-1] != have[:-1]):
        raise ShapeError(
            f"searchsorted: sequences of shape {have} and values of {shape} must agree in all but "
            "the last size"
        )
    if not number and values.dtype is not ordered.dtype:
        raise DTypeError(
            f"searchsorted: the sequence is {ordered.dtype.name}, the values {values.dtype.name}: "
            "convert one"
        )
    if sorter is not None:
        if tuple(sorter._a.shape) != have:
            raise ShapeError(f"searchsorted: sorter {tuple(sorter._a.shape)} for a sequence {have}")
        ordered = gather(views.detach(ordered), len(have) - 1, sorter)
    return _searched(kind, b, raw_of(ordered), raw, right or side == "right", out_int32)


def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Which of the intervals between ascending 1-D `boundaries` each value is in, int64."""
    if len(boundaries._a.shape) != 1:
        raise ShapeError(f"bucketize: boundaries must be 1-D, not {tuple(boundaries._a.shape)}")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def _searched(kind: Any, b: Any, ordered: Any, values: Any, right: bool, narrow: bool) -> Any:
    if b.dtype_of(ordered).is_half:
        ordered, values = b.cast(ordered, dtypes.float32), b.cast(values, dtypes.float32)
    found = b.asarray(b.searchsorted(ordered, values, right))
    return new_value(kind, b.cast(found, dtypes.int32) if narrow else found)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number 0, 1, … occurs in a 1-D integer tensor, or the sum of its weights."""
    raw = raw_of(input)
    b = backend_for(raw)
    dtype = b.dtype_of(raw)
    if dtype.category != 1:
        raise DTypeError(f"bincount counts integers, not {dtype.name}: use .long()")
    if len(raw.shape) != 1:
        raise ShapeError(f"bincount takes one dimension, not shape {tuple(raw.shape)}")
    if minlength < 0:
        raise InputError(f"bincount: minlength is {minlength}: it must not be negative")
    if raw.shape[0] and int(raw.min()) < 0:
        raise InputError(f"bincount counts from 0: there is {int(raw.min())}")
    wide = None
    if weights is not None:
        common_backend((input, weights), "bincount")
        if tuple(weights._a.shape) != tuple(raw.shape):
            raise ShapeError(
                f"bincount: weights {tuple(weights._a.shape)} for {tuple(raw.shape)} numbers"
            )
        wide = raw_of(weights)
        if b.dtype_of(wide) is not dtypes.float32:
            wide = b.cast(wide, dtypes.float64)
    found = b.bincount(b.cast(raw, dtypes.int64), wide, minlength)
    return new_value(type(input), b.asarray(found))


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements are in each of `bins` equal intervals of [min, max], in its dtype.

    `min` = `max` takes the smallest and largest element. What is outside, or NaN, is not counted.
    """
    raw = raw_of(input)
    b = backend_for(raw)
    dtype = b.dtype_of(raw)
    if dtype.category != 2:
        raise DTypeError(f"histc takes a floating-point tensor, not {dtype.name}")
    if bins < 1:
        raise InputError(f"histc: bins is {bins}: it must be at least 1")
    flat = b.reshape(b.cast(raw, dtypes.float32) if dtype.is_half else raw, (-1,))
    low, high = float(min), float(max)
    if low == high and flat.shape[0]:
        low, high = float(flat.min()), float(flat.max())
    if low == high:
        low, high = low - 1.0, high + 1.0
    if not (low < high and high - low < float("inf")):
        raise InputError(f"histc: the range from {low} to {high} is not finite and ascending")
    inside = b.index_get(flat, (b.logical_and(b.ge(flat, low), b.le(flat, high)),))
    place = b.cast((inside - low) * (bins / (high - low)), dtypes.int64)
    counts = b.bincount(b.minimum(place, bins - 1), None, bins)
    return new_value(type(input), b.cast(counts, dtype))


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements, or slices along `dim`, in ascending order (`sorted` or not).

    Also where each element went, and how often each occurs. NaN differs from NaN.
    """
    raw = raw_of(input)
    b = backend_for(raw)
    d = None if dim is None else views.checked_dim(dim, len(raw.shape))
    dtype = b.dtype_of(raw)
    found, inverse, counts = b.unique(b.cast(raw, dtypes.float32) if dtype.is_half else raw, d)
    results = [b.cast(found, dtype), *([inverse] if return_inverse else [])]
    results += [counts] if return_counts else []
    made: list[Any] = [new_value(type(input), b.asarray(r)) for r in results]
    return tuple(made) if len(made) > 1 else made[0]


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements, or slices along `dim`, without those equal to the one before."""
    raw = raw_of(input)
    b = backend_for(raw)
    shape: tuple[int, ...] = tuple(raw.shape)
    x: Any = b.reshape(raw, (-1,)) if dim is None else raw
    d = 0 if dim is None else views.checked_dim(dim, len(shape))
    size = x.shape[d]
    first = (*[slice(None)] * d, slice(1, None))
    second = (*[slice(None)] * d, slice(0, -1))
    others = tuple([i for i in range(len(x.shape)) if i != d])
    changes = b.any(b.ne(x[first], x[second]), others, False)
    begins = b.concat([b.ones_like(b.reshape(b.arange(size), (size,))[:1]) > 0, changes], 0)
    (starts,) = b.nonzero(begins)
    results: list[Any] = [b.index_get(x, (*[slice(None)] * d, starts))]
    if return_inverse:
        inverse = b.cumsum(b.cast(begins, dtypes.int64), 0) - 1
        results.append(b.reshape(inverse, shape) if dim is None else inverse)
    if return_counts:
        end = b.full((1,), size, starts)
        results.append(b.concat([starts[1:], end], 0)[: starts.shape[0]] - starts)
    made: list[Any] = [new_value(type(input), b.asarray(r)) for r in results]
    return tuple(made) if len(made) > 1 else made[0]


def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each of `elements` is among `test_elements`; NaN is in nothing. Either may be a number."""
    known = elements if isinstance(elements, Value) else test_elements
    if not isinstance(known, Value):
        raise DTypeError("isin needs at least one tensor")
    b = backend_for(known._a)
    pair = [
        raw_of(t) if isinstance(t, Value) else b.full((), t, raw_of(known))
        for t in (elements, test_elements)
    ]
    dtype = dtypes.promote(b.dtype_of(pair[0]), b.dtype_of(pair[1]))
    if dtype.is_half:
        dtype = dtypes.float32
    wanted, pool = b.cast(pair[0], dtype), b.reshape(b.cast(pair[1], dtype), (-1,))
    if not pool.shape[0]:
        found = b.ne(wanted, wanted) if dtype.category < 2 else b.cast(wanted * 0, dtypes.bool)
    else:
        order = b.argsort(pool, 0)
        pool = b.index_get(pool, (order,))
        flat = b.reshape(wanted, (-1,))
        place = b.minimum(b.searchsorted(pool, flat, False), pool.shape[0] - 1)
        found = b.reshape(b.eq(b.index_get(pool, (place,)), flat), tuple(wanted.shape))
    found = b.asarray(found)
    return new_value(type(known), b.logical_not(found) if invert else found)
