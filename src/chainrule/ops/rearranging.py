"""Diagonals, grids, turns and cuts: diag, trace, meshgrid, rot90, repeat_interleave, tensor_split.

All are views, or views and one copy, of `views` and `joining`, whose gradients they take.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from chainrule import dtypes
from chainrule.autograd.value import Value, backend_for, new_value, raw_of
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.layout import Layout
from chainrule.ops import joining, named, views
from chainrule.ops._apply import common_backend, to_dtype
from chainrule.ops.gathering import index_select
from chainrule.ops.reductions import sum

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

# Diagonals.


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Zeros with the last dimension of `input` along the diagonal of two new ones."""
    shape = tuple(input._a.shape)
    if not shape:
        raise ShapeError("diag_embed takes at least one dimension")
    rank = len(shape) + 1
    a, b = views.checked_dim(dim1, rank), views.checked_dim(dim2, rank)
    if a == b:
        raise InputError(f"diag_embed: dim1 and dim2 are both dimension {a}")
    side = shape[-1] + abs(offset)
    rest = iter(shape[:-1])
    whole = tuple([side if d in (a, b) else next(rest) for d in range(rank)])
    seen = Layout.contiguous(whole).diagonal(offset, a, b)
    return views.scatter_region(input, whole, seen)


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A square matrix with a vector on its diagonal, or a copy of the diagonal of a matrix."""
    rank = len(input._a.shape)
    if rank == 1:
        return diag_embed(input, diagonal)
    if rank != 2:
        raise ShapeError(f"diag takes a vector or a matrix, not shape {tuple(input._a.shape)}")
    return views.clone(views.diagonal(input, diagonal))


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A square matrix with all elements of `input` on its diagonal."""
    return diag_embed(views.reshape(input, (-1,)), offset)


def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    if len(input._a.shape) != 2:
        raise ShapeError(f"trace takes a matrix, not shape {tuple(input._a.shape)}")
    return sum(views.diagonal(input))


