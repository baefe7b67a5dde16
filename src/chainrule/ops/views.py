"""Views: every view of `Layout` as an operation that shares memory and passes gradients back.

The layout decides whether a view is possible and says why not. The gradient of a view that only
reorders is the inverse reordering; that of any other is a `Region` of its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index as as_int
from typing import TYPE_CHECKING, Any

from chainrule.autograd.node import Node
from chainrule.autograd.state import is_grad_enabled
from chainrule.autograd.value import detached, new_alias
from chainrule.errors import DTypeError, GradError, InputError
from chainrule.layout import Layout
from chainrule.ops._apply import (
    ALIAS,
    EXPAND,
    FLIP,
    PERMUTE,
    REGION,
    RESHAPE,
    ArrayRule,
    apply,
    view,
)

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

Dims = int | Sequence[int]


def sizes(args: tuple[Any, ...], keyword: Any = None) -> tuple[int, ...]:
    """Sizes given as separate integers, as one sequence, or by their keyword.

    A tensor of one integer is a size too. Raises `DTypeError` for what is no integer.
    """
    if keyword is not None:
        if args:
            raise InputError(f"sizes or dimensions given twice: {args} and {keyword}")
        args = (keyword,)
    if len(args) == 1 and not isinstance(args[0], (int, str)) and hasattr(args[0], "__iter__"):
        # A 0-d tensor is one size: it has __iter__, but nothing to iterate over.
        args = tuple(args[0]) if getattr(args[0], "ndim", 1) else args
    return tuple([_whole(n) for n in args])


def _whole(n: Any) -> int:
    try:
        return as_int(n)
    except TypeError:
        shown = f"a {n.dtype.name} tensor" if hasattr(n, "ndim") else repr(n)
        raise DTypeError(f"sizes and dimensions are integers, not {shown}") from None


def region(t: Any, change: Callable[[Layout], Layout]) -> Any:
    """The view that `change` makes of the layout of `t`; its gradient fills that region."""
    layout = t.layout
    seen = change(layout)
    if t.node is None or not is_grad_enabled():
        return view(t, seen)
    base = Layout.contiguous(layout.shape)
    return view(t, seen, REGION, (seen if layout == base else change(base),))


def alias(input: Tensor) -> Tensor:
    """A new tensor of the same memory, differentiable: a view of everything."""
    return view(input, input.layout, ALIAS)


def detach(input: Tensor) -> Tensor:
    """The same memory without history; writes into it are still noticed."""
    return detached(input)


def view_as(input: Tensor, *shape: Any, size: Any = None) -> Tensor:
    """The same elements in row-major order under `shape`, never a copy.

    Raises `LayoutError` (a RuntimeError) that names the two dimensions that do not merge.
    """
    return view(input, input.layout.view(sizes(shape, size)), RESHAPE, (input.layout.shape,))


def reshape(input: Tensor, *extents: Any, shape: Any = None, copy: bool | None = None) -> Tensor:
    """The same elements in row-major order under `shape`: a view where possible, else a copy.

    `copy=False` raises `LayoutError` instead of copying; `copy=True` always copies.
    """
    wanted = sizes(extents, shape)
    if copy is False:
        return view_as(input, wanted)
    seen = input.layout.can_view(wanted)
    if seen is not None and not copy:
        return view(input, seen, RESHAPE, (input.layout.shape,))
    copied = clone(input)
    return view_as(copied, wanted)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Merge the dimensions from `start_dim` to `end_dim` into one."""
    shape = input.layout.shape
    n = len(shape)
    if n == 0:
        return reshape(input, (1,))
    first, last = checked_dim(start_dim, n), checked_dim(end_dim, n)
    if first > last:
        raise InputError(f"flatten: start_dim {start_dim} is after end_dim {end_dim}")
    size = 1
    for extent in shape[first : last + 1]:
        size *= extent
    return reshape(input, (*shape[:first], size, *shape[last + 1 :]))


