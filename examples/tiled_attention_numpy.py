"""Attention by tiles in plain NumPy: the online softmax, and why it needs no score matrix.

64 queries look at 64 keys, 16 at a time. Run it: it prints how far it is from the textbook form.
"""

from __future__ import annotations

import numpy as np

QUERIES, KEYS, HEAD_DIM, TILE = 64, 64, 32, 16


def naive_attention(q, k, v):
    """The textbook: a whole row of scores must exist before its softmax can start."""
    scores = q @ k.T / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights @ v


def tiled_attention(q, k, v, tile):
    """The same numbers, meeting the keys a tile at a time and never holding more scores.

    Softmax divides by a sum over all keys, and is computed relative to the largest score so that
    exp cannot overflow. Neither is known before the last tile. So each row carries three things:

        top    the largest score so far
        total  Σ exp(score − top) over the keys so far
        acc    Σ exp(score − top) · v over the keys so far

    When a tile brings a larger score, everything so far was computed relative to the wrong top:
    exp(score − new) = exp(score − old) · exp(old − new), so one factor a row puts it right.
    """
    rows = q.shape[0]
    top = np.full((rows, 1), -np.inf)
    total = np.zeros((rows, 1))
    acc = np.zeros((rows, v.shape[1]))
    for start in range(0, k.shape[0], tile):
        keys, values = k[start : start + tile], v[start : start + tile]
        scores = q @ keys.T / np.sqrt(q.shape[1])
        new_top = np.maximum(top, scores.max(axis=1, keepdims=True))
        rescale = np.exp(top - new_top)  # exp(−inf) = 0 on the first tile: nothing to put right
        weights = np.exp(scores - new_top)
        total = total * rescale + weights.sum(axis=1, keepdims=True)
        acc = acc * rescale + weights @ values
        top = new_top
    # The log of the softmax's denominator. With it a backward pass can recompute any tile of the
    # weights as exp(score − log_sum_exp), so it need not be given the weights either.
    log_sum_exp = top + np.log(total)
    return acc / total, log_sum_exp


def main() -> None:
    """Compare the two forms, on ordinary scores and on scores that would overflow exp."""
    rng = np.random.default_rng(0)
    q = rng.standard_normal((QUERIES, HEAD_DIM))
    k = rng.standard_normal((KEYS, HEAD_DIM))
    v = rng.standard_normal((KEYS, HEAD_DIM))
    want = naive_attention(q, k, v)
    got, log_sum_exp = tiled_attention(q, k, v, TILE)
    print(f"{QUERIES} queries, {KEYS} keys, head dim {HEAD_DIM}, tiles of {TILE} keys")
    print(f"largest difference from the naive form: {np.abs(got - want).max():.1e}")
    print(f"scores alive at once: {QUERIES * TILE} instead of {QUERIES * KEYS}")

    weights = np.exp(q @ k[:TILE].T / np.sqrt(HEAD_DIM) - log_sum_exp)
    print(f"first tile's share of the weights, recomputed: {weights.sum() / QUERIES:.3f}")

    got, _ = tiled_attention(1e4 * q, k, v, TILE)
    print(f"scores 10,000 times as large: finite {np.isfinite(got).all()}, ", end="")
    print(f"difference {np.abs(got - naive_attention(1e4 * q, k, v)).max():.1e}")


if __name__ == "__main__":
    main()
