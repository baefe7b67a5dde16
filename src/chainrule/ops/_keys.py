"""What an index means: one key split into a view and the index tensors that are left.

Integers, slices, None and Ellipsis become a basic key, which makes a view; integer tensors, arrays
and lists stay as int64 index tensors, masks become the places where they hold. Relies on `layout`
for basic keys and on the backend for `nonzero`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_int
from typing import Any, NamedTuple

import numpy as np

from chainrule import dtypes
from chainrule.autograd.value import Value, backend_for, new_value, raw_of
from chainrule.errors import DTypeError, IndexRangeError, ShapeError
from chainrule.layout.indexing import checked_index

WHOLE = slice(None)
BASIC = frozenset({int, slice, type(None), type(Ellipsis)})


class Key(NamedTuple):
    """A parsed key: first the view `basic` (None for all of it), then the index tensors.

    `places[d]` says whether dimension d of the view takes the next of `indices`; dimensions after
    the last of `places` stay whole.
    """

    basic: tuple[Any, ...] | None
    places: tuple[bool, ...]
    indices: tuple[Any, ...]


def is_basic(key: Any) -> bool:
    """Whether `key` holds nothing but integers, slices, None and Ellipsis."""
    if type(key) is tuple:
        return all(type(item) in BASIC for item in key)
    return type(key) in BASIC


def raw_key(places: Sequence[bool], index: Sequence[Any]) -> tuple[Any, ...]:
    """The key that a backend's `index_get` takes."""
    rest = iter(index)
    return tuple([next(rest) if taken else WHOLE for taken in places])


def split_key(key: Sequence[Any]) -> tuple[tuple[bool, ...], list[Any]]:
    """`raw_key` undone: which dimensions are indexed, and by what."""
    taken = tuple(not isinstance(item, slice) for item in key)
    return taken, [item for item in key if not isinstance(item, slice)]


def result_shape(shape: Sequence[int], key: Key) -> tuple[int, ...]:
    """The shape of a view of `shape` under the index tensors of `key`.

    Index tensors broadcast; what they broadcast to stands in their place where they are
    neighbours, else first: NumPy's rule and PyTorch's.
    """
    try:
        joint = np.broadcast_shapes(*[tuple(t._a.shape) for t in key.indices])
    except ValueError:
        shapes = " and ".join(str(tuple(t._a.shape)) for t in key.indices)
        raise IndexRangeError(
            f"index tensors of shapes {shapes} do not broadcast: they must select the same number "
            "of places"
        ) from None
    taken = [d for d, indexed in enumerate(key.places) if indexed]
    kept = [n for d, n in enumerate(shape) if d not in taken]
    first = taken[0] if taken[-1] - taken[0] == len(taken) - 1 else 0
    return (*kept[:first], *joint, *kept[first:])


def parse(input: Any, key: Any) -> Key:
    """The parts of any key for `input`; index tensors are checked and are on its device.

    As in PyTorch, integers select before the index tensors are placed (NumPy counts them among
    the index arrays). Raises `IndexRangeError` with the index, the dimension and its size, and
    `DTypeError` for what is no index (floats, uint8, which could mean a mask or places).
    """
    shape = tuple(input._a.shape)
    items = [_understood(item) for item in (key if type(key) is tuple else (key,))]
    items = _without_ellipsis(items, shape)
    basic: list[Any] = []
    places: list[bool] = []
    index: list[Any] = []
    dim = 0
    for item in items:
        if isinstance(item, Value):
            found = _places_of(input, item, dim)
            basic += [WHOLE] * item._a.ndim if _is_mask(item) and item._a.ndim else []
            if not item._a.ndim:  # a single truth value is a new dimension of size 1 or 0
                basic.append(None)
            elif not _is_mask(item):
                basic.append(WHOLE)
            dim += _taken(item)
            places += [True] * len(found)
            index += found
        else:
            basic.append(item)
            if item is not None:
                dim += 1
            if item is None or isinstance(item, slice):
                places.append(False)
    while places and not places[-1]:
        places.pop()
    trivial = all(isinstance(item, slice) and item == WHOLE for item in basic)
    return Key(None if trivial else tuple(basic), tuple(places), tuple(index))


