"""Value: what the tape knows of a tensor — its array, its node, and its place in a storage.

`chainrule.Tensor` derives from it and adds the operations people call. Storage and Layout are
made when first asked for; an operation's result holds its array alone.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from weakref import ref

from numpy import ndarray

from chainrule.backends import backend_of
from chainrule.backends import numpy as numpy_backend
from chainrule.layout import Layout
from chainrule.storage import CLOCK, Place, Storage

if TYPE_CHECKING:
    from chainrule.autograd.node import Leaf, Node

_INSIDE = __name__.partition(".")[0] + "."


class Value:
    """An array and its history.

    Slots: `_a` the raw array; `node` None, a `Leaf` or a `Node`; `_s` and `_l` the storage and
    the layout in it, or None until asked; `_more` a dict of rare things, unset until needed.
    """

    __slots__ = ("__weakref__", "_a", "_l", "_more", "_s", "node")

    _a: Any
    _s: Storage | None
    _l: Layout
    _more: dict[str, Any]
    node: Node | Leaf | None

    def storage(self) -> Storage:
        """The flat memory behind this tensor, shared with its aliases."""
        s = self._s
        if s is None:
            a = self._a
            backend = backend_of(a)
            buffer, numel, layout = backend.storage_of(a)
            s = Storage(buffer, backend.dtype_of(a), numel, backend, layout)
            s.root = ref(self)
            if type(a) is ndarray and not a.flags.writeable:
                s.log.readonly = "this memory is read-only: write to a .clone() instead"
            self._s = s
            self._l = layout
            node = self.node
            # Only what keeps the output anyway may keep its memory. A Leaf has nothing saved.
            if node is not None and node.saved and node.rule.keeps_output(node):  # pyright: ignore
                node.storage = s  # pyright: ignore[reportAttributeAccessIssue]
        return s

    @property
    def layout(self) -> Layout:
        """Shape, strides and offset in elements."""
        if self._s is None:
            self.storage()
        return self._l

    def more(self) -> dict[str, Any]:
        """The dict of rare attributes, made on first use."""
        try:
            return self._more
        except AttributeError:
            self._more = {}
            return self._more


def rare(value: Value, name: str) -> Any:
    """A rare attribute of `value`, or None."""
    try:
        return value._more.get(name)
    except AttributeError:
        return None


def new_value(kind: type[Any], raw: Any, node: Node | Leaf | None = None) -> Any:
    """A tensor of class `kind` around a raw array."""
    t = object.__new__(kind)
    t._a = raw
    t._s = None
    t.node = node
    return t


def new_alias(kind: type[Any], storage: Storage, layout: Layout) -> Any:
    """A tensor of class `kind` that sees `storage` through `layout`, without history."""
    t = object.__new__(kind)
    t._a = storage.view(layout)
    t._s = storage
    t._l = layout
    t.node = None
    return t


def detached(value: Value) -> Any:
    """The same memory without history, in a family of its own; writes are noticed by both."""
    storage = value.storage().sibling(value.layout)
    t = new_alias(type(value), storage, value.layout)
    storage.root = ref(t)
    return t


def share_memory(a: Value, b: Value) -> bool:
    """Whether two tensors see the same block of memory, as far as their storages tell."""
    return a._s is not None and b._s is not None and a._s.log is b._s.log


def raw_of(value: Value) -> Any:
    """The plain raw array of a tensor: flipped views of the torch backend are read."""
    a = value._a
    return a if type(a) is ndarray else backend_of(a).read(a)


def backend_for(raw: Any) -> Any:
    """The backend of a raw array, NumPy first because it is the common one."""
    return numpy_backend if type(raw) is ndarray else backend_of(raw)


def user_place(depth: int = 2) -> Place:
    """The innermost line outside this package: where the user called."""
    frame = inner = sys._getframe(depth)  # pyright: ignore[reportPrivateUsage]
    while frame.f_globals.get("__name__", "").startswith(_INSIDE):
        frame = frame.f_back
        if frame is None:
            return Place(inner.f_code, inner.f_lasti)
    return Place(frame.f_code, frame.f_lasti)


def write_raw(value: Value, update: Any, place: Place | None = None) -> None:
    """Write raw values, broadcast, into the memory of `value` and bump its version."""
    storage = value.storage()
    storage.check_writable()
    storage.backend.assign(value._a, update)
    storage.wrote(place or user_place())


def clock() -> int:
    """The write clock's reading."""
    return CLOCK.now
