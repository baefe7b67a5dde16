"""What a check needs from whoever owns the tensors: our own engine or PyTorch.

Everything crosses this border as NumPy arrays in float64 (or integers), which hold every narrower
value exactly. PyTorch is never imported here unless the caller already holds its tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from chainrule.check.layouts import Form
from chainrule.errors import InputError

Raw = Any


class Host(Protocol):
    """One owner of tensors."""

    name: str
    negative: bool
    """Whether a tensor may have negative strides."""

    def is_tensor(self, x: Any) -> bool: ...
    def dtype(self, t: Any) -> str: ...
    def requires_grad(self, t: Any) -> bool: ...
    def form(self, t: Any) -> Form: ...
    def values(self, t: Any) -> Raw: ...
    def make(
        self, buffer: Raw, form: Form, like: Any, dtype: str | None = None
    ) -> tuple[Any, Any]: ...
    def leaf(self, t: Any) -> Any: ...
    def grad(
        self, outputs: Sequence[Any], inputs: Sequence[Any], grads: Sequence[Any], create: bool
    ) -> list[Any]: ...
    def undefined(self, t: Any) -> Any: ...
    def operation(self, t: Any) -> str: ...
    def saved_intermediates(self, output: Any, known: Sequence[Any]) -> int: ...


class TorchHost:
    """PyTorch's tensors, on any device."""

    name = "torch"
    negative = False

    def __init__(self) -> None:
        self._torch: Any = import_module("torch")
        self._undefined: Any = None

    def is_tensor(self, x: Any) -> bool:
        """Whether `x` is a tensor of this host."""
        return isinstance(x, self._torch.Tensor)

    def dtype(self, t: Any) -> str:
        """The dtype's plain name, such as `float32`."""
        return str(t.dtype).removeprefix("torch.")

    def requires_grad(self, t: Any) -> bool:
        """Whether gradients reach `t`."""
        return bool(t.requires_grad)

    def form(self, t: Any) -> Form:
        """The layout of `t`."""
        if t.layout != self._torch.strided:
            raise InputError(f"the check takes strided tensors, and this one is {t.layout}")
        return Form("as given", tuple(t.shape), tuple(t.stride()), int(t.storage_offset()))

    def values(self, t: Any) -> Raw:
        """A copy of the elements, floats as float64."""
        t = t.detach().resolve_conj().resolve_neg().cpu()
        if t.is_floating_point():
            t = t.to(self._torch.float64)
        return np.array(t.numpy())

    def make(self, buffer: Raw, form: Form, like: Any, dtype: str | None = None) -> tuple[Any, Any]:
        """(a tensor of `form`, its whole memory): a copy of `buffer`, dtype and device of `like`."""
        kind = getattr(self._torch, dtype) if dtype else like.dtype
        flat = self._torch.from_numpy(buffer.copy()).to(device=like.device, dtype=kind)
        return flat.as_strided(form.shape, form.strides, form.offset), flat

    def leaf(self, t: Any) -> Any:
        """The same memory as a leaf that wants its gradient."""
        return t.detach().requires_grad_()

    def grad(
        self, outputs: Sequence[Any], inputs: Sequence[Any], grads: Sequence[Any], create: bool
    ) -> list[Any]:
        """Gradients of `inputs`, None where nothing flows; the graph is kept."""
        return list(
            self._torch.autograd.grad(
                outputs, inputs, grads, retain_graph=True, create_graph=create, allow_unused=True
            )
        )

    def undefined(self, t: Any) -> Any:
        """`t`, behind a node that sends no gradient back at all."""
        if self._undefined is None:
            self._undefined = _silent(self._torch.autograd.Function)
        return self._undefined.apply(t)

    def operation(self, t: Any) -> str:
        """The name of the node that made `t`."""
        return "a leaf" if t.grad_fn is None else str(t.grad_fn.name())

    def saved_intermediates(self, output: Any, known: Sequence[Any]) -> int:
        """Saved tensors of a custom Function that are neither its inputs nor its outputs."""
        try:
            saved = output.grad_fn.saved_tensors
        except (AttributeError, RuntimeError):
            return 0
        addresses = {t.data_ptr() for t in known}
        return sum(
            t is not None and t.is_floating_point() and t.data_ptr() not in addresses for t in saved
        )


