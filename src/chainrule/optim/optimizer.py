"""Optimizer: parameter groups, state, and the step that updates every parameter in place.

Shapes of `param_groups` and `state_dict()` are PyTorch's. Updates run on raw arrays without being
recorded, and are noticed by whatever saved a parameter for a backward still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from chainrule import dtypes
from chainrule._tensor import Tensor
from chainrule.autograd import enable_grad
from chainrule.autograd.leaves import zero_grads
from chainrule.autograd.value import backend_for, new_value, raw_of, user_place
from chainrule.errors import CheckpointError, GradError, InputError, ShapeError
from chainrule.storage import Place

Group = dict[str, Any]


class Optimizer:
    """The base: subclasses define `update(group, p, g, state)`.

    `params` are tensors, or dicts with "params" and options of their own; `defaults` holds the
    options of every group that does not set them.
    """

    def __init__(self, params: Iterable[Any], defaults: Group) -> None:
        if isinstance(params, (Tensor, str)):
            raise InputError(
                "params is a list of tensors or of groups, not one "
                f"{type(params).__name__}: write [p]"
            )
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = {}
        self.param_groups: list[Group] = []
        groups = list(params)
        if not groups:
            raise InputError("the optimiser got no parameters")
        if not isinstance(groups[0], Mapping):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add parameters with options of their own."""
        group = dict(param_group)
        held = group["params"]
        held = [held] if isinstance(held, Tensor) else list(held)
        # `named_parameters()` is welcome as it is.
        held = [p[1] if isinstance(p, tuple) else p for p in held]
        seen = {id(p) for g in self.param_groups for p in g["params"]}
        for p in held:
            if not isinstance(p, Tensor):
                raise InputError(f"an optimiser moves tensors, not {type(p).__name__}")
            if not p.is_leaf:
                raise GradError("an optimiser moves leaves, not the results of operations")
            if id(p) in seen:
                raise InputError(f"a parameter of shape {p.shape} is given twice")
            seen.add(id(p))
        group["params"] = held
        unknown = set(group) - set(self.defaults) - {"params", "initial_lr", "name"}
        if unknown:
            raise InputError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}")
        self.param_groups.append({**self.defaults, **group})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every parameter's gradient, or fill it with zeros."""
        zero_grads([p for g in self.param_groups for p in g["params"]], set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; gives what `closure`, if given, returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        place = user_place()
        with np.errstate(all="ignore"):  # a loss that overflows is for the caller to notice
            for group in self.param_groups:
                for p in group["params"]:
                    self._move(group, p, place)
        return loss

    def _move(self, group: Group, p: Tensor, place: Place) -> None:
        g = p.grad
        if g is None:
            return
        if g.shape != p.shape:
            raise ShapeError(f"a gradient of {g.shape} for a parameter of {p.shape}")
        storage = p.storage()
        storage.check_writable()
        self.update(group, p, raw_of(g), self.state.setdefault(p, {}))
        storage.wrote(place)

    def update(self, group: Group, p: Tensor, g: Any, state: dict[str, Any]) -> None:
        """Write the new value of one parameter from its raw gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it updates")

    # State.

    def state_dict(self) -> dict[str, Any]:
        """State by the parameter's number and the options of the groups; tensors are shared."""
        number: dict[int, int] = {}
        groups: list[Group] = []
        for group in self.param_groups:
            for p in group["params"]:
                number[id(p)] = len(number)
            options = {k: v for k, v in group.items() if k != "params"}
            groups.append({**options, "params": [number[id(p)] for p in group["params"]]})
        state = {number[id(p)]: dict(s) for p, s in self.state.items() if s}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a state: copied, and converted to each parameter's dtype and device.

        Raises `CheckpointError` where the groups are not those of this optimiser.
        """
        given = state_dict["param_groups"]
        have, want = ([len(g["params"]) for g in groups] for groups in (given, self.param_groups))
        if have != want:
            raise CheckpointError(
                f"the state has groups of {have} parameters, this optimiser of {want}"
            )
        place = {
            i: p
            for g, own in zip(given, self.param_groups, strict=True)
            for i, p in zip(g["params"], own["params"], strict=True)
        }
        state: dict[Tensor, dict[str, Any]] = {}
        for i, held in state_dict["state"].items():
            number = int(i)  # JSON makes keys of text
            if number not in place:
                raise CheckpointError(f"the state speaks of parameter {number}, which is not here")
            p = place[number]
            state[p] = {k: _fitted(k, v, p) for k, v in held.items()}
        for g, own in zip(given, self.param_groups, strict=True):
            own.update({k: deepcopy(v) for k, v in g.items() if k != "params"})
        self.state = state

    def __repr__(self) -> str:
        lines: list[str] = []
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {k}: {group[k]}" for k in sorted(group) if k != "params"]
        return f"{type(self).__name__} (\n" + "\n".join(lines) + "\n)"


def _fitted(key: str, value: Any, p: Tensor) -> Any:
    """A copy of one value of a state, in the parameter's dtype; counts become integers."""
    if key == "step":
        return int(value)
    if not isinstance(value, Tensor):
        return value
    if value.shape != p.shape:
        raise CheckpointError(f"the state's {key} has shape {value.shape}, its parameter {p.shape}")
    return value.detach().to(dtype=p.dtype, device=str(p.device)).clone()


def zeros_like(p: Tensor) -> Tensor:
    """Zeros in the parameter's shape, dtype and device."""
    b = backend_for(p._a)
    return new_value(Tensor, b.zeros(p.shape, raw_of(p)))


def write(t: Tensor, value: Any) -> None:
    """Write raw values into a parameter or a state; `step` notes the parameter's write."""
    backend_for(t._a).assign(t._a, value)


def wide(b: Any, x: Any) -> Any:
    """Half types are computed in float32: their own steps are as large as most updates."""
    return b.cast(x, dtypes.float32) if b.dtype_of(x).is_half else x


def narrow(b: Any, x: Any, like: Any) -> Any:
    """Back in the dtype of `like`."""
    return b.cast(x, b.dtype_of(like))


def check_not_negative(name: str, **options: float) -> None:
    """Raise `InputError` for a negative option of optimiser `name`."""
    for option, value in options.items():
        if not value >= 0:
            raise InputError(f"{name}: {option} must not be negative, got {value}")
