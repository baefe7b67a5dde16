"""Changing the size of images: interpolation and adaptive mean pooling, one dimension at a time.

Each output is a weighted sum of a few inputs (its taps) along a dimension; which and with what
weight is worked out here, the sums and their gradients are `index_select`'s and `mul`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.autograd.value import backend_for, new_value, raw_of
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import gathering, views
from chainrule.ops.named import add, mul

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

Sizes = int | Sequence[int | None]
Raw = Any


def _resampled(x: Any, dim: int, index: Raw, weight: Raw | None) -> Any:
    """Σₖ weight[:, k] · x[index[:, k]] along `dim`; a tap of weight 0 may read anything finite."""
    b = backend_for(raw_of(x))
    tail = [1] * (x.ndim - 1 - dim)
    total: Any = None
    for k in range(index.shape[1]):
        at = new_value(type(x), b.from_numpy(np.ascontiguousarray(index[:, k])))
        part: Any = gathering.index_select(x, dim, at)
        if weight is not None:
            scale = b.cast(b.from_numpy(weight[:, k].reshape(-1, *tail)), x.dtype)
            part = mul(part, new_value(type(x), scale))
        total = part if total is None else add(total, part)
    return total


# Taps: (outputs, taps) of input indices, and of weights.


def _nearest(size: int, out: int, scale: float, exact: bool) -> tuple[Raw, None]:
    # PyTorch finds the source in float32 whatever the dtype: so do we, or pixels would differ.
    at = np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0)
    found = np.floor(at * np.float32(scale)).astype(np.int64)
    return np.minimum(found, size - 1)[:, None], None


def _sources(out: int, scale: float, align: bool) -> Raw:
    at = np.arange(out, dtype=np.float64)
    return at * scale if align else (at + 0.5) * scale - 0.5


def _linear(size: int, out: int, scale: float, align: bool) -> tuple[Raw, Raw]:
    at = np.maximum(_sources(out, scale, align), 0.0)
    low = np.minimum(np.floor(at).astype(np.int64), size - 1)
    part = np.clip(at - low, 0.0, 1.0)
    return np.stack([low, np.minimum(low + 1, size - 1)], 1), np.stack([1.0 - part, part], 1)


def _cubic(size: int, out: int, scale: float, align: bool) -> tuple[Raw, Raw]:
    """Keys' cubic convolution (1981) with a = −0.75."""
    at = _sources(out, scale, align)
    low = np.floor(at).astype(np.int64)
    t, a = at - low, -0.75

    def near(d: Raw) -> Raw:
        return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0

    def far(d: Raw) -> Raw:
        return ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a

    index = np.clip(low[:, None] + np.arange(-1, 3), 0, size - 1)
    return index, np.stack([far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)], 1)


def _areas(size: int, out: int) -> tuple[Raw, Raw]:
    """Each output's mean over [⌊i·size/out⌋, ⌈(i + 1)·size/out⌉)."""
    i = np.arange(out)
    start, stop = i * size // out, -(-(i + 1) * size // out)
    index = start[:, None] + np.arange(int((stop - start).max()))
    inside = index < stop[:, None]
    return np.where(inside, index, start[:, None]), inside / (stop - start)[:, None]


# Interpolation.

_MODES = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "trilinear": (3,),
    "bicubic": (2,),
    "area": (1, 2, 3),
}


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """(N, C, …) at another `size`, or at `scale_factor` times its own, rounded down.

    Modes: nearest, nearest-exact, linear (1-D), bilinear, bicubic (2-D), trilinear (3-D), area.
    With `align_corners` the centres of the corner pixels keep their places, else the edges do.
    """
    n = input.ndim - 2
    if not input.dtype.is_floating_point:
        raise DTypeError(f"interpolate needs a floating-point tensor, not {input.dtype.name}")
    if mode not in _MODES:
        raise InputError(f"interpolate: mode is one of {', '.join(_MODES)}; got {mode!r}")
    if n not in _MODES[mode]:
        raise ShapeError(
            f'interpolate: mode "{mode}" is for {_MODES[mode]} dimensions after (N, C); the input '
            f"has shape {input.shape}"
        )
    if antialias:
        raise InputError("interpolate has no antialias: average first, with avg_pool2d")
    smooth = mode in ("linear", "bilinear", "trilinear", "bicubic")
    if align_corners is not None and not smooth:
        raise InputError(f'interpolate: align_corners has no meaning in mode "{mode}"')
    out, scales = _target(input.shape[2:], size, scale_factor, bool(recompute_scale_factor))
    if min(input.shape[1:]) < 1:
        raise ShapeError(f"interpolate: only the batch may be empty, got shape {input.shape}")
    x: Any = input
    for d in range(n):
        x = _along(x, d, out[d], scales[d], mode, bool(align_corners))
    return views.clone(x) if x is input else x


