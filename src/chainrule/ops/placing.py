"""Writing copies at places: scatter, index_add, index_copy, index_fill, masked_scatter, take, put.

Each is a copy with `indexing`'s put (of repeated places the last stays, and only it has a
gradient) or its accumulating add. Relies on `gathering` for the checks of an index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule import dtypes
from chainrule.autograd.state import is_grad_enabled
from chainrule.autograd.value import Value, backend_for, new_value, raw_of
from chainrule.dtypes import check_fits
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import inplace, views
from chainrule.ops._apply import common_backend, to_dtype
from chainrule.ops._keys import Key, check_range
from chainrule.ops.gathering import check_cover, checked_index, scatter_add_to
from chainrule.ops.indexing import index_add, index_get, index_put
from chainrule.ops.inplace import in_place
from chainrule.ops.named import add, mul, where

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def same_dtype(name: str, input: Any, other: Any) -> None:
    """Raise `DTypeError` unless both tensors have one dtype."""
    if input.dtype is not other.dtype:
        raise DTypeError(
            f"{name} of {other.dtype.name} into {input.dtype.name}: convert one with .to(dtype)"
        )


def a_number(input: Any, value: Any, name: str) -> Any:
    """`value` as a 0-d tensor of the dtype of `input`."""
    if isinstance(value, Value):
        if value._a.shape:
            raise ShapeError(f"{name} takes a number or a 0-d tensor, not {tuple(value._a.shape)}")
        return to_dtype(value, input.dtype)
    if not isinstance(value, (bool, int, float)):
        raise DTypeError(f"{name} takes a number or a tensor, not {type(value).__name__}")
    if input.dtype.category < 2 and isinstance(value, float) and not value.is_integer():
        raise DTypeError(f"{name}: {value} has no place in a {input.dtype.name} tensor")
    check_fits(value, input.dtype, name)
    raw = raw_of(input)
    return new_value(type(input), backend_for(raw).full((), value, raw))


# Along one dimension, element by element.


def along(name: str, input: Any, dim: int, index: Any, src: Any) -> tuple[Any, int, Any, Any]:
    """The input with a dimension, `dim` from 0, the checked index, and the part of `src` it uses."""
    index = checked_index(index, name)
    common_backend((input, index) if src is None else (input, index, src), name)
    x: Any = input if input._a.shape else views.reshape(input, (1,))
    shape = tuple(x._a.shape)
    d = views.checked_dim(dim, len(shape))
    if not index._a.shape:
        index = views.reshape(index, (1,))
    check_cover(name, index, shape, d, "input")
    check_range(raw_of(index), d, shape[d], 0)
    if src is not None:
        if not src._a.shape:
            src = views.reshape(src, (1,))
        check_cover(name, index, tuple(src._a.shape), None, "source")
        for e, n in enumerate(tuple(index._a.shape)):
            if src._a.shape[e] != n:
                src = views.narrow(src, e, 0, n)
    return x, d, index, src


def flat_places(index: Any, shape: tuple[int, ...], dim: int) -> Any:
    """Where in a flattened tensor of `shape` each element of `index` along `dim` points, 1-D."""
    raw = raw_of(index)
    b = backend_for(raw)
    place: Any = None
    step = 1
    for d in range(len(shape) - 1, -1, -1):
        size = raw.shape[d]
        grid = raw if d == dim else b.reshape(b.arange(size), (-1, *[1] * (len(shape) - 1 - d)))
        place = grid * step if place is None else place + grid * step
        step *= shape[d]
    whole = b.expand(b.asarray(place), tuple(raw.shape))
    return new_value(type(index), b.reshape(whole, (-1,)))


def _put_flat(x: Any, places: Any, value: Any) -> Any:
    """A copy of `x` with `value` at flat `places`."""
    if not is_grad_enabled() or (x.node is None and value.node is None):
        raw = raw_of(x)
        b = backend_for(raw)
        out = b.reshape(b.copy(raw), (-1,))
        b.index_put(out, (raw_of(places),), raw_of(value))
        return new_value(type(x), b.reshape(out, tuple(raw.shape)))
    flat = views.reshape(x, (-1,))
    return views.reshape(index_put(flat, Key(None, (True,), (places,)), value), tuple(x._a.shape))


def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy of `input` with `src[i, j]` (or one number) at `[index[i, j], j]` for dim = 0.

    Of repeated places the last stays, and only it has a gradient. Raises `IndexRangeError` for
    places outside [0, size). `reduce` is "add" or "multiply"; see `scatter_reduce`.
    """
    src = value if src is None else src
    if src is None:
        raise InputError("scatter needs src or value")
    if reduce not in (None, "add", "multiply"):
        raise InputError(f'scatter: reduce is "add" or "multiply", got {reduce!r}')
    held: Any = src if isinstance(src, Value) else a_number(input, src, "scatter")
    number = not isinstance(src, Value)
    same_dtype("scatter", input, held)
    x, d, index, part = along("scatter", input, dim, index, None if number else held)
    if number:
        part = views.expand(held, tuple(index._a.shape))
    if reduce is not None:
        from chainrule.ops.scattering import scatter_reduce

        if reduce == "add":
            out = scatter_add_to(x, d, index, part)
        else:
            out = scatter_reduce(x, d, index, part, "prod")
    else:
        places = flat_places(index, tuple(x._a.shape), d)
        out = _put_flat(x, places, views.reshape(part, (-1,)))
    return out if input._a.shape else views.reshape(out, ())


