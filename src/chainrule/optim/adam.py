"""Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019), with bias correction.

On the NumPy backend the update is the fused kernel of `backends/fused.py`; what that has no form
of (amsgrad, maximize, half types, other devices) runs the plain formula below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from chainrule import dtypes
from chainrule._tensor import Tensor
from chainrule.autograd.value import backend_for, raw_of
from chainrule.errors import InputError
from chainrule.optim.optimizer import (
    Group,
    Optimizer,
    check_not_negative,
    wide,
    write,
    zeros_like,
)


class Adam(Optimizer):
    """p ← p − lr·m̂/(√v̂ + eps), m and v running means of the gradient and its square.

    `weight_decay` adds to the gradient; `amsgrad` uses the largest v so far (Reddi et al. 2018).
    """

    decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        name = type(self).__name__
        check_not_negative(name, lr=lr, eps=eps, weight_decay=weight_decay)
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise InputError(f"{name}: betas are at least 0 and below 1, got {tuple(betas)}")
        options = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
        }
        super().__init__(params, options)

    def update(self, group: Group, p: Tensor, g: Any, state: dict[str, Any]) -> None:
        """See the class."""
        if not state:
            state["step"] = 0
            state["exp_avg"] = zeros_like(p)
            state["exp_avg_sq"] = zeros_like(p)
            if group["amsgrad"]:
                state["max_exp_avg_sq"] = zeros_like(p)
        state["step"] += 1
        if not self._update_fused(group, p, g, state):
            self._update_plain(group, p, g, state)

    def _update_fused(self, group: Group, p: Tensor, g: Any, state: dict[str, Any]) -> bool:
        kernels: Any = backend_for(g).fused
        decay = group["weight_decay"]
        if kernels is None or group["amsgrad"] or group["maximize"]:
            return False
        if p.dtype not in (dtypes.float32, dtypes.float64):
            return False
        if decay and not self.decoupled:
            g = g + p._a * decay
        kernels.adamw_step(
            p._a,
            g,
            state["exp_avg"]._a,
            state["exp_avg_sq"]._a,
            step=state["step"],
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            eps=group["eps"],
            weight_decay=decay if self.decoupled else 0.0,
        )
        return True

    def _update_plain(self, group: Group, p: Tensor, g: Any, state: dict[str, Any]) -> None:
        b = backend_for(g)
        (beta1, beta2), lr, decay = group["betas"], group["lr"], group["weight_decay"]
        x, g = wide(b, raw_of(p)), wide(b, g)
        if group["maximize"]:
            g = -g
        if decay and self.decoupled:
            x = x * (1.0 - lr * decay)
        elif decay:
            g = g + x * decay
        m = wide(b, raw_of(state["exp_avg"]))
        m = m + (g - m) * (1.0 - beta1)
        v = wide(b, raw_of(state["exp_avg_sq"])) * beta2 + g * g * (1.0 - beta2)
        write(state["exp_avg"], m)
        write(state["exp_avg_sq"], v)
        if group["amsgrad"]:
            v = b.maximum(wide(b, raw_of(state["max_exp_avg_sq"])), v)
            write(state["max_exp_avg_sq"], v)
        step = state["step"]
        root = b.sqrt(v) * (1.0 / math.sqrt(1.0 - beta2**step)) + group["eps"]
        write(p, x - (m / root) * (lr / (1.0 - beta1**step)))


class AdamW(Adam):
    """Adam whose `weight_decay` shrinks the parameter itself: p ← (1 − lr·weight_decay)·p first."""

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)
