"""Convolution on NumPy: channels innermost, windows along the last dimension, one product a row.

A padded block is kept as (height, images, width, channels). Its windows along the width are copied
once; the rows of the kernel then read them at an offset, without a further copy, so that each is
one large matrix product. The three maps are each other's derivatives: `forward`, `to_input` and
`to_weight`. Images are shared among threads, in chunks that do not depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from chainrule.backends import blas
from chainrule.backends.parallel import parallel_for
from chainrule.backends.scratch import scratch
from chainrule.layout.windows import Ints, Windows

Raw = Any

# Elements of a chunk's windows: half a megabyte of float32 stays in the cache next to a core.
_CHUNK = 2**17
# Multiplications below which handing over to a thread costs more than it saves.
_SMALL = 2**20


class Convolution(NamedTuple):
    """What a convolution is, besides its arrays."""

    windows: Windows
    groups: int
    channels_last: bool  # how the result lies in memory


def _last(x: Raw) -> Raw:
    """(N, C, …) seen as (N, …, C)."""
    return np.moveaxis(x, 1, -1)


def _new(like: Raw, n: int, channels: int, size: Sequence[int], last: bool) -> tuple[Raw, Raw]:
    """A fresh (N, C, …), its memory in either order, and the same seen as (N, …, C)."""
    if last:
        found = np.empty((n, *size, channels), like.dtype)
        return np.moveaxis(found, -1, 1), found
    found = np.empty((n, channels, *size), like.dtype)
    return found, _last(found)


def _inside(size: int, before: int, whole: int) -> tuple[slice, slice]:
    """Which part of a dimension is kept, and where it lies in the padded one (negative crops)."""
    start, stop = max(0, -before), min(size, whole - before)
    return slice(start, stop), slice(start + before, max(start, stop) + before)


def _blocked(x: Raw, before: Ints, whole: Ints) -> Raw:
    """(m, …, w, C) as a padded (…, m, w, C); a view where there is nothing to pad."""
    n = len(whole)
    x = np.moveaxis(x, 0, n - 1)
    size = (*x.shape[: n - 1], x.shape[n])
    if whole == size and not any(before):
        return x
    out = scratch("block", (*whole[:-1], x.shape[n - 1], whole[-1], x.shape[-1]), x.dtype)
    out.fill(0)
    kept = [_inside(a, b, c) for a, b, c in zip(size, before, whole, strict=True)]
    source = (*[k[0] for k in kept[:-1]], slice(None), kept[-1][0])
    target = (*[k[1] for k in kept[:-1]], slice(None), kept[-1][1])
    out[target] = x[source]
    return out


def _wide(block: Raw, w: Windows, width: int) -> Raw:
    """The windows along the last dimension, (…, m, width, taps · C): the only copy."""
    k, s, d = w.kernel[-1], w.stride[-1], w.dilation[-1]
    if k == 1:
        return block if s == 1 else block[..., : s * (width - 1) + 1 : s, :]
    *lead, _, channels = block.shape
    step, inner = block.strides[-2:]
    seen = np.lib.stride_tricks.as_strided(
        block,
        (*lead, width, k, channels),
        (*block.strides[:-2], s * step, d * step, inner),
        writeable=False,
    )
    out = scratch("wide", seen.shape, block.dtype)
    np.copyto(out, seen)
    return out.reshape(*lead, width, k * channels)


def _rows(wide: Raw, w: Windows, count: Ints) -> Iterator[Raw]:
    """For each row of the kernel the matrix (windows, taps · C) that it meets: views for stride 1."""
    lead = Windows(*[f[:-1] for f in w])
    for place in lead.taps(count[:-1]):
        yield wide[place].reshape(-1, wide.shape[-1])


def _in_chunks(n: int, per_image: int, work: int, run: Callable[[int, slice], None]) -> int:
    """Call `run(chunk, images)` for all images, on several threads where it is worth it."""
    step = max(1, min(n, _CHUNK // max(1, per_image)))
    chunks = -(-n // step)

    def one(i: int) -> None:
        run(i, slice(i * step, min(n, (i + 1) * step)))

    if chunks < 2 or work < _SMALL:
        for i in range(chunks):
            one(i)
    else:
        with blas.single_threaded():
            parallel_for(one, chunks)
    return chunks


def _by_group(x: Raw, groups: int) -> list[Raw]:
    """The channels (last) of each group."""
    each = x.shape[-1] // groups
    return [x[..., i * each : (i + 1) * each] for i in range(groups)]


def _filters(weight: Raw, groups: int) -> list[Raw]:
    """(O, C/g, …, k) as one (rows, k · C/g, O/g) a group."""
    out, channels, *kernel = weight.shape
    each = out // groups
    found = np.moveaxis(weight.reshape(groups, each, channels, *kernel), (1, 2), (-1, -2))
    rows = prod(kernel[:-1])
    return list(np.ascontiguousarray(found).reshape(groups, rows, kernel[-1] * channels, each))


def _unfiltered(found: Raw, shape: Sequence[int], groups: int) -> Raw:
    """The inverse of `_filters`, contiguous."""
    out, channels, *kernel = shape
    found = found.reshape(groups, *kernel, channels, out // groups)
    return np.ascontiguousarray(np.moveaxis(found, (-1, -2), (1, 2))).reshape(shape)


def forward(x: Raw, weight: Raw, bias: Raw | None, c: Convolution) -> Raw:
    """(N, C, …) and (O, C/g, …) to (N, O, …)."""
    size = c.windows.outputs(x.shape[2:], "convolution")
    out, seen = _new(x, x.shape[0], weight.shape[0], size, c.channels_last)
    _correlate(_last(x), weight, bias, c, seen)
    return out


def _correlate(x: Raw, weight: Raw, bias: Raw | None, c: Convolution, out: Raw) -> None:
    """Fill `out` (N, …, O) from `x` (N, …, C)."""
    w, n = c.windows, x.shape[0]
    count = out.shape[1:-1]
    whole = w.padded(x.shape[1:-1])
    filters = _filters(weight, c.groups)
    depthwise = weight.shape[1] == 1 and c.groups > 1
    per_image = prod(whole[:-1]) * count[-1] * (1 if depthwise else w.kernel[-1]) * x.shape[-1]

    def run(_: int, images: slice) -> None:
        block = _blocked(x[images], w.before, whole)
        m = block.shape[-3]
        if depthwise:
            found = _depthwise(block, weight, w, count)
        else:
            found = scratch("found", (prod(count) * m, out.shape[-1]), x.dtype)
            parts = zip(_by_group(block, c.groups), _by_group(found, c.groups), strict=True)
            for (p, q), f in zip(parts, filters, strict=True):
                _products(p, f, w, count, q)
        if bias is not None:
            found += bias
        shaped = found.reshape(*count[:-1], m, count[-1], out.shape[-1])
        out[images] = np.moveaxis(shaped, len(count) - 1, 0)

    _in_chunks(n, per_image, n * prod(count) * weight.size, run)


def _products(block: Raw, filters: Raw, w: Windows, count: Ints, total: Raw) -> None:
    """Fill `total` (windows, O) with Σ over the kernel's rows of (windows, k · C) (k · C, O)."""
    wide = _wide(block, w, count[-1])
    for i, rows in enumerate(_rows(wide, w, count)):
        if i == 0:
            np.matmul(rows, filters[i], out=total)
        else:
            total += np.matmul(rows, filters[i], out=scratch("part", total.shape, total.dtype))


