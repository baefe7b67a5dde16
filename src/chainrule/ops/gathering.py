"""Picking and placing along one dimension: gather, scatter_add, index_select, embedding, one_hot.

Gather and scatter_add are each other's transpose. Index tensors are int64 (int32 is converted),
on the same device, and range-checked; relies on `indexing` for whole slices at index tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.autograd.value import Value, backend_for, new_value, raw_of
from chainrule.errors import DTypeError, IndexRangeError, InputError, ShapeError
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, apply, common_backend, to_dtype
from chainrule.ops._keys import check_range
from chainrule.ops.indexing import accumulated, index_get
from chainrule.ops.inplace import in_place
from chainrule.ops.named import add, lt, where

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def checked_index(index: Any, name: str) -> Any:
    """`index` as int64; raises `DTypeError` for what is no int64 or int32 tensor."""
    if not isinstance(index, Value):
        raise DTypeError(f"{name}: the index must be a tensor, not {type(index).__name__}")
    dtype = backend_for(index._a).dtype_of(index._a)
    if dtype not in (dtypes.int64, dtypes.int32):
        raise DTypeError(f"{name}: the index must be int64 or int32, not {dtype.name}: use .long()")
    return to_dtype(index, dtypes.int64)


def check_cover(name: str, index: Any, shape: tuple[int, ...], dim: int | None, of: str) -> None:
    """Raise unless `index` has as many dimensions as `shape` and, but for `dim`, fits into it."""
    have = tuple(index._a.shape)
    if len(have) != len(shape):
        raise ShapeError(
            f"{name}: the index has shape {have}, the {of} {shape}: they must have the same number "
            "of dimensions"
        )
    for d, (n, m) in enumerate(zip(have, shape, strict=True)):
        if d != dim and n > m:
            raise ShapeError(f"{name}: the index has size {n} in dimension {d}, the {of} only {m}")


# Gather and its transpose.


def _gather_forward(b: Any, x: Any, index: Any, dim: int) -> Any:
    return b.gather(x, dim, index)


def _gather_vjp(b: Any, g: Any, saved: list[Any], n: Node) -> tuple[Any, ...]:
    shape = n.parents[0].shape  # pyright: ignore[reportOptionalMemberAccess]
    return _scattered(b, shape, n.attrs[0], saved[0], g), None


def _scattered(b: Any, shape: tuple[int, ...], dim: int, index: Any, src: Any) -> Any:
    """`b.scatter_add`, with half types added up in float32."""
    dtype = b.dtype_of(src)
    if not dtype.is_half:
        return b.scatter_add(shape, dim, index, src)
    return b.cast(b.scatter_add(shape, dim, index, b.cast(src, dtypes.float32)), dtype)


GATHER = ArrayRule("gather", _gather_forward, _gather_vjp, (1,), half=False)


def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """`out[i, j, k] = input[i, index[i, j, k], k]` for dim = 1, of the shape of `index`.

    `index` may be smaller than `input` in the other dimensions. Raises `IndexRangeError` for
    places outside [0, size).
    """
    index = checked_index(index, "gather")
    common_backend((input, index), "gather")
    shape = tuple(input._a.shape)
    if not shape or not index._a.shape:
        return _gather_0d(input, dim, index)
    d = views.checked_dim(dim, len(shape))
    check_cover("gather", index, shape, d, "input")
    check_range(raw_of(index), d, shape[d], 0)
    return apply(GATHER, (input, index), (d,))


def _gather_0d(input: Any, dim: int, index: Any) -> Any:
    """A 0-d tensor counts as one of a single element, as in PyTorch."""
    views.checked_dim(dim, 1)
    for t, what in ((input, "input"), (index, "index")):
        if len(t._a.shape) > 1:
            raise ShapeError(f"gather: the {what} has {len(t._a.shape)} dimensions, the other none")
    shape = tuple(index._a.shape)
    flat = gather(views.reshape(input, (-1,)), 0, views.reshape(index, (-1,)))
    return views.reshape(flat, shape)


def _scatter_forward(b: Any, src: Any, index: Any, shape: tuple[int, ...], dim: int) -> Any:
    return _scattered(b, shape, dim, index, src)


def _scatter_vjp(b: Any, g: Any, saved: list[Any], n: Node) -> tuple[Any, ...]:
    return b.gather(g, n.attrs[1], saved[0]), None


SCATTER_ADD = ArrayRule("scatter_add", _scatter_forward, _scatter_vjp, (1,), half=False)


def scatter_add(shape: tuple[int, ...], dim: int, index: Any, src: Any) -> Any:
    """Zeros of `shape` into which `src` is added at `index`, as rules use it."""
    return apply(SCATTER_ADD, (src, index), (tuple(shape), dim))


def scatter_add_to(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`input` with `src[i, j]` added at `[index[i, j], j]` for dim = 0; repeated places add up.

    `src` may be larger than `index`: its part of that shape is used. Raises `IndexRangeError` for
    places outside [0, size) and `DTypeError` where the dtypes differ.
    """
    index = checked_index(index, "scatter_add")
    common_backend((input, index, src), "scatter_add")
    if input.dtype is not src.dtype:
        raise DTypeError(
            f"scatter_add of {src.dtype.name} into {input.dtype.name}: convert one with .to(dtype)"
        )
    shape = tuple(input._a.shape)
    if not shape:  # one place, as index_select has it
        row = [views.reshape(t, (1,)) if not t._a.shape else t for t in (input, index, src)]
        return views.reshape(scatter_add_to(row[0], dim, row[1], row[2]), ())
    d = views.checked_dim(dim, len(shape))
    check_cover("scatter_add", index, shape, d, "input")
    check_cover("scatter_add", index, tuple(src._a.shape), None, "source")
    check_range(raw_of(index), d, shape[d], 0)
    for e, n in enumerate(tuple(index._a.shape)):
        if src._a.shape[e] != n:
            src = views.narrow(src, e, 0, n)
    return add(input, scatter_add(shape, d, index, src))


