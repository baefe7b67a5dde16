"""Pooling: the largest or the mean element of each window, in 1, 2 and 3 dimensions.

Sums over windows and the spreading back are each other's transpose. The largest element is found
once and picked by its index, which is what its gradient goes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.autograd.node import Node
from chainrule.autograd.value import backend_for, new_value, raw_of
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.layout.windows import Ints, Windows, per_dim
from chainrule.ops import gathering, views
from chainrule.ops._apply import ArrayRule, apply, run_on
from chainrule.ops.named import mul

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

Sizes = int | Sequence[int]


# Sums over windows.


def _sum_forward(b: Any, x: Any, w: Windows, count: Ints, size: Ints) -> Any:
    lead = tuple(x.shape)[: -len(count)]
    padded = x
    if any(w.before) or any(w.after):
        padded = b.zeros((*lead, *w.padded(size)), x)
        padded[(..., *_inner(w, size))] = x
    total = b.zeros((*lead, *count), x)
    for place in w.taps(count):
        total += padded[(..., *place)]
    return total


def _inner(w: Windows, size: Ints) -> tuple[slice, ...]:
    return tuple([slice(b, b + n) for b, n in zip(w.before, size, strict=True)])


def _sum_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    return (run_on(b, WINDOW_SPREAD, (g,), n.attrs),)


def _spread_forward(b: Any, g: Any, w: Windows, count: Ints, size: Ints) -> Any:
    lead = tuple(g.shape)[: -len(count)]
    total = b.zeros((*lead, *w.padded(size)), g)
    for place in w.taps(count):
        total[(..., *place)] += g
    return total[(..., *_inner(w, size))]


def _spread_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    return (run_on(b, WINDOW_SUM, (g,), n.attrs),)


WINDOW_SUM = ArrayRule("window sum", _sum_forward, _sum_vjp)
WINDOW_SPREAD = ArrayRule("window spread", _spread_forward, _spread_vjp)


# What both kinds ask first.


def _floating(name: str, input: Tensor) -> None:
    if not input.dtype.is_floating_point:
        raise DTypeError(f"{name} needs a floating-point tensor, not {input.dtype.name}")


def _spatial(name: str, n: int, input: Tensor) -> Ints:
    """The sizes pooled over; raises where `input` is no (N, C, …) or (C, …)."""
    shape = input.shape
    if len(shape) not in (n + 1, n + 2):
        raise ShapeError(f"{name} takes an input of {n + 1} or {n + 2} dimensions, got {shape}")
    if 0 in shape[1:]:
        raise ShapeError(f"{name}: only the batch may be empty, got shape {shape}")
    return shape[-n:]


def _windows(
    name: str,
    size: Ints,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> tuple[Windows, Ints]:
    """The windows over `size`, widened behind where `ceil_mode` lets the last ones hang over."""
    n = len(size)
    kernel = per_dim(kernel_size, n, name, "kernel_size")
    by = kernel if stride is None or stride == () else per_dim(stride, n, name, "stride")
    pad = per_dim(padding, n, name, "padding", 0)
    apart = per_dim(dilation, n, name, "dilation")
    for p, k in zip(pad, kernel, strict=True):
        if 2 * p > k:
            raise InputError(
                f"{name}: padding {pad} is more than half of kernel_size {kernel}: windows would "
                "see nothing of the input"
            )
    w = Windows(kernel, by, pad, pad, apart)
    if not ceil_mode:
        return w, w.outputs(size, name)
    count: list[int] = []
    after: list[int] = []
    for length, p, r, s in zip(size, pad, w.reach, by, strict=True):
        c = -(-(length + 2 * p - r - 1) // s) + 1
        if (c - 1) * s >= length + p:  # the last window must start inside or before the end
            c -= 1
        count.append(c)
        after.append(max(p, (c - 1) * s + r + 1 - length - p))
    if min(count) < 1:
        w.outputs(size, name)  # raises
    return w._replace(after=tuple(after)), tuple(count)


# Largest.


def _starts(d: int, w: Windows, count: Ints, size: Ints) -> tuple[Any, Any]:
    """Where each window begins along `d`, and the first of its taps that is inside the input."""
    start = np.arange(count[d]) * w.stride[d] - w.before[d]
    steps = np.where(start < 0, -(start // w.dilation[d]), 0)
    return start, start + steps * w.dilation[d]


def _largest(b: Any, x: Any, w: Windows, count: Ints, size: Ints) -> Any:
    """For each window the flat index, in its image, of its first largest element (or NaN)."""
    a = b.to_numpy(x)
    n = len(count)
    lead = a.shape[:-n]
    padded = a
    if any(w.before) or any(w.after):
        padded = np.full((*lead, *w.padded(size)), -np.inf, a.dtype)
        padded[(..., *_inner(w, size))] = a
    best: Any = None
    tap: Any = None
    for i, place in enumerate(w.taps(count)):
        seen = padded[(..., *place)]
        if best is None:
            best, tap = seen.copy(), np.zeros(seen.shape, np.int64)
            continue
        better = (seen > best) | np.isnan(seen)
        np.copyto(best, seen, where=better)
        np.copyto(tap, i, where=better)
    index = np.zeros(tap.shape, np.int64)
    first = np.zeros(tap.shape, np.int64)
    valid = np.ones(tap.shape, bool)
    for d, k in reversed(list(enumerate(np.unravel_index(tap, w.kernel)))):
        start, inside = (v.reshape(-1, *[1] * (n - 1 - d)) for v in _starts(d, w, count, size))
        at = start + k * w.dilation[d]
        valid &= (at >= 0) & (at < size[d])
        step = prod(size[d + 1 :])
        index += at * step
        first += inside * step
    # Where all that a window sees is −∞, the padding in front of it must not be chosen.
    return b.from_numpy(np.where(valid, index, first))


def _max_pool(
    n: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    name = f"max_pool{n}d"
    _floating(name, input)
    size = _spatial(name, n, input)
    w, count = _windows(name, size, kernel_size, stride, padding, dilation, ceil_mode)
    lead = input.shape[:-n]
    raw = raw_of(input)
    b = backend_for(raw)
    index: Any = new_value(type(input), _largest(b, raw, w, count, size))
    flat = views.reshape(input, (*lead, prod(size)))
    picked = gathering.gather(flat, -1, views.reshape(index, (*lead, prod(count))))
    out = views.reshape(picked, (*lead, *count))
    return (out, index) if return_indices else out


def max_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of (N, C, L) or (C, L); `stride` is the kernel's size.

    The gradient goes to the first largest one, whose index along L `return_indices` adds.
    """
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of (N, C, H, W) or (C, H, W); see `max_pool1d`.

    Indices count through H × W, row by row.
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of (N, C, D, H, W) or (C, D, H, W); see `max_pool1d`."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


