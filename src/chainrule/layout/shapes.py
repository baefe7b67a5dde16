"""Sizes as people give them: checked, made Python ints, and a -1 filled in."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index as as_int

from chainrule.errors import ShapeError

Ints = tuple[int, ...]


def int_tuple(numbers: Sequence[int], what: str) -> Ints:
    """A tuple of Python ints; booleans, NumPy's integers and our own sizes become ints."""
    try:
        return tuple([as_int(number) for number in numbers])
    except TypeError:
        raise ShapeError(f"{what} {numbers!r} must be a sequence of integers") from None


def check_sizes(sizes: Ints) -> None:
    """Raise ShapeError for a negative size."""
    if sizes and min(sizes) < 0:
        raise ShapeError(f"shape {sizes} has a negative size: sizes are at least 0")


def resolve_shape(wanted: Sequence[int], shape: Ints) -> Ints:
    """`wanted` with its -1 filled in, checked to hold exactly the elements of `shape`."""
    sizes = int_tuple(wanted, "shape")
    numel = prod(shape)
    holds = prod(sizes)
    if holds == numel and (not sizes or min(sizes) >= 0):
        return sizes
    unknown = sizes.count(-1)
    if min(sizes, default=0) < -1 or unknown > 1:
        raise ShapeError(f"shape {sizes} is invalid: sizes are at least 0, and one may be -1")
    if not unknown:
        raise ShapeError(
            f"shape {sizes} holds {holds} element{'s' * (holds != 1)}, the tensor of shape "
            f"{shape} has {numel}"
        )
    known = -holds
    if known == 0:
        raise ShapeError(
            f"shape {sizes} leaves -1 open: beside a size of 0 any number fits, so write it out"
        )
    if numel % known:
        raise ShapeError(
            f"shape {sizes} does not fit {numel} elements of shape {shape}: {numel} is "
            f"not a multiple of {known}"
        )
    return tuple([numel // known if size == -1 else size for size in sizes])
