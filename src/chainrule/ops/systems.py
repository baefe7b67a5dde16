"""Linear systems and what belongs to them: solve, inv, det, slogdet, cholesky, pinv, lstsq.

All take batches of matrices in the last two dimensions. The rules are formulas in inputs and
results, so that every derivative follows; see Giles, "Collected matrix derivative results" (2008).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from chainrule.autograd.node import Node
from chainrule.autograd.value import Value, backend_for, new_value, raw_of
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, apply, common_backend, run_on, untracked
from chainrule.ops.linalg import matmul
from chainrule.ops.masking import tril, triu

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def swapped(b: Any, x: Any) -> Any:
    """The last two dimensions exchanged."""
    n = len(x.shape)
    return b.permute(x, (*range(n - 2), n - 1, n - 2))


def diagonal_mask(b: Any, k: int, like: Any) -> Any:
    """Ones on the diagonal of a (k, k) matrix, zeros elsewhere."""
    ones = b.full((k, k), 1.0, like)
    return b.tril(ones, 0) - b.tril(ones, -1)


def matrices(name: str, *tensors: Any, square: bool = False) -> None:
    """Raise unless all are floating-point matrices of one dtype and device, square if asked."""
    for t in tensors:
        if not isinstance(t, Value):
            raise DTypeError(f"{name} takes tensors, not {type(t).__name__}")
    common_backend(tensors, name)
    for t in tensors:
        dtype = backend_for(t._a).dtype_of(t._a)
        if not dtype.is_floating_point:
            raise DTypeError(f"{name} needs floating-point matrices, not {dtype.name}")
        shape = tuple(t._a.shape)
        if len(shape) < 2:
            raise ShapeError(f"{name} takes matrices (…, m, n), got shape {shape}")
        if square and shape[-1] != shape[-2]:
            raise ShapeError(f"{name} takes square matrices, got shape {shape}")
    if len({t._a.dtype for t in tensors}) > 1:
        names = " and ".join(sorted({backend_for(t._a).dtype_of(t._a).name for t in tensors}))
        raise DTypeError(f"{name} of {names}: convert one with .to(dtype)")


# Solve.


def _solve_forward(b: Any, a: Any, y: Any) -> Any:
    return b.linalg.solve(a, y)


def solved(b: Any, a: Any, y: Any) -> Any:
    """a⁻¹ y, on raw arrays or tensors."""
    return run_on(b, SOLVE, (a, y), ())


def _solve_vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    """X = A⁻¹B: gB = A⁻ᵀ g and gA = −gB Xᵀ."""
    gb = solved(b, swapped(b, saved[0]), g)
    ga = None if n.parents[0] is None else -b.matmul(gb, swapped(b, saved[1]))
    return ga, None if n.parents[1] is None else gb


SOLVE = ArrayRule(
    "solve",
    _solve_forward,
    _solve_vjp,
    lambda need: (0, "y") if need[0] else (0,),
    broadcasts=True,
)


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B, or X A = B for `left=False`: shapes (…, n, n) and (…, n, k), (n,) or (…, n).

    Raises `LinAlgError` for a singular A. B is a batch of vectors where it is 1-D or has A's shape
    without the last size.
    """
    matrices("solve", A, square=True)
    a: Any = A
    y: Any = B
    shape, other = a.shape, y.shape
    vector = len(other) == 1 or (len(other) == len(shape) - 1 and other == shape[:-1])
    if vector:
        y = views.unsqueeze(y, -1)
        if not left:
            raise ShapeError(f"solve: left=False wants matrices B, got shape {other}")
    matrices("solve", a, y)
    rows = y.shape[-2] if left else y.shape[-1]
    if rows != shape[-1]:
        raise ShapeError(f"solve: shapes {shape} and {other} do not fit: {shape[-1]} and {rows}")
    if left:
        out = apply(SOLVE, (a, y))
    else:
        out = apply(SOLVE, (a.mT, y.mT)).mT
    return views.squeeze(out, -1) if vector else out


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """X with A X = B where only one triangle of A is read, its diagonal ones if `unitriangular`."""
    matrices("solve_triangular", A, square=True)
    side: Any = triu if upper else tril
    if unitriangular:
        raw = raw_of(A)
        b = backend_for(raw)
        one = new_value(type(A), diagonal_mask(b, A.shape[-1], raw))
        return solve(side(A, 1 if upper else -1) + one, B, left=left)
    return solve(side(A), B, left=left)