class OwnHost:
    """Our own tensors, on every device of theirs."""

    name = "chainrule"
    negative = True

    def __init__(self) -> None:
        self._cr: Any = import_module("chainrule")
        self._undefined: Any = None

    def is_tensor(self, x: Any) -> bool:
        """Whether `x` is a tensor of this host."""
        return isinstance(x, self._cr.Tensor)

    def dtype(self, t: Any) -> str:
        """The dtype's plain name, such as `float32`."""
        return str(t.dtype.name)

    def requires_grad(self, t: Any) -> bool:
        """Whether gradients reach `t`."""
        return bool(t.requires_grad)

    def form(self, t: Any) -> Form:
        """The layout of `t`."""
        return Form("as given", tuple(t.shape), tuple(t.stride()), int(t.storage_offset()))

    def values(self, t: Any) -> Raw:
        """A copy of the elements, floats as float64."""
        raw = np.array(t.detach().numpy())
        return raw.astype(np.float64) if t.dtype.is_floating_point else raw

    def make(self, buffer: Raw, form: Form, like: Any, dtype: str | None = None) -> tuple[Any, Any]:
        """(a tensor of `form`, its whole memory): a copy of `buffer`, dtype and device of `like`."""
        kind = getattr(self._cr, dtype) if dtype else like.dtype
        flat = self._cr.tensor(buffer, dtype=kind, device=like.device)
        return flat.as_strided(form.shape, form.strides, form.offset), flat

    def leaf(self, t: Any) -> Any:
        """The same memory as a leaf that wants its gradient."""
        return t.detach().requires_grad_()

    def grad(
        self, outputs: Sequence[Any], inputs: Sequence[Any], grads: Sequence[Any], create: bool
    ) -> list[Any]:
        """Gradients of `inputs`, None where nothing flows; the graph is kept."""
        return list(
            self._cr.autograd.grad(
                outputs, inputs, grads, retain_graph=True, create_graph=create, allow_unused=True
            )
        )

    def undefined(self, t: Any) -> Any:
        """`t`, behind a node that sends no gradient back at all."""
        if self._undefined is None:
            self._undefined = _silent(self._cr.autograd.Function)
        return self._undefined.apply(t)

    def operation(self, t: Any) -> str:
        """The name of the node that made `t`."""
        node = t.grad_fn
        return "a leaf" if node is None else str(node.name())

    def saved_intermediates(self, output: Any, known: Sequence[Any]) -> int:
        """Always 0: our engine refuses a saved intermediate by itself."""
        return 0


def _silent(function: Any) -> Any:
    """An identity of that host whose backward returns None."""

    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    def backward(ctx: Any, g: Any) -> None:
        return None

    return type(
        "Silent",
        (function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)},
    )


def host_of(values: Sequence[Any]) -> Host:
    """The host that owns the tensors among `values`."""
    found: set[str] = set()
    torch = sys.modules.get("torch")
    own = sys.modules.get("chainrule._tensor")
    for value in values:
        if torch is not None and isinstance(value, torch.Tensor):
            found.add("torch")
        elif own is not None and isinstance(value, own.Tensor):
            found.add("chainrule")
    if len(found) == 2:
        raise InputError(
            "the inputs mix PyTorch's tensors with chainrule's: give the function one kind"
        )
    if not found:
        raise InputError(
            "no input is a tensor: pass chainrule or PyTorch tensors, at least one of which "
            "requires a gradient"
        )
    return TorchHost() if found == {"torch"} else OwnHost()
