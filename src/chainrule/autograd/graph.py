"""Hooks on what the tape saves, and the scopes that see every node as it is recorded.

Recording pays nothing for this. Nodes are made by `new`, a global of the few modules that record;
while a scope is open those globals hold a function that tells it of each node, and after the last
scope `object.__new__` again. A node whose saved values were packed gets a `PackedRule`, which
unpacks them around the rule itself: the walk knows nothing of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import lru_cache
from typing import Any

import numpy as np

from chainrule.autograd.forward import transposed
from chainrule.autograd.node import MAKERS, Node, Rule, stale
from chainrule.autograd.value import (
    Value,
    backend_for,
    detached,
    new_value,
    raw_of,
    share_memory,
)
from chainrule.errors import GradError
from chainrule.storage import CLOCK, Place

_scope: ContextVar[Scope | None] = ContextVar("chainrule_saving", default=None)
_open = 0
_lock = threading.Lock()


def _new(cls: type[Any]) -> Any:
    made = object.__new__(cls)
    if cls is Node:
        scope = _scope.get()
        if scope is not None:
            scope.saw(made)
    return made


class Scope:
    """A `with` block that is told of every node recorded in it, each when it is complete.

    Of nested scopes the innermost is told. `keep(node)` is what a kind of scope does; `pack(value)`
    keeps a single tensor for someone who asks, to be had again by `.value()` of the result.
    """

    def __init__(self) -> None:
        self._last: Node | None = None
        self._tokens: list[Token[Scope | None]] = []

    def keep(self, node: Node) -> None:
        """Replace what a node saved."""
        raise NotImplementedError

    def pack(self, value: Any, place: Place) -> Any:
        """Keep one tensor; `.value()` of the result gives it back."""
        raise NotImplementedError

    def saw(self, node: Node) -> None:
        """A node was made; whatever it will save is not there yet, so the one before is kept."""
        self.flush()
        self._last = node

    def flush(self) -> None:
        """Keep the node that was made last: it is complete."""
        node, self._last = self._last, None
        if node is None:
            return
        token = _scope.set(None)  # what hooks compute is not theirs to see
        try:
            self.keep(node)
        finally:
            _scope.reset(token)

    def __enter__(self) -> Any:
        global _open
        outer = _scope.get()
        if outer is not None:
            outer.flush()
        self._tokens.append(_scope.set(self))
        with _lock:
            _open += 1
            for module in MAKERS:
                module["new"] = _new
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        global _open
        _scope.reset(self._tokens.pop())
        with _lock:
            _open -= 1
            if not _open:
                for module in MAKERS:
                    module["new"] = object.__new__
        if kind is None:
            self.flush()
        self._last = None


def current() -> Scope | None:
    """The innermost open scope."""
    return _scope.get()


def savable(v: Any) -> bool:
    """Whether a saved value holds an array: a tensor, or the raw array of an output."""
    return isinstance(v, Value) or (
        hasattr(v, "shape") and hasattr(v, "dtype") and not isinstance(v, np.generic)
    )


def replace(node: Node, pack: Callable[[Any], Any]) -> None:
    """Put what `pack` makes of each saved array in its place; `.value()` of it gives it back."""
    if any(savable(v) for v in node.saved):
        node.saved = tuple([pack(v) if savable(v) else v for v in node.saved])
        node.rule = packed(node.rule)
        node.storage = None


class Held:
    """What a saved value was packed into. Subclasses say how to have it back."""

    __slots__ = ()
    shape: tuple[int, ...]
    dtype: Any

    def value(self) -> Any:
        """The saved value, of the kind that the rule expects: a tensor, or a raw array."""
        raise NotImplementedError


class PackedRule(Rule):
    """A rule whose node holds packed values: they are unpacked for as long as it runs."""

    __slots__ = ("inner",)

    def __init__(self, inner: Rule) -> None:
        super().__init__(inner.name, self._run, self._run_tensor, inner.broadcasts)
        self.inner = inner
        self.tangent = self._tangent

    def _run(self, node: Node, g: Any) -> tuple[Any, ...]:
        return self._unpacked(node, lambda: self.inner.run(node, g))

    def _run_tensor(self, node: Node, g: Any) -> tuple[Any, ...]:
        return self._unpacked(node, lambda: self.inner.run_tensor(node, g))

    def _tangent(self, node: Node, tangents: list[Any]) -> Any:
        stated = self.inner.tangent or transposed
        return self._unpacked(node, lambda: stated(node, tangents))

    def _unpacked(self, node: Node, run: Callable[[], Any]) -> Any:
        held = node.saved
        node.saved = tuple([v.value() if isinstance(v, Held) else v for v in held])
        node.rule = self.inner
        try:
            return run()
        finally:
            node.saved, node.rule = held, self


@lru_cache(maxsize=4096)
def packed(rule: Rule) -> PackedRule:
    """`rule` for nodes that hold packed values."""
    return PackedRule(rule)


class _Hooked(Held):
    """A value packed by the user's hook."""

    __slots__ = ("dtype", "made", "name", "place", "raw", "shape", "source", "stamp", "unpack")

    def __init__(self, hooks: saved_tensors_hooks, v: Any, name: str, place: Place) -> None:
        self.raw = not isinstance(v, Value)
        shown: Any = new_value(hooks.kind(), v) if self.raw else detached(v)
        self.shape = tuple(shown._a.shape)
        self.dtype = backend_for(shown._a).dtype_of(shown._a)
        self.name, self.place, self.unpack = name, place, hooks.unpack_hook
        self.stamp = CLOCK.now
        shown.storage()
        self.made = hooks.pack_hook(shown)
        # The hook may have kept the tensor as it is: a later write must then be noticed.
        kept = isinstance(self.made, Value) and share_memory(self.made, shown)
        self.source = shown.storage() if kept else None

    def value(self) -> Any:
        if self.source is not None and (writes := self.source.writes_since(self.stamp)):
            raise stale(self.name, "a hooked value saved by", self.place, self.source, writes)
        t = self.unpack(self.made)
        if not isinstance(t, Value):
            raise GradError(f"the unpack hook must return a tensor, not {type(t).__name__}")
        dtype = backend_for(t._a).dtype_of(t._a)
        if tuple(t._a.shape) != self.shape or dtype is not self.dtype:
            raise GradError(
                f"the unpack hook returned shape {tuple(t._a.shape)} {dtype.name} for a tensor of "
                f"shape {self.shape} {self.dtype.name} saved by '{self.name}' (recorded at "
                f"{self.place}): it must give back what was packed"
            )
        return raw_of(t) if self.raw else t


class saved_tensors_hooks(Scope):  # noqa: N801 - PyTorch's name
    """Hooks on what operations recorded inside save for backward.

    `pack_hook(tensor)` is called once for each saved tensor and may return anything;
    `unpack_hook` gets that, whenever a derivative needs it, and returns the tensor: of the same
    shape and dtype, else `GradError`. Of nested scopes the innermost counts.
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        super().__init__()
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def kind(self) -> type[Any]:
        """The class of tensors."""
        from chainrule.autograd.engine import TENSOR_LEVEL

        return TENSOR_LEVEL.kind

    def keep(self, node: Node) -> None:
        """Pack what `node` saved."""
        replace(node, lambda v: _Hooked(self, v, node.rule.name, node.place))

    def pack(self, value: Any, place: Place) -> Any:
        """Pack one tensor."""
        return _Hooked(self, value, "checkpoint", place)
