"""Which neighbouring dimensions merge into one: the arithmetic behind contiguity and views.

Two neighbours merge when stepping once along the outer one is stepping all the way along the
inner one: stride[outer] == size[inner] * stride[inner]. Dimensions of size 1 never step, so they
are passed over. Relies on nothing but the integers in `shape` and `strides`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

Ints = tuple[int, ...]


class Run(NamedTuple):
    """A maximal run of dimensions that merge: they act as one of this size and stride."""

    size: int
    stride: int
    outermost: int
    innermost: int


@lru_cache(maxsize=4096)
def contiguous_strides(shape: Ints) -> Ints:
    """Row-major strides in elements; a size of 0 counts as 1, as in PyTorch."""
    strides = [1] * len(shape)
    step = 1
    for dim in range(len(shape) - 1, -1, -1):
        strides[dim] = step
        step *= shape[dim] or 1
    return tuple(strides)


def merged_runs(shape: Ints, strides: Ints) -> list[Run]:
    """The runs of a non-empty layout, innermost first; dimensions of size 1 belong to none."""
    runs: list[Run] = []
    for dim in range(len(shape) - 1, -1, -1):
        size, stride = shape[dim], strides[dim]
        if size == 1:
            continue
        if runs and stride == runs[-1].size * runs[-1].stride:
            inner = runs[-1]
            runs[-1] = Run(size * inner.size, inner.stride, dim, inner.innermost)
        else:
            runs.append(Run(size, stride, dim, dim))
    return runs


def view_strides(shape: Ints, strides: Ints, new_shape: Ints) -> Ints | None:
    """The strides that show the same elements as `new_shape` (same count), or None.

    A view exists when the new dimensions cut the elements at every seam between two runs: inside
    a run they may cut anywhere, across a seam no single stride can step.
    """
    if 0 in shape:
        return strides if shape == new_shape else contiguous_strides(new_shape)
    if strides == contiguous_strides(shape):
        return contiguous_strides(new_shape)
    new_strides = [1] * len(new_shape)
    dim = len(new_shape) - 1
    for run in merged_runs(shape, strides):
        covered = 1
        while dim >= 0 and (covered < run.size or new_shape[dim] == 1):
            new_strides[dim] = covered * run.stride
            covered *= new_shape[dim]
            dim -= 1
        if covered != run.size:
            return None
    return tuple(new_strides)


def view_seam(shape: Ints, strides: Ints, new_shape: Ints) -> tuple[int, int] | None:
    """The innermost (outer, inner) pair of dimensions that `new_shape` wants merged and are not."""
    if 0 in shape:
        return None
    cuts, count = {1}, 1
    for size in reversed(new_shape):
        count *= size
        cuts.add(count)
    runs = merged_runs(shape, strides)
    count = 1
    for inner, outer in pairwise(runs):
        count *= inner.size
        if count not in cuts:
            return outer.innermost, inner.outermost
    return None


def is_row_major(shape: Ints, strides: Ints) -> bool:
    """Whether elements in logical order are consecutive in memory."""
    return strides == contiguous_strides(shape) or row_major_fault(shape, strides) is None


def row_major_fault(shape: Ints, strides: Ints) -> tuple[int, int] | None:
    """The innermost dimension that breaks row-major order and the stride it needs, or None."""
    if 0 in shape:
        return None
    step = 1
    for dim in range(len(shape) - 1, -1, -1):
        size = shape[dim]
        if size == 1:
            continue
        if strides[dim] != step:
            return dim, step
        step *= size
    return None


def is_channels_last(shape: Ints, strides: Ints) -> bool:
    """Whether a 4-D (N, C, H, W) layout lies in memory as (N, H, W, C), as PyTorch defines it."""
    if len(shape) != 4:
        return False
    step = 1
    for dim in (1, 3, 2, 0):
        if shape[dim] != 1:
            if strides[dim] != step:
                return False
            step *= shape[dim]
    return True
