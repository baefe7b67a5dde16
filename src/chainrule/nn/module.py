"""Module: a part of a network that owns parameters, buffers and other modules.

Names, meanings and state-dict keys are PyTorch's. Relies on `Tensor` and `Parameter` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from chainrule._tensor import Tensor
from chainrule.autograd import RemovableHandle, no_grad
from chainrule.autograd.leaves import zero_grads
from chainrule.dtypes import DType
from chainrule.errors import CheckpointError, InputError
from chainrule.nn.parameter import Parameter

Self = TypeVar("Self", bound="Module")


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict(strict=False)` could not match."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def _not_written(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(f"{type(self).__name__} has no forward: define one")


class Module:
    """The base of every layer and network: define `__init__` and `forward`.

    Parameters, tensors registered as buffers, and modules assigned to attributes are found by
    `parameters()`, `state_dict()`, `to()` and the like.
    """

    training: bool
    forward: Callable[..., Any] = _not_written

    def __init__(self) -> None:
        put = super().__setattr__
        put("training", True)
        put("_parameters", {})
        put("_buffers", {})
        put("_not_saved", set())
        put("_modules", {})
        put("_forward_hooks", {})
        put("_forward_pre_hooks", {})

    # Attributes.

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        kind = None
        if isinstance(value, Module):
            kind = "_modules"
        elif isinstance(value, Parameter):
            kind = "_parameters"
        if kind is not None and kind not in own:
            raise AttributeError(
                f"assign parameters and modules of {type(self).__name__} after "
                "super().__init__() has been called"
            )
        if kind is None:
            for held in ("_parameters", "_modules", "_buffers"):
                if name in own.get(held, ()):
                    if value is not None and not (held == "_buffers" and isinstance(value, Tensor)):
                        raise InputError(
                            f"cannot assign a {type(value).__name__} to '{name}', which is one "
                            f"of the {held[1:]} of {type(self).__name__}: assign None or "
                            "another of its kind"
                        )
                    own[held][name] = value
                    return
            super().__setattr__(name, value)
            return
        for held in ("_parameters", "_modules", "_buffers"):
            own[held].pop(name, None)
        own.pop(name, None)
        own[kind][name] = value

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for held in ("_parameters", "_modules", "_buffers"):
            found = own.get(held)
            if found is not None and name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        for held in ("_parameters", "_modules", "_buffers"):
            if name in self.__dict__[held]:
                del self.__dict__[held][name]
                return
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        own = self.__dict__
        return [*super().__dir__(), *own["_parameters"], *own["_modules"], *own["_buffers"]]

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Own a parameter under `name`; None keeps the name without a parameter."""
        self._check_name(name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise InputError(f"'{name}' is not a Parameter: wrap it in nn.Parameter")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Own a tensor that is no parameter; unless `persistent`, state_dict leaves it out."""
        self._check_name(name, self._buffers)
        self._buffers[name] = tensor
        if persistent:
            self._not_saved.discard(name)
        else:
            self._not_saved.add(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Own a module under `name`."""
        self._check_name(name, self._modules)
        self._modules[name] = module

    add_module = register_module

    def _check_name(self, name: str, kind: dict[str, Any]) -> None:
        if not name or "." in name:
            raise InputError(f"a name of a module's part is not empty and has no dot: {name!r}")
        if name not in kind and hasattr(self, name):
            raise InputError(f"{type(self).__name__} has an attribute '{name}' already")

    # Parts.

    def children(self) -> Iterator[Module]:
        """The modules directly owned, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly owned and their names, each once."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        for _, module in self.named_modules():
            yield module

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it with their dotted names, each once."""
        seen: set[int] = set()
        for name, module in self._tree(prefix):
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def _tree(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module._tree(f"{prefix}.{name}" if prefix else name)

    def get_submodule(self, target: str) -> Module:
        """The module with a dotted name."""
        found: Any = self
        for name in target.split(".") if target else ():
            if name not in found._modules:
                raise AttributeError(f"{type(found).__name__} has no module '{name}' ({target!r})")
            found = found._modules[name]
        return found

    def _owned(
        self, kind: str, prefix: str, recurse: bool, once: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        for place, module in self._tree(prefix) if recurse else [(prefix, self)]:
            for name, t in module.__dict__[kind].items():
                if t is not None and not (once and id(t) in seen):
                    seen.add(id(t))
                    yield f"{place}.{name}" if place else name, t

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every parameter once, shared ones too."""
        for _, t in self._owned("_parameters", "", recurse):
            yield t

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Every parameter with its dotted name; a shared one under its first name."""
        yield from self._owned("_parameters", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every buffer once."""
        for _, t in self._owned("_buffers", "", recurse):
            yield t

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Every buffer with its dotted name."""
        yield from self._owned("_buffers", prefix, recurse, remove_duplicate)

    # State.

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """Dotted names to tensors: parameters and persistent buffers, without a copy.

        The tensors share the module's memory and have no history, unless `keep_vars`.
        """
        return {n: t if keep_vars else t.detach() for n, t in self._state(prefix)}

    def _state(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        for place, module in self._tree():
            start = f"{prefix}{place}." if place else prefix
            for kind in ("_parameters", "_buffers"):
                for name, t in module.__dict__[kind].items():
                    if t is not None and not (kind == "_buffers" and name in module._not_saved):
                        yield start + name, t

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> IncompatibleKeys:
        """Copy values in by name, converted to each tensor's dtype and device.

        Raises `CheckpointError`, before anything is written, naming every key whose shape does
        not fit and, if `strict`, every missing and unexpected key.
        """
        own = dict(self._state())
        missing = [n for n in own if n not in state_dict]
        unexpected = [n for n in state_dict if n not in own]
        given = {n: _as_tensor(n, state_dict[n]) for n in own if n in state_dict}
        wrong = [
            f"{n}: {tuple(t._a.shape)} given, {own[n].shape} here"
            for n, t in given.items()
            if tuple(t._a.shape) != own[n].shape
        ]
        faults = [f"shapes that differ: {'; '.join(wrong)}"] if wrong else []
        if strict:
            faults += [f"missing keys: {', '.join(missing)}"] if missing else []
            faults += [f"unexpected keys: {', '.join(unexpected)}"] if unexpected else []
        if faults:
            raise CheckpointError(
                f"the state does not fit {type(self).__name__}: {'; '.join(faults)}"
                + ("" if wrong else "; pass strict=False to load what fits")
            )
        with no_grad():
            for n, t in given.items():
                own[n].copy_(t.to(str(own[n].device)))
        return IncompatibleKeys(missing, unexpected)

    # The whole at once.

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` on every module below and then on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self: Self, mode: bool = True) -> Self:
        """Training mode (dropout drops) or not, for all modules."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: Self) -> Self:
        """Evaluation mode: `train(False)`."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Ask for gradients of all parameters, or freeze them."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every parameter's gradient, or fill it with zeros."""
        zero_grads(self.parameters(), set_to_none)

    def to(self: Self, *args: Any, dtype: DType | None = None, device: Any = None) -> Self:
        """Move floating tensors to a dtype and all tensors to a device, keeping their identity."""
        for a in args:
            if isinstance(a, DType):
                dtype = a
            elif isinstance(a, Tensor):
                dtype, device = a.dtype, a.device
            elif isinstance(a, str):
                device = a
            else:
                raise InputError(f"to() takes a dtype, a device or a tensor, not {a!r}")
        if dtype is not None and not dtype.is_floating_point:
            raise InputError(f"a module is moved to a floating-point dtype, not {dtype.name}")
        for t in [*self.parameters(), *self.buffers()]:
            _move(t, dtype if t.is_floating_point() else None, device)
        return self

    def float(self: Self) -> Self:
        """Floating tensors to float32."""
        from chainrule import dtypes

        return self.to(dtypes.float32)

    def double(self: Self) -> Self:
        """Floating tensors to float64."""
        from chainrule import dtypes

        return self.to(dtypes.float64)

    def half(self: Self) -> Self:
        """Floating tensors to float16."""
        from chainrule import dtypes

        return self.to(dtypes.float16)

    def bfloat16(self: Self) -> Self:
        """Floating tensors to bfloat16."""
        from chainrule import dtypes

        return self.to(dtypes.bfloat16)

    # Calling, and looking on.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self._forward_pre_hooks or self._forward_hooks):
            return self.forward(*args, **kwargs)
        for hook in tuple(self._forward_pre_hooks.values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        output = self.forward(*args, **kwargs)
        for hook in tuple(self._forward_hooks.values()):
            changed = hook(self, args, output)
            if changed is not None:
                output = changed
        return output

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, args)` before forward; what it returns replaces the arguments."""
        return RemovableHandle(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, args, output)` after forward; what it returns is the output."""
        return RemovableHandle(self._forward_hooks, hook)

    def extra_repr(self) -> str:
        """What the one-line description says between its parentheses."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = [f"({name}): " + repr(m).replace("\n", "\n  ") for name, m in self._modules.items()]
        if not lines:
            return f"{type(self).__name__}({extra})"
        shown = [extra, *lines] if extra else lines
        return f"{type(self).__name__}(\n  " + "\n  ".join(shown) + "\n)"


def _as_tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "shape"):
        from chainrule.creation import as_tensor

        return as_tensor(value)
    raise CheckpointError(f"'{name}' in the state is a {type(value).__name__}, not a tensor")


def _move(t: Tensor, dtype: DType | None, device: Any) -> None:
    """Change where a tensor's values are; the tensor stays the same object for all who hold it."""
    with no_grad():
        for held in (t, t.grad):
            if held is None:
                continue
            moved = held.detach().to(dtype=dtype, device=device)
            if moved._a is not held._a:
                held._a = moved._a
                held._s = None
