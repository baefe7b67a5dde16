"""The NumPy backend: the raw array is an `ndarray`, the buffer a flat view of its bytes.

Views are made by the `ndarray` constructor (0.3 µs; `as_strided` takes 2.5). Reductions always
return an array, 0-d where nothing is left. Half types arrive as float32: see `ops`.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy import ndarray

from chainrule import dtypes
from chainrule.backends import (
    attention as attention,  # kernels that ops call
)
from chainrule.backends import (
    convolution as convolution,
)
from chainrule.backends import (
    fused as fused,
)
from chainrule.backends import (
    numpy_linalg,
    numpy_rows,
)
from chainrule.backends.numpy_order import (
    argsort as argsort,
)
from chainrule.backends.numpy_order import (
    bincount as bincount,
)
from chainrule.backends.numpy_order import (
    cummax as cummax,
)
from chainrule.backends.numpy_order import (
    cummin as cummin,
)
from chainrule.backends.numpy_order import (
    cumprod as cumprod,
)
from chainrule.backends.numpy_order import (
    logcumsumexp as logcumsumexp,
)
from chainrule.backends.numpy_order import (
    scatter_extreme as scatter_extreme,
)
from chainrule.backends.numpy_order import (
    searchsorted as searchsorted,
)
from chainrule.backends.numpy_order import (
    unique as unique,
)
from chainrule.backends.numpy_special import NUMPY as PRIMITIVES
from chainrule.dtypes import DType
from chainrule.errors import IndexRangeError, InputError
from chainrule.layout import Layout

name = "cpu"
Raw = Any

linalg = numpy_linalg

# Every primitive of the calculus is a function of this module.
globals().update(PRIMITIVES)

_TO_NUMPY: dict[DType, np.dtype[Any]] = {
    d: np.dtype(ml_dtypes.bfloat16 if d is dtypes.bfloat16 else d.name) for d in dtypes.ALL
}
_FROM_NUMPY: dict[np.dtype[Any], DType] = {n: d for d, n in _TO_NUMPY.items()}


def native_dtype(dtype: DType) -> np.dtype[Any]:
    """NumPy's dtype for ours."""
    return _TO_NUMPY[dtype]


def dtype_of(x: Raw) -> DType:
    """Our dtype of an array; raises `InputError` for types that have none (objects, strings)."""
    found = _FROM_NUMPY.get(x.dtype)
    if found is None:
        raise InputError(f"NumPy dtype {x.dtype} has no counterpart here")
    return found


def owns(x: Any) -> bool:
    """Whether `x` is an array of this backend."""
    return isinstance(x, ndarray)


def read(x: Raw) -> Raw:
    """The array itself: on this backend every layout is directly readable."""
    return x


# Memory.


def asarray(x: Any, dtype: DType | None = None) -> Raw:
    """An ndarray of `x`, in native byte order, copied only where it must be."""
    return np.asarray(x, dtype=None if dtype is None else _TO_NUMPY[dtype])


def to_numpy(x: Raw) -> np.ndarray[Any, Any]:
    """The same memory as an ndarray."""
    return np.asarray(x)


def from_numpy(x: np.ndarray[Any, Any]) -> Raw:
    """The raw array that shares the memory of `x`."""
    return x


def empty(shape: tuple[int, ...], dtype: DType) -> Raw:
    """A fresh contiguous array of unspecified values."""
    return np.empty(shape, _TO_NUMPY[dtype])


