"""Filling parameters before training: PyTorch's functions, seeded by `cr.manual_seed`.

Every function writes into its tensor, records nothing and returns the tensor.
"""

from __future__ import annotations

import math
from typing import Any

from chainrule._tensor import Tensor
from chainrule.autograd import no_grad
from chainrule.creation import eye
from chainrule.errors import InputError, ShapeError
from chainrule.random import Generator, rand, randn


def _fill(tensor: Tensor, value: Any) -> Tensor:
    with no_grad():
        tensor.copy_(value)
    return tensor


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform numbers in [a, b)."""
    drawn = rand(tensor.shape, dtype=tensor.dtype, device=tensor.device, generator=generator)
    return _fill(tensor, drawn * (b - a) + a)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Normal numbers."""
    drawn = randn(tensor.shape, dtype=tensor.dtype, device=tensor.device, generator=generator)
    return _fill(tensor, drawn * std + mean)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One number everywhere."""
    return _fill(tensor, float(val))


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    if tensor.ndim != 2:
        raise ShapeError(f"eye_ fills a matrix, got shape {tensor.shape}")
    return _fill(tensor, eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """How much larger weights have to be in front of a non-linearity to keep the variance."""
    if nonlinearity in ("linear", "sigmoid", "conv1d", "conv2d", "conv3d"):
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3.0
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1.0 + slope**2))
    if nonlinearity == "selu":
        return 0.75
    raise InputError(f"no gain is known for the non-linearity {nonlinearity!r}")


def fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs and outputs one unit of a weight (out, in, …) connects."""
    if tensor.ndim < 2:
        raise ShapeError(f"fan in and fan out need at least 2 dimensions, got {tensor.shape}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise InputError(f'mode is "fan_in" or "fan_out", got {mode!r}')
    return fans(tensor)[mode == "fan_out"]


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform in ±gain·√(6/(fan_in + fan_out)) (Glorot & Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with σ = gain·√(2/(fan_in + fan_out)) (Glorot & Bengio 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform in ±gain·√(3/fan) (He et al. 2015); `a` is the slope of leaky_relu."""
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / max(1, _fan(tensor, mode)))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal with σ = gain/√fan (He et al. 2015); `a` is the slope of leaky_relu."""
    std = calculate_gain(nonlinearity, a) / math.sqrt(max(1, _fan(tensor, mode)))
    return normal_(tensor, 0.0, std, generator)
