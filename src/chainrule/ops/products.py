"""The matrix and vector products that have names of their own, out of `matmul` and `*`.

Each states the shapes it takes and refuses others, as PyTorch does: none of them broadcasts a
batch unless it says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import joining, named, views
from chainrule.ops.inplace import in_place
from chainrule.ops.linalg import matmul
from chainrule.ops.norms import norm
from chainrule.ops.reductions import sum

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

Number = float | int


def _of_rank(name: str, *pairs: tuple[Any, int]) -> None:
    """Raise unless each tensor has its number of dimensions."""
    for i, (t, rank) in enumerate(pairs):
        if len(t._a.shape) != rank:
            raise ShapeError(
                f"{name}: operand {i} must have {rank} dimension{'s' * (rank != 1)}, it has shape "
                f"{tuple(t._a.shape)}"
            )


def dot(input: Tensor, other: Tensor) -> Tensor:
    """Σ aᵢ bᵢ of two vectors of one length and dtype, 0-d."""
    _of_rank("dot", (input, 1), (other, 1))
    return matmul(input, other)


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """A matrix (m, k) times a vector (k,): (m,)."""
    _of_rank("mv", (input, 2), (vec, 1))
    return matmul(input, vec)


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Matrices (m, k) and (k, n): (m, n)."""
    _of_rank("mm", (input, 2), (mat2, 2))
    return matmul(input, mat2)


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Stacks (b, m, k) and (b, k, n) of one length: (b, m, n); nothing broadcasts."""
    _of_rank("bmm", (input, 3), (mat2, 3))
    _same_batch("bmm", input, mat2)
    return matmul(input, mat2)


def _same_batch(name: str, a: Any, b: Any) -> None:
    if a._a.shape[0] != b._a.shape[0]:
        raise ShapeError(
            f"{name}: {a._a.shape[0]} and {b._a.shape[0]} matrices: there must be as many in both"
        )


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """aᵢ bⱼ of two vectors: (n, m); dtypes promote."""
    _of_rank("outer", (input, 1), (vec2, 1))
    return named.mul(views.unsqueeze(input, 1), vec2)


def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last dimension of both: (*a, *b); 0-d operands multiply."""
    a: Any = input
    b: Any = other
    if not a._a.shape or not b._a.shape:
        return named.mul(a, b)
    return tensordot(a, b, ([-1], [-1]))


def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Sums of products over pairs of dimensions; what is left of `a` comes first.

    `dims` is a number n (the last n of `a` with the first n of `b`) or two lists. Raises
    `ShapeError` where the sizes of a pair differ.
    """
    sa, sb = tuple(a._a.shape), tuple(b._a.shape)
    if isinstance(dims, int):
        if not 0 <= dims <= min(len(sa), len(sb)):
            raise InputError(
                f"tensordot: {dims} dims of shapes {sa} and {sb}: between 0 and the smaller rank"
            )
        da, db = list(range(len(sa) - dims, len(sa))), list(range(dims))
    else:
        first, second = dims if isinstance(dims, (tuple, list)) else dims.tolist()
        da = [views.checked_dim(d, len(sa)) for d in _listed(first)]
        db = [views.checked_dim(d, len(sb)) for d in _listed(second)]
    if len(da) != len(db) or len(set(da)) != len(da) or len(set(db)) != len(db):
        raise InputError(f"tensordot: dims {da} and {db} must be equally many, each once")
    for i, j in zip(da, db, strict=True):
        if sa[i] != sb[j]:
            raise ShapeError(
                f"tensordot: dimension {i} of shape {sa} and {j} of {sb} must be of one size"
            )
    ra = [d for d in range(len(sa)) if d not in da]
    rb = [d for d in range(len(sb)) if d not in db]
    count = _product([sa[d] for d in da])
    rows = _product([sa[d] for d in ra])
    columns = _product([sb[d] for d in rb])
    left = views.reshape(views.permute(a, (*ra, *da)), (rows, count))
    right = views.reshape(views.permute(b, (*db, *rb)), (count, columns))
    shape = (*[sa[d] for d in ra], *[sb[d] for d in rb])
    return views.reshape(matmul(left, right), shape)


def _listed(dims: Any) -> list[int]:
    return [dims] if isinstance(dims, int) else list(dims)


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for n in sizes:
        total *= n
    return total


def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: each element of `input` times all of `other`; dtypes promote."""
    rank = max(len(input._a.shape), len(other._a.shape))
    sa = (1,) * (rank - len(input._a.shape)) + tuple(input._a.shape)
    sb = (1,) * (rank - len(other._a.shape)) + tuple(other._a.shape)
    a = views.reshape(input, [n for size in sa for n in (size, 1)])
    b = views.reshape(other, [n for size in sb for n in (1, size)])
    return views.reshape(named.mul(a, b), tuple(m * n for m, n in zip(sa, sb, strict=True)))


