"""What a layout is: the fields of `Layout` and every question that needs no other layout made.

Built on `merging` (contiguity), `reach` (addresses) and `indexing` (checks); integers only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from chainrule.errors import InputError, ShapeError
from chainrule.layout import merging, reach
from chainrule.layout.indexing import checked_dim, checked_index

Ints = tuple[int, ...]


class Fields:
    """The three fields while they may still be set; making a `Layout` ends that."""

    __slots__ = ("offset", "shape", "strides")

    shape: Ints
    strides: Ints
    offset: int


class Facts(Fields):
    """The read-only half of `Layout`."""

    __slots__ = ()

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Number of elements seen (an address seen twice counts twice)."""
        return prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether elements in row-major order are consecutive; sizes of 1 do not matter."""
        return merging.is_row_major(self.shape, self.strides)

    @property
    def is_channels_last(self) -> bool:
        """Whether a 4-D (N, C, H, W) layout is NHWC in memory, as PyTorch's `channels_last`."""
        return merging.is_channels_last(self.shape, self.strides)

    @property
    def is_dense(self) -> bool:
        """Whether it occupies exactly `numel` consecutive addresses, in whatever order."""
        return reach.is_dense(self.shape, self.strides)

    @property
    def self_overlaps(self) -> bool:
        """Whether two different indices share an address.

        Exact, but for layouts that span more than 2**24 addresses in a pattern that neither nests
        nor yields to 100,000 tries of a search: those count as overlapping, the safe answer.
        """
        if self.strides == merging.contiguous_strides(self.shape):
            return False
        return reach.self_overlaps(self.shape, self.strides) is not False

    def why_not_contiguous(self) -> str | None:
        """The innermost dimension that breaks row-major order, in words; None if contiguous."""
        fault = merging.row_major_fault(self.shape, self.strides)
        if fault is None:
            return None
        dim, needed = fault
        return f"dimension {dim} has stride {self.strides[dim]}, contiguous needs {needed}"

    def address(self, index: Sequence[int]) -> int:
        """The address of one element; IndexRangeError or ShapeError for an index that is none."""
        if len(index) != len(self.shape):
            raise ShapeError(
                f"index {tuple(index)} has {len(index)} numbers, shape {self.shape} needs "
                f"{len(self.shape)}"
            )
        return self.offset + sum(
            checked_index(i, dim, self.shape[dim]) * self.strides[dim]
            for dim, i in enumerate(index)
        )

    def addresses(self) -> Iterator[int]:
        """The address of every element in row-major order."""
        return reach.addresses(self.shape, self.strides, self.offset)

    def indices_at(self, address: int) -> Iterator[Ints]:
        """Every index whose element lies at `address`: none, one, or several where it overlaps."""
        return reach.indices_at(self.shape, self.strides, self.offset, address)

    def bounds(self) -> tuple[int, int] | None:
        """Lowest and highest address reached; None where there are no elements."""
        return reach.bounds(self.shape, self.strides, self.offset)

    def overlaps(self, other: Facts) -> bool:
        """Whether an address of one storage belongs to both layouts.

        Exact within the limits of `self_overlaps`; beyond them True, the safe answer.
        """
        return (
            reach.overlap(
                (self.shape, self.strides, self.offset), (other.shape, other.strides, other.offset)
            )
            is not False
        )

    def transactions(self, dim: int, warp: int = 32, itemsize: int = 4, segment: int = 32) -> int:
        """Memory segments touched when thread t of a warp reads element t along `dim`.

        The first warp is counted: indices 0 to `warp` - 1 along `dim` (threads past its end are
        idle), index 0 elsewhere. `itemsize` and `segment` are bytes; the storage is taken to start
        at a segment boundary. 32 float32 at unit stride touch 4 segments of 32 bytes, at stride 8
        or more 32 of them, at stride 0 one.
        """
        if warp < 1 or itemsize < 1 or segment < 1:
            raise InputError(
                f"warp {warp}, itemsize {itemsize} and segment {segment} must be at least 1"
            )
        return reach.transactions(
            self.shape, self.strides, self.offset, self._dim(dim), warp, itemsize, segment
        )

    def _dim(self, dim: int) -> int:
        """`dim` from the front; a 0-d layout takes 0 and -1, as in PyTorch."""
        return checked_dim(dim, len(self.shape) or 1)
