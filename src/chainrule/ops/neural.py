"""The layers that a network repeats, one node each: layer_norm, rms_norm, dropout.

The NumPy backend has fused kernels for the norms (`backends/fused.py`); on any other device the
plain form below runs, which is also what a second derivative is taken of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.autograd.value import Value, backend_for, new_value
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import named
from chainrule.ops._apply import ArrayRule, apply, common_backend, namespace

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


class _Norm(NamedTuple):
    """What a norm is given besides arrays."""

    width: int  # elements that are normalised together
    eps: float
    weight: bool
    bias: bool

    def params(self, arrays: Sequence[Any]) -> tuple[Any, Any]:
        """Weight and bias out of the arrays that follow the input; None where not given."""
        rest = list(arrays)
        weight = rest.pop(0) if self.weight else None
        return weight, rest.pop(0) if self.bias else None


def _rows(b: Any, x: Any, width: int) -> Any:
    """As (rows, width): the normalised dimensions are the last ones."""
    return b.reshape(x, (math.prod(x.shape) // width if width else 0, width))


def _flat(b: Any, x: Any, width: int) -> Any:
    return None if x is None else b.reshape(x, (width,))


def _mean(b: Any, rows: Any) -> Any:
    return b.sum(rows, (1,), True) / float(rows.shape[1] or 1)


def _scaled(b: Any, normal: Any, norm: _Norm, params: Sequence[Any], shape: Sequence[int]) -> Any:
    weight, bias = norm.params(params)
    if weight is not None:
        normal = normal * _flat(b, weight, norm.width)
    if bias is not None:
        normal = normal + _flat(b, bias, norm.width)
    return b.reshape(normal, tuple(shape))


# Layer norm.


def _layer_norm_plain(b: Any, x: Any, params: Sequence[Any], norm: _Norm) -> tuple[Any, Any, Any]:
    rows = _rows(b, x, norm.width)
    mean = _mean(b, rows)
    centred = rows - mean
    rstd = b.rsqrt(_mean(b, centred * centred) + norm.eps)
    return _scaled(b, centred * rstd, norm, params, x.shape), mean, rstd


def _layer_norm_forward(b: Any, x: Any, *rest: Any) -> Any:
    *params, norm = rest
    if b.fused is None:
        y, mean, rstd = _layer_norm_plain(b, x, params, norm)
        return y, (mean, rstd)
    weight, bias = (_flat(b, p, norm.width) for p in norm.params(params))
    rows = _rows(b, x, norm.width)
    y, mean, rstd = b.fused.layer_norm_forward(rows, weight, bias, norm.eps)
    return b.reshape(y, x.shape), (mean, rstd)


def _layer_norm_vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    norm: _Norm = n.attrs[0]
    x, *params, mean, rstd = saved
    weight = _flat(b, norm.params(params)[0], norm.width)
    rows, g_rows = _rows(b, x, norm.width), _rows(b, g, norm.width)
    if b.fused is None:
        dx, dw, db = _norm_vjp_plain(b, g_rows, (rows - mean) * rstd, rstd, weight, True)
    else:
        dx, dw, db = b.fused.layer_norm_backward(g_rows, rows, mean, rstd, weight)
    return _shaped(b, n, norm, dx, dw, db)


def _norm_vjp_plain(
    b: Any, g: Any, normal: Any, rstd: Any, weight: Any, centred: bool
) -> tuple[Any, Any, Any]:
    """Dx = rstd · (h − x̂·mean(h·x̂) − mean(h)), h = g·weight; the last term is the mean's."""
    h = g if weight is None else g * weight
    inner = h - normal * _mean(b, h * normal)
    if centred:
        inner = inner - _mean(b, h)
    return inner * rstd, b.sum(g * normal, (0,), False), b.sum(g, (0,), False)


def _shaped(b: Any, n: Node, norm: _Norm, dx: Any, dw: Any, db: Any) -> tuple[Any, ...]:
    """The gradients that are wanted, each in its parent's shape."""
    found = [dx, *([dw] if norm.weight else []), *([db] if norm.bias else [])]
    return tuple(
        None if p is None else b.reshape(d, p.shape) for p, d in zip(n.parents, found, strict=True)
    )


def _layer_norm_again(x: Any, *rest: Any) -> Any:
    return _layer_norm_plain(namespace(), x, rest[:-1], rest[-1])[0]


def _all_inputs(need: tuple[bool, ...]) -> tuple[int, ...]:
    return tuple(range(len(need)))


LAYER_NORM = ArrayRule(
    "layer_norm", _layer_norm_forward, _layer_norm_vjp, _all_inputs, composite=_layer_norm_again
)