# Mean.


def _divisor(w: Windows, count: Ints, size: Ints, include_pad: bool) -> Any:
    """How many elements each window is divided by, as an array of shape `count`."""
    total: Any = np.ones((), np.float64)
    for d, c in enumerate(count):
        start = np.arange(c) * w.stride[d] - w.before[d]
        # Padding counts up to the declared amount, never what `ceil_mode` adds behind it.
        stop = np.minimum(start + w.kernel[d], size[d] + w.before[d])
        if not include_pad:
            start, stop = np.maximum(start, 0), np.minimum(stop, size[d])
        total = total[..., None] * (stop - start)
    return total


def _avg_pool(
    n: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    name = f"avg_pool{n}d"
    _floating(name, input)
    size = _spatial(name, n, input)
    w, count = _windows(name, size, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override is not None:
        if not divisor_override:
            raise InputError(f"{name}: divisor_override must not be zero")
        divisor = np.full(count, float(divisor_override))
    else:
        divisor = _divisor(w, count, size, count_include_pad)
    total = apply(WINDOW_SUM, (input,), (w, count, size))
    if (divisor == divisor.flat[0]).all():
        return mul(total, 1.0 / float(divisor.flat[0]))
    b = backend_for(raw_of(input))
    share = b.cast(b.from_numpy(1.0 / divisor), input.dtype)
    return mul(total, new_value(type(input), share))


def avg_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of (N, C, L) or (C, L); `stride` is the kernel's size.

    With `count_include_pad` the zeros around the input are elements like others.
    """
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of (N, C, H, W) or (C, H, W), or its sum over `divisor_override`."""
    return _avg_pool(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of (N, C, D, H, W) or (C, D, H, W); see `avg_pool2d`."""
    return _avg_pool(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )
