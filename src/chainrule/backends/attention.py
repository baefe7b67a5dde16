"""Scaled dot product attention on raw NumPy arrays, by tiles with an online softmax.

Milakov & Gimelshein 2018 for the running maximum and denominator, Dao et al. 2022 for the
recomputing backward. Memory beyond the results is linear in the sequence length. Relies on BLAS
for the products and on `parallel` for threads over (heads, rows).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from chainrule.backends import blas, parallel
from chainrule.backends.scratch import scratch
from chainrule.errors import DTypeError, InputError, ShapeError

Raw = Any


class Tile(NamedTuple):
    """How much of the score matrix is alive at once, per thread."""

    heads: int
    rows: int
    keys: int


class _Problem(NamedTuple):
    """The operands with all leading dimensions merged into one of `heads`."""

    q: Raw  # (heads, Sq, D)
    k: Raw  # (heads, Sk, D)
    v: Raw  # (heads, Sk, Dv)
    mask: Raw | None  # (..., Sq, Sk), broadcast but not merged: merging might copy it
    lead: tuple[int, ...]
    offset: int | None  # row i sees keys j <= i + offset; None: all keys
    scale: float

    @property
    def heads(self) -> int:
        return self.q.shape[0]

    @property
    def n_rows(self) -> int:
        return self.q.shape[1]

    @property
    def n_keys(self) -> int:
        return self.k.shape[1]

    def visible(self, r1: int) -> int:
        """How many keys the rows below `r1` may see: later tiles are skipped."""
        if self.offset is None:
            return self.n_keys
        return max(0, min(self.n_keys, r1 + self.offset))


def _merge(x: Raw, lead: tuple[int, ...]) -> Raw:
    if x.shape[:-2] != lead:
        x = np.broadcast_to(x, lead + x.shape[-2:])
    return x.reshape((math.prod(lead), *x.shape[-2:]))


def _problem(q: Raw, k: Raw, v: Raw, causal: str | None, mask: Raw, scale: Any) -> _Problem:
    """Check the operands and bring them to one form."""
    shapes = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise ShapeError(f"attention needs at least 2 dimensions, got {shapes}")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            f"attention takes q (…, Sq, D), k (…, Sk, D), v (…, Sk, Dv); got {shapes}: "
            "make D equal in q and k, and Sk in k and v"
        )
    if not (q.dtype == k.dtype == v.dtype and q.dtype in (np.float32, np.float64)):
        raise DTypeError(
            "attention takes q, k and v of one dtype, float32 or float64; "
            f"got {q.dtype}, {k.dtype}, {v.dtype}: cast them first"
        )
    if causal not in (None, "upper_left", "lower_right"):
        raise InputError(f'causal is None, "upper_left" or "lower_right"; got {causal!r}')
    try:
        lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    except ValueError as error:
        raise ShapeError(f"the leading dimensions do not broadcast: {shapes}") from error
    n_rows, n_keys = q.shape[-2], k.shape[-2]
    if mask is not None:
        if mask.dtype != np.bool_ and mask.dtype != q.dtype:
            raise DTypeError(f"the mask is bool or {q.dtype} like q; got {mask.dtype}")
        try:
            mask = np.broadcast_to(mask, (*lead, n_rows, n_keys))
        except ValueError as error:
            raise ShapeError(
                f"the mask {mask.shape} does not broadcast to the scores {(*lead, n_rows, n_keys)}"
            ) from error
    offset = {None: None, "upper_left": 0, "lower_right": n_keys - n_rows}[causal]
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    return _Problem(
        _merge(q, lead), _merge(k, lead), _merge(v, lead), mask, lead, offset, float(scale)
    )


def choose_tile(heads: int, n_rows: int, n_keys: int) -> Tile:
    """Long sequences: one head's wide tile; short ones: several heads in one batched product.

    Measured on 2 cores, float32: at 8 × 2048 × 64 everything from 256 × 512 to 256 × 2048 is
    within 5 %; at 64 × 128 × 32 causal 16 heads × 64 rows takes 0.4 of one head × 128 rows.
    """
    if n_keys <= 256:
        rows, keys, scores = min(n_rows, 64), n_keys, 128 * 1024
    else:
        rows, keys, scores = min(n_rows, 256), min(n_keys, 1024), 256 * 1024
    rows, keys = max(1, rows), max(1, keys)
    return Tile(max(1, min(heads, scores // (rows * keys))), rows, keys)


@lru_cache(maxsize=16)
def _ceiling(rows: int, keys: int, diagonal: int, dtype: Any) -> Raw:
    """+inf where key <= row + diagonal, else −inf: `fmin` with it masks even a NaN score."""
    seen = np.tri(rows, keys, diagonal, dtype=bool)
    ceiling = np.where(seen, np.inf, -np.inf).astype(dtype)
    ceiling.flags.writeable = False
    return ceiling


def _mask_scores(p: _Problem, s: Raw, g: slice, r0: int, c0: int) -> None:
    """Apply mask, bias and the causal diagonal to the scores of one tile, in place."""
    rows, keys = s.shape[1:]
    if p.mask is not None:
        for i, head in enumerate(range(g.start, g.stop)):
            tile = p.mask[np.unravel_index(head, p.lead)][r0 : r0 + rows, c0 : c0 + keys]
            if tile.dtype == np.bool_:
                np.copyto(s[i], -np.inf, where=~tile)
            else:
                np.add(s[i], tile, out=s[i])
    if p.offset is not None:
        # Only columns right of the first row's last visible key hold anything to mask.
        first = max(c0, r0 + p.offset + 1)
        if first < c0 + keys:
            part = s[:, :, first - c0 :]
            ceiling = _ceiling(rows, part.shape[2], r0 + p.offset - first, s.dtype)
            np.fmin(part, ceiling, out=part)


def _blocks(n: int, size: int) -> Iterator[tuple[int, int]]:
    return ((i, min(n, i + size)) for i in range(0, n, size))


_PARALLEL_FLOPS = 2e6  # below this a second thread costs more than it brings


def _run(task: Any, n_tasks: int, flops: float) -> None:
    """Run the tasks on the pool with BLAS held to one thread, or here with BLAS as it is."""
    threads = parallel.get_num_threads() if flops > _PARALLEL_FLOPS and blas.can_hold() else 1
    shared = threads > 1 and n_tasks > 1 and not parallel.in_parallel()
    with np.errstate(all="ignore"), blas.single_threaded() if shared else nullcontext():
        parallel.parallel_for(task, n_tasks, threads=threads)


def attention_forward(
    q: Raw,
    k: Raw,
    v: Raw,
    *,
    causal: str | None = None,
    mask: Raw | None = None,
    scale: float | None = None,
    tile: Tile | None = None,
) -> tuple[Raw, Raw]:
    """softmax(scale · q kᵀ + mask) v and the natural log-sum-exp of each row.

    q (…, Sq, D), k (…, Sk, D), v (…, Sk, Dv) of one dtype, float32 or float64, leading dimensions
    broadcast; `mask` broadcasts to (…, Sq, Sk): bool (True = attend) or a bias of q's dtype.
    `causal`: None, "upper_left" (key j ≤ row i) or "lower_right" (j ≤ i + Sk − Sq). Returns out
    (…, Sq, Dv) and lse (…, Sq); a row that sees no key gives 0 and −inf.
    """
    p = _problem(q, k, v, causal, mask, scale)
    tile = tile or choose_tile(p.heads, p.n_rows, p.n_keys)
    out = np.empty((p.heads, p.n_rows, v.shape[-1]), q.dtype)
    lse = np.empty((p.heads, p.n_rows), q.dtype)
    head_blocks = list(_blocks(p.heads, tile.heads))
    # The last rows see the most keys: first, so that no thread is left with them at the end.
    row_blocks = list(_blocks(p.n_rows, tile.rows))[::-1]

    def task(index: int) -> None:
        h, r = divmod(index, len(row_blocks))
        _forward_rows(p, tile, slice(*head_blocks[h]), *row_blocks[r], out, lse)

    flops = 2.0 * p.heads * p.n_rows * p.n_keys * (q.shape[-1] + v.shape[-1])
    _run(task, len(head_blocks) * len(row_blocks), flops)
    return out.reshape((*p.lead, *out.shape[1:])), lse.reshape((*p.lead, p.n_rows))


def _forward_rows(p: _Problem, tile: Tile, g: slice, r0: int, r1: int, out: Raw, lse: Raw) -> None:
    """One block of rows of a group of heads: the online softmax over its key tiles."""
    heads, rows, dtype = g.stop - g.start, r1 - r0, out.dtype
    acc = out[g, r0:r1]
    row = (heads, rows, 1)
    top = np.full(row, -np.inf, dtype)  # the running maximum
    total = np.zeros(row, dtype)  # the running denominator, relative to exp(top)
    scaled_q = scratch("q", (heads, rows, p.q.shape[2]), dtype)
    np.multiply(p.q[g, r0:r1], p.scale, out=scaled_q)
    limit = p.visible(r1)
    for c0, c1 in _blocks(limit, tile.keys):
        s = scratch("s", (heads, rows, c1 - c0), dtype)
        np.matmul(scaled_q, p.k[g, c0:c1].swapaxes(1, 2), out=s)
        _mask_scores(p, s, g, r0, c0)
        new_top = np.maximum.reduce(s, axis=2, keepdims=True)
        if c0:
            np.maximum(new_top, top, out=new_top)
        # A row that has seen no key yet has maximum −inf: shift it by 0, so that exp gives 0.
        shift = np.where(new_top == -np.inf, dtype.type(0), new_top)
        np.subtract(s, shift, out=s)
        np.exp(s, out=s)
        if c0 == 0:
            np.einsum("hrk->hr", s, out=total[:, :, 0])  # 2.5 times as fast as a reduce
            np.matmul(s, p.v[g, c0:c1], out=acc)
        else:
            rescale = np.exp(top - shift)
            total *= rescale
            total += np.einsum("hrk->hr", s)[:, :, None]
            acc *= rescale
            acc += np.matmul(s, p.v[g, c0:c1], out=scratch("pv", acc.shape, dtype))
        top = new_top
    if limit == 0:
        acc[...] = 0
    np.add(top, np.log(total), out=lse[g, r0:r1, None])
    total[total == 0] = 1
    np.divide(acc, total, out=acc)


def attention_backward(
    q: Raw,
    k: Raw,
    v: Raw,
    out: Raw,
    lse: Raw,
    d_out: Raw,
    d_lse: Raw | None = None,
    *,
    causal: str | None = None,
    mask: Raw | None = None,
    scale: float | None = None,
    tile: Tile | None = None,
) -> tuple[Raw, Raw, Raw]:
    """Gradients of q, k and v from the forward's results, the probabilities recomputed by tiles.

    Arguments as in `attention_forward`; `d_out` has out's shape, `d_lse` (optional) lse's. Each
    gradient has its operand's shape. Rows that see no key get and give zero.
    """
    p = _problem(q, k, v, causal, mask, scale)
    tile = tile or choose_tile(p.heads, p.n_rows, p.n_keys)
    dtype = q.dtype
    out, d_out = _merge(out, p.lead), _merge(d_out, p.lead)
    # d score = prob · (d_prob − delta): with delta, the softmax needs no row of its own Jacobian.
    delta = np.einsum("hrd,hrd->hr", d_out, out)
    if d_lse is not None:
        delta -= d_lse.reshape(delta.shape)
    lse = lse.reshape(delta.shape)
    # A row that sees no key has lse −inf and probabilities 0: shifted by +huge, exp gives them.
    shift = np.where(lse == -np.inf, np.finfo(dtype).max / 4, lse)

    dq = np.empty(p.q.shape, dtype)
    head_blocks = list(_blocks(p.heads, tile.heads))
    row_blocks = list(_blocks(p.n_rows, tile.rows))
    # Few heads: split the rows too, each part with its own dk and dv, summed in order below. The
    # split depends on the shape alone, so that the bits do not depend on the thread count.
    parts = max(1, min(len(row_blocks), 4 // max(1, len(head_blocks))))
    dk = np.zeros((parts, *p.k.shape), dtype)
    dv = np.zeros((parts, *p.v.shape), dtype)

    def task(index: int) -> None:
        h, part = divmod(index, parts)
        g, rows = slice(*head_blocks[h]), row_blocks[part::parts]
        _backward_rows(p, tile, g, rows, d_out, shift, delta, dq, dk[part], dv[part])

    flops = 2.0 * p.heads * p.n_rows * p.n_keys * (3 * q.shape[-1] + 2 * v.shape[-1])
    _run(task, len(head_blocks) * parts, flops)
    for part in range(1, parts):
        dk[0] += dk[part]
        dv[0] += dv[part]
    return (
        _unbroadcast(dq, p.lead, q.shape),
        _unbroadcast(dk[0], p.lead, k.shape),
        _unbroadcast(dv[0], p.lead, v.shape),
    )


def _unbroadcast(grad: Raw, lead: tuple[int, ...], shape: tuple[int, ...]) -> Raw:
    """Sum a merged gradient over the leading dimensions along which its operand was repeated."""
    grad = grad.reshape(lead + grad.shape[1:])
    missing = grad.ndim - len(shape)
    if missing:
        grad = grad.sum(axis=tuple(range(missing)))
    repeated = tuple(i for i, n in enumerate(shape) if n == 1 and grad.shape[i] != 1)
    return grad.sum(axis=repeated, keepdims=True) if repeated else grad


def _with_column(name: str, x: Raw, scale: float, column: Any) -> Raw:
    """[x · scale, column]: the product with such a pair adds a row's shift inside BLAS."""
    wide = scratch(name, (*x.shape[:2], x.shape[2] + 1), x.dtype)
    np.multiply(x, scale, out=wide[:, :, :-1])
    wide[:, :, -1] = column
    return wide


def _backward_rows(
    p: _Problem,
    tile: Tile,
    g: slice,
    row_blocks: list[tuple[int, int]],
    d_out: Raw,
    shift: Raw,
    delta: Raw,
    dq: Raw,
    dk: Raw,
    dv: Raw,
) -> None:
    """A group of heads: dq of the given row blocks, and their share of dk and dv."""
    heads, dtype = g.stop - g.start, dq.dtype
    k, v = p.k[g], p.v[g]
    wide_k = _with_column("wide_k", k, 1.0, 1.0)
    wide_v = _with_column("wide_v", v, 1.0, 1.0)
    for r0, r1 in row_blocks:
        rows = r1 - r0
        wide_q = _with_column("wide_q", p.q[g, r0:r1], p.scale, -shift[g, r0:r1])
        d_rows = _with_column("d_rows", d_out[g, r0:r1], 1.0, -delta[g, r0:r1])
        dq_rows = dq[g, r0:r1]
        limit = p.visible(r1)
        for c0, c1 in _blocks(limit, tile.keys):
            keys = c1 - c0
            prob = scratch("s", (heads, rows, keys), dtype)
            np.matmul(wide_q, wide_k[:, c0:c1].swapaxes(1, 2), out=prob)
            _mask_scores(p, prob, g, r0, c0)
            np.exp(prob, out=prob)
            part = scratch("part_v", (heads, keys, v.shape[2]), dtype)
            np.matmul(prob.swapaxes(1, 2), d_rows[:, :, :-1], out=part)
            dv[g, c0:c1] += part
            d_score = scratch("d_score", (heads, rows, keys), dtype)
            np.matmul(d_rows, wide_v[:, c0:c1].swapaxes(1, 2), out=d_score)
            np.multiply(d_score, prob, out=d_score)
            part = scratch("part_k", (heads, keys, k.shape[2]), dtype)
            np.matmul(d_score.swapaxes(1, 2), wide_q[:, :, :-1], out=part)
            dk[g, c0:c1] += part
            if c0 == 0:
                np.matmul(d_score, k[:, c0:c1], out=dq_rows)
            else:
                part = scratch("part_q", (heads, rows, k.shape[2]), dtype)
                dq_rows += np.matmul(d_score, k[:, c0:c1], out=part)
        if limit == 0:
            dq_rows[...] = 0
        np.multiply(dq_rows, p.scale, out=dq_rows)
