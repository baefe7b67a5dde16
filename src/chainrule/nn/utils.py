"""Clipping gradients between `backward()` and `step()`.

Written in place into the gradients, which belong to the parameters; nothing is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from chainrule._tensor import Tensor
from chainrule.autograd.value import backend_for, new_value, raw_of, user_place
from chainrule.errors import GradError, InputError


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    many = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p.grad for p in many if p.grad is not None]


def _norm(g: Tensor, norm_type: float) -> float:
    """The norm of one gradient; squares are summed in float64 by blocks of the dtype's own dots."""
    raw = backend_for(g._a).to_numpy(raw_of(g))
    if raw.dtype not in (np.float32, np.float64):
        raw = raw.astype(np.float32)
    if not raw.size:
        return 0.0
    if norm_type == math.inf:
        return float(np.abs(raw).max())
    flat = raw.reshape(-1)
    with np.errstate(all="ignore"):
        return math.sqrt(float(np.dot(flat, flat)))


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients down together so that their joint norm is at most `max_norm`.

    Returns the norm before, 0-d. `norm_type` is 2 or infinity. As in PyTorch the factor is
    max_norm/(norm + 1e-6), at most 1. Raises `GradError` for a NaN or infinite norm if asked.
    """
    if norm_type not in (2, math.inf):
        raise InputError(f"norm_type is 2 or infinity, got {norm_type}")
    grads = _gradients(parameters)
    norms = [_norm(g, norm_type) for g in grads]
    total = math.hypot(*norms) if norm_type == 2 else max(norms, default=0.0)
    if any(math.isnan(n) for n in norms):
        total = math.nan  # hypot and max prefer infinity, or the first
    if error_if_nonfinite and not math.isfinite(total):
        raise GradError(
            f"the norm of the gradients is {total}, so they cannot be clipped: look for a NaN or "
            "infinity in the loss, or pass error_if_nonfinite=False"
        )
    factor = max_norm / (total + 1e-6)
    if not factor >= 1.0:
        for g in grads:
            _scale(g, factor)
    like = grads[0]._a if grads else np.zeros((), np.float32)
    return new_value(Tensor, backend_for(like).full((), total, like))


def _scale(g: Tensor, factor: float) -> None:
    storage = g.storage()
    storage.check_writable()
    raw: Any = g._a
    if isinstance(raw, np.ndarray):
        with np.errstate(all="ignore"):
            np.multiply(raw, raw.dtype.type(factor), out=raw)
    else:
        storage.backend.assign(raw, raw_of(g) * factor)
    storage.wrote(user_place())


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clamp every element of every gradient to ±`clip_value`."""
    if clip_value < 0:
        raise InputError(f"clip_value must not be negative, got {clip_value}")
    for g in _gradients(parameters):
        storage = g.storage()
        storage.check_writable()
        b = storage.backend
        host = np.clip(b.to_numpy(raw_of(g)), -clip_value, clip_value)
        b.assign(g._a, b.from_numpy(host))
        storage.wrote(user_place())