def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x − mean)/√(var + eps) · weight + bias over the last dimensions (Ba et al. 2016).

    `normalized_shape` is the shape of those dimensions and of weight and bias; var is the biased
    variance. Raises `ShapeError` where a shape does not fit.
    """
    params = [p for p in (weight, bias) if p is not None]
    width = _check_norm("layer_norm", input, normalized_shape, params)
    norm = _Norm(width, float(eps), weight is not None, bias is not None)
    return apply(LAYER_NORM, (input, *params), (norm,))


# RMS norm.


def _rms_norm_plain(b: Any, x: Any, params: Sequence[Any], norm: _Norm) -> tuple[Any, Any]:
    rows = _rows(b, x, norm.width)
    rstd = b.rsqrt(_mean(b, rows * rows) + norm.eps)
    return _scaled(b, rows * rstd, norm, params, x.shape), rstd


def _rms_norm_forward(b: Any, x: Any, *rest: Any) -> Any:
    *params, norm = rest
    if b.fused is None:
        y, rstd = _rms_norm_plain(b, x, params, norm)
        return y, (rstd,)
    weight = _flat(b, norm.params(params)[0], norm.width)
    y, rstd = b.fused.rms_norm_forward(_rows(b, x, norm.width), weight, norm.eps)
    return b.reshape(y, x.shape), (rstd,)


def _rms_norm_vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    norm: _Norm = n.attrs[0]
    x, *params, rstd = saved
    weight = _flat(b, norm.params(params)[0], norm.width)
    rows, g_rows = _rows(b, x, norm.width), _rows(b, g, norm.width)
    if b.fused is None:
        dx, dw, _ = _norm_vjp_plain(b, g_rows, rows * rstd, rstd, weight, False)
    else:
        dx, dw = b.fused.rms_norm_backward(g_rows, rows, rstd, weight)
    return _shaped(b, n, norm, dx, dw, None)


def _rms_norm_again(x: Any, *rest: Any) -> Any:
    return _rms_norm_plain(namespace(), x, rest[:-1], rest[-1])[0]


RMS_NORM = ArrayRule(
    "rms_norm", _rms_norm_forward, _rms_norm_vjp, _all_inputs, composite=_rms_norm_again
)

_EPSILON = {dtypes.float64: 2.0**-52, dtypes.float32: 2.0**-23}


def rms_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """x/√(mean x² + eps) · weight over the last dimensions (Zhang & Sennrich 2019).

    `eps` None is the machine epsilon of the dtype computed in: float64's, else float32's.
    """
    params = [] if weight is None else [weight]
    width = _check_norm("rms_norm", input, normalized_shape, params)
    if eps is None:
        eps = _EPSILON.get(input.dtype, _EPSILON[dtypes.float32])
    norm = _Norm(width, float(eps), weight is not None, False)
    return apply(RMS_NORM, (input, *params), (norm,))


def _check_norm(
    name: str, input: Tensor, normalized_shape: int | Sequence[int], params: Sequence[Tensor]
) -> int:
    """The number of elements normalised together; raises where anything does not fit."""
    if isinstance(normalized_shape, int):
        shape: tuple[int, ...] = (normalized_shape,)
    else:
        shape = tuple(normalized_shape)
    if not shape or tuple(input._a.shape)[-len(shape) :] != shape:
        raise ShapeError(
            f"{name}: the last dimensions of the input, shape {input.shape}, are not "
            f"normalized_shape {shape}"
        )
    common_backend((input, *params), name)
    dtype = input.dtype
    if not dtype.is_floating_point:
        raise DTypeError(f"{name} needs a floating-point input, not {dtype.name}")
    for p in params:
        if tuple(p._a.shape) != shape:
            raise ShapeError(f"{name}: weight and bias have shape {shape}, got {p.shape}")
        if p.dtype is not dtype:
            raise DTypeError(
                f"{name} of {dtype.name} with {p.dtype.name} parameters: convert one with "
                ".to(dtype)"
            )
    return math.prod(shape)


# Dropout.


def dropout_mask(like: Value, p: float, generator: Any) -> Any:
    """0 with probability `p`, else 1/(1 − p), in the shape and dtype of `like`; no history."""
    if not 0 <= p <= 1:
        raise InputError(f"the dropout probability is between 0 and 1, got {p}")
    raw = like._a
    b = backend_for(raw)
    dtype = b.dtype_of(raw)
    shape = tuple(raw.shape)
    if p == 1:
        return new_value(type(like), b.zeros(shape, raw))
    keep = b.random_uniform(generator.numpy, shape, dtypes.float32) >= p
    # NumPy would make bfloat16 times a number float32: scaled in float32, then rounded once.
    wide = dtypes.float32 if dtype.is_half else dtype
    return new_value(type(like), b.cast(b.cast(keep, wide) * (1.0 / (1.0 - p)), dtype))


def dropout(input: Tensor, p: float, generator: Any) -> Tensor:
    """`input` with each element zeroed with probability `p`, the others times 1/(1 − p).

    The numbers come from `generator` (a `cr.Generator`), the same on every device. p = 0 returns
    the input itself and draws nothing; p = 1 gives zeros.
    """
    if p == 0:
        return input
    return named.mul(input, dropout_mask(input, p, generator))
