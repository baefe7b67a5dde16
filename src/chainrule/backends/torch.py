"""The torch backend: the raw array is a `torch.Tensor` that records nothing.

It is the second implementation of the same protocol, and the seam through which other devices
enter. PyTorch has no negative strides: a flipped layout is held as `Flipped`, a positive-stride
tensor plus the dimensions to flip, and is made a plain tensor (a copy) when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch

from chainrule import dtypes
from chainrule.backends import torch_convolution, torch_linalg
from chainrule.backends.torch_order import (
    argsort as argsort,
)
from chainrule.backends.torch_order import (
    bincount as bincount,
)
from chainrule.backends.torch_order import (
    cummax as cummax,
)
from chainrule.backends.torch_order import (
    cummin as cummin,
)
from chainrule.backends.torch_order import (
    cumprod as cumprod,
)
from chainrule.backends.torch_order import (
    logcumsumexp as logcumsumexp,
)
from chainrule.backends.torch_order import (
    scatter_extreme as scatter_extreme,
)
from chainrule.backends.torch_order import (
    searchsorted as searchsorted,
)
from chainrule.backends.torch_order import (
    unique as unique,
)
from chainrule.backends.torch_primitives import TORCH as PRIMITIVES
from chainrule.dtypes import DType
from chainrule.errors import IndexRangeError, InputError
from chainrule.layout import Layout

name = "torch"
Raw = Any

# No kernels of our own on raw tensors: operations run their plain form.
fused = attention = None

convolution = torch_convolution
linalg = torch_linalg

globals().update(PRIMITIVES)

_TO_TORCH: dict[DType, torch.dtype] = {d: getattr(torch, d.name) for d in dtypes.ALL}
_FROM_TORCH: dict[torch.dtype, DType] = {t: d for d, t in _TO_TORCH.items()}


class Flipped(NamedTuple):
    """A view with negative strides: `tensor` with positive ones, to be flipped along `dims`."""

    tensor: torch.Tensor
    dims: tuple[int, ...]

    @property
    def shape(self) -> torch.Size:
        """The shape, the same flipped or not."""
        return self.tensor.shape

    @property
    def dtype(self) -> torch.dtype:
        """The element type."""
        return self.tensor.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.tensor.ndim


def native_dtype(dtype: DType) -> torch.dtype:
    """PyTorch's dtype for ours."""
    return _TO_TORCH[dtype]


def dtype_of(x: Raw) -> DType:
    """Our dtype of a raw tensor."""
    found = _FROM_TORCH.get(x.dtype)
    if found is None:
        raise InputError(f"PyTorch dtype {x.dtype} has no counterpart here")
    return found


def owns(x: Any) -> bool:
    """Whether `x` is an array of this backend."""
    return isinstance(x, (torch.Tensor, Flipped))


def read(x: Raw) -> Raw:
    """A plain tensor of `x`; a flipped view is copied."""
    return x.tensor.flip(x.dims) if type(x) is Flipped else x


# Memory.


def asarray(x: Any, dtype: DType | None = None) -> Raw:
    """A raw tensor of `x`, copied only where it must be."""
    native = None if dtype is None else _TO_TORCH[dtype]
    if isinstance(x, Flipped):
        x = read(x)
    if isinstance(x, torch.Tensor):
        return x.detach() if native is None else x.detach().to(native)
    return from_numpy(np.asarray(x)) if native is None else from_numpy(np.asarray(x)).to(native)


def to_numpy(x: Raw) -> np.ndarray[Any, Any]:
    """The same memory as an ndarray (a copy where the layout is flipped or bfloat16)."""
    if type(x) is Flipped:
        return np.flip(to_numpy(x.tensor), x.dims)
    if x.dtype is torch.bfloat16:
        import ml_dtypes

        return x.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return x.numpy()


def from_numpy(x: np.ndarray[Any, Any]) -> Raw:
    """A raw tensor that shares the memory of `x` where PyTorch can; else a copy."""
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(np.array(x, order="C").view(np.int16)).view(torch.bfloat16)
    if any_negative(x.strides) or not x.flags.writeable or x.dtype.byteorder == ">":
        x = np.array(x, dtype=x.dtype.newbyteorder("="), order="C", copy=True)
    return torch.from_numpy(x)


