"""Factorisations and systems on raw PyTorch tensors: the functions of `numpy_linalg`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from chainrule.backends.numpy_linalg import NOT_FINITE, NOT_POSITIVE, SINGULAR, failure

Raw = Any

_REFUSED: Any = torch.linalg.LinAlgError  # pyright: ignore[reportPrivateImportUsage]


def _told(fn: Callable[..., Raw], name: str, lack: str, x: Raw, *rest: Raw) -> Raw:
    try:
        return fn(x, *rest)
    except _REFUSED:
        raise failure(fn, name, lack, x, _REFUSED) from None


def inv(x: Raw) -> Raw:
    """The inverse."""
    return _told(torch.linalg.inv, "inv", SINGULAR, x)


def solve(a: Raw, y: Raw) -> Raw:
    """a⁻¹ y for matrices y, the batches broadcast."""
    if y.ndim < a.ndim:
        y = y.reshape((1,) * (a.ndim - y.ndim) + y.shape)
    try:
        return torch.linalg.solve(a, y)
    except _REFUSED:
        raise failure(torch.linalg.inv, "solve", SINGULAR, a, _REFUSED) from None


def cholesky(x: Raw) -> Raw:
    """The lower L with L Lᵀ = x, of which the lower triangle is read."""
    return _told(torch.linalg.cholesky, "cholesky", NOT_POSITIVE, x)


def qr(x: Raw, complete: bool) -> tuple[Raw, Raw]:
    """Q, R."""
    q, r = torch.linalg.qr(x, "complete" if complete else "reduced")
    return q, r


def svd(x: Raw, full: bool) -> tuple[Raw, Raw, Raw]:
    """U, S, Vᵀ."""
    u, s, v = _told(torch.linalg.svd, "svd", NOT_FINITE, x, full)
    return u, s, v


def eigh(x: Raw, uplo: str) -> tuple[Raw, Raw]:
    """Eigenvalues, ascending, and eigenvectors of the symmetric matrix in one triangle."""
    w, v = _told(torch.linalg.eigh, "eigh", NOT_FINITE, x, uplo)
    return w, v


def det(x: Raw) -> Raw:
    """The determinant."""
    return torch.linalg.det(x)


def slogdet(x: Raw) -> tuple[Raw, Raw]:
    """The determinant's sign and the logarithm of its size."""
    sign, size = torch.linalg.slogdet(x)
    return sign, size