def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """a × b of vectors of 3 along `dim` (the first of size 3 by default); the rest broadcasts."""
    shape = tuple(input._a.shape)
    if dim is None:
        found = [d for d, n in enumerate(shape) if n == 3]
        if not found:
            raise ShapeError(f"cross: no dimension of shape {shape} has size 3")
        dim = found[0] - len(shape)
    d, e = views.checked_dim(dim, len(shape)), views.checked_dim(dim, len(other._a.shape))
    if shape[d] != 3 or other._a.shape[e] != 3:
        raise ShapeError(
            f"cross: dimension {dim} of {shape} and {tuple(other._a.shape)} must have size 3"
        )
    a1, a2 = joining.roll(input, -1, d), joining.roll(input, -2, d)
    b1, b2 = joining.roll(other, -1, e), joining.roll(other, -2, e)
    return named.sub(named.mul(a1, b2), named.mul(a2, b1))


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """p-norm distances of all pairs of rows: (…, m, k) and (…, n, k) give (…, m, n).

    The gradient of a distance 0 is 0. Needs m·n·k elements of memory: exact, where a matrix
    product would cancel for close points.
    """
    for t in (x1, x2):
        if len(t._a.shape) < 2:
            raise ShapeError(f"cdist takes at least 2 dimensions, not shape {tuple(t._a.shape)}")
        if t.dtype.category != 2:
            raise DTypeError(f"cdist needs floating-point tensors, not {t.dtype.name}")
    if x1._a.shape[-1] != x2._a.shape[-1]:
        raise ShapeError(
            f"cdist: points of {x1._a.shape[-1]} and of {x2._a.shape[-1]} numbers have no distance"
        )
    if p < 0:
        raise InputError(f"cdist: p is {p}: it must not be negative")
    return norm(named.sub(views.unsqueeze(x1, -2), views.unsqueeze(x2, -3)), p, -1)


# A product added to something: β input + α product. β = 0 drops the input, NaN and all.


def _added(input: Any, product: Any, beta: Number, alpha: Number) -> Any:
    shape = tuple(product._a.shape)
    if input.dtype is not product.dtype:
        raise DTypeError(
            f"a {product.dtype.name} product cannot be added to {input.dtype.name}: convert one "
            "with .to(dtype)"
        )
    whole = input.dtype.category < 2
    if whole and not (float(alpha).is_integer() and float(beta).is_integer()):
        raise DTypeError(f"alpha {alpha} and beta {beta} have no place in {input.dtype.name}")
    if alpha != 1:
        product = named.mul(product, int(alpha) if whole else alpha)
    base = views.expand(input, shape)
    if beta == 0:
        return product
    if beta != 1:
        base = named.mul(base, int(beta) if whole else beta)
    return named.add(base, product)


def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """β input + α mat1 @ mat2; `input` broadcasts to (m, n)."""
    return _added(input, mm(mat1, mat2), beta, alpha)


def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """β input + α mat @ vec; `input` broadcasts to (m,)."""
    return _added(input, mv(mat, vec), beta, alpha)


def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """β input + α outer(vec1, vec2); `input` broadcasts to (n, m)."""
    return _added(input, outer(vec1, vec2), beta, alpha)


def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """β input + α bmm(batch1, batch2); `input` broadcasts to (b, m, n)."""
    return _added(input, bmm(batch1, batch2), beta, alpha)


def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """β input + α Σ batch1ᵢ @ batch2ᵢ; `input` broadcasts to (m, n)."""
    _of_rank("addbmm", (batch1, 3), (batch2, 3))
    _same_batch("addbmm", batch1, batch2)
    if batch1.dtype is not batch2.dtype:
        raise DTypeError(f"addbmm of {batch1.dtype.name} and {batch2.dtype.name}: convert one")
    summed = sum(bmm(batch1, batch2), 0, dtype=batch1.dtype)
    return _added(input, summed, beta, alpha)


addmm_ = in_place(addmm)
addmv_ = in_place(addmv)
addr_ = in_place(addr)
baddbmm_ = in_place(baddbmm)
addbmm_ = in_place(addbmm)