# Inverse.


def _inv_forward(b: Any, x: Any) -> Any:
    return b.linalg.inv(x)


def _inv_vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    across = swapped(b, saved[0])
    return (-b.matmul(across, b.matmul(g, across)),)


INV = ArrayRule("inv", _inv_forward, _inv_vjp, ("y",))


def inv(A: Tensor) -> Tensor:
    """The inverse of each matrix (…, n, n); to solve a system, `solve` is faster and more exact.

    Raises `LinAlgError` that names the matrix where one is singular.
    """
    matrices("inv", A, square=True)
    return apply(INV, (A,))


# Determinants.


def _det_forward(b: Any, x: Any) -> Any:
    return b.linalg.det(x)


def _det_vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    """Jacobi: g times the matrix of cofactors, det · A⁻ᵀ where there is an inverse."""
    x, y = saved
    lifted = (*tuple(y.shape), 1, 1)
    raw = raw_of(y) if isinstance(y, Value) else y
    if bool((backend_for(raw).to_numpy(raw) != 0).all()):
        return (b.reshape(g * y, lifted) * swapped(b, run_on(b, INV, (x,), ())),)
    if isinstance(x, Value):
        return (b.reshape(g, lifted) * _cofactors_by_minors(b, x),)
    return (b.reshape(g, lifted) * _cofactors_by_svd(b, x),)


def _cofactors_by_svd(b: Any, x: Any) -> Any:
    """det(U) det(V) U diag(∏ of the other singular values) Vᵀ: exact for singular matrices too."""
    u, s, v = b.linalg.svd(x, False)
    k = s.shape[-1]
    mask = diagonal_mask(b, k, s)
    row = b.reshape(s, (*tuple(s.shape)[:-1], 1, k))
    others = b.prod(row * (1.0 - mask) + mask, (len(s.shape),), False)
    sign = b.reshape(b.linalg.det(u) * b.linalg.det(v), (*tuple(s.shape)[:-1], 1, 1))
    return b.matmul(u * b.reshape(others, (*tuple(s.shape)[:-1], 1, k)), v) * sign


