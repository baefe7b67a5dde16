"""How well plain statistics predict a text, in bits per byte: what a network has to beat.

`empirical_entropy` is the textbook figure, counted on the very text that it describes.
`cross_entropy` is the honest rival of a trained network: counted on the training text, measured on
the held-out text. `gzip_bits` is what a well-known compressor makes of it. Relies on NumPy.
"""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np

from chainrule.errors import InputError

Raw = Any

MAX_ORDER = 2


def empirical_entropy(text: bytes, order: int) -> float:
    """H(byte | `order` bytes before it), from the text's own counts, in bits per byte.

    In-sample: on a short text a high order looks better than any model could do on unseen text.
    Positions without `order` bytes before them are left out. Order 0, 1 or 2; raises `InputError`.
    Source: C. E. Shannon, Prediction and Entropy of Printed English, 1951.
    """
    counts = _count(text, order)[1].astype(np.float64)
    of_context = counts.sum(axis=1, keepdims=True)
    seen = counts > 0
    bits = np.log2(np.broadcast_to(of_context, counts.shape)[seen]) - np.log2(counts[seen])
    return float((counts[seen] * bits).sum() / counts.sum())


def cross_entropy(train: bytes, held_out: bytes, order: int) -> float:
    """Bits per byte that a model of `order` bytes, counted on `train`, needs for `held_out`.

    The smoothing is Witten and Bell's, which has nothing to tune. A context seen n times, followed
    by T different bytes, gives the weight T to the next shorter context:

        P_k(b | c) = (n(c b) + T(c) · P_{k−1}(b | c′)) / (n(c) + T(c)),    P_{−1}(b) = 1/256

    so that every byte keeps some probability and each P_k sums to 1. A context never seen falls
    through to the shorter one. Order 0, 1 or 2; raises `InputError`.
    Source: I. H. Witten and T. C. Bell, The Zero-Frequency Problem, IEEE Trans. Information Theory
    37 (4), 1991.
    """
    return float(-np.log2(byte_probabilities(train, held_out, order)).mean())


def byte_probabilities(train: bytes, held_out: bytes, order: int) -> Raw:
    """The probability that the model of `cross_entropy` gives each byte of `held_out`, float64.

    The first bytes of `held_out` have fewer bytes before them and are predicted by shorter
    contexts.
    """
    if not held_out:
        raise InputError("The held-out text is empty: there is nothing to measure on.")
    _order(order)
    if not train:
        raise InputError("The training text is empty: there is nothing to count.")
    target = np.frombuffer(held_out, np.uint8).astype(np.int64)
    probability = np.full(target.size, 1 / 256)
    for k in range(min(order, len(train) - 1, len(held_out) - 1) + 1):
        row_of, counts = _count(train, k)
        rows = row_of[_contexts(target, k)]
        seen = rows >= 0
        rows = rows[seen]
        n = counts.sum(axis=1)[rows]
        distinct = (counts > 0).sum(axis=1)[rows]
        shorter = probability[k:]
        n_cb = counts[rows, target[k:][seen]]
        shorter[seen] = (n_cb + distinct * shorter[seen]) / (n + distinct)
    return probability


def gzip_bits(text: bytes) -> float:
    """Bits per byte of `text` after gzip at level 9, its 18 bytes of header and trailer included.

    gzip sees this text alone and starts without statistics.
    """
    if not text:
        raise InputError("The text is empty: there is nothing to compress.")
    return 8 * len(gzip.compress(text, compresslevel=9, mtime=0)) / len(text)


def _order(order: int) -> None:
    if not 0 <= order <= MAX_ORDER:
        raise InputError(f"The order is {order}: contexts of 0 to {MAX_ORDER} bytes are counted.")


def _contexts(text: Raw, order: int) -> Raw:
    """The `order` bytes before each byte from position `order` on, as one integer."""
    keys = np.zeros(text.size - order, np.int64)
    for k in range(order):
        keys = keys * 256 + text[k : text.size - order + k]
    return keys


def _count(text: bytes, order: int) -> tuple[Raw, Raw]:
    """How often each byte follows each context that occurs.

    Returns the row of each of the 256**order contexts (−1: it does not occur), and the counts,
    int64 of shape (rows, 256).
    """
    _order(order)
    if len(text) <= order:
        raise InputError(
            f"The text has {len(text)} bytes: an order-{order} count needs at least {order + 1}."
        )
    codes = np.frombuffer(text, np.uint8).astype(np.int64)
    keys = _contexts(codes, order)
    occurs = np.bincount(keys, minlength=256**order) > 0
    row_of = np.where(occurs, np.cumsum(occurs) - 1, -1)
    rows = int(np.count_nonzero(occurs))
    cells = row_of[keys] * 256 + codes[order:]
    return row_of, np.bincount(cells, minlength=rows * 256).reshape(rows, 256)
