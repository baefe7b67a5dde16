"""Normalisation by channel: batch_norm, group_norm, instance_norm.

Batch norm is one node; its mean and variance are worked out beforehand, because the running
averages want them too. Groups are rows of a layer norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.autograd.state import no_grad
from chainrule.autograd.value import Value, backend_for, new_value, raw_of
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import inplace, views
from chainrule.ops._apply import ArrayRule, apply, common_backend, namespace, to_dtype
from chainrule.ops.named import add, mul, rsqrt, sub
from chainrule.ops.neural import layer_norm

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


class _Batch(NamedTuple):
    """What a batch norm is given besides arrays."""

    dims: tuple[int, ...]  # all but the channels
    per_channel: int
    eps: float
    weight: bool
    bias: bool


def _column(b: Any, v: Any, ndim: int) -> Any:
    """A value a channel, (C,), as (1, C, 1, …)."""
    return b.reshape(v, (1, -1, *[1] * (ndim - 2)))


def _moments(b: Any, x: Any, n: _Batch) -> tuple[Any, Any]:
    """Mean and biased variance of each channel, (1, C, 1, …)."""
    mean = b.sum(x, n.dims, True) / float(n.per_channel)
    off = x - mean
    return mean, b.sum(off * off, n.dims, True) / float(n.per_channel)


def _affine(b: Any, normal: Any, params: Sequence[Any], n: _Batch) -> Any:
    rest = list(params)
    ndim = len(normal.shape)
    if n.weight:
        normal = normal * _column(b, rest.pop(0), ndim)
    if n.bias:
        normal = normal + _column(b, rest.pop(0), ndim)
    return normal


def _batch_norm_forward(b: Any, x: Any, mean: Any, rstd: Any, *rest: Any) -> Any:
    *params, n = rest
    return _affine(b, (x - mean) * rstd, params, n)


def _batch_norm_vjp(b: Any, g: Any, saved: Sequence[Any], node: Node) -> tuple[Any, ...]:
    """Dx = rstd · (h − mean(h) − x̂ · mean(h x̂)) with h = g · weight; all by channel."""
    n: _Batch = node.attrs[0]
    x, mean, rstd, *params = saved
    normal = (x - mean) * rstd
    along = b.sum(g * normal, n.dims, True)
    total = b.sum(g, n.dims, True)
    dx = None
    if node.parents[0] is not None:
        scale = rstd
        if n.weight:
            scale = rstd * _column(b, params[0], len(g.shape))
        dx = (g - total / float(n.per_channel) - normal * (along / float(n.per_channel))) * scale
    found: list[Any] = [dx, None, None]
    if n.weight:
        found.append(b.reshape(along, (-1,)))
    if n.bias:
        found.append(b.reshape(total, (-1,)))
    return tuple([None if p is None else d for p, d in zip(node.parents, found, strict=True)])


def _batch_norm_again(x: Any, mean: Any, rstd: Any, *rest: Any) -> Any:
    """The same with the mean and the variance as functions of `x`."""
    *params, n = rest
    b = namespace()
    mean, variance = _moments(b, x, n)
    return _affine(b, (x - mean) * b.rsqrt(variance + n.eps), params, n)


def _all_inputs(need: tuple[bool, ...]) -> tuple[int, ...]:
    return tuple(range(len(need)))


BATCH_NORM = ArrayRule(
    "batch_norm", _batch_norm_forward, _batch_norm_vjp, _all_inputs, composite=_batch_norm_again
)


def _checked(name: str, input: Any, params: Sequence[Any]) -> tuple[int, ...]:
    """The shape; raises where the parameters, one number a channel, do not fit the input."""
    shape = tuple(input._a.shape)
    given = [p for p in params if p is not None]
    common_backend((input, *given), name)
    if not input.dtype.is_floating_point:
        raise DTypeError(f"{name} needs a floating-point input, not {input.dtype.name}")
    if len(shape) < 2:
        raise ShapeError(f"{name} takes an input (N, C, …), got shape {shape}")
    for p in given:
        if tuple(p._a.shape) != (shape[1],):
            raise ShapeError(
                f"{name}: the input {shape} has {shape[1]} channels, a parameter has shape "
                f"{tuple(p._a.shape)} instead of ({shape[1]},)"
            )
    return shape


def _update(running: Any, value: Any, momentum: float) -> None:
    """running ← (1 − momentum) · running + momentum · value, off the tape."""
    with no_grad():
        held = add(mul(running, 1.0 - momentum), mul(to_dtype(value, running.dtype), momentum))
        inplace.assign(running, held)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x − mean)/√(var + eps) · weight + bias by channel of (N, C, …) (Ioffe & Szegedy 2015).

    In training mean and variance are the batch's, and the running ones move towards them by
    `momentum`, the variance with n − 1; else the running ones are used. Raises `ShapeError` where
    a channel has a single element to learn from.
    """
    x: Any = input
    shape = _checked("batch_norm", x, (running_mean, running_var, weight, bias))
    params: list[Any] = [p for p in (weight, bias) if p is not None]
    ndim = len(shape)
    dims = (0, *range(2, ndim))
    if not training:
        if running_mean is None or running_var is None:
            raise InputError("batch_norm in evaluation needs running_mean and running_var")
        return _scaled(x, running_mean, running_var, weight, bias, eps)
    count = math.prod([shape[d] for d in dims])
    if count == 1:
        raise ShapeError(
            f"batch_norm in training needs more than one value a channel, the input has shape "
            f"{shape}"
        )
    n = _Batch(dims, count, float(eps), weight is not None, bias is not None)
    if 0 in shape:
        return _scaled(x, None, None, weight, bias, eps)
    raw = raw_of(x)
    b = backend_for(raw)
    if x.dtype.is_half:
        raw = b.cast(raw, dtypes.float32)
    mean, variance = _moments(b, raw, n)
    for running, value in (
        (running_mean, mean),
        (running_var, variance * (count / (count - 1.0))),
    ):
        if running is not None:
            _update(running, new_value(type(x), b.reshape(value, (shape[1],))), momentum)
    statistics = [new_value(type(x), v) for v in (mean, b.rsqrt(variance + n.eps))]
    params = [to_dtype(p, x.dtype) for p in params]
    return apply(BATCH_NORM, (x, *statistics, *params), (n,))


def _scaled(
    x: Any, mean: Value | None, variance: Value | None, weight: Any, bias: Any, eps: float
) -> Any:
    """With a given mean and variance: plain arithmetic, in float32 for half types."""
    home = x.dtype
    wide = dtypes.float32 if home.is_half else home

    def column(v: Any) -> Any:
        return views.reshape(to_dtype(v, wide), (1, -1, *[1] * (x.ndim - 2)))

    y: Any = to_dtype(x, wide)
    if mean is not None and variance is not None:
        y = mul(sub(y, column(mean)), rsqrt(add(column(variance), eps)))
    if weight is not None:
        y = mul(y, column(weight))
    if bias is not None:
        y = add(y, column(bias))
    return views.clone(y) if y is x else to_dtype(y, home)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x − mean)/√(var + eps) over each group of channels of each image (Wu & He 2018).

    `input` (N, C, …), C a multiple of `num_groups`; weight and bias (C,).
    """
    x: Any = input
    shape = _checked("group_norm", x, (weight, bias))
    if num_groups < 1 or shape[1] % num_groups:
        raise InputError(
            f"group_norm: num_groups={num_groups} must be positive and divide the {shape[1]} "
            "channels"
        )
    return _by_rows(x, shape, shape[0] * num_groups, weight, bias, eps)


def _by_rows(x: Any, shape: tuple[int, ...], rows: int, weight: Any, bias: Any, eps: float) -> Any:
    width = math.prod(shape) // rows if rows else 0
    if not width:
        return _scaled(x, None, None, weight, bias, eps)
    y: Any = layer_norm(views.reshape(x, (rows, width)), (width,), None, None, eps)
    y = views.reshape(y, shape)
    if weight is None and bias is None:
        return y
    return _scaled(y, None, None, weight, bias, eps)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x − mean)/√(var + eps) over each channel of each image of (N, C, …) (Ulyanov 2016).

    The running averages move towards the mean over the images; they are used instead where
    `use_input_stats` is false.
    """
    x: Any = input
    shape = _checked("instance_norm", x, (running_mean, running_var, weight, bias))
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise InputError("instance_norm without input statistics needs the running ones")
        return _scaled(x, running_mean, running_var, weight, bias, eps)
    width = math.prod(shape[2:])
    if len(shape) < 3 or width == 1:
        raise ShapeError(
            f"instance_norm needs more than one element a channel, the input has shape {shape}"
        )
    if (running_mean is not None or running_var is not None) and math.prod(shape):
        b = namespace()
        with no_grad():
            wide = to_dtype(views.detach(x), dtypes.float32) if x.dtype.is_half else x
            every = tuple(range(2, len(shape)))
            mean = b.sum(wide, every, True) / float(width)
            squares = b.sum((wide - mean) * (wide - mean), every) / (width - 1.0)
            for running, v in ((running_mean, mean), (running_var, squares)):
                if running is not None:
                    each = views.reshape(v, shape[:2])
                    _update(running, b.sum(each, (0,)) / float(shape[0]), momentum)
    return _by_rows(x, shape, shape[0] * shape[1], weight, bias, eps)