# Along one dimension, slice by slice.


def _slices(
    name: str, input: Any, dim: int, index: Any, source: Any, negative: bool = False
) -> tuple[Any, int, Any, Any]:
    """The input with a dimension, `dim` from 0, the checked 1-D index, and a fitting source."""
    index = checked_index(index, name)
    common_backend((input, index) if source is None else (input, index, source), name)
    if len(index._a.shape) > 1:
        raise ShapeError(f"{name} takes a 1-D index, not shape {tuple(index._a.shape)}")
    index = views.reshape(index, (-1,))
    x: Any = input if input._a.shape else views.reshape(input, (1,))
    shape = tuple(x._a.shape)
    d = views.checked_dim(dim, len(shape))
    check_range(raw_of(index), d, shape[d], None if negative else 0)
    if source is not None:
        same_dtype(name, input, source)
        wanted = (*shape[:d], index._a.shape[0], *shape[d + 1 :])
        have = tuple(source._a.shape)
        if have != wanted and not (not have and wanted == (1,)):
            raise ShapeError(
                f"{name}: the source has shape {have}, the input {shape} and {wanted[d]} places "
                f"along dimension {d} want {wanted}"
            )
        source = views.reshape(source, wanted)
    return x, d, index, source


def _key(d: int, index: Any) -> Key:
    return Key(None, (*[False] * d, True), (index,))


def _as_given(input: Any, out: Any) -> Any:
    return out if input._a.shape else views.reshape(out, ())