def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices (vectors are rows, numbers 1 × 1) along the diagonal of a matrix of zeros."""
    blocks = [atleast_2d(t) for t in tensors]
    common_backend(blocks, "block_diag")
    for i, t in enumerate(blocks):
        if len(t._a.shape) != 2:
            raise ShapeError(
                f"block_diag: tensor {i} has shape {tuple(t._a.shape)}: at most 2 dims"
            )
    dtype = dtypes.promote_ranked([t.dtype for t in blocks])
    width, before = 0, 0
    for t in blocks:
        width += t._a.shape[1]
    rows: list[Any] = []
    for t in blocks:
        own = t._a.shape[1]
        padded = joining.pad(to_dtype(t, dtype), (before, width - before - own))
        rows.append(padded)
        before += own
    return joining.cat(rows, 0)


# At least so many dimensions.


def _at_least(tensors: tuple[Any, ...], change: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Value):
        return change(tensors[0])
    given = tensors[0] if len(tensors) == 1 else tensors
    return tuple([change(t) for t in given])


def _one(t: Any) -> Any:
    return t if t._a.shape else views.reshape(t, (1,))


def _two(t: Any) -> Any:
    return t if len(t._a.shape) > 1 else views.unsqueeze(_one(t), 0)


def _three(t: Any) -> Any:
    return t if len(t._a.shape) > 2 else views.unsqueeze(_two(t), -1)


def atleast_1d(*tensors: Any) -> Any:
    """Each tensor with at least one dimension."""
    return _at_least(tensors, _one)


def atleast_2d(*tensors: Any) -> Any:
    """Each tensor with at least two dimensions: a vector becomes a row."""
    return _at_least(tensors, _two)


def atleast_3d(*tensors: Any) -> Any:
    """Each tensor with at least three dimensions: a matrix gets a last one of size 1."""
    return _at_least(tensors, _three)


# Stacks and cuts.


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Vectors as columns beside each other and beside matrices."""
    columns = [t if len(t._a.shape) > 1 else views.reshape(t, (-1, 1)) for t in tensors]
    return joining.cat(columns, 1)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the third dimension."""
    return joining.cat([atleast_3d(t) for t in tensors], 2)


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> Any:
    """Views of about equal size along `dim`, or cut before each of the given places."""
    shape = tuple(input._a.shape)
    if not shape:
        raise ShapeError("tensor_split takes at least one dimension")
    d = views.checked_dim(dim, len(shape))
    given = indices_or_sections
    if isinstance(given, Value):
        given = int(given.item()) if not given._a.shape else given.tolist()  # pyright: ignore
    size = shape[d]
    if isinstance(given, int):
        if given < 1:
            raise InputError(f"tensor_split: {given} sections: there must be at least 1")
        small, more = divmod(size, given)
        bounds = [i * small + min(i, more) for i in range(given + 1)]
    else:
        cuts = [max(0, min(size, n + size if n < 0 else n)) for n in given]
        bounds = [0, *cuts, size]
    pieces = pairwise(bounds)
    return tuple([views.narrow(input, d, a, max(0, b - a)) for a, b in pieces])


def _numpy_split(name: str, input: Any, given: Any, dim: int) -> Any:
    size = input._a.shape[dim]
    if isinstance(given, int) and (given < 1 or size % given):
        raise ShapeError(f"{name}: {size} elements do not make {given} equal parts")
    return tensor_split(input, given, dim)


def hsplit(input: Tensor, indices_or_sections: Any) -> Any:
    """Cut along the second dimension (a vector along its only one) into equal parts or at places."""
    rank = len(input._a.shape)
    if not rank:
        raise ShapeError("hsplit takes at least one dimension")
    return _numpy_split("hsplit", input, indices_or_sections, 0 if rank == 1 else 1)


def vsplit(input: Tensor, indices_or_sections: Any) -> Any:
    """Cut along the first dimension of at least two into equal parts or at places."""
    if len(input._a.shape) < 2:
        raise ShapeError(f"vsplit takes at least 2 dimensions, not {tuple(input._a.shape)}")
    return _numpy_split("vsplit", input, indices_or_sections, 0)


def dsplit(input: Tensor, indices_or_sections: Any) -> Any:
    """Cut along the third dimension into equal parts or at places."""
    if len(input._a.shape) < 3:
        raise ShapeError(f"dsplit takes at least 3 dimensions, not {tuple(input._a.shape)}")
    return _numpy_split("dsplit", input, indices_or_sections, 2)


# Turns.


def fliplr(input: Tensor) -> Tensor:
    """The second dimension reversed: a view."""
    if len(input._a.shape) < 2:
        raise ShapeError(f"fliplr takes at least 2 dimensions, not {tuple(input._a.shape)}")
    return views.flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    """The first dimension reversed: a view."""
    if not input._a.shape:
        raise ShapeError("flipud takes at least one dimension")
    return views.flip(input, 0)


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """`k` quarter turns in the plane of `dims`, from the first towards the second: a view."""
    rank = len(input._a.shape)
    if len(dims) != 2:
        raise InputError(f"rot90 turns in a plane of 2 dims, got {len(dims)}")
    if rank < 2:
        raise ShapeError(f"rot90 takes at least 2 dimensions, not {tuple(input._a.shape)}")
    a, b = views.checked_dim(dims[0], rank), views.checked_dim(dims[1], rank)
    if a == b:
        raise InputError(f"rot90: dims {tuple(dims)} are one dimension: give two")
    turns = k % 4
    if turns == 0:
        return views.clone(input)
    if turns == 2:
        return views.flip(input, a, b)
    turned = views.transpose(input, a, b)
    return views.flip(turned, a if turns == 1 else b)


# Grids and repeats.


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid: one view a vector (0-d counts as one element), all of one shape.

    "ij" has the first vector along the first dimension; "xy" along the second.
    """
    given = (
        list(tensors[0])
        if len(tensors) == 1 and not isinstance(tensors[0], Value)
        else list(tensors)
    )
    if not given:
        raise InputError("meshgrid needs at least one tensor")
    if indexing not in ("ij", "xy"):
        raise InputError(f'meshgrid: indexing is "ij" or "xy", got {indexing!r}')
    common_backend(given, "meshgrid")
    for i, t in enumerate(given):
        if len(t._a.shape) > 1:
            raise ShapeError(f"meshgrid: tensor {i} has shape {tuple(t._a.shape)}: vectors only")
        if t.dtype is not given[0].dtype:
            raise DTypeError(f"meshgrid of {given[0].dtype.name} and {t.dtype.name}: convert one")
    swap = indexing == "xy" and len(given) > 1
    if swap:
        given[0], given[1] = given[1], given[0]
    count = len(given)
    shape = [t._a.shape[0] if t._a.shape else 1 for t in given]
    grids = [
        views.expand(views.reshape(t, [-1 if e == d else 1 for e in range(count)]), shape)
        for d, t in enumerate(given)
    ]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations of one element of each vector, as rows; of one vector itself."""
    if len(tensors) == 1:
        if len(tensors[0]._a.shape) != 1:
            raise ShapeError("cartesian_prod takes vectors")
        return tensors[0]
    return joining.stack([views.reshape(g, (-1,)) for g in meshgrid(*tensors)], 1)


def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element (of the flattened tensor, or slice along `dim`) `repeats` times in a row.

    `repeats` is a number or an integer tensor with one number an element; alone, it gives the
    places 0, 0, …, 1, 1, … themselves.
    """
    if repeats is None:
        places = _repeated(input, len(tuple(input._a.shape)) and input._a.shape[0], output_size)
        return new_value(type(input), places)
    x: Any = views.reshape(input, (-1,)) if dim is None else input
    if not x._a.shape:
        x = views.reshape(x, (1,))
    d = 0 if dim is None else views.checked_dim(dim, len(x._a.shape))
    size = x._a.shape[d]
    b = backend_for(x._a)
    if isinstance(repeats, int):
        if repeats < 0:
            raise InputError(f"repeat_interleave: repeats is {repeats}: it must not be negative")
        raw = b.reshape(b.arange(size * repeats), (-1,)) // max(repeats, 1)
        return index_select(x, d, new_value(type(x), b.asarray(raw)))
    common_backend((input, repeats), "repeat_interleave")
    if len(repeats._a.shape) > 1 or (repeats._a.shape and repeats._a.shape[0] not in (1, size)):
        raise ShapeError(
            f"repeat_interleave: repeats of shape {tuple(repeats._a.shape)} for {size} elements"
        )
    places = _repeated(repeats, size, output_size)
    return index_select(x, d, new_value(type(x), places))


