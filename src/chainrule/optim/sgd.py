"""Stochastic gradient descent with momentum (Polyak 1964; Nesterov's form: Sutskever 2013)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chainrule._tensor import Tensor
from chainrule.autograd.value import backend_for, new_value, raw_of
from chainrule.errors import InputError
from chainrule.optim.optimizer import Group, Optimizer, check_not_negative, narrow, wide, write


class SGD(Optimizer):
    """p ← p − lr·d; d = g + weight_decay·p, and with momentum μ the running μ·d + (1 − τ)·d′.

    τ is `dampening`; `nesterov` looks one step ahead; `maximize` goes uphill.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        check_not_negative("SGD", lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise InputError("SGD: nesterov needs a momentum above 0 and no dampening")
        options = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, options)

    def update(self, group: Group, p: Tensor, g: Any, state: dict[str, Any]) -> None:
        """See the class."""
        b = backend_for(g)
        x, d = wide(b, raw_of(p)), wide(b, g)
        if group["maximize"]:
            d = -d
        if group["weight_decay"]:
            d = d + x * group["weight_decay"]
        momentum = group["momentum"]
        if momentum:
            buffer = state.get("momentum_buffer")
            if buffer is None:
                running = b.copy(b.asarray(d))  # the first step is the gradient itself
                state["momentum_buffer"] = new_value(Tensor, narrow(b, running, g))
            else:
                running = wide(b, raw_of(buffer)) * momentum + d * (1.0 - group["dampening"])
                write(buffer, running)
            d = d + running * momentum if group["nesterov"] else running
        write(p, x - d * group["lr"])
