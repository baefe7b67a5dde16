"""Softmax, log-softmax and squared deviations over dimensions of NumPy arrays.

Along contiguous last dimensions of some size the blocked kernels of `fused` run; elsewhere, and
for small arrays (a block costs 10 µs to set up), whole-array NumPy, in place where it can be.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from chainrule.backends import fused

Raw = Any

_SMALL = 1 << 12  # elements


def _blocked(x: Raw, dim: int) -> bool:
    return x.size >= _SMALL and dim == x.ndim - 1 and x.flags.c_contiguous and x.dtype.kind == "f"


def _shifted(x: Raw, dim: int) -> Raw:
    return x - np.maximum.reduce(x, dim, keepdims=True)


def softmax(x: Raw, dim: int) -> Raw:
    """exp(x − max) / Σ along `dim`; a 0-d array is one row of one element."""
    if not x.ndim or not x.size:
        return x * 0 + 1 if x.size else np.empty(x.shape, x.dtype)
    if _blocked(x, dim):
        return fused.softmax_forward(x)
    with np.errstate(all="ignore"):
        y = _shifted(x, dim)
        np.exp(y, out=y)
        y /= np.add.reduce(y, dim, keepdims=True)
        return y


def softmax_vjp(g: Raw, y: Raw, dim: int) -> Raw:
    """y (g − Σ g y)."""
    if not y.ndim or not y.size:
        return y * 0 * g
    if _blocked(y, dim) and g.flags.c_contiguous:
        return fused.softmax_backward(g, y)
    out = g * y
    total = np.add.reduce(out, dim, keepdims=True)
    np.subtract(g, total, out=out)
    out *= y
    return out


def log_softmax(x: Raw, dim: int) -> Raw:
    """x − max − log Σ exp(x − max) along `dim`."""
    if not x.ndim or not x.size:
        return x * 0
    if _blocked(x, dim):
        return fused.log_softmax_forward(x)
    with np.errstate(all="ignore"):
        y = _shifted(x, dim)
        y -= np.log(np.add.reduce(np.exp(y), dim, keepdims=True))
        return y


def log_softmax_vjp(g: Raw, y: Raw, dim: int) -> Raw:
    """g − exp(y) Σ g."""
    if not y.ndim or not y.size:
        return g - g
    if _blocked(y, dim) and g.flags.c_contiguous:
        return fused.log_softmax_backward(g, y)
    out = np.exp(y)
    out *= np.add.reduce(g, dim, keepdims=True)
    np.subtract(g, out, out=out)
    return out


def _mean(x: Raw, dims: tuple[int, ...]) -> Raw:
    if not dims:
        return x
    total = np.add.reduce(x, dims, keepdims=True)
    count = math.prod([x.shape[d] for d in dims])
    return total / (count or 1)


def sum_of_squared_deviations(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """Σ (x − mean)² over `dims`; exactly 0 where all are equal.

    The first element is taken off before the mean is: that of equal numbers need not be one of
    them, and the tiny rest would have a standard deviation whose gradient is not 0.
    """
    if not dims:
        return (x - x) ** 2
    off = x - x[tuple([slice(0, 1) if d in dims else slice(None) for d in range(x.ndim)])]
    off -= _mean(off, dims)
    if dims == (x.ndim - 1,):  # einsum takes less than half of a reduce's time along rows
        total = np.einsum("...c,...c->...", off, off)
        return total[..., None] if keepdim else total
    off *= off
    return np.add.reduce(off, dims, keepdims=keepdim)


def deviations_times(x: Raw, dims: tuple[int, ...], factor: Raw) -> Raw:
    """(x − mean) factor, where `factor` has size 1 along `dims`."""
    off = np.asarray(x - _mean(x, dims))
    off *= factor
    return off