def any_negative(strides: Sequence[int]) -> bool:
    """Whether a stride is negative."""
    return min(strides, default=0) < 0


def empty(shape: tuple[int, ...], dtype: DType) -> Raw:
    """A fresh contiguous tensor of unspecified values."""
    return torch.empty(shape, dtype=_TO_TORCH[dtype])


def storage_of(x: Raw) -> tuple[Raw, int, Layout]:
    """The flat buffer behind `x`, its length in elements, and the layout of `x` in it."""
    memory = x.untyped_storage()
    numel = memory.nbytes() // x.element_size()
    flat = torch.empty(0, dtype=x.dtype).set_(memory, 0, (numel,), (1,))
    return flat, numel, Layout(tuple(x.shape), tuple(x.stride()), x.storage_offset())


def buffer_ptr(buffer: Raw) -> int:
    """The address of the first byte."""
    return buffer.data_ptr()


def data_ptr(x: Raw) -> int:
    """The address of the first element."""
    if type(x) is Flipped:
        strides = zip(x.tensor.shape, x.tensor.stride(), strict=True)
        steps = [(n - 1) * s for n, s in strides]
        return x.tensor.data_ptr() + x.tensor.element_size() * sum_of(steps, x.dims)
    return x.data_ptr()


def sum_of(steps: Sequence[int], dims: Sequence[int]) -> int:
    """The sum of the steps of `dims`."""
    total = 0
    for d in dims:
        total += steps[d]
    return total


def view(buffer: Raw, dtype: DType, layout: Layout) -> Raw:
    """The tensor that sees `buffer` through `layout`; `Flipped` where a stride is negative."""
    del dtype  # the buffer has it
    start = buffer.storage_offset()  # `as_strided` counts from the storage, `layout` from `buffer`
    flipped = tuple(d for d, s in enumerate(layout.strides) if s < 0)
    if not flipped:
        return buffer.as_strided(layout.shape, layout.strides, start + layout.offset)
    if not layout.numel:
        return buffer.new_empty(layout.shape)
    offset = start + layout.offset
    for d in flipped:
        offset += (layout.shape[d] - 1) * layout.strides[d]
    positive = tuple(abs(s) for s in layout.strides)
    return Flipped(buffer.as_strided(layout.shape, positive, offset), flipped)


def assign(target: Raw, value: Raw) -> None:
    """Write `value`, broadcast, into the memory of `target`."""
    if type(value) is Flipped:
        value = read(value)
    elif not isinstance(value, torch.Tensor):  # a number keeps its 53 bits: no float32 in between
        value = torch.as_tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    if type(target) is Flipped:
        target.tensor.copy_(value.expand(target.shape).flip(target.dims))
    else:
        target.copy_(value)


def add_into(target: Raw, value: Raw) -> None:
    """Add `value` into the memory of `target`, a tensor that no one else writes."""
    target.add_(value)


def add_region(buffer: Raw, layout: Layout, g: Raw) -> None:
    """Add `g` into the contiguous tensor `buffer` where `layout` (relative to it) points."""
    flat = buffer.reshape(-1)
    if layout.self_overlaps:
        address = torch.tensor(layout.offset)
        for extent, stride in zip(layout.shape, layout.strides, strict=True):
            address = address[..., None] + torch.arange(extent) * stride
        flat.index_add_(0, address.reshape(-1), g.reshape(-1))
        return
    target = view(flat, dtype_of(buffer), layout)
    if type(target) is Flipped:
        target.tensor.add_(g.flip(target.dims))
    else:
        target.add_(g)


def scatter_region(g: Raw, shape: tuple[int, ...], layout: Layout) -> Raw:
    """Zeros of `shape` into which `g` is added through `layout`."""
    out = zeros(shape, g)
    add_region(out, layout, g)
    return out


def region(x: Raw, layout: Layout) -> Raw:
    """The part of `x`, taken as a contiguous tensor, that `layout` sees."""
    return read(view(contiguous(x).reshape(-1), dtype_of(x), layout))