def unflatten(input: Tensor, dim: int, shape: Sequence[int]) -> Tensor:
    """Split dimension `dim` into `shape` (one −1 allowed)."""
    whole = input.layout.shape
    d = checked_dim(dim, len(whole))
    parts = Layout.contiguous((whole[d],)).resolve_shape(tuple(shape))
    return view_as(input, (*whole[:d], *parts, *whole[d + 1 :]))


def checked_dim(dim: int, ndim: int) -> int:
    """`dim` counted from 0; raises `IndexRangeError` outside [−ndim, ndim)."""
    from chainrule.layout.indexing import checked_dim as check

    return check(dim, ndim)


def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """The dimensions in the order `dims`."""
    order = tuple([checked_dim(d, len(input.layout.shape)) for d in sizes(order, dims)])
    seen = input.layout.permute(order)
    inverse = [0] * len(order)
    for i, d in enumerate(order):
        inverse[d] = i
    return view(input, seen, PERMUTE, (tuple(inverse),))


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    n = len(input.layout.shape)
    order = list(range(n))
    a, b = checked_dim(dim0, n or 1), checked_dim(dim1, n or 1)
    if not n:  # a 0-d tensor takes 0 and -1, as in PyTorch
        return alias(input)
    order[a], order[b] = b, a
    return view(input, input.layout.transpose(a, b), PERMUTE, (tuple(order),))


def movedim(input: Tensor, source: Dims, destination: Dims) -> Tensor:
    """The dimensions `source` moved to the places `destination`, the others in order."""
    n = len(input.layout.shape)
    src = [checked_dim(d, n) for d in ([source] if isinstance(source, int) else source)]
    dst = [
        checked_dim(d, n) for d in ([destination] if isinstance(destination, int) else destination)
    ]
    if len(src) != len(dst) or len(set(src)) != len(src) or len(set(dst)) != len(dst):
        raise InputError(f"movedim: {source} and {destination} must be equally many distinct dims")
    rest = iter([d for d in range(n) if d not in src])
    placed = dict(zip(dst, src, strict=True))
    return permute(input, tuple(placed[i] if i in placed else next(rest) for i in range(n)))


def expand(input: Tensor, *shape: Any, size: Any = None) -> Tensor:
    """Size-1 and new leading dimensions repeated with stride 0, without a copy; −1 keeps a size."""
    return view(input, input.layout.expand(sizes(shape, size)), EXPAND)


def broadcast_to(input: Tensor, shape: Sequence[int]) -> Tensor:
    """`expand` under NumPy's name."""
    return expand(input, tuple(shape))