def _tap(block: Raw, place: tuple[slice, ...]) -> Raw:
    """What one tap of the kernel meets: the images lie before the last dimension."""
    return block[(*place[:-1], slice(None), place[-1])]


def _depthwise(block: Raw, weight: Raw, w: Windows, count: Ints) -> Raw:
    """One filter (or a few) a channel: products by element, no matrix in sight."""
    groups = block.shape[-1]
    taps = np.moveaxis(weight.reshape(groups, weight.shape[0] // groups, -1), -1, 0)
    total: Raw = None
    for place, f in zip(w.taps(count), taps, strict=True):
        part = _tap(block, place)[..., None] * f
        total = part if total is None else np.add(total, part, out=total)
    return total.reshape(*total.shape[:-2], weight.shape[0])


def to_input(g: Raw, weight: Raw, c: Convolution, size: Ints) -> Raw:
    """The transpose in the input: (N, O, …) and the weight to (N, C, *size)."""
    w, channels = c.windows, weight.shape[1] * c.groups
    out, seen = _new(g, g.shape[0], channels, size, c.channels_last)
    if all(s == 1 for s in w.stride):  # a convolution again, the kernel reversed
        before = tuple([r - b for r, b in zip(w.reach, w.before, strict=True)])
        after = tuple([n - k + b for n, k, b in zip(size, g.shape[2:], w.before, strict=True)])
        back = Convolution(w._replace(before=before, after=after), c.groups, c.channels_last)
        _correlate(_last(g), _reversed(weight, c.groups), None, back, seen)
    else:
        _spread(_last(g), weight, c, seen)
    return out


def _reversed(weight: Raw, groups: int) -> Raw:
    """(O, C/g, …) as (C, O/g, …), the taps in reverse."""
    out, channels, *kernel = weight.shape
    found = weight.reshape(groups, out // groups, channels, *kernel).swapaxes(1, 2)
    found = found.reshape(groups * channels, out // groups, *kernel)
    return np.flip(found, tuple(range(2, found.ndim)))


def _spread(g: Raw, weight: Raw, c: Convolution, out: Raw) -> None:
    """Add each window's share into the elements that it saw (strides above 1)."""
    w, n = c.windows, g.shape[0]
    count, size = g.shape[1:-1], out.shape[1:-1]
    whole = w.padded(size)
    k = w.kernel[-1]
    filters = _filters(weight, c.groups)

    def run(_: int, images: slice) -> None:
        block = _blocked(g[images], (0,) * len(count), count)
        m = block.shape[-3]
        total = np.zeros((*whole[:-1], m, whole[-1], out.shape[-1]), g.dtype)
        for part, target, f in zip(
            _by_group(block, c.groups), _by_group(total, c.groups), filters, strict=True
        ):
            rows = part.reshape(-1, part.shape[-1])
            places = w.taps(count)
            for row in f:
                shares = np.matmul(rows, row.T).reshape(*count[:-1], m, count[-1], k, -1)
                for j in range(k):
                    _tap(target, next(places))[...] += shares[..., j, :]
        inner = tuple([slice(b, b + s) for b, s in zip(w.before, size, strict=True)])
        out[images] = np.moveaxis(_tap(total, inner), len(count) - 1, 0)

    _in_chunks(n, prod(whole) * out.shape[-1], n * prod(count) * weight.size, run)


def to_weight(x: Raw, g: Raw, c: Convolution) -> Raw:
    """The transpose in the weight: (N, C, …) and (N, O, …) to (O, C/g, …)."""
    w, n = c.windows, x.shape[0]
    x, g = _last(x), _last(g)
    count = g.shape[1:-1]
    whole = w.padded(x.shape[1:-1])
    channels, out = x.shape[-1] // c.groups, g.shape[-1] // c.groups
    found: dict[int, Raw] = {}

    def run(chunk: int, images: slice) -> None:
        block = _blocked(x[images], w.before, whole)
        other = _blocked(g[images], (0,) * len(count), count)
        if channels == 1 and c.groups > 1:
            found[chunk] = _depthwise_weight(block, other, w, count)
            return
        pairs = zip(_by_group(block, c.groups), _by_group(other, c.groups), strict=True)
        found[chunk] = np.stack([_weight_of(p, q, w, count) for p, q in pairs])

    per_image = prod(whole[:-1]) * count[-1] * w.kernel[-1] * x.shape[-1]
    shape = (g.shape[-1], channels, *w.kernel)
    chunks = _in_chunks(n, per_image, n * prod(count) * prod(shape), run)
    total = np.zeros((c.groups, *w.kernel, channels, out), x.dtype)
    for i in range(chunks):  # in order, so that the sum does not depend on the threads
        total += found[i].reshape(total.shape)
    return _unfiltered(total, shape, c.groups)


def _weight_of(block: Raw, g: Raw, w: Windows, count: Ints) -> Raw:
    wide = _wide(block, w, count[-1])
    columns = g.reshape(-1, g.shape[-1])
    return np.stack([np.matmul(rows.T, columns) for rows in _rows(wide, w, count)])


def _depthwise_weight(block: Raw, g: Raw, w: Windows, count: Ints) -> Raw:
    """(groups, taps, outputs a group), each the sum over all windows."""
    groups = block.shape[-1]
    g = g.reshape(*g.shape[:-1], groups, g.shape[-1] // groups)
    axes = tuple(range(g.ndim - 2))
    each = [np.sum(_tap(block, p)[..., None] * g, axes) for p in w.taps(count)]
    return np.stack(each, 1)
