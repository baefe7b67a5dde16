"""Order and running results on raw torch tensors: argsort, cummax, searchsorted, bincount, unique.

Part of the torch backend, which offers these functions as its own.
"""

from __future__ import annotations

from typing import Any

import torch

Raw = Any


def argsort(x: Raw, dim: int) -> Raw:
    """The stable order that puts `x` in order along `dim`, NaN last."""
    return x.sort(dim=dim, stable=True).indices


def cumprod(x: Raw, dim: int) -> Raw:
    """The running product along `dim`."""
    return x.cumprod(dim, dtype=x.dtype)


def cummax(x: Raw, dim: int) -> Raw:
    """The largest element so far along `dim`; NaN wins."""
    return torch.cummax(x, dim).values


def cummin(x: Raw, dim: int) -> Raw:
    """The smallest element so far along `dim`; NaN wins."""
    return torch.cummin(x, dim).values


def logcumsumexp(x: Raw, dim: int) -> Raw:
    """log of the running sum of exp along `dim`."""
    return torch.logcumsumexp(x, dim)


def searchsorted(ordered: Raw, values: Raw, right: bool) -> Raw:
    """Where each of `values` (…, m) would go in `ordered` (n,) or (…, n), int64."""
    return torch.searchsorted(ordered.contiguous(), values.contiguous(), right=right)


def bincount(x: Raw, weights: Raw | None, length: int) -> Raw:
    """How often each number 0, 1, … is in the 1-D `x`, or the sum of its weights."""
    found = torch.bincount(x, weights, length)
    return found if weights is None else found.to(weights.dtype)


def unique(x: Raw, dim: int | None) -> tuple[Raw, Raw, Raw]:
    """The different elements (slices along `dim`) in order, each one's number, and how often.

    NaN differs from NaN.
    """
    found: Any = x.unique(True, True, True, dim)
    return found


def scatter_extreme(x: Raw, places: Raw, src: Raw, kind: str) -> Raw:
    """A copy of the 1-D `x` with `src` taken in at `places` by "amax", "amin" or "prod"."""
    return x.scatter_reduce(0, places, src, kind)