def flip(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """The order along `dims` reversed: a view with negative strides (PyTorch copies)."""
    n = len(input.layout.shape)
    where = tuple([checked_dim(d, n) for d in sizes(order, dims)])
    return view(input, input.layout.flip(where), FLIP, (where,))


def squeeze(input: Tensor, dim: Dims | None = None) -> Tensor:
    """Dimensions of size 1 dropped: all, or those of `dim` that have size 1."""
    seen = input.layout.squeeze(dim)
    return view(input, seen, RESHAPE, (input.layout.shape,))


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A dimension of size 1 inserted at `dim`."""
    return view(input, input.layout.unsqueeze(dim), RESHAPE, (input.layout.shape,))


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice at `index` along `dim`, which is dropped."""
    return region(input, lambda layout: layout.select(dim, index))


def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements of `dim` from `start` on."""
    return region(input, lambda layout: layout.narrow(dim, start, length))


def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """All windows of `size` along `dimension`, `step` apart, as a new last dimension."""
    return region(input, lambda layout: layout.unfold(dimension, size, step))


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two dimensions, as a view whose last dimension runs along it."""
    return region(input, lambda layout: layout.diagonal(offset, dim1, dim2))


def basic_index(input: Tensor, key: Any) -> Tensor:
    """NumPy's basic indexing: integers, slices (of any step), None and Ellipsis."""
    layout = input.layout
    seen = layout.index(key)
    node = input.node
    if node is None or not is_grad_enabled():
        return view(input, seen)
    base = Layout.contiguous(layout.shape)
    return view(input, seen, REGION, (seen if layout == base else base.index(key),))


def as_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Any view of the storage, bounds-checked: shape, strides and offset in elements.

    Differentiable where every element it reaches belongs to `input`, which must not overlap
    itself. Raises `LayoutError` with the needed and the actual size where it leaves the storage.
    """
    layout = input.layout
    offset = layout.offset if storage_offset is None else storage_offset
    seen = layout.as_strided(tuple(size), tuple(stride), offset, input.storage().numel)
    if input.node is None or not is_grad_enabled():
        return view(input, seen)
    if not layout.is_contiguous:
        raise GradError(
            "as_strided of a tensor that needs a gradient wants a contiguous one: this has shape "
            f"{layout.shape} and stride {layout.strides}; call .contiguous() first"
        )
    reach = seen.bounds()
    if reach is not None and reach[0] < layout.offset:
        raise GradError(
            f"as_strided of a tensor that needs a gradient reaches address {reach[0]}, before its "
            f"first element at {layout.offset}: take it of the whole memory, or .detach() first"
        )
    within = Layout(seen.shape, seen.strides, seen.offset - layout.offset if reach else 0)
    within.check_fits(layout.numel)
    return view(input, seen, REGION, (within,))


def split(input: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> Any:
    """Views of consecutive pieces along `dim`: of one size (the last may be smaller), or of given sizes."""
    pieces = input.layout.split(split_size_or_sections, dim)
    d = checked_dim(dim, len(input.layout.shape))
    out: list[Tensor] = []
    start = 0
    for piece in pieces:
        length = piece.shape[d]
        out.append(narrow(input, d, start, length))
        start += length
    return tuple(out)


def chunk(input: Tensor, chunks: int, dim: int = 0) -> Any:
    """At most `chunks` views of equal size along `dim`; the last may be smaller."""
    chunks = _whole(chunks)
    if chunks < 1:
        raise InputError(f"chunk needs at least 1 chunk, got {chunks}")
    d = checked_dim(dim, len(input.layout.shape))
    extent = input.layout.shape[d]
    return split(input, max(1, -(-extent // chunks)), d)


def unbind(input: Tensor, dim: int = 0) -> Any:
    """One view a slice along `dim`."""
    d = checked_dim(dim, len(input.layout.shape))
    return tuple(select(input, d, i) for i in range(input.layout.shape[d]))


# Copies.


def _copy_forward(b: Any, x: Any) -> Any:
    return b.copy(x)


def _copy_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    return (g,)


CLONE = ArrayRule("clone", _copy_forward, _copy_vjp, half=False)


def clone(input: Tensor) -> Tensor:
    """A contiguous copy in memory of its own, differentiable."""
    return apply(CLONE, (input,))


def contiguous(input: Tensor) -> Tensor:
    """`input` itself where its strides are row-major, else a copy."""
    return input if input.layout.is_contiguous else clone(input)


# Region's own transpose, for second order.


def _scatter_forward(b: Any, g: Any, shape: tuple[int, ...], layout: Layout) -> Any:
    return b.scatter_region(g, shape, layout)


def _scatter_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    _, layout = n.attrs
    return (b.region(g, layout),)


SCATTER_REGION = ArrayRule("scatter into a region", _scatter_forward, _scatter_vjp)


def scatter_region(g: Tensor, shape: tuple[int, ...], layout: Layout) -> Tensor:
    """Zeros of `shape` into which `g` is added through `layout`: the transpose of a view."""
    return apply(SCATTER_REGION, (g,), (shape, layout))


def region_of(g: Tensor, layout: Layout) -> Tensor:
    """The part of a tensor that `layout`, relative to a contiguous one, sees."""
    g = contiguous(g)
    offset = g.layout.offset
    seen = Layout(layout.shape, layout.strides, layout.offset + offset)
    if g.node is None or not is_grad_enabled():
        return new_alias(type(g), g.storage(), seen)
    return view(g, seen, REGION, (layout,))
