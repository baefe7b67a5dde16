"""Factorisations and systems on NumPy arrays, batched; LAPACK's failures become `LinAlgError`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.errors import ChainruleError

Raw = Any


class LinAlgError(ChainruleError, RuntimeError, np.linalg.LinAlgError):
    """A matrix has not what the operation needs: an inverse, or positive eigenvalues."""


def _told(fn: Callable[..., Raw], name: str, lack: str, x: Raw, *rest: Raw) -> Raw:
    """`fn(x, *rest)`; where LAPACK refuses, an error that says which matrix of the batch it is."""
    try:
        return fn(x, *rest)
    except np.linalg.LinAlgError:
        raise failure(fn, name, lack, x, np.linalg.LinAlgError) from None


def failure(fn: Any, name: str, lack: str, x: Raw, refused: type[Exception]) -> LinAlgError:
    """The error for a batch in which `fn` refuses a matrix: names the first such one."""
    where = ""
    if x.ndim > 2:
        for index in np.ndindex(*x.shape[:-2]):
            try:
                fn(x[index])
            except refused:  # noqa: PERF203, the first that fails is looked for
                where = f" {index if len(index) > 1 else index[0]} of the batch"
                break
    size = "×".join(map(str, x.shape[-2:]))
    return LinAlgError(f"{name}: the {size} matrix{where} {lack}")


SINGULAR = "is singular: it has no inverse (lstsq and pinv do without one)"
NOT_POSITIVE = "is not positive-definite (add a small multiple of the identity if it should be)"
NOT_FINITE = "holds NaN or infinity, or the iteration did not converge"


def inv(x: Raw) -> Raw:
    """The inverse."""
    return _told(np.linalg.inv, "inv", SINGULAR, x)


def solve(a: Raw, y: Raw) -> Raw:
    """a⁻¹ y for matrices y, the batches broadcast."""
    if y.ndim < a.ndim:  # NumPy 1 would take it for vectors
        y = y.reshape((1,) * (a.ndim - y.ndim) + y.shape)
    try:
        return np.linalg.solve(a, y)
    except np.linalg.LinAlgError:
        raise failure(np.linalg.inv, "solve", SINGULAR, a, np.linalg.LinAlgError) from None


def cholesky(x: Raw) -> Raw:
    """The lower L with L Lᵀ = x, of which the lower triangle is read."""
    return _told(np.linalg.cholesky, "cholesky", NOT_POSITIVE, x)


def qr(x: Raw, complete: bool) -> tuple[Raw, Raw]:
    """Q, R."""
    q, r = np.linalg.qr(x, "complete" if complete else "reduced")
    return q, r


def svd(x: Raw, full: bool) -> tuple[Raw, Raw, Raw]:
    """U, S, Vᵀ."""
    u, s, v = _told(np.linalg.svd, "svd", NOT_FINITE, x, full)
    return u, s, v


def eigh(x: Raw, uplo: str) -> tuple[Raw, Raw]:
    """Eigenvalues, ascending, and eigenvectors of the symmetric matrix in one triangle."""
    w, v = _told(np.linalg.eigh, "eigh", NOT_FINITE, x, uplo)
    return w, v


def det(x: Raw) -> Raw:
    """The determinant."""
    return np.asarray(np.linalg.det(x))


def slogdet(x: Raw) -> tuple[Raw, Raw]:
    """The determinant's sign and the logarithm of its size."""
    with np.errstate(divide="ignore"):
        sign, size = np.linalg.slogdet(x)
    return np.asarray(sign), np.asarray(size)