def index_add_to(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """`input` with `alpha` times the slices of `source` added at the places of a 1-D `index`."""
    x, d, index, part = _slices("index_add", input, dim, index, source)
    if alpha != 1:
        part = to_dtype(mul(part, alpha), input.dtype)
    key = (*[slice(None)] * d, index)
    return _as_given(input, add(x, index_add(tuple(x._a.shape), key, part)))


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the slices of `source` at the places of a 1-D `index`."""
    x, d, index, part = _slices("index_copy", input, dim, index, source)
    return _as_given(input, index_put(x, _key(d, index), part))


def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of `input` with one value (a number or 0-d tensor) at the slices of a 1-D `index`."""
    x, d, index, _ = _slices("index_fill", input, dim, index, None, negative=True)
    held = a_number(input, value, "index_fill")
    return _as_given(input, index_put(x, _key(d, index), held))


# Of the flattened tensor.


def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements of the flattened `input` at `index`, of its shape; negative counts from the end."""
    index = checked_index(index, "take")
    common_backend((input, index), "take")
    flat = views.reshape(input, (-1,))
    size = flat._a.shape[0]
    check_range(raw_of(index), 0, size)
    return index_get(flat, (index,))


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with the elements of `source` at flat `index`; `accumulate` adds them."""
    index = checked_index(index, "put")
    common_backend((input, index, source), "put")
    same_dtype("put", input, source)
    if _count(index) != _count(source):
        raise ShapeError(f"put: {_count(source)} elements for {_count(index)} places")
    flat = views.reshape(input, (-1,))
    size = flat._a.shape[0]
    check_range(raw_of(index), 0, size)
    places, part = views.reshape(index, (-1,)), views.reshape(source, (-1,))
    if not accumulate:
        return _put_flat(input, places, part)
    return views.reshape(add(flat, index_add((size,), (places,), part)), tuple(input._a.shape))


def _count(t: Any) -> int:
    total = 1
    for n in tuple(t._a.shape):
        total *= n
    return total


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`input` where `mask` does not hold, else the elements of `source` in turn; mask broadcasts."""
    if not isinstance(mask, Value) or mask.dtype is not dtypes.bool:  # pyright: ignore
        raise DTypeError("masked_scatter: the mask must be a bool tensor")
    same_dtype("masked_scatter", input, source)
    b = common_backend((input, mask, source), "masked_scatter")
    try:
        shape = np.broadcast_shapes(tuple(input._a.shape), tuple(mask._a.shape))
    except ValueError:
        raise ShapeError(
            f"masked_scatter: input {tuple(input._a.shape)} and mask {tuple(mask._a.shape)} do not "
            "broadcast"
        ) from None
    mask = views.expand(mask, shape)
    holds = b.cast(b.reshape(raw_of(mask), (-1,)), dtypes.int64)
    number = b.cumsum(holds, 0)
    wanted, have = int(number[-1]) if number.shape[0] else 0, _count(source)
    if wanted > have:
        raise ShapeError(f"masked_scatter: {wanted} places, the source has {have} elements")
    if not wanted:
        return views.clone(views.expand(input, shape))
    place = new_value(type(input), b.asarray(b.reshape(b.maximum(number - 1, 0), shape)))
    drawn = index_get(views.reshape(source, (-1,)), (place,))
    return where(mask, drawn, input)


# Through a view.


def _written(name: str, input: Any, src: Any, see: Any) -> Any:
    """A copy of `input` with `src` in the view `see` of it."""
    out = views.clone(input)
    window = see(out)
    if tuple(window._a.shape) != tuple(src._a.shape):
        raise ShapeError(
            f"{name}: the source has shape {tuple(src._a.shape)}, its place {tuple(window._a.shape)}"
        )
    inplace.assign(window, src)
    return out


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `input` with `src` as the slice at `index` along `dim`."""
    return _written("select_scatter", input, src, lambda t: views.select(t, dim, index))


def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """A copy of `input` with `src` in the slice `start:end:step` of `dim`."""
    d = views.checked_dim(dim, len(input._a.shape))
    key = (*[slice(None)] * d, slice(start, end, step))
    return _written("slice_scatter", input, src, lambda t: views.basic_index(t, key))


def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy of `input` with `src` on the diagonal of two dimensions."""
    return _written("diagonal_scatter", input, src, lambda t: views.diagonal(t, offset, dim1, dim2))


scatter_ = in_place(scatter)
index_add_ = in_place(index_add_to)
index_add_.__name__ = "index_add_"
index_copy_ = in_place(index_copy)
index_fill_ = in_place(index_fill)
put_ = in_place(put)
masked_scatter_ = in_place(masked_scatter)