def assign_region(buffer: Raw, layout: Layout, value: Raw) -> None:
    """Write `value` into the contiguous array `buffer` where `layout` points."""
    assign(view(buffer.reshape(-1), dtype_of(buffer), layout), value)


def zeroed(x: Raw, layout: Layout) -> Raw:
    """A contiguous copy of `x` with zeros where `layout`, relative to it, points."""
    out = copy(x)
    assign_region(out, layout, 0)
    return out


def contiguous(x: Raw) -> Raw:
    """`x` itself if contiguous, else a contiguous copy."""
    return read(x).contiguous()


def copy(x: Raw) -> Raw:
    """A fresh contiguous copy."""
    return read(x).clone(memory_format=torch.contiguous_format)


def zeros(shape: tuple[int, ...], like: Raw) -> Raw:
    """Zeros of the dtype of `like`."""
    return torch.zeros(shape, dtype=like.dtype)


def full(shape: tuple[int, ...], value: float, like: Raw) -> Raw:
    """`value` everywhere, in the dtype of `like`."""
    return torch.full(shape, value, dtype=like.dtype)


def ones_like(x: Raw) -> Raw:
    """Ones of the shape and dtype of `x`."""
    return torch.ones(x.shape, dtype=x.dtype)


def cast(x: Raw, dtype: DType) -> Raw:
    """`x` in another dtype."""
    return x.to(_TO_TORCH[dtype])


# Shapes.


def reshape(x: Raw, shape: tuple[int, ...]) -> Raw:
    """The same elements in row-major order under another shape."""
    return x.reshape(shape)


def permute(x: Raw, dims: tuple[int, ...]) -> Raw:
    """Dimensions in another order."""
    return x.permute(dims)


def expand(x: Raw, shape: tuple[int, ...]) -> Raw:
    """Repeat size-1 or missing leading dimensions with stride 0, without a copy."""
    return x.expand(shape)


def flip(x: Raw, dims: tuple[int, ...]) -> Raw:
    """Reverse the order along `dims`."""
    return torch.flip(x, dims)


def concat(xs: Sequence[Raw], dim: int) -> Raw:
    """Join tensors along one dimension."""
    return torch.cat(list(xs), dim)


# Reductions.


