"""Basic indexing: integers, slices, None and Ellipsis turned into shape, strides and offset.

Relies on Python's own slice arithmetic (`slice.indices`); knows nothing of arrays or masks.
"""

from __future__ import annotations

from operator import index
from types import EllipsisType
from typing import Any, cast

from chainrule.errors import DTypeError, IndexRangeError, InputError

Ints = tuple[int, ...]


def as_int(number: Any) -> int:
    """A Python int of anything that is a whole number; raises `DTypeError` for what is none."""
    try:
        return index(number)
    except TypeError:
        raise DTypeError(f"{number!r} is not an integer") from None


def checked_dim(dim: int, ndim: int) -> int:
    """`dim` counted from the front, or an error that says which dimensions there are."""
    try:
        dim = index(dim)
    except TypeError:
        raise DTypeError(f"a dimension is an integer, not {dim!r}") from None
    if -ndim <= dim < ndim:
        return dim + ndim if dim < 0 else dim
    if ndim == 0:
        raise IndexRangeError(f"dimension {dim} is out of range: the tensor is 0-d")
    raise IndexRangeError(
        f"dimension {dim} is out of range for {ndim} dimension{'s' * (ndim > 1)}: "
        f"use {-ndim} to {ndim - 1}"
    )


def checked_index(at: int, dim: int, size: int) -> int:
    """`at` counted from the front, or an error with dimension, index and size."""
    if -size <= at < size:
        return at + size if at < 0 else at
    raise IndexRangeError(
        f"index {at} is out of range for dimension {dim} of size {size}: "
        + (f"use {-size} to {size - 1}" if size else "it has no elements to select")
    )


def slice_range(key: slice, size: int) -> tuple[int, int, int]:
    """(start, step, count) of a slice over `size` elements.

    Where the count is 0 the start may lie one before or after the elements, where there may be no
    storage: whoever makes a layout of it leaves the offset alone.
    """
    try:
        start, stop, step = key.indices(size)
    except TypeError:
        raise DTypeError(
            f"slice({key.start!r}, {key.stop!r}, {key.step!r}): start, stop and step must be "
            "integers or None"
        ) from None
    except ValueError:
        raise InputError("slice step is 0: use a positive or a negative step") from None
    return start, step, len(range(start, stop, step))


def basic_index(
    shape: Ints, strides: Ints, offset: int, key: tuple[Any, ...]
) -> tuple[Ints, Ints, int]:
    """Shape, strides and offset of `x[key]` for a tuple of int, slice, None and Ellipsis."""
    ndim = len(shape)
    taken = sum(1 for item in key if item is not None and item is not Ellipsis)
    ellipses = sum(1 for item in key if item is Ellipsis)
    if ellipses > 1:
        raise IndexRangeError(f"an index may hold one Ellipsis (...), got {ellipses}")
    if taken > ndim:
        raise IndexRangeError(
            f"too many indices: {taken} for {ndim} dimension{'s' * (ndim != 1)} of shape {shape}"
        )
    new_shape: list[int] = []
    new_strides: list[int] = []
    start_at = offset
    dim = 0
    for item in key:
        if isinstance(item, slice):
            start, step, count = slice_range(cast("slice[Any, Any, Any]", item), shape[dim])
            new_shape.append(count)
            new_strides.append(strides[dim] * step)
            start_at += start * strides[dim]
            dim += 1
        elif item is None:
            new_shape.append(1)
            # The stride of a size-1 dimension is never stepped; this one keeps neighbours mergeable
            new_strides.append(shape[dim] * strides[dim] if dim < ndim else 1)
        elif isinstance(item, EllipsisType):
            end = dim + ndim - taken
            new_shape += shape[dim:end]
            new_strides += strides[dim:end]
            dim = end
        else:
            start_at += checked_index(basic_int(item), dim, shape[dim]) * strides[dim]
            dim += 1
    new_shape += shape[dim:]
    new_strides += strides[dim:]
    return tuple(new_shape), tuple(new_strides), offset if 0 in new_shape else start_at


def basic_int(item: Any) -> int:
    """An index item as an int; a bool is a mask and everything else is not basic indexing."""
    if not isinstance(item, bool):
        try:
            return index(item)
        except TypeError:
            pass
    raise DTypeError(
        f"{item!r} of type {type(item).__name__} is not a basic index: "
        "use integers, slices, None and ... here"
    )