def _understood(item: Any) -> Any:
    """One item as an int, a slice, None, Ellipsis, or a tensor of places or truth values."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, Value):
        if not item._a.ndim and backend_for(item._a).dtype_of(item._a).category == 1:
            return as_int(item)  # pyright: ignore[reportArgumentType]
        return _index_tensor(item)
    if isinstance(item, (list, tuple, range)):
        item = _array(item)
    if isinstance(item, (bool, np.bool_, np.ndarray)):
        array = np.asarray(item)
        if not array.ndim and array.dtype.kind in "iu":
            return int(array)
        return _index_tensor(new_value(Value, np.array(array, array.dtype.newbyteorder("="))))
    try:
        return as_int(item)
    except TypeError:
        raise DTypeError(
            f"{item!r} of type {type(item).__name__} is not an index: use integers, slices, None, "
            "..., and tensors, arrays or lists of integers or bools"
        ) from None


def _array(items: Sequence[Any]) -> Any:
    plain = [_host(x) for x in items]
    try:
        array = np.asarray(plain)
    except ValueError:
        raise ShapeError("an index list is ragged: its lists must have the same length") from None
    return array if array.size else array.astype(np.int64)


def _host(item: Any) -> Any:
    if isinstance(item, Value):
        return backend_for(item._a).to_numpy(raw_of(item))
    if isinstance(item, (list, tuple)):
        return [_host(x) for x in item]  # pyright: ignore[reportUnknownVariableType]
    return item


def _index_tensor(t: Value) -> Value:
    b = backend_for(t._a)
    if not isinstance(t._a, np.ndarray) or t._a.dtype.kind in "biuf":
        dtype = b.dtype_of(t._a)
        if dtype is dtypes.int64 or dtype is dtypes.bool:
            return t
        if dtype is dtypes.uint8:
            raise DTypeError(
                "a uint8 index could be a mask or places: say which with .bool() or .long()"
            )
        if dtype.category == 1:
            return new_value(type(t), b.cast(raw_of(t), dtypes.int64))
        name = dtype.name
    else:
        name = str(t._a.dtype)
    raise DTypeError(f"an index must be of integers or bools, not {name}: use .long() or .bool()")


def _is_mask(t: Value) -> bool:
    return backend_for(t._a).dtype_of(t._a) is dtypes.bool


def _taken(item: Any) -> int:
    """How many dimensions an item uses up."""
    if item is None or item is Ellipsis:
        return 0
    return item._a.ndim if isinstance(item, Value) and _is_mask(item) else 1


def _without_ellipsis(items: list[Any], shape: tuple[int, ...]) -> list[Any]:
    taken = sum(_taken(item) for item in items)
    if taken > len(shape):
        raise IndexRangeError(
            f"too many indices: {taken} for {len(shape)} dimension{'s' * (len(shape) != 1)} of "
            f"shape {shape}"
        )
    at = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(at) > 1:
        raise IndexRangeError(f"an index may hold one Ellipsis (...), got {len(at)}")
    if not at:
        return items
    return items[: at[0]] + [WHOLE] * (len(shape) - taken) + items[at[0] + 1 :]


def _places_of(input: Any, item: Value, dim: int) -> list[Any]:
    """The int64 index tensors of one item that starts at dimension `dim`, range-checked."""
    b = backend_for(input._a)
    shape = tuple(input._a.shape)
    raw = raw_of(item)
    home = backend_for(raw)
    if home is not b:
        raw = b.from_numpy(np.array(home.to_numpy(raw)))
    kind = type(input)
    if not _is_mask(item):
        check_range(raw, dim, shape[dim])
        return [item if raw is item._a and type(item) is kind else new_value(kind, raw)]
    if not item._a.ndim:
        held = np.zeros(1 if bool(home.to_numpy(item._a)) else 0, np.int64)
        return [new_value(kind, b.from_numpy(held))]
    have, want = tuple(item._a.shape), shape[dim : dim + item._a.ndim]
    if have != want:
        raise IndexRangeError(
            f"a mask of shape {have} does not fit dimensions {dim} to {dim + len(have) - 1} of "
            f"shape {shape}: it must have shape {want}"
        )
    return [new_value(kind, where) for where in b.nonzero(raw)]


def check_range(raw: Any, dim: int, size: int, lowest: int | None = None) -> None:
    """Raise `IndexRangeError` where a raw index leaves [−size, size), or [lowest, size)."""
    if not min(raw.shape, default=1):
        return
    least, most = int(raw.min()), int(raw.max())
    if lowest is not None and least < lowest:
        raise IndexRangeError(
            f"index {least} is out of range for dimension {dim} of size {size}: use {lowest} to "
            f"{size - 1}"
        )
    checked_index(least, dim, size)
    checked_index(most, dim, size)
