"""Factors of matrices, batched: qr, svd, eigh, and the norms that are made of them.

An operation has one result, so a factorisation's parts lie packed in it, row after row, and the
parts that a user sees are views. The rules are formulas in the parts, so that second derivatives
follow; where two singular values or eigenvalues meet, vectors have no derivative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.autograd.value import new_value, raw_of
from chainrule.dtypes import DType
from chainrule.errors import GradError, InputError, ShapeError
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, apply, to_dtype, untracked
from chainrule.ops.extrema import amax, amin
from chainrule.ops.linalg import matmul
from chainrule.ops.named import abs as abs_of
from chainrule.ops.norms import norm as vector
from chainrule.ops.reductions import sum as sum_of
from chainrule.ops.systems import diagonal_mask, inv, matrices, solved, swapped

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

Shapes = tuple[tuple[int, ...], ...]


def _packed(b: Any, parts: Sequence[Any], lead: tuple[int, ...]) -> Any:
    flat = [b.reshape(p, (*lead, math.prod(tuple(p.shape)[len(lead) :]))) for p in parts]
    return b.concat(flat, len(lead))


def _parts(b: Any, y: Any, shapes: Shapes) -> list[Any]:
    """The factors out of a packed result or its gradient."""
    lead = tuple(y.shape)[:-1]
    found: list[Any] = []
    start = 0
    for shape in shapes:
        size = math.prod(shape)
        found.append(b.reshape(y[..., start : start + size], (*lead, *shape)))
        start += size
    return found


def _seen(y: Any, shapes: Shapes) -> list[Any]:
    """The factors as views of the packed result."""
    lead = tuple(y.shape)[:-1]
    found: list[Any] = []
    start = 0
    for shape in shapes:
        size = math.prod(shape)
        found.append(views.reshape(views.narrow(y, -1, start, size), (*lead, *shape)))
        start += size
    return found


def _over(b: Any, x: Any, y: Any) -> Any:
    """x / y, and 0 where both are 0: parts that no one asked for have no gradient."""
    return x / b.where(b.eq(b.abs(x) + b.abs(y), 0.0), 1.0, y)


# Singular values.


def _svd_shapes(m: int, n: int, full: bool) -> Shapes:
    k = min(m, n)
    return ((m, m if full else k), (k,), (n if full else k, n))


def _svd_forward(b: Any, x: Any, full: bool) -> Any:
    return _packed(b, b.linalg.svd(x, full), tuple(x.shape)[:-2])


def _svd_vjp(b: Any, g: Any, saved: Sequence[Any], node: Node) -> tuple[Any, ...]:
    """U ((skew(Uᵀ gU)/E) S + S (skew(Vᵀ gV)/E) + diag gS) Vᵀ, E = sⱼ² − sᵢ² (Townsend 2016).

    Beyond a square, what gU and gV have outside the span of U and V, over s.
    """
    (y,), (full,) = saved, node.attrs
    m, n = tuple(node.parents[0].shape)[-2:]  # pyright: ignore[reportOptionalMemberAccess]
    k = min(m, n)
    u, s, v = _parts(b, y, _svd_shapes(m, n, full))
    gu, gs, gv = _parts(b, g, _svd_shapes(m, n, full))
    if full:  # the columns that complete a basis are not determined: only the others count
        u, gu, v, gv = u[..., :k], gu[..., :k], v[..., :k, :], gv[..., :k, :]
    lead = tuple(s.shape)[:-1]
    row, column = b.reshape(s, (*lead, 1, k)), b.reshape(s, (*lead, k, 1))
    mask = diagonal_mask(b, k, s)
    gap = (row - column) * (row + column) + mask
    ut, vt = swapped(b, u), swapped(b, v)
    in_u, in_v = b.matmul(ut, gu), b.matmul(v, swapped(b, gv))
    turn_u = _over(b, in_u - swapped(b, in_u), gap)
    turn_v = _over(b, in_v - swapped(b, in_v), gap)
    middle = turn_u * row + column * turn_v + mask * b.reshape(gs, (*lead, 1, k))
    found = b.matmul(u, b.matmul(middle, v))
    if m > k:
        out = _over(b, gu - b.matmul(u, in_u), row)
        found = found + b.matmul(out, v)
    if n > k:
        out = _over(b, gv - b.matmul(b.matmul(gv, vt), v), column)
        found = found + b.matmul(u, out)
    return (found,)


SVD = ArrayRule("svd", _svd_forward, _svd_vjp, ("y",))


class Svd(NamedTuple):
    """A = U diag(S) Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def svd(A: Tensor, full_matrices: bool = True) -> Svd:
    """U, S, Vh with A = U diag(S) Vh: (…, m, n) gives U (…, m, k), S (…, k), Vh (…, k, n).

    k = min(m, n); with `full_matrices` U is (…, m, m) and Vh (…, n, n), whose further columns have
    no gradient. Vectors have none either where singular values are equal: use `svdvals`.
    """
    matrices("svd", A)
    shapes = _svd_shapes(A.shape[-2], A.shape[-1], full_matrices)
    return Svd._make(_seen(apply(SVD, (A,), (bool(full_matrices),)), shapes))


def _svdvals_forward(b: Any, x: Any) -> Any:
    u, s, v = b.linalg.svd(x, False)
    return s, (u, v)


def _svdvals_vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    u, v = saved[-2:]
    return (b.matmul(u * b.reshape(g, (*tuple(g.shape)[:-1], 1, g.shape[-1])), v),)


SVDVALS = ArrayRule(
    "svdvals",
    _svdvals_forward,
    _svdvals_vjp,
    (0,),
    composite=lambda x: svd(x, False).S,
)


def svdvals(A: Tensor) -> Tensor:
    """The singular values of each matrix, descending."""
    matrices("svdvals", A)
    return apply(SVDVALS, (A,))


# Eigenvalues of symmetric matrices.


def _eigh_shapes(n: int) -> Shapes:
    return ((n,), (n, n))


def _eigh_forward(b: Any, x: Any, uplo: str) -> Any:
    return _packed(b, b.linalg.eigh(x, uplo), tuple(x.shape)[:-2])


def _eigh_vjp(b: Any, g: Any, saved: Sequence[Any], node: Node) -> tuple[Any, ...]:
    """V (diag gλ + (Vᵀ gV)/E) Vᵀ with E = λⱼ − λᵢ off the diagonal."""
    n = node.parents[0].shape[-1]  # pyright: ignore[reportOptionalMemberAccess]
    w, v = _parts(b, saved[0], _eigh_shapes(n))
    gw, gv = _parts(b, g, _eigh_shapes(n))
    lead = tuple(w.shape)[:-1]
    row = b.reshape(w, (*lead, 1, n))
    mask = diagonal_mask(b, n, w)
    gap = row - b.reshape(w, (*lead, n, 1)) + mask
    vt = swapped(b, v)
    turn = _over(b, b.matmul(vt, gv) * (1.0 - mask), gap)
    middle = turn + mask * b.reshape(gw, (*lead, 1, n))
    return (b.matmul(v, b.matmul(middle, vt)),)


EIGH = ArrayRule("eigh", _eigh_forward, _eigh_vjp, ("y",))


class Eigh(NamedTuple):
    """A = V diag(λ) Vᵀ."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def eigh(A: Tensor, UPLO: str = "L") -> Eigh:
    """Eigenvalues (…, n), ascending, and eigenvectors (…, n, n) of symmetric matrices.

    Reads the lower triangle, or the upper for `UPLO="U"`. The gradient is that of a matrix whose
    two triangles move together.
    """
    matrices("eigh", A, square=True)
    if UPLO.upper() not in ("L", "U"):
        raise InputError(f'eigh: UPLO is "L" or "U", got {UPLO!r}')
    packed = apply(EIGH, (A,), (UPLO.upper(),))
    return Eigh._make(_seen(packed, _eigh_shapes(A.shape[-1])))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric matrices, ascending."""
    return eigh(A, UPLO).eigenvalues


# QR.


def _qr_shapes(m: int, n: int, complete: bool) -> Shapes:
    k = m if complete else min(m, n)
    return ((m, k), (k, n))


def _qr_forward(b: Any, x: Any, complete: bool) -> Any:
    return _packed(b, b.linalg.qr(x, complete), tuple(x.shape)[:-2])


def _qr_vjp(b: Any, g: Any, saved: Sequence[Any], node: Node) -> tuple[Any, ...]:
    """(gQ + Q (T + Tᵀ − diag T)) R⁻ᵀ, T = triu(gR Rᵀ − Qᵀ gQ) (Liao et al. 2019).

    Of a wide matrix the columns beyond a square are Q times their part of R.
    """
    (y,), (complete,) = saved, node.attrs
    m, n = tuple(node.parents[0].shape)[-2:]  # pyright: ignore[reportOptionalMemberAccess]
    if complete and m > n:
        raise GradError(
            f"qr: the complete Q of a {m}×{n} matrix is not determined, so it has no gradient: use "
            'mode="reduced"'
        )
    q, r = _parts(b, y, _qr_shapes(m, n, complete))
    gq, gr = _parts(b, g, _qr_shapes(m, n, complete))
    gr = b.triu(gr, 0)
    beyond = None
    if n > m:
        beyond = b.matmul(q, gr[..., m:])
        gq = gq + b.matmul(b.matmul(q, r[..., m:]), swapped(b, gr[..., m:]))
        r, gr = r[..., :m], gr[..., :m]
    t = b.triu(b.matmul(gr, swapped(b, r)) - b.matmul(swapped(b, q), gq), 0)
    both = t + swapped(b, t) - t * diagonal_mask(b, r.shape[-1], r)
    found = swapped(b, solved(b, r, swapped(b, gq + b.matmul(q, both))))
    if beyond is not None:
        found = b.concat([found, beyond], len(found.shape) - 1)
    return (found,)


QR = ArrayRule("qr", _qr_forward, _qr_vjp, ("y",))