def _target(
    shape: tuple[int, ...],
    size: int | Sequence[int] | None,
    factor: float | Sequence[float] | None,
    recompute: bool,
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The output's size, and how many input pixels one output pixel is."""
    n = len(shape)
    if (size is None) == (factor is None):
        raise InputError("interpolate takes either size or scale_factor")
    if size is not None:
        if recompute:
            raise InputError("interpolate: recompute_scale_factor needs scale_factor, not size")
        out = (size,) * n if isinstance(size, int) else tuple([int(s) for s in size])
    else:
        assert factor is not None
        each = (factor,) * n if isinstance(factor, (int, float)) else tuple(factor)
        if len(each) != n:
            raise ShapeError(f"interpolate: {len(each)} scale factors for {n} dimensions")
        out = tuple([math.floor(s * f) for s, f in zip(shape, each, strict=True)])
        if not recompute and min(out) > 0:
            return out, tuple([1.0 / f for f in each])
    if len(out) != n:
        raise ShapeError(f"interpolate: size {out} for {n} dimensions")
    if min(out) < 1:
        raise ShapeError(f"interpolate: the output's size {out} must be at least 1")
    return out, tuple([s / o for s, o in zip(shape, out, strict=True)])


def _along(x: Any, d: int, out: int, scale: float, mode: str, align: bool) -> Any:
    dim = d + 2
    size = x.shape[dim]
    if mode == "area":
        return _resampled(x, dim, *_areas(size, out))
    if size == out and (align or scale == 1.0):
        return x
    if mode.startswith("nearest"):
        return _resampled(x, dim, *_nearest(size, out, scale, mode == "nearest-exact"))
    if align:
        scale = (size - 1) / (out - 1) if out > 1 else 0.0
    taps = _cubic if mode == "bicubic" else _linear
    return _resampled(x, dim, *taps(size, out, scale, align))


# Adaptive pooling.


def _adaptive(n: int, input: Tensor, output_size: Sizes) -> Tensor:
    name = f"adaptive_avg_pool{n}d"
    shape = input.shape
    if not input.dtype.is_floating_point:
        raise DTypeError(f"{name} needs a floating-point tensor, not {input.dtype.name}")
    if len(shape) not in (n + 1, n + 2):
        raise ShapeError(f"{name} takes an input of {n + 1} or {n + 2} dimensions, got {shape}")
    if 0 in shape[1:]:
        raise ShapeError(f"{name}: only the batch may be empty, got shape {shape}")
    asked = (output_size,) * n if isinstance(output_size, int) else tuple(output_size)
    if len(asked) != n:
        raise InputError(f"{name}: output_size {asked} has {len(asked)} numbers, not {n}")
    x: Any = input
    for dim, wanted in enumerate(asked, input.ndim - n):
        size = shape[dim]
        out = size if wanted is None else int(wanted)
        if out < 1:
            raise InputError(f"{name}: output_size {asked} must be at least 1")
        if size % out == 0:  # equal pieces: a mean
            if size != out:
                x = views.unflatten(x, dim, (out, size // out)).mean(dim + 1)
        else:
            x = _resampled(x, dim, *_areas(size, out))
    return views.clone(x) if x is input else x


def adaptive_avg_pool1d(input: Tensor, output_size: Sizes) -> Tensor:
    """(N, C, L) or (C, L) to `output_size` means of nearly equal pieces."""
    return _adaptive(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Sizes) -> Tensor:
    """(N, C, H, W) or (C, H, W) to means of nearly equal pieces; None keeps a size."""
    return _adaptive(2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Sizes) -> Tensor:
    """(N, C, D, H, W) or (C, D, H, W) to means of nearly equal pieces; None keeps a size."""
    return _adaptive(3, input, output_size)
