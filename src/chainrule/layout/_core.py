"""`Layout`: one way of reading flat memory as a tensor, and every view of it.

Each view operation answers with a new layout or with an error that says why there is none. Built
on `facts` (what a layout is), `merging` and `indexing`; exact integers only, no arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn

from chainrule.errors import IndexRangeError, LayoutError, ShapeError
from chainrule.layout import merging
from chainrule.layout.facts import Facts, Fields
from chainrule.layout.indexing import (
    as_int,
    basic_index,
    checked_dim,
    checked_index,
    slice_range,
)
from chainrule.layout.shapes import check_sizes, int_tuple, resolve_shape

Ints = tuple[int, ...]


class Layout(Facts):
    """Element (i, j, ...) lies at address offset + i·strides[0] + j·strides[1] + ..., in elements.

    Immutable and hashable. Strides may be 0 (one element seen many times) or negative (walked
    backwards). The offset of an empty layout never moves, so that it stays inside its storage.
    Raises ShapeError for a negative size or as many strides as do not fit the shape, LayoutError
    for an address below 0.

    >>> x = Layout.contiguous((3, 4))
    >>> x.index((slice(None), slice(None, None, 2)))
    Layout(shape=(3, 2), strides=(4, 2), offset=0)
    """

    __slots__ = ()

    def __new__(cls, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Layout:
        sizes, steps = int_tuple(shape, "shape"), int_tuple(strides, "strides")
        start = as_int(offset)
        if len(sizes) != len(steps):
            raise ShapeError(
                f"shape {sizes} has {len(sizes)} dimensions but strides {steps} has {len(steps)}: "
                "give one stride a dimension"
            )
        check_sizes(sizes)
        layout = unchecked_layout(sizes, steps, start)
        span = layout.bounds()
        if start < 0 or (span is not None and span[0] < 0):
            raise LayoutError(
                f"shape {sizes}, strides {steps}, offset {start} reaches address "
                f"{min(start, span[0]) if span else start}: addresses start at 0"
            )
        return layout

    @staticmethod
    def contiguous(shape: Sequence[int], offset: int = 0) -> Layout:
        """The row-major layout of `shape`; cached."""
        return _contiguous(tuple(shape), offset)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Layout is immutable: cannot set {name!r}, make a new Layout")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Layout is immutable: cannot delete {name!r}")

    def __reduce__(self) -> tuple[type[Layout], tuple[Ints, Ints, int]]:
        return Layout, (self.shape, self.strides, self.offset)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and (
            self.shape == other.shape
            and self.strides == other.strides
            and self.offset == other.offset
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.strides, self.offset))

    def __repr__(self) -> str:
        return f"Layout(shape={self.shape}, strides={self.strides}, offset={self.offset})"

    # Views: reordering dimensions.

    def permute(self, dims: Sequence[int]) -> Layout:
        """Dimension k of the result is dimension dims[k] of this; every one exactly once."""
        ndim = len(self.shape)
        order = [checked_dim(dim, ndim) for dim in dims]
        if len(order) != ndim or len(set(order)) != ndim:
            raise ShapeError(
                f"permute{tuple(dims)} of shape {self.shape}: name each of the {ndim} dimensions "
                "exactly once"
            )
        shape, strides = self.shape, self.strides
        return unchecked_layout(
            tuple([shape[dim] for dim in order]),
            tuple([strides[dim] for dim in order]),
            self.offset,
        )

    def transpose(self, d0: int, d1: int) -> Layout:
        """Two dimensions exchanged."""
        d0, d1 = self._dim(d0), self._dim(d1)
        if d0 == d1:
            return self
        shape, strides = list(self.shape), list(self.strides)
        shape[d0], shape[d1] = shape[d1], shape[d0]
        strides[d0], strides[d1] = strides[d1], strides[d0]
        return unchecked_layout(tuple(shape), tuple(strides), self.offset)

    def squeeze(self, dims: int | Sequence[int] | None = None) -> Layout:
        """Without the dimensions of size 1: all of them, or those named that have size 1."""
        if dims is None:
            named = range(len(self.shape))
        else:
            several: Any = dims if hasattr(dims, "__iter__") else (dims,)
            named = [self._dim(dim) for dim in several]
        keep = [dim for dim, size in enumerate(self.shape) if size != 1 or dim not in named]
        return unchecked_layout(
            tuple([self.shape[dim] for dim in keep]),
            tuple([self.strides[dim] for dim in keep]),
            self.offset,
        )

    def unsqueeze(self, dim: int) -> Layout:
        """With a new dimension of size 1 at position `dim` (-1: at the end)."""
        ndim = len(self.shape)
        try:
            dim = checked_dim(dim, ndim + 1)
        except IndexRangeError:
            raise IndexRangeError(
                f"unsqueeze at {dim} is out of range for shape {self.shape}: a new dimension goes "
                f"at {-ndim - 1} to {ndim}"
            ) from None
        # Never stepped; this value lets the new dimension merge with the one it stands before.
        stride = self.shape[dim] * self.strides[dim] if dim < ndim else 1
        return unchecked_layout(
            (*self.shape[:dim], 1, *self.shape[dim:]),
            (*self.strides[:dim], stride, *self.strides[dim:]),
            self.offset,
        )

    # Views: choosing elements.

    def index(self, key: Any) -> Layout:
        """`x[key]` for an int, a slice, None, Ellipsis, or a tuple of these.

        Raises IndexRangeError (an IndexError) with dimension, index and size; DTypeError for
        masks, lists and arrays, which are no views.
        """
        shape = self.shape
        if shape:
            if type(key) is int:
                # Written out for loops over x[i]: half the time of going through `_select`.
                size = shape[0]
                if -size <= key < size:
                    rest, strides, offset = shape[1:], self.strides, self.offset
                    if 0 not in rest:
                        offset += (key if key >= 0 else key + size) * strides[0]
                    return unchecked_layout(rest, strides[1:], offset)
                return self._select(0, key)
            if type(key) is slice:
                return self._slice(0, key)
        items: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
        return unchecked_layout(*basic_index(self.shape, self.strides, self.offset, items))

    def select(self, dim: int, index: int) -> Layout:
        """One index of `dim`, which vanishes."""
        return self._select(checked_dim(dim, len(self.shape)), as_int(index))

    def slice(
        self, dim: int, start: int | None = None, stop: int | None = None, step: int | None = None
    ) -> Layout:
        """`start:stop:step` of `dim` as Python slices a list, negative steps included."""
        return self._slice(checked_dim(dim, len(self.shape)), slice(start, stop, step))

    def narrow(self, dim: int, start: int, length: int) -> Layout:
        """`length` indices of `dim` from `start` on; they must exist."""
        dim = checked_dim(dim, len(self.shape))
        size, start, length = self.shape[dim], as_int(start), as_int(length)
        first = start + size if start < 0 else start
        if length < 0 or not 0 <= first <= first + length <= size:
            raise LayoutError(
                f"narrow of dimension {dim}: start {start} and length {length} do not fit its size "
                f"{size}"
            )
        return self._slice(dim, slice(first, first + length))

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> list[Layout]:
        """Consecutive pieces of `dim`: of one size (the last may be shorter) or of these sizes."""
        dim = checked_dim(dim, len(self.shape))
        size = self.shape[dim]
        if isinstance(sizes, int) or not hasattr(sizes, "__iter__"):
            sizes = as_int(sizes)
            if sizes < 1 and (sizes < 0 or size):
                raise LayoutError(
                    f"split of dimension {dim} into pieces of {sizes}: use at least 1"
                )
            pieces = [min(sizes, size - at) for at in range(0, size, sizes or 1)] or [0]
        else:
            pieces = [as_int(piece) for piece in sizes]
            if sum(pieces) != size or min(pieces, default=0) < 0:
                raise LayoutError(
                    f"split sizes {pieces} of dimension {dim} sum to {sum(pieces)}: they must be "
                    f"at least 0 and sum to its size {size}"
                )
        parts: list[Layout] = []
        at = 0
        for piece in pieces:
            parts.append(self._slice(dim, slice(at, at + piece)))
            at += piece
        return parts

    def flip(self, dims: int | Sequence[int]) -> Layout:
        """The named dimensions walked backwards: stride negated, offset at their far end."""
        named = [self._dim(dim) for dim in ((dims,) if isinstance(dims, int) else dims)]
        if len(set(named)) != len(named):
            raise ShapeError(f"flip{tuple(named)} names a dimension twice: name each once")
        if not self.shape:
            return self
        strides, offset = list(self.strides), self.offset
        for dim in named:
            offset += (self.shape[dim] - 1) * strides[dim]
            strides[dim] = -strides[dim]
        return unchecked_layout(
            self.shape, tuple(strides), self.offset if 0 in self.shape else offset
        )

    def diagonal(self, offset: int = 0, d0: int = 0, d1: int = 1) -> Layout:
        """Elements with index[d1] == index[d0] + offset, as a new last dimension."""
        ndim = len(self.shape)
        d0, d1 = checked_dim(d0, ndim), checked_dim(d1, ndim)
        if d0 == d1:
            raise ShapeError(f"diagonal of dimension {d0} with itself: name two dimensions")
        rows, columns, offset = self.shape[d0], self.shape[d1], as_int(offset)
        size = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
        keep = [dim for dim in range(ndim) if dim not in (d0, d1)]
        shape = (*[self.shape[dim] for dim in keep], size)
        strides = (*[self.strides[dim] for dim in keep], self.strides[d0] + self.strides[d1])
        start = offset * self.strides[d1] if offset >= 0 else -offset * self.strides[d0]
        return unchecked_layout(shape, strides, self.offset if 0 in shape else self.offset + start)

    def unfold(self, dim: int, size: int, step: int) -> Layout:
        """Windows of `size` along `dim`, one every `step`; the window is a new last dimension."""
        scalar = not self.shape
        dim, size, step = self._dim(dim), as_int(size), as_int(step)
        length, stride = (1, 1) if scalar else (self.shape[dim], self.strides[dim])
        if step < 1 or not 0 <= size <= length:
            raise LayoutError(
                f"unfold of dimension {dim} with size {size} and step {step}: the size must be 0 "
                f"to {length} (the dimension's size), the step at least 1"
            )
        count = (length - size) // step + 1
        if scalar:
            return unchecked_layout((size,), (1,), self.offset)
        return unchecked_layout(
            (*self.shape[:dim], count, *self.shape[dim + 1 :], size),
            (*self.strides[:dim], stride * step, *self.strides[dim + 1 :], stride),
            self.offset,
        )

    # Views: another shape.

    def merge(self) -> Layout:
        """The same elements in the same order in as few dimensions as possible.

        Sizes of 1 vanish; an empty layout becomes shape (0,). Kernels loop over this.
        """
        if 0 in self.shape:
            return unchecked_layout((0,), (1,), self.offset)
        runs = merging.merged_runs(self.shape, self.strides)
        return unchecked_layout(
            tuple([run.size for run in reversed(runs)]),
            tuple([run.stride for run in reversed(runs)]),
            self.offset,
        )

    def expand(self, shape: Sequence[int]) -> Layout:
        """Sizes of 1 repeated by stride 0, and new leading dimensions; -1 keeps a size."""
        sizes = int_tuple(shape, "shape")
        new = len(sizes) - len(self.shape)
        if new < 0:
            raise ShapeError(
                f"cannot expand shape {self.shape} to {sizes}: it has {len(self.shape)} dimensions "
                f"and the target {len(sizes)}"
            )
        new_shape, new_strides = list(sizes), [0] * len(sizes)
        for dim, size in enumerate(sizes):
            old = self.shape[dim - new] if dim >= new else 1
            if size == old or (size == -1 and dim >= new):
                new_shape[dim] = old
                new_strides[dim] = self.strides[dim - new] if dim >= new else 0
            elif old != 1 or size < 0:
                raise ShapeError(
                    f"cannot expand shape {self.shape} to {sizes}: dimension {dim} "
                    + (
                        f"is new, so its size cannot be {size}"
                        if dim < new
                        else f"has size {old}, and only size 1 can become {size}"
                    )
                )
        if self.shape:  # a new dimension of size 1 has the stride that unsqueeze would give it
            for dim in range(new - 1, -1, -1):
                if new_shape[dim] == 1:
                    new_strides[dim] = new_shape[dim + 1] * new_strides[dim + 1]
        return unchecked_layout(tuple(new_shape), tuple(new_strides), self.offset)

    def can_view(self, shape: int | Sequence[int]) -> Layout | None:
        """What `view` would return, or None where it would raise; ShapeError for a bad shape."""
        new_shape = self.resolve_shape(shape)
        strides = merging.view_strides(self.shape, self.strides, new_shape)
        return None if strides is None else unchecked_layout(new_shape, strides, self.offset)

    def view(self, shape: int | Sequence[int]) -> Layout:
        """The same elements in row-major order under another shape; one size may be -1.

        Raises ShapeError where the number of elements differs and LayoutError (a RuntimeError)
        where no strides do it, naming the two dimensions that do not merge.
        """
        layout = self.can_view(shape)
        if layout is None:
            raise LayoutError(self.why_not_view(shape))
        return layout

    def why_not_view(self, shape: int | Sequence[int]) -> str | None:
        """Why `view(shape)` raises, naming the two dimensions that do not merge; None if it works.

        Raises ShapeError for a shape of another number of elements.
        """
        new_shape = self.resolve_shape(shape)
        seam = merging.view_seam(self.shape, self.strides, new_shape)
        if seam is None:
            return None
        outer, inner = seam
        size, stride = self.shape[inner], self.strides[inner]
        return (
            f"cannot view shape {self.shape}, strides {self.strides} as {new_shape}: dimensions "
            f"{outer} and {inner} do not merge (dimension {outer} has stride "
            f"{self.strides[outer]}, merging needs {size}·{stride} = {size * stride}); "
            "use reshape, which copies"
        )

    def resolve_shape(self, shape: int | Sequence[int]) -> Ints:
        """`shape` with its -1 filled in, checked to hold exactly this layout's elements."""
        return resolve_shape((shape,) if isinstance(shape, int) else shape, self.shape)

    def as_strided(
        self,
        shape: Sequence[int],
        strides: Sequence[int],
        offset: int | None,
        numel_of_storage: int,
    ) -> Layout:
        """Any layout over the same storage, checked against its number of elements.

        `offset` None keeps this layout's. Raises LayoutError with the addresses needed and there.
        """
        layout = Layout(shape, strides, self.offset if offset is None else offset)
        layout.check_fits(numel_of_storage)
        return layout

    def check_fits(self, numel_of_storage: int) -> None:
        """Raise LayoutError unless every address lies in a storage of so many elements."""
        span = self.bounds()
        needed = self.offset if span is None else span[1] + 1
        if needed > numel_of_storage:
            raise LayoutError(
                f"shape {self.shape}, strides {self.strides}, offset {self.offset} needs a storage "
                f"of {needed} elements, this one has {numel_of_storage}"
            )

    # Shared by the views above.

    def _select(self, dim: int, index: int) -> Layout:
        shape, strides = self.shape, self.strides
        step = checked_index(index, dim, shape[dim]) * strides[dim]
        shape = shape[:dim] + shape[dim + 1 :]
        return unchecked_layout(
            shape,
            strides[:dim] + strides[dim + 1 :],
            self.offset if 0 in shape else self.offset + step,
        )

    def _slice(self, dim: int, key: slice) -> Layout:
        shape, strides = self.shape, self.strides
        stride = strides[dim]
        start, step, count = slice_range(key, shape[dim])
        shape = (*shape[:dim], count, *shape[dim + 1 :])
        return unchecked_layout(
            shape,
            (*strides[:dim], stride * step, *strides[dim + 1 :]),
            self.offset if 0 in shape else self.offset + start * stride,
        )


def unchecked_layout(shape: Ints, strides: Ints, offset: int) -> Layout:
    """A layout out of tuples of Python ints, without checks: for code that has just made them.

    Three plain stores and a change of class cost a third less than passing the guard of
    `__setattr__` three times.
    """
    fields: Any = Fields()
    fields.shape = shape
    fields.strides = strides
    fields.offset = offset
    fields.__class__ = Layout
    return fields


@lru_cache(maxsize=4096)
def _contiguous(shape: Ints, offset: int) -> Layout:
    sizes = int_tuple(shape, "shape")
    check_sizes(sizes)
    if offset < 0:
        raise LayoutError(f"offset {offset} is negative: addresses start at 0")
    return unchecked_layout(sizes, merging.contiguous_strides(sizes), offset)