class Qr(NamedTuple):
    """A = Q R."""

    Q: Tensor
    R: Tensor


def qr(A: Tensor, mode: str = "reduced") -> Qr:
    """Q, R with orthonormal columns in Q and R upper triangular: (…, m, k) and (…, k, n).

    k = min(m, n), or m in mode "complete"; mode "r" leaves Q empty, and has no gradient. The
    first k columns must be independent for one.
    """
    matrices("qr", A)
    if mode == "r":
        r = untracked("qr", (A,), lambda b, x: b.linalg.qr(x, False)[1])
        raw = raw_of(r)
        return Qr(new_value(type(r), raw.reshape(-1)[:0]), r)
    if mode not in ("reduced", "complete"):
        raise InputError(f'qr: mode is "reduced", "complete" or "r", got {mode!r}')
    complete = mode == "complete"
    return Qr._make(
        _seen(apply(QR, (A,), (complete,)), _qr_shapes(A.shape[-2], A.shape[-1], complete))
    )


# Norms.

Order = float | str | None


def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The `ord`-norm of the elements along `dim` (all by default)."""
    return vector(x, ord, dim, keepdim, dtype)


def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: tuple[int, int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """A norm of the matrices in two dimensions: "fro", "nuc", ±1, ±2 or ±inf.

    ±1 is the largest or smallest column sum of |A|, ±inf of the row sums, ±2 of the singular
    values; "nuc" is the sum of those.
    """
    x: Any = A if dtype is None else to_dtype(A, dtype)
    matrices("matrix_norm", x)
    if len(dim) != 2:
        raise InputError(f"matrix_norm: dim names two dimensions, got {dim}")
    first, last = (views.checked_dim(d, x.ndim) for d in dim)
    if first == last:
        raise ShapeError(f"matrix_norm: dim {dim} names a dimension twice")
    if ord == "fro":
        return vector(x, 2.0, (first, last), keepdim)
    if ord in ("nuc", 2, -2):
        values: Any = svdvals(views.movedim(x, (first, last), (-2, -1)))
        if ord == "nuc":
            found = sum_of(values, -1)
        else:
            found = amax(values, -1) if ord == 2 else amin(values, -1)
    elif ord in (1, -1, math.inf, -math.inf):
        assert not isinstance(ord, str)
        across, along = (first, last) if abs(ord) == 1 else (last, first)
        sums: Any = sum_of(abs_of(x), across, True)
        found = amax(sums, along, True) if ord > 0 else amin(sums, along, True)
        return found if keepdim else views.squeeze(found, (first, last))
    else:
        raise InputError(f'matrix_norm: ord is "fro", "nuc", ±1, ±2 or ±inf, got {ord!r}')
    if keepdim:
        for d in sorted((first, last)):
            found = views.unsqueeze(found, d)
    return found


def norm(
    A: Tensor,
    ord: Order = None,
    dim: int | tuple[int, ...] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """`vector_norm` or `matrix_norm`, as `ord` and `dim` say; without `ord` the 2-norm of all.

    With `ord` and no `dim` the tensor is a vector or a matrix; two dims mean a matrix norm.
    """
    pair = dim if isinstance(dim, tuple) and len(dim) == 2 else None
    if ord is None:
        return vector(A, 2.0, dim, keepdim, dtype)
    if dim is None and A.ndim == 2:
        pair = (0, 1)
    if pair is not None:
        return matrix_norm(A, ord, pair, keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise InputError(f"norm: ord={ord!r} is a norm of matrices: name two dimensions")
    if dim is None and A.ndim != 1:
        raise ShapeError(f"norm with ord={ord} and no dim is for 1 or 2 dimensions, got {A.shape}")
    return vector(A, ord, dim, keepdim, dtype)


# Small uses.


def matrix_power(A: Tensor, n: int) -> Tensor:
    """A multiplied with itself n times by repeated squaring; negative powers of the inverse."""
    matrices("matrix_power", A, square=True)
    base: Any = inv(A) if n < 0 else A
    out: Any = None
    n = abs(n)
    while n:
        if n & 1:
            out = base if out is None else matmul(out, base)
        n >>= 1
        if n:
            base = matmul(base, base)
    if out is None:
        raw = raw_of(A)
        one = untracked("matrix_power", (A,), lambda b, x: diagonal_mask(b, x.shape[-1], x))
        return views.clone(views.expand(one, tuple(raw.shape)))
    return views.clone(out) if out is A else out


def matrix_rank(A: Tensor, *, rtol: float | None = None) -> Tensor:
    """How many singular values exceed rtol · the largest; int64, `rtol` max(m, n) · ε."""
    matrices("matrix_rank", A)
    values = svdvals(views.detach(A))
    if rtol is None:
        rtol = max(A.shape[-2:]) * (2.0**-52 if A.dtype.itemsize == 8 else 2.0**-23)
    above = values > amax(values, -1, True) * rtol
    return sum_of(to_dtype(above, dtypes.int64), -1)