scatter_add_ = in_place(scatter_add_to)
scatter_add_.__name__ = "scatter_add_"


# Whole slices at an index tensor.


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `input` along `dim` at the places of a 1-D or 0-d `index`, in its order."""
    index = checked_index(index, "index_select")
    common_backend((input, index), "index_select")
    if len(index._a.shape) > 1:
        raise ShapeError(
            f"index_select takes a 1-D index, this has shape {tuple(index._a.shape)}: use "
            "take_along_dim or input[index]"
        )
    x: Any = input if input._a.shape else views.reshape(input, (1,))
    d = views.checked_dim(dim, len(x._a.shape))
    check_range(raw_of(index), d, x._a.shape[d], 0)
    out = index_get(x, (*[slice(None)] * d, views.reshape(index, (-1,))))
    return out if input._a.shape else views.reshape(out, ())


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather` with both broadcast in the other dimensions; without `dim`, both are flattened.

    Negative indices count from the end.
    """
    indices = checked_index(indices, "take_along_dim")
    if dim is None:
        row = views.reshape(input, (-1,))
        return gather(row, 0, _from_the_start(views.reshape(indices, (-1,)), row._a.shape[0]))
    a, c = tuple(input._a.shape), tuple(indices._a.shape)
    if len(a) != len(c):
        raise ShapeError(
            f"take_along_dim: input {a} and indices {c} must have the same number of dimensions"
        )
    d = views.checked_dim(dim, len(a))
    try:
        joint = list(np.broadcast_shapes((*a[:d], 1, *a[d + 1 :]), (*c[:d], 1, *c[d + 1 :])))
    except ValueError:
        raise ShapeError(
            f"take_along_dim: input {a} and indices {c} do not broadcast outside dimension {d}"
        ) from None
    whole, small = list(joint), list(joint)
    whole[d], small[d] = a[d], c[d]
    indices = _from_the_start(indices, a[d])
    return gather(views.expand(input, whole), d, views.expand(indices, small))


def _from_the_start(index: Any, size: int) -> Any:
    return where(lt(index, 0), add(index, size), index)


def _embedding_forward(b: Any, weight: Any, index: Any, padding: int | None) -> Any:
    return b.index_get(weight, (index,))


def _embedding_vjp(b: Any, g: Any, saved: list[Any], n: Node) -> tuple[Any, ...]:
    (index,) = saved
    (padding,) = n.attrs
    shape = n.parents[0].shape  # pyright: ignore[reportOptionalMemberAccess]
    if padding is not None:
        held = b.reshape(index != padding, (*tuple(index.shape), 1))
        g = b.where(held, g, b.zeros((), g))
    return accumulated(b, shape, (index,), g), None


EMBEDDING = ArrayRule("embedding", _embedding_forward, _embedding_vjp, (1,), half=False)


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """The rows of `weight` (n, d) at `input`, an integer tensor of any shape: (…, d).

    The row `padding_idx` gets no gradient. Raises `IndexRangeError` for places outside [0, n).
    """
    index = checked_index(input, "embedding")
    common_backend((weight, index), "embedding")
    shape = tuple(weight._a.shape)
    if len(shape) != 2:
        raise ShapeError(f"embedding: the weight must be (rows, features), not {shape}")
    if padding_idx is not None:
        padding_idx = views.checked_dim(padding_idx, shape[0])
    raw = raw_of(index)
    if min(raw.shape, default=1):
        least, most = int(raw.min()), int(raw.max())
        if least < 0 or most >= shape[0]:
            raise IndexRangeError(
                f"embedding: index {least if least < 0 else most} is out of range for a table of "
                f"{shape[0]} rows: use 0 to {shape[0] - 1}"
            )
    return apply(EMBEDDING, (weight, index), (padding_idx,))


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the class of each element of an int64 tensor, 0 elsewhere: (…, num_classes), int64.

    −1 takes one more than the largest class. Raises `IndexRangeError` for a class outside
    [0, num_classes).
    """
    if input.dtype is not dtypes.int64:
        raise DTypeError(f"one_hot takes int64 classes, not {input.dtype.name}: use .long()")
    raw = raw_of(input)
    b = backend_for(raw)
    empty = not min(raw.shape, default=1)
    if num_classes == 0 or num_classes < -1 or (num_classes == -1 and empty):
        raise InputError(
            f"one_hot: num_classes is {num_classes}: give a positive number"
            + (", since there is no class to count" if empty else "")
        )
    count = int(raw.max()) + 1 if num_classes == -1 else num_classes
    if not empty and (int(raw.min()) < 0 or int(raw.max()) >= count):
        bad = int(raw.min()) if int(raw.min()) < 0 else int(raw.max())
        raise IndexRangeError(f"one_hot: class {bad} is out of range: use 0 to {count - 1}")
    hot = b.reshape(raw, (*tuple(raw.shape), 1)) == b.arange(count)
    return new_value(type(input), b.cast(b.asarray(hot), dtypes.int64))