def sum(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """The sum over `dims`; over no dimension it is `x` (PyTorch's own means all)."""
    return torch.sum(x, dims, keepdim, dtype=x.dtype) if dims else x


def prod(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """The product over `dims`."""
    for d in sorted(dims, reverse=True):
        x = torch.prod(x, d, keepdim, dtype=x.dtype)
    return x


def amax(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """The largest element over `dims`; NaN wins."""
    return torch.amax(x, dims, keepdim) if dims else x


def amin(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """The smallest element over `dims`; NaN wins."""
    return torch.amin(x, dims, keepdim) if dims else x


def argmax(x: Raw, dim: int, keepdim: bool) -> Raw:
    """The first index of the largest element along `dim`, int64; NaN wins."""
    return torch.argmax(x, dim, keepdim)


def argmin(x: Raw, dim: int, keepdim: bool) -> Raw:
    """The first index of the smallest element along `dim`, int64; NaN wins."""
    return torch.argmin(x, dim, keepdim)


def any(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """Whether any element is non-zero."""
    return torch.any(x.bool(), dims, keepdim) if dims else x.bool()


def all(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """Whether all elements are non-zero."""
    return torch.all(x.bool(), dims, keepdim) if dims else x.bool()


def count_nonzero(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """How many elements over `dims` are not zero, int64."""
    truth = x.bool()
    return truth.sum(dims, keepdim, dtype=torch.int64) if dims else truth.to(torch.int64)


softmax = torch.softmax
log_softmax = torch.log_softmax


def sum_of_squared_deviations(x: Raw, dims: tuple[int, ...], keepdim: bool) -> Raw:
    """Σ (x − mean)² over `dims`; exactly 0 where all are equal (see the NumPy backend)."""
    if not dims:
        return (x - x) ** 2
    first = tuple([slice(0, 1) if d in dims else slice(None) for d in range(x.ndim)])
    off = x - x[first]
    return (off - torch.mean(off, dims, True)).square().sum(dims, keepdim)


def quiet() -> Any:
    """A scope for overflow and the like, of which PyTorch says nothing anyway."""
    return nullcontext()


def cumsum(x: Raw, dim: int) -> Raw:
    """The running sum along `dim`."""
    return torch.cumsum(x, dim, dtype=x.dtype)


def all_finite(x: Raw) -> bool:
    """Whether no element is NaN or infinite."""
    return bool(torch.isfinite(x).all())


# Linear algebra and selection.

matmul = torch.matmul


def where(c: Raw, x: Raw, y: Raw) -> Raw:
    """`x` where `c` holds, else `y`; numbers take the dtype of the other side."""
    return torch.where(c, x, y)


def tril(x: Raw, k: int) -> Raw:
    """The lower triangle of the last two dimensions, up to diagonal `k`; zeros above."""
    return torch.tril(x, k)


def triu(x: Raw, k: int) -> Raw:
    """The upper triangle of the last two dimensions, from diagonal `k`; zeros below."""
    return torch.triu(x, k)


def gather(x: Raw, dim: int, index: Raw) -> Raw:
    """`out[i, j, k] = x[i, index[i, j, k], k]` for dim = 1; negative indices are refused."""
    _check_range(index, 0, x.shape[dim])
    return torch.gather(x, dim, index)


def scatter_add(shape: tuple[int, ...], dim: int, index: Raw, src: Raw) -> Raw:
    """Zeros of `shape` into which `src` is added at `index` along `dim`: gather's transpose."""
    return torch.zeros(shape, dtype=src.dtype).scatter_add_(dim, index, src)


def _check_range(index: Raw, low: int, high: int) -> None:
    if index.numel():
        least, most = int(index.min()), int(index.max())
        if least < low or most >= high:
            bad = least if least < low else most
            raise IndexRangeError(f"index {bad} is out of range for a dimension of size {high}")


def index_get(x: Raw, key: tuple[Any, ...]) -> Raw:
    """NumPy's indexing with integer and boolean tensors."""
    try:
        return x[key]
    except IndexError as wrong:
        raise IndexRangeError(str(wrong)) from None


def index_add(shape: tuple[int, ...], key: tuple[Any, ...], src: Raw) -> Raw:
    """Zeros of `shape` into which `src` is added at `key`; repeated places add up."""
    places = torch.arange(_numel(shape)).reshape(shape)[key]
    out = torch.zeros(_numel(shape), dtype=src.dtype)
    out.index_add_(0, places.reshape(-1), src.expand(places.shape).reshape(-1))
    return out.reshape(shape)


def index_put(target: Raw, key: tuple[Any, ...], value: Raw) -> None:
    """Write `value`, broadcast, into `target` at `key`; of repeated places the last stays."""
    if isinstance(value, torch.Tensor) and value.numel() > 1:
        count = _numel(target.shape)
        places = torch.arange(count).reshape(target.shape)[key]
        order = torch.arange(places.numel())
        last = torch.zeros(count, dtype=torch.int64)
        last.scatter_reduce_(0, places.reshape(-1), order, "amax")  # PyTorch leaves it open
        value = value.expand(places.shape).reshape(-1)[last[places]]
    if type(target) is Flipped:
        whole = read(target)
        whole[key] = value
        assign(target, whole)
    else:
        target[key] = value


def nonzero(x: Raw) -> tuple[Raw, ...]:
    """Where `x` is not zero: one int64 tensor a dimension."""
    return torch.nonzero(x, as_tuple=True)


def arange(n: int) -> Raw:
    """The integers 0 to n − 1, int64."""
    return torch.arange(n)


def _numel(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def random_uniform(generator: Any, shape: tuple[int, ...], dtype: DType) -> Raw:
    """Uniform numbers in [0, 1) from a NumPy generator: the same on every backend."""
    from chainrule.backends import numpy as host

    return from_numpy(host.random_uniform(generator, shape, dtype))


def random_normal(generator: Any, shape: tuple[int, ...], dtype: DType) -> Raw:
    """Standard normal numbers from a NumPy generator: the same on every backend."""
    from chainrule.backends import numpy as host

    return from_numpy(host.random_normal(generator, shape, dtype))
