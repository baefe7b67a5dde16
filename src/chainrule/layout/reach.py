"""Which addresses a layout reaches: bounds, density, overlap, memory transactions.

Two elements share an address when sum(stride_i * step_i) hits a given number with bounded steps, a
subset-sum question: easy for nested strides, hard in general. `hits` answers it exactly by a
pruned search, or by a bit set of all reachable sums where that is small, and gives up (None)
beyond both limits. Dimensions are (count, stride) pairs; strides enter by their size only.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import gcd

Ints = tuple[int, ...]
Steps = list[tuple[int, int]]

# 2**24 bits are 2 MB: a few milliseconds. The search visits about a million nodes a second.
MAX_BITS = 1 << 24
MAX_NODES = 100_000


def bounds(shape: Ints, strides: Ints, offset: int) -> tuple[int, int] | None:
    """Lowest and highest address reached, or None where there are no elements."""
    if 0 in shape:
        return None
    low = high = offset
    for size, stride in zip(shape, strides, strict=True):
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    return low, high


def addresses(shape: Ints, strides: Ints, offset: int) -> Iterator[int]:
    """The address of every element, in row-major order of the index."""
    steps = ([i * stride for i in range(size)] for size, stride in zip(shape, strides, strict=True))
    for parts in product(*steps):
        yield offset + sum(parts)


def indices_at(shape: Ints, strides: Ints, offset: int, address: int) -> Iterator[Ints]:
    """Every index whose element lies at `address`; lazily, the long strides tried first."""
    span = bounds(shape, strides, offset)
    if span is None:
        return
    order = sorted(range(len(shape)), key=lambda dim: -abs(strides[dim]))
    # reach_after[k]: how far the strides after the k-th can still go.
    reach_after = [0]
    for dim in reversed(order):
        reach_after.append(reach_after[-1] + (shape[dim] - 1) * abs(strides[dim]))
    reach_after.reverse()
    index = [0] * len(shape)

    def walk(level: int, rest: int) -> Iterator[Ints]:
        if level == len(order):
            if rest == 0:
                yield tuple(index)
            return
        dim = order[level]
        size, stride = shape[dim], strides[dim]
        first, last = 0, size - 1
        if stride:
            first = max(0, -((reach_after[level + 1] - rest) // abs(stride)))
            last = min(last, rest // abs(stride))
        for x in range(first, last + 1):
            index[dim] = size - 1 - x if stride < 0 else x
            yield from walk(level + 1, rest - x * abs(stride))

    yield from walk(0, address - span[0])


def steps_of(shape: Ints, strides: Ints) -> Steps:
    """(size - 1, |stride|) of the dimensions that move, the largest stride first.

    Walking a dimension backwards reaches the same addresses, so the sign is dropped.
    """
    steps = [(n - 1, abs(s)) for n, s in zip(shape, strides, strict=True) if n > 1 and s]
    return sorted(steps, key=lambda step: -step[1])


def is_dense(shape: Ints, strides: Ints) -> bool:
    """Whether the elements fill exactly as many consecutive addresses, each once, in any order.

    Sums of arithmetic progressions tile an interval only as digits of a mixed-radix number: sorted
    by stride, each stride is the product of the sizes before it.
    """
    if 0 in shape:
        return True
    product_before = 1
    for stride, size in sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride != product_before:
            return False
        product_before *= size
    return True


def nests(steps: Steps) -> bool:
    """Whether every stride is longer than all smaller ones together reach: then no overlap."""
    reach = 0
    for count, stride in reversed(steps):
        if stride <= reach:
            return False
        reach += count * stride
    return True


def self_overlaps(shape: Ints, strides: Ints) -> bool | None:
    """Whether two different indices share an address; None when too large to decide."""
    if 0 in shape:
        return False
    if any(n > 1 and s == 0 for n, s in zip(shape, strides, strict=True)):
        return True
    steps = steps_of(shape, strides)
    if nests(steps):
        return False
    if len({stride for _, stride in steps}) < len(steps):
        return True  # a step along one dimension is a step along the other
    elements = 1
    for count, _ in steps:
        elements *= count + 1
    common = gcd(*(stride for _, stride in steps))
    span = sum(count * stride for count, stride in steps) // common + 1
    if elements > span:
        return True  # more elements than addresses
    if span <= MAX_BITS:
        return reached_bits(steps, common).bit_count() < elements
    # Two indices collide when their difference d, |d_i| <= n_i - 1, is not 0 and sums to 0. Shifted
    # to x = d + (n - 1): 0 <= x_i <= 2(n_i - 1), hitting the centre's sum away from the centre.
    centre = sum(count * stride for count, stride in steps)
    return hits([(2 * count, stride) for count, stride in steps], centre, avoid_centre=True)


def overlap(a: tuple[Ints, Ints, int], b: tuple[Ints, Ints, int]) -> bool | None:
    """Whether two layouts of one storage share an address; None when too large to decide."""
    reach_a, reach_b = bounds(*a), bounds(*b)
    if reach_a is None or reach_b is None:
        return False
    (low_a, high_a), (low_b, high_b) = reach_a, reach_b
    if high_a < low_b or high_b < low_a:
        return False
    steps_a, steps_b = steps_of(*a[:2]), steps_of(*b[:2])
    if not steps_a and not steps_b:
        return True
    common = gcd(*(stride for _, stride in steps_a + steps_b))
    if (low_b - low_a) % common:
        return False
    span = (max(high_a, high_b) - min(low_a, low_b)) // common + 1
    if span <= MAX_BITS:
        shift = (low_b - low_a) // common
        bits_a, bits_b = reached_bits(steps_a, common), reached_bits(steps_b, common)
        return bool(bits_a & (bits_b << shift) if shift >= 0 else (bits_a << -shift) & bits_b)
    # low_a + sum(a) == low_b + sum(b); with b walked from its far end: sum(a) + sum(b') is known.
    return hits(joined(steps_a + steps_b), high_b - low_a)


def joined(steps: Steps) -> Steps:
    """Fewer steps that reach the same sums, the longest stride first.

    Repeats of k·s add nothing but more repeats of s where s alone reaches up to the next k·s.
    """
    fewer: Steps = []
    for count, stride in sorted(steps, key=lambda step: step[1]):
        if fewer:
            base_count, base = fewer[-1]
            times, rest = divmod(stride, base)
            if rest == 0 and times <= base_count + 1:
                fewer[-1] = (base_count + count * times, base)
                continue
        fewer.append((count, stride))
    return fewer[::-1]


def reached_bits(steps: Steps, unit: int) -> int:
    """The set of sums that the steps reach, in units of `unit`, as the bits of one integer."""
    bits = 1
    for count, stride in steps:
        shift, size = stride // unit, count + 1
        # Doubling: the first m repeats, or-ed with themselves m further, are the first 2m.
        done = 1
        while done < size:
            more = min(done, size - done)
            bits |= bits << (more * shift)
            done += more
    return bits


def hits(steps: Steps, target: int, avoid_centre: bool = False) -> bool | None:
    """Whether sum(stride * x) == target for some 0 <= x <= count; None beyond MAX_NODES tries.

    With `avoid_centre` the solution x = count / 2 everywhere does not count. `steps` go from the
    longest stride; at each one only those x are tried that leave a rest within reach of the
    shorter strides and divisible by their greatest common divisor.
    """
    reach, common = [0], [0]
    for count, stride in reversed(steps):
        reach.append(reach[-1] + count * stride)
        common.append(gcd(common[-1], stride))
    reach.reverse()
    common.reverse()
    nodes = 0
    stack = [(0, target, avoid_centre)]
    while stack:
        level, rest, centred = stack.pop()
        if level == len(steps):
            if rest == 0 and not centred:
                return True
            continue
        count, stride = steps[level]
        first = max(0, -((reach[level + 1] - rest) // stride))
        last = min(count, rest // stride)
        unit = common[level + 1]
        for x in range(first, last + 1):
            nodes += 1
            if nodes > MAX_NODES:
                return None
            left = rest - x * stride
            if (left % unit == 0) if unit else (left == 0):
                stack.append((level + 1, left, centred and 2 * x == count))
    return False


def transactions(
    shape: Ints, strides: Ints, offset: int, dim: int, warp: int, itemsize: int, segment: int
) -> int:
    """How many memory segments the first `warp` elements along `dim` touch."""
    if 0 in shape:
        return 0
    size, stride = (shape[dim], strides[dim]) if shape else (1, 0)
    touched: set[int] = set()
    for thread in range(min(warp, size)):
        first = (offset + thread * stride) * itemsize
        touched.update(range(first // segment, (first + itemsize - 1) // segment + 1))
    return len(touched)
