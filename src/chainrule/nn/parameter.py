"""Parameter: a tensor that a module owns and an optimiser moves.

It is a plain `Tensor` with a mark, not a subclass: operations take their fast path by asking for
exactly `Tensor`. `isinstance(t, Parameter)` reads the mark.
"""

from __future__ import annotations

from typing import Any

from chainrule._tensor import Tensor
from chainrule.autograd.value import rare
from chainrule.errors import InputError


class _ByMark(type):
    """Calling the class marks a tensor; being an instance is bearing the mark."""

    def __call__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        if not isinstance(data, Tensor):
            raise InputError(f"Parameter takes a tensor, not {type(data).__name__}: use cr.tensor")
        made = data.detach()
        if requires_grad:
            made.requires_grad_()
        made.more()["parameter"] = True
        return made

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and bool(rare(instance, "parameter"))


class Parameter(Tensor, metaclass=_ByMark):
    """`Parameter(tensor)` is that tensor's memory as a leaf that requires a gradient.

    Assigned to an attribute of a `Module` it is registered there.
    """

    __slots__ = ()