def _repeated(repeats: Any, size: int, output_size: int | None) -> Any:
    """0 repeated repeats[0] times, 1 repeated repeats[1] times, …"""
    if repeats.dtype not in (dtypes.int64, dtypes.int32):
        raise DTypeError(f"repeats must be int64 or int32, not {repeats.dtype.name}")
    raw = raw_of(repeats)
    b = backend_for(raw)
    counts = b.cast(raw, dtypes.int64)
    if not counts.shape or counts.shape[0] != size:
        counts = b.expand(b.reshape(counts, (1,)), (size,))
    if size and int(counts.min()) < 0:
        raise InputError(f"repeats must not be negative: there is {int(counts.min())}")
    ends = b.cumsum(counts, 0)
    total = int(ends[-1]) if size else 0
    if output_size is not None and output_size != total:
        raise InputError(f"output_size is {output_size}, the repeats add up to {total}")
    return b.asarray(b.searchsorted(ends, b.arange(total), True))


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of each element of a vector (…, n) as rows (…, n, N), the highest first."""
    if not x._a.shape:
        raise ShapeError("vander takes at least one dimension")
    count = x._a.shape[-1] if N is None else N
    if count < 0:
        raise InputError(f"vander: N is {count}: it must not be negative")
    column: Any = views.unsqueeze(x, -1)
    if column.dtype.category == 0:
        column = to_dtype(column, dtypes.int64)
    powers = [column * 0 + 1]
    while len(powers) < count:
        powers.append(named.mul(powers[-1], column))
    chosen = powers[:count] if increasing else powers[:count][::-1]
    return joining.cat(chosen, -1) if chosen else views.narrow(column, -1, 0, 0)