def storage_of(x: Raw) -> tuple[Raw, int, Layout]:
    """The flat buffer behind `x`, its length in elements, and the layout of `x` in it."""
    itemsize = x.itemsize
    root = x
    while isinstance(root.base, ndarray):
        root = root.base
    dense = root.flags.forc and (root.dtype == x.dtype or root.dtype == np.uint8)
    if root is not x and (root.nbytes % itemsize or not dense):
        root = x
    if not root.flags.forc:  # memory that is not ours from end to end: take the span that x reaches
        root = _span(x)
    offset, rest = divmod(_ptr(x) - _ptr(root), itemsize) if x.size else (0, 0)
    if rest:
        root, offset = _span(x), 0
    flat = root.ravel(order="K").view(np.uint8) if root.size else np.empty(0, np.uint8)
    flat.flags.writeable = x.flags.writeable and flat.flags.writeable
    layout = Layout(x.shape, tuple(s // itemsize for s in x.strides), offset)
    return flat, flat.nbytes // itemsize, layout


def _span(x: Raw) -> Raw:
    flipped = x[tuple(slice(None, None, -1 if s < 0 else None) for s in x.strides)]
    length = 1 + builtins.sum(
        (n - 1) * s // x.itemsize for n, s in zip(flipped.shape, flipped.strides, strict=True)
    )
    return np.lib.stride_tricks.as_strided(flipped, (length,), (x.itemsize,))


def _ptr(x: Raw) -> int:
    return x.__array_interface__["data"][0]


buffer_ptr = _ptr


def data_ptr(x: Raw) -> int:
    """The address of the first element."""
    return _ptr(x)


def view(buffer: Raw, dtype: DType, layout: Layout) -> Raw:
    """The array that sees `buffer` through `layout`."""
    native = _TO_NUMPY[dtype]
    size = dtype.itemsize
    if not buffer.nbytes:
        return np.empty(layout.shape, native)
    return ndarray(
        layout.shape,
        native,
        buffer,
        layout.offset * size,
        tuple([s * size for s in layout.strides]),
    )


def assign(target: Raw, value: Raw) -> None:
    """Write `value`, broadcast, into the memory of `target`."""
    np.copyto(target, value, casting="unsafe")


def add_into(target: Raw, value: Raw) -> None:
    """Add `value` into the memory of `target`, an array that no one else writes."""
    np.add(target, value, out=target)


def add_region(buffer: Raw, layout: Layout, g: Raw) -> None:
    """Add `g` into the contiguous array `buffer` where `layout` (relative to it) points."""
    steps = layout.strides
    if (len(steps) != 1 or not steps[0]) and layout.self_overlaps:
        # `+=` through the view would lose the repeated elements.
        address = np.full((), layout.offset, np.int64)
        for extent, stride in zip(layout.shape, layout.strides, strict=True):
            address = address[..., None] + np.arange(extent) * stride
        np.add.at(buffer.reshape(-1), address.reshape(-1), np.ascontiguousarray(g).reshape(-1))
        return
    size = buffer.itemsize
    shape, strides = layout.shape, tuple([s * size for s in steps])
    if buffer.dtype.kind == "f":
        target = ndarray(shape, buffer.dtype, buffer, layout.offset * size, strides)
    else:  # ml_dtypes do not export a buffer
        target = view(buffer.reshape(-1).view(np.uint8), dtype_of(buffer), layout)
    target += g


def scatter_region(g: Raw, shape: tuple[int, ...], layout: Layout) -> Raw:
    """Zeros of `shape` into which `g` is added through `layout`."""
    out = zeros(shape, g)
    add_region(out, layout, g)
    return out


def region(x: Raw, layout: Layout) -> Raw:
    """The part of `x`, taken as a contiguous array, that `layout` sees."""
    flat = contiguous(x).reshape(-1).view(np.uint8)
    return view(flat, dtype_of(x), layout)


def assign_region(buffer: Raw, layout: Layout, value: Raw) -> None:
    """Write `value` into the contiguous array `buffer` where `layout` points."""
    assign(view(buffer.reshape(-1).view(np.uint8), dtype_of(buffer), layout), value)


def zeroed(x: Raw, layout: Layout) -> Raw:
    """A contiguous copy of `x` with zeros where `layout`, relative to it, points."""
    out = copy(x)
    assign_region(out, layout, 0)
    return out


def contiguous(x: Raw) -> Raw:
    """`x` itself if contiguous, else a contiguous copy."""
    return np.asarray(x, order="C")


def copy(x: Raw) -> Raw:
    """A fresh contiguous copy."""
    return np.array(x, order="C", copy=True)


def zeros(shape: tuple[int, ...], like: Raw) -> Raw:
    """Zeros of the dtype of `like`."""
    return np.zeros(shape, like.dtype)


def full(shape: tuple[int, ...], value: float, like: Raw) -> Raw:
    """`value` everywhere, in the dtype of `like`."""
    return np.full(shape, value, like.dtype)


def ones_like(x: Raw) -> Raw:
    """Ones of the shape and dtype of `x`."""
    ones = np.empty(x.shape, x.dtype)  # np.ones is Python, and four times as slow
    ones.fill(1)
    return ones


def cast(x: Raw, dtype: DType) -> Raw:
    """`x` in another dtype; float to integer truncates, as in PyTorch, and no one is warned."""
    x = np.asarray(x)
    native = _TO_NUMPY[dtype]
    have = x.dtype
    if have.kind in "fcV" and (native.kind in "iu" or native.itemsize < have.itemsize):
        with np.errstate(over="ignore", invalid="ignore"):
            return x.astype(native, copy=False)
    return x.astype(native, copy=False)


# Shapes.


def reshape(x: Raw, shape: tuple[int, ...]) -> Raw:
    """The same elements in row-major order under another shape."""
    return x.reshape(shape)


def permute(x: Raw, dims: tuple[int, ...]) -> Raw:
    """Dimensions in another order."""
    return x.transpose(dims)


def expand(x: Raw, shape: tuple[int, ...]) -> Raw:
    """Repeat size-1 or missing leading dimensions with stride 0, without a copy."""
    if not x.ndim and x.dtype.kind != "V":  # the gradient of a sum
        return ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
    x = np.asarray(x)
    lead = len(shape) - x.ndim
    strides = (0,) * lead + tuple(
        s if n == m else 0 for s, n, m in zip(x.strides, x.shape, shape[lead:], strict=True)
    )
    if not x.flags.c_contiguous or not x.size:
        return np.broadcast_to(x, shape)
    if x.dtype.kind == "V":  # ml_dtypes do not export a buffer
        return np.broadcast_to(x, shape)
    return ndarray(shape, x.dtype, x, 0, strides)


def flip(x: Raw, dims: tuple[int, ...]) -> Raw:
    """Reverse the order along `dims`."""
    return np.flip(x, dims)


def concat(xs: Sequence[Raw], dim: int) -> Raw:
    """Join arrays along one dimension."""
    return np.concatenate(xs, dim)


# Reductions.


def sum(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """The sum over `dims`; over no dimension it is `x`."""
    if not dims:
        return np.asarray(x)
    return np.asarray(np.add.reduce(x, dims, keepdims=keepdim, dtype=x.dtype))


def prod(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """The product over `dims`."""
    return np.asarray(np.multiply.reduce(x, dims, keepdims=keepdim, dtype=x.dtype))


def amax(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """The largest element over `dims`; NaN wins."""
    return np.asarray(np.maximum.reduce(x, dims, keepdims=keepdim))


def amin(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """The smallest element over `dims`; NaN wins."""
    return np.asarray(np.minimum.reduce(x, dims, keepdims=keepdim))


def argmax(x: Raw, dim: int, keepdim: bool) -> Raw:
    """The first index of the largest element along `dim`, int64; NaN wins."""
    return np.asarray(np.argmax(x, dim, keepdims=keepdim))


def argmin(x: Raw, dim: int, keepdim: bool) -> Raw:
    """The first index of the smallest element along `dim`, int64; NaN wins."""
    return np.asarray(np.argmin(x, dim, keepdims=keepdim))


def any(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """Whether any element is non-zero."""
    return np.asarray(np.logical_or.reduce(x, dims, keepdims=keepdim))


def all(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """Whether all elements are non-zero."""
    return np.asarray(np.logical_and.reduce(x, dims, keepdims=keepdim))


def count_nonzero(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """How many elements over `dims` are not zero, int64."""
    return np.asarray(np.count_nonzero(x, dims, keepdims=keepdim), np.int64)


softmax = numpy_rows.softmax
softmax_vjp = numpy_rows.softmax_vjp
log_softmax = numpy_rows.log_softmax
log_softmax_vjp = numpy_rows.log_softmax_vjp
sum_of_squared_deviations = numpy_rows.sum_of_squared_deviations
deviations_times = numpy_rows.deviations_times


def quiet() -> Any:
    """A scope in which inf − inf, overflow and the like make no warning, as on every device."""
    return np.errstate(all="ignore")


def cumsum(x: Raw, dim: int) -> Raw:
    """The running sum along `dim`."""
    return np.add.accumulate(x, dim, dtype=x.dtype)


def all_finite(x: Raw) -> bool:
    """Whether no element is NaN or infinite."""
    return bool(np.isfinite(x).all())


# Linear algebra and selection.

matmul = np.matmul


def where(c: Raw, x: Raw, y: Raw) -> Raw:
    """`x` where `c` holds, else `y`; numbers take the dtype of the other side."""
    return np.asarray(np.where(c, x, y))


def tril(x: Raw, k: int) -> Raw:
    """The lower triangle of the last two dimensions, up to diagonal `k`; zeros above."""
    return np.tril(x, k)


def triu(x: Raw, k: int) -> Raw:
    """The upper triangle of the last two dimensions, from diagonal `k`; zeros below."""
    return np.triu(x, k)


def _wrapped(index: Raw, extent: int) -> Raw:
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < -extent or high >= extent:
            bad = low if low < -extent else high
            raise IndexRangeError(f"index {bad} is out of range for a dimension of size {extent}")
    return index


def gather(x: Raw, dim: int, index: Raw) -> Raw:
    """`out[i, j, k] = x[i, index[i, j, k], k]` for dim = 1; negative indices are refused."""
    _non_negative(index)
    _wrapped(index, x.shape[dim])
    return x[_grid(index, dim)]


def scatter_add(shape: tuple[int, ...], dim: int, index: Raw, src: Raw) -> Raw:
    """Zeros of `shape` into which `src` is added at `index` along `dim`: gather's transpose."""
    out = np.zeros(shape, src.dtype)
    place = np.zeros((1,) * index.ndim, np.int64)
    step = 1
    for d, grid in reversed(list(enumerate(_grid(index, dim)))):
        place = place + grid * step
        step *= shape[d]
    _add_flat(out, np.broadcast_to(place, index.shape), src)
    return out


def _add_flat(out: Raw, places: Raw, src: Raw) -> None:
    """`out.flat[places] += src`, repeats too: `add.at` is 3 to 10 × faster in one dimension."""
    np.add.at(out.reshape(-1), places.reshape(-1), np.ascontiguousarray(src).reshape(-1))


def _non_negative(index: Raw) -> None:
    if index.size and int(index.min()) < 0:
        raise IndexRangeError(f"index {int(index.min())} is negative: gather counts from 0")


def _grid(index: Raw, dim: int) -> tuple[Raw, ...]:
    grids = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grids[dim] = index
    return tuple(grids)


def index_get(x: Raw, key: tuple[Any, ...]) -> Raw:
    """NumPy's indexing with integer and boolean arrays."""
    try:
        only = key[-1]
        if x.flags.c_contiguous and type(only) is ndarray and only.dtype == np.int64:
            if not builtins.any([type(k) is ndarray for k in key[:-1]]):
                return x.take(only, len(key) - 1)  # contiguous, and 2 × faster than x[key]
        return np.asarray(x[key])
    except IndexError as wrong:
        raise IndexRangeError(str(wrong)) from None


def index_add(shape: tuple[int, ...], key: tuple[Any, ...], src: Raw) -> Raw:
    """Zeros of `shape` into which `src` is added at `key`; repeated places add up."""
    out = np.zeros(shape, src.dtype)
    if len(key) == 1 and type(key[0]) is ndarray and key[0].dtype != np.bool_:
        rows = key[0].reshape(-1, 1)
        width = math.prod(shape[1:])
        places = rows * width + np.arange(width)  # negative rows count from the end here too
    else:
        places = np.arange(out.size).reshape(shape)[key]
    _add_flat(out, places, src)
    return out


def index_put(target: Raw, key: tuple[Any, ...], value: Raw) -> None:
    """Write `value`, broadcast, into `target` at `key`; of repeated places the last stays."""
    target[key] = value


def nonzero(x: Raw) -> tuple[Raw, ...]:
    """Where `x` is not zero: one int64 array a dimension."""
    return np.nonzero(x)


def arange(n: int) -> Raw:
    """The integers 0 to n − 1, int64."""
    return np.arange(n)


def random_uniform(generator: Any, shape: tuple[int, ...], dtype: DType) -> Raw:
    """Uniform numbers in [0, 1) from a NumPy generator."""
    wide = dtypes.float32 if dtype.itemsize < 8 else dtypes.float64
    found = generator.random(shape, _TO_NUMPY[wide])
    if dtype.is_half:  # cut to the bits that the dtype has: rounding would reach 1
        steps = np.float32(2**11 if dtype is dtypes.float16 else 2**8)
        found = np.floor(found * steps) / steps
    return cast(found, dtype)


def random_normal(generator: Any, shape: tuple[int, ...], dtype: DType) -> Raw:
    """Standard normal numbers from a NumPy generator."""
    wide = dtypes.float32 if dtype.itemsize < 8 else dtypes.float64
    return cast(generator.standard_normal(shape, _TO_NUMPY[wide]), dtype)
