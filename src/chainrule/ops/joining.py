"""Putting tensors together and around each other: cat, stack, pad, repeat, tile, roll.

The transpose of a join is the cut: each part's gradient is its window of the whole's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.autograd.value import Value
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.layout import Layout
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, apply, common_backend, to_dtype

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

Dims = int | Sequence[int]


def _concat_forward(b: Any, *rest: Any) -> Any:
    *xs, dim, _ = rest
    return b.concat(xs, dim)


def _concat_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    dim, lengths = n.attrs
    grads: list[Any] = []
    start = 0
    for parent, length in zip(n.parents, lengths, strict=True):
        window = (*[slice(None)] * dim, slice(start, start + length))
        grads.append(None if parent is None else g[window])
        start += length
    return tuple(grads)


CONCAT = ArrayRule("cat", _concat_forward, _concat_vjp, half=False)


def concat(xs: Sequence[Any], dim: int) -> Any:
    """Tensors of one dtype joined along a dimension counted from 0, as rules use it."""
    return apply(CONCAT, tuple(xs), (dim, tuple([x._a.shape[dim] for x in xs])))


def _listed(tensors: Any, name: str) -> list[Any]:
    if isinstance(tensors, Value):
        raise InputError(f"{name} takes a list of tensors, not one tensor")
    parts = list(tensors)
    if not parts:
        raise InputError(f"{name} needs at least one tensor")
    for i, t in enumerate(parts):
        if not isinstance(t, Value):
            raise DTypeError(f"{name}: element {i} is no tensor but a {type(t).__name__}")
    common_backend(parts, name)
    return parts


def _promoted(parts: list[Any]) -> list[Any]:
    dtype = dtypes.promote_ranked([t.dtype for t in parts])
    return [to_dtype(t, dtype) for t in parts]


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors joined along `dim`; they agree in every other size, and their dtypes promote.

    Empty tensors of shape (0,) fit anything. Raises `ShapeError` that names the misfit.
    """
    parts = _promoted(_listed(tensors, "cat"))
    full = [t for t in parts if tuple(t._a.shape) != (0,)] or parts[:1]
    first = tuple(full[0]._a.shape)
    if not first:
        raise ShapeError("cat of 0-d tensors: use stack")
    d = views.checked_dim(dim, len(first))
    for t in full:
        shape = tuple(t._a.shape)
        if len(shape) != len(first) or shape[:d] + shape[d + 1 :] != first[:d] + first[d + 1 :]:
            i = next(i for i, p in enumerate(parts) if p is t)
            raise ShapeError(
                f"cat along dimension {d}: tensor {i} has shape {shape}, the first {first}: all "
                "other sizes must be equal"
            )
    return concat(full, d)


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape as the slices of a new dimension `dim`; their dtypes promote."""
    parts = _promoted(_listed(tensors, "stack"))
    first = tuple(parts[0]._a.shape)
    for i, t in enumerate(parts):
        if tuple(t._a.shape) != first:
            raise ShapeError(
                f"stack: tensor {i} has shape {tuple(t._a.shape)}, the first {first}: they must be "
                "equal"
            )
    d = views.checked_dim(dim, len(first) + 1)
    return concat([views.unsqueeze(t, d) for t in parts], d)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the second dimension; 1-D and 0-d tensors along the first."""
    parts = [t if t._a.shape else views.reshape(t, (1,)) for t in _listed(tensors, "hstack")]
    return cat(parts, 0 if len(parts[0]._a.shape) == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the first dimension; 1-D and 0-d tensors are rows."""
    rows = [
        t if len(t._a.shape) > 1 else views.reshape(t, (1, -1)) for t in _listed(tensors, "vstack")
    ]
    return cat(rows, 0)


# Around and again.


def _pad_forward(b: Any, x: Any, shape: tuple[int, ...], window: Layout, value: float) -> Any:
    out = b.full(shape, value, x)
    b.assign_region(out, window, x)
    return out


def _pad_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    return (b.region(g, n.attrs[1]),)


PAD = ArrayRule("pad", _pad_forward, _pad_vjp, half=False)


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """`value` (0) around `input`; negative numbers crop.

    `pad` is (before, after) of the last dimension, then of the second-last, and so on. Raises
    `ShapeError` where more is cropped than there is.
    """
    if mode != "constant":
        raise InputError(f"pad has the mode 'constant', not {mode!r}")
    amounts = [int(n) for n in pad]
    shape = tuple(input._a.shape)
    if len(amounts) % 2 or len(amounts) > 2 * len(shape):
        raise InputError(
            f"pad takes two numbers a dimension, at most {2 * len(shape)} for shape {shape}, got "
            f"{len(amounts)}"
        )
    size, offset = list(shape), [0] * len(shape)
    x = input
    for i in range(0, len(amounts), 2):
        d = len(shape) - 1 - i // 2
        before, after = amounts[i], amounts[i + 1]
        size[d] = shape[d] + before + after
        start, stop = max(0, -before), shape[d] - max(0, -after)
        if size[d] < 0 or (start > stop and size[d]):
            raise ShapeError(
                f"pad: ({before}, {after}) crops more than dimension {d} of size {shape[d]} has"
            )
        offset[d] = max(0, before)
        if start or stop < shape[d]:
            x = views.narrow(x, d, min(start, shape[d]), max(0, stop - start))
    if tuple(size) == tuple(x._a.shape):
        return views.clone(x)
    whole = Layout.contiguous(tuple(size))
    start = sum(o * s for o, s in zip(offset, whole.strides, strict=True)) if whole.numel else 0
    window = Layout(tuple(x._a.shape), whole.strides, start)
    if not window.numel:
        window = Layout(window.shape, window.strides, 0)
    return apply(PAD, (x,), (tuple(size), window, 0 if value is None else value))


def repeat(input: Tensor, *sizes: Any, repeats: Any = None) -> Tensor:
    """A copy of `input` repeated `sizes[d]` times along each dimension; new ones come first."""
    times = views.sizes(sizes, repeats)
    shape = tuple(input._a.shape)
    lead = len(times) - len(shape)
    if lead < 0:
        raise ShapeError(
            f"repeat: {len(times)} sizes for {len(shape)} dimensions: give one for each (tile fills "
            "up with ones)"
        )
    if any(n < 0 for n in times):
        raise InputError(f"repeat: sizes must not be negative: {times}")
    shape = (1,) * lead + shape
    x = views.reshape(input, [n for size in shape for n in (1, size)])
    x = views.expand(x, [n for pair in zip(times, shape, strict=True) for n in pair])
    return views.reshape(x, tuple(t * n for t, n in zip(times, shape, strict=True)), copy=True)


def tile(input: Tensor, *sizes: Any, dims: Any = None) -> Tensor:
    """`repeat` whose missing leading sizes are 1."""
    times = views.sizes(sizes, dims)
    return repeat(input, (1,) * (len(input._a.shape) - len(times)) + times)


def roll(input: Tensor, shifts: Dims, dims: Dims | None = None) -> Tensor:
    """Elements moved `shifts` places along `dims`, those that fall off coming in at the start.

    Without `dims` the flattened tensor is rolled and given its shape back.
    """
    by = [shifts] if isinstance(shifts, int) else list(shifts)
    if dims is None:
        if len(by) != 1:
            raise InputError(f"roll without dims takes one shift, got {len(by)}")
        shape = tuple(input._a.shape)
        return views.reshape(roll(views.reshape(input, (-1,)), by[0], 0), shape)
    along = [dims] if isinstance(dims, int) else list(dims)
    if len(by) != len(along):
        raise InputError(f"roll: {len(by)} shifts for {len(along)} dims")
    x = input
    for shift, dim in zip(by, along, strict=True):
        d = views.checked_dim(dim, len(x._a.shape))
        size = x._a.shape[d]
        cut = (size - shift) % size if size else 0
        if cut:
            x = concat([views.narrow(x, d, cut, size - cut), views.narrow(x, d, 0, cut)], d)
    return views.clone(x) if x is input else x