def _cofactors_by_minors(b: Any, x: Any) -> Any:
    """Signed determinants of what is left without each row and column: differentiable again."""
    shape = tuple(x.shape)
    k = shape[-1]
    if k == 1:
        return b.full(shape, 1.0, x)
    rest = np.array([[j for j in range(k) if j != i] for i in range(k)])
    rows = np.broadcast_to(rest[:, None, :, None], (k, k, k - 1, k - 1))
    columns = np.broadcast_to(rest[None, :, None, :], (k, k, k - 1, k - 1))
    flat = b.reshape(x, (x.numel() // (k * k), k * k))
    host = backend_for(raw_of(x))
    at = new_value(type(x), host.from_numpy(np.ascontiguousarray(rows * k + columns).reshape(-1)))
    minors = b.reshape(b.index_get(flat, (slice(None), at)), (*shape, k - 1, k - 1))
    signs = host.from_numpy((-1.0) ** np.add.outer(np.arange(k), np.arange(k)))
    return apply(DET, (minors,)) * new_value(type(x), host.cast(signs, x.dtype))


DET = ArrayRule("det", _det_forward, _det_vjp, (0, "y"))


def det(A: Tensor) -> Tensor:
    """The determinant of each matrix (…, n, n), differentiable for singular ones too."""
    matrices("det", A, square=True)
    return apply(DET, (A,))


def _log_size_forward(b: Any, x: Any) -> Any:
    return b.linalg.slogdet(x)[1]


def _log_size_vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    lifted = (*tuple(g.shape), 1, 1)
    return (b.reshape(g, lifted) * swapped(b, run_on(b, INV, (saved[0],), ())),)


LOG_SIZE = ArrayRule("slogdet", _log_size_forward, _log_size_vjp, (0,))


class SignLogDet(NamedTuple):
    """A determinant as sign · exp(logabsdet)."""

    sign: Tensor
    logabsdet: Tensor


def slogdet(A: Tensor) -> SignLogDet:
    """Sign and log |det| of each matrix: (0, −∞) for a singular one, which has no gradient."""
    matrices("slogdet", A, square=True)
    sign = untracked("slogdet", (A,), lambda b, x: b.linalg.slogdet(x)[0])
    return SignLogDet(sign, apply(LOG_SIZE, (A,)))


def logdet(A: Tensor) -> Tensor:
    """The logarithm of the determinant: NaN where that is negative."""
    sign, size = slogdet(A)
    from chainrule.ops.named import where

    return where(sign < 0.0, float("nan"), size)


# Cholesky.


def _cholesky_forward(b: Any, x: Any) -> Any:
    return b.linalg.cholesky(x)


def _cholesky_vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    """L⁻ᵀ (P + Pᵀ − diag P)/2 L⁻¹ with P = tril(Lᵀ g); symmetric (Murray 2016)."""
    (low,) = saved
    up = swapped(b, low)
    p = b.tril(b.matmul(up, g), 0)
    middle = (p + swapped(b, p) - p * diagonal_mask(b, low.shape[-1], low)) * 0.5
    half = solved(b, up, middle)
    return (swapped(b, solved(b, up, swapped(b, half))),)


CHOLESKY = ArrayRule("cholesky", _cholesky_forward, _cholesky_vjp, ("y",))


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower L with L Lᵀ = A for symmetric positive-definite A, or its transpose for `upper`.

    Reads one triangle; the gradient is symmetric. Raises `LinAlgError` where A is not positive.
    """
    matrices("cholesky", A, square=True)
    x: Any = A
    found = apply(CHOLESKY, (x.mT if upper else x,))
    return found.mT if upper else found


# Without an inverse.


def _pinv_forward(b: Any, x: Any, rtol: float) -> Any:
    u, s, v = b.linalg.svd(x, False)
    k = s.shape[-1]
    if not k:
        return swapped(b, x) * 1.0
    large = b.amax(s, (len(s.shape) - 1,), True) * rtol
    inverse = b.where(s > large, 1.0 / b.where(s > large, s, 1.0), b.zeros((), s))
    row = b.reshape(inverse, (*tuple(s.shape)[:-1], 1, k))
    return b.matmul(swapped(b, v) * row, swapped(b, u))


def _pinv_vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    """−Pᵀ g Pᵀ + (I − AP) gᵀ P Pᵀ + Pᵀ P gᵀ (I − PA) (Golub & Pereyra 1973)."""
    a, p = saved
    pt, gt = swapped(b, p), swapped(b, g)
    left = b.matmul(gt, b.matmul(p, pt))
    right = b.matmul(b.matmul(pt, p), gt)
    left = left - b.matmul(a, b.matmul(p, left))
    right = right - b.matmul(b.matmul(right, p), a)
    return (left + right - b.matmul(pt, b.matmul(g, pt)),)


PINV = ArrayRule("pinv", _pinv_forward, _pinv_vjp, (0, "y"))


def pinv(A: Tensor, *, rtol: float | None = None) -> Tensor:
    """The Moore-Penrose inverse (…, n, m); singular values below rtol · the largest count as 0.

    `rtol` is max(m, n) · ε by default. Differentiable where the rank stays as it is.
    """
    matrices("pinv", A)
    if rtol is None:
        rtol = max(A.shape[-2:]) * (2.0**-52 if A.dtype.itemsize == 8 else 2.0**-23)
    if rtol < 0:
        raise InputError(f"pinv: rtol must not be negative, got {rtol}")
    return apply(PINV, (A,), (float(rtol),))


def lstsq(A: Tensor, B: Tensor, *, rtol: float | None = None) -> Tensor:
    """The X of least ‖A X − B‖, and of least ‖X‖ among several: `pinv(A) @ B`."""
    matrices("lstsq", A, B)
    if A.shape[-2] != B.shape[-2]:
        raise ShapeError(f"lstsq: shapes {A.shape} and {B.shape} differ in the number of rows")
    return matmul(pinv(A, rtol=rtol), B)
