"""Order and running results on NumPy arrays: argsort, cummax, searchsorted, bincount, unique.

Part of the NumPy backend, which offers these functions as its own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Raw = Any


def argsort(x: Raw, dim: int) -> Raw:
    """The stable order that puts `x` in order along `dim`, NaN last."""
    return np.argsort(x, dim, kind="stable")


def cumprod(x: Raw, dim: int) -> Raw:
    """The running product along `dim`."""
    with np.errstate(all="ignore"):
        return np.multiply.accumulate(x, dim, dtype=x.dtype)


def cummax(x: Raw, dim: int) -> Raw:
    """The largest element so far along `dim`; NaN wins."""
    return np.maximum.accumulate(x, dim)


def cummin(x: Raw, dim: int) -> Raw:
    """The smallest element so far along `dim`; NaN wins."""
    return np.minimum.accumulate(x, dim)


def logcumsumexp(x: Raw, dim: int) -> Raw:
    """log of the running sum of exp along `dim`."""
    with np.errstate(all="ignore"):
        return np.logaddexp.accumulate(x, dim)


def searchsorted(ordered: Raw, values: Raw, right: bool) -> Raw:
    """Where each of `values` (…, m) would go in `ordered` (n,) or (…, n), int64."""
    side = "right" if right else "left"
    if ordered.ndim == 1:
        return np.asarray(np.searchsorted(ordered, values, side), np.int64)
    out = np.empty(values.shape, np.int64)
    rows = math.prod(ordered.shape[:-1])
    pairs = zip(
        ordered.reshape(rows, ordered.shape[-1]),
        values.reshape(rows, values.shape[-1]),
        out.reshape(rows, values.shape[-1]),
        strict=True,
    )
    for row, wanted, target in pairs:
        target[:] = np.searchsorted(row, wanted, side)
    return out


def bincount(x: Raw, weights: Raw | None, length: int) -> Raw:
    """How often each number 0, 1, … is in the 1-D `x`, or the sum of its weights."""
    found = np.bincount(x, weights, length)
    return found if weights is None else found.astype(weights.dtype, copy=False)


def unique(x: Raw, dim: int | None) -> tuple[Raw, Raw, Raw]:
    """The different elements (slices along `dim`) in order, each one's number, and how often.

    NaN differs from NaN.
    """
    values, inverse, counts = np.unique(
        x, return_inverse=True, return_counts=True, axis=dim, equal_nan=False
    )
    return values, inverse.reshape(x.shape if dim is None else -1), counts


_UFUNC = {"amax": np.maximum, "amin": np.minimum, "prod": np.multiply}


def scatter_extreme(x: Raw, places: Raw, src: Raw, kind: str) -> Raw:
    """A copy of the 1-D `x` with `src` taken in at `places` by "amax", "amin" or "prod"."""
    out = np.array(x, order="C", copy=True)
    with np.errstate(all="ignore"):
        _UFUNC[kind].at(out, places, src)
    return out
