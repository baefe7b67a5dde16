"""Learning rates that follow a plan: each scheduler is a formula of the steps done so far.

`scheduler.step()` after `optimizer.step()` sets every group's "lr" to formula × "initial_lr".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chainrule.errors import CheckpointError, InputError
from chainrule.optim.optimizer import Optimizer


class LRScheduler:
    """The base: subclasses define `rate(base, group)` for step number `last_epoch`."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise InputError(
                    f"group {i} has no 'initial_lr', which going on from last_epoch "
                    f"{last_epoch} needs: load the optimiser's state first"
                )
        self.base_lrs: list[float] = [g["initial_lr"] for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rate(self, base: float, group: int) -> float:
        """The learning rate of group number `group`, whose initial one is `base`."""
        raise NotImplementedError(f"{type(self).__name__} does not say its formula")

    def step(self) -> None:
        """Go to the next step and set the learning rates."""
        self.last_epoch += 1
        self._set()

    def _set(self) -> None:
        for i, group in enumerate(self.optimizer.param_groups):
            group["lr"] = self.rate(self.base_lrs[i], i)

    def get_last_lr(self) -> list[float]:
        """The learning rates as they are."""
        return [g["lr"] for g in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs: numbers alone."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a state, with the learning rates of its step."""
        if len(state_dict["base_lrs"]) != len(self.optimizer.param_groups):
            raise CheckpointError(
                f"the schedule has {len(state_dict['base_lrs'])} groups, the optimiser "
                f"{len(self.optimizer.param_groups)}"
            )
        self.last_epoch = int(state_dict["last_epoch"])
        self.base_lrs = [float(x) for x in state_dict["base_lrs"]]
        self._set()


class LambdaLR(LRScheduler):
    """lr = initial · lr_lambda(step); one function, or one for each group."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise InputError(f"LambdaLR got {len(self.lr_lambdas)} functions for {groups} groups")
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        """See the class."""
        return base * self.lr_lambdas[group](self.last_epoch)


class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (initial − eta_min)·(1 + cos(π·step/T_max))/2 (Loshchilov & Hutter 2017)."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_max < 1:
            raise InputError(f"T_max is at least 1, got {T_max}")
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        """See the class."""
        fall = (1.0 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2.0
        return self.eta_min + (base - self.eta_min) * fall


class CosineWithWarmup(LRScheduler):
    """A straight rise over `warmup_steps`, then half a cosine down to `final` · initial.

    With t steps done: initial·(t + 1)/warmup_steps below warmup_steps; then
    initial·(final + (1 − final)·(1 + cos(π·min(1, (t − warmup)/(total − warmup))))/2).
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_steps: int,
        total_steps: int,
        final: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        if warmup_steps < 0 or total_steps < 1 or not 0.0 <= final <= 1.0:
            raise InputError(
                "CosineWithWarmup needs warmup_steps ≥ 0, total_steps ≥ 1 and final between 0 and "
                f"1, got {warmup_steps}, {total_steps} and {final}"
            )
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.final = final
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int) -> float:
        """See the class."""
        if self.last_epoch < self.warmup_steps:
            return base * (self.last_epoch + 1) / self.warmup_steps
        length = max(1, self.total_steps - self.warmup_steps)
        done = min(1.0, (self.last_epoch - self.warmup_steps) / length)
        return base * (self.final + (1.0 - self.final) * (1.0 + math.cos(math.pi * done)) / 2.0)
