"""Sliding windows over the last dimensions: how many there are, and which elements each sees.

Convolution, pooling and their transposes ask here; integers only, no array is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from chainrule.errors import InputError, ShapeError

Ints = tuple[int, ...]


def per_dim(value: int | Sequence[int], n: int, name: str, what: str, least: int = 1) -> Ints:
    """One number or `n` numbers as a tuple of `n`; raises `InputError` below `least`."""
    numbers = (value,) * n if isinstance(value, int) else tuple([int(v) for v in value])
    if len(numbers) == 1:
        numbers = numbers * n
    if len(numbers) != n:
        raise InputError(f"{name}: {what} {numbers} has {len(numbers)} numbers, not 1 or {n}")
    if min(numbers, default=least) < least:
        raise InputError(f"{name}: {what} {numbers} must be at least {least}")
    return numbers


class Windows(NamedTuple):
    """Windows of `kernel` taps, `dilation` apart, every `stride` elements of a padded input."""

    kernel: Ints
    stride: Ints
    before: Ints
    after: Ints
    dilation: Ints

    @property
    def reach(self) -> Ints:
        """How far the last tap is from the first."""
        return tuple([d * (k - 1) for k, d in zip(self.kernel, self.dilation, strict=True)])

    def padded(self, size: Sequence[int]) -> Ints:
        """The size with its padding."""
        return tuple([b + n + a for b, n, a in zip(self.before, size, self.after, strict=True)])

    def outputs(self, size: Sequence[int], name: str) -> Ints:
        """How many windows fit along each dimension; raises `ShapeError` where none does."""
        whole = self.padded(size)
        for n, r in zip(whole, self.reach, strict=True):
            if n <= r:
                raise ShapeError(
                    f"{name}: a kernel of {self.kernel} with dilation {self.dilation} spans "
                    f"{tuple([r + 1 for r in self.reach])} elements, the padded input of size "
                    f"{tuple(whole)} has fewer"
                )
        return tuple(
            [(n - r - 1) // s + 1 for n, r, s in zip(whole, self.reach, self.stride, strict=True)]
        )

    def taps(self, count: Sequence[int]) -> Iterator[tuple[slice, ...]]:
        """For each tap, in row-major order, the slices of the padded input that it meets."""
        for place in product(*map(range, self.kernel)):
            yield tuple(
                [
                    slice(p * d, p * d + s * (n - 1) + 1, s)
                    for p, d, s, n in zip(place, self.dilation, self.stride, count, strict=True)
                ]
            )
