"""The tape: nodes, leaves, rules, and what a rule may return besides an array.

A node has slots and no closures. It keeps its static rule, what the rule saved, its parents and
the user's instruction; it knows nothing of what any operation computes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

from chainrule.autograd.value import Value
from chainrule.errors import StaleTensorError
from chainrule.layout import Layout
from chainrule.storage import CLOCK, Place, Storage, Write


class Region(NamedTuple):
    """A gradient that is zero outside a region: the engine adds `g` in place through `layout`.

    `layout` is relative to a contiguous tensor of the parent's shape.
    """

    layout: Layout
    g: Any


class Erased(NamedTuple):
    """The gradient `g` with zeros where `layout`, relative to a contiguous one, sees it.

    The engine zeroes in place where it owns the buffer, so that writing in a loop stays linear.
    """

    layout: Layout
    g: Any


class Slot(NamedTuple):
    """The gradient of one output of a node with several outputs."""

    number: int
    g: Any


# Who makes nodes, by the globals of its module: `new` there makes one. See `graph`.
MAKERS: list[dict[str, Any]] = [globals()]
new = object.__new__

FREED: Any = ("freed",)  # stands in `Node.saved` once backward has used the node up


class Rule:
    """How a gradient passes through one operation; static, shared by all nodes of that kind.

    `run(node, g)` turns the incoming raw gradient into the parents' raw gradients, `run_tensor`
    does the same on tensors, recording as it goes. `broadcasts` allows the engine to sum an
    outgoing gradient back to its parent's shape. `tangent(node, tangents)` is forward mode, on
    tensors: from the parents' tangents (None where there is none) to the output's; a rule that
    does not state it is transposed (`autograd.forward`).
    """

    __slots__ = ("broadcasts", "name", "run", "run_tensor", "tangent")

    def __init__(
        self,
        name: str,
        run: Callable[[Node, Any], tuple[Any, ...]],
        run_tensor: Callable[[Node, Any], tuple[Any, ...]],
        broadcasts: bool = False,
    ) -> None:
        self.name = name
        self.run = run
        self.run_tensor = run_tensor
        self.broadcasts = broadcasts
        self.tangent: Callable[[Node, list[Any]], Any] | None = None

    def keeps_output(self, node: Node) -> bool:
        """Whether the output is among what `node` saved."""
        return False

    def __repr__(self) -> str:
        return f"Rule({self.name})"


class Hooks:
    """Hooks of one node or leaf, in the order they run; made when the first is registered."""

    __slots__ = ("after", "before", "post", "pre", "retained")

    def __init__(self) -> None:
        self.before: dict[int, Callable[[Any], Any]] = {}  # tensor hooks: on the summed gradient
        self.pre: dict[int, Callable[..., Any]] = {}  # node hooks before the rule
        self.post: dict[int, Callable[..., Any]] = {}  # node hooks after the rule
        self.after: dict[int, Callable[[Any], Any]] = {}  # after a leaf has accumulated
        self.retained: weakref.ref[Value] | None = None  # retain_grad: runs last of `before`


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook off again."""

    _count = 0

    def __init__(self, hooks: dict[int, Any], fn: Callable[..., Any]) -> None:
        RemovableHandle._count += 1
        self.id = RemovableHandle._count
        self._hooks = hooks
        hooks[self.id] = fn

    def remove(self) -> None:
        """Take the hook off; doing so twice is harmless."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Node:
    """One operation on the tape.

    `saved` holds tensors (inputs) and raw arrays (the output); `parents[i]` is the node of input
    i, None where it needs no gradient; `stamp` the write clock when it was recorded; `storage`
    the output's, once made, for operations that save their output.
    """

    __slots__ = (
        "__weakref__",
        "attrs",
        "code",
        "hooks",
        "lasti",
        "parents",
        "rule",
        "saved",
        "shape",
        "stamp",
        "storage",
    )

    rule: Rule
    saved: tuple[Any, ...]
    attrs: Any
    parents: tuple[Node | Leaf | None, ...]
    code: CodeType
    lasti: int
    shape: tuple[int, ...]
    stamp: int
    hooks: Hooks | None
    storage: Storage | None

    def name(self) -> str:
        """The operation's name."""
        return self.rule.name

    @property
    def place(self) -> Place:
        """Where the user called the operation."""
        return Place(self.code, self.lasti)

    @property
    def next_functions(self) -> tuple[tuple[Node | Leaf | None, int], ...]:
        """The parents, in PyTorch's form."""
        return tuple((p, 0) for p in self.parents)

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_inputs, grad_outputs)` after the rule; what it returns replaces them."""
        return RemovableHandle(self.hooks_made().post, fn)

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_outputs)` before the rule; what it returns replaces them."""
        return RemovableHandle(self.hooks_made().pre, fn)

    def hooks_made(self) -> Hooks:
        """The hooks, made on first use."""
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    def __repr__(self) -> str:
        return f"<{self.rule.name} at {self.place}>"


class Leaf:
    """Where a gradient ends: the accumulated gradient of one tensor."""

    __slots__ = ("__weakref__", "grad", "hooks", "shape", "tensor")

    parents: tuple[()] = ()
    saved = None
    rule = None

    def __init__(self, tensor: Value) -> None:
        self.shape: tuple[int, ...] = tuple(tensor._a.shape)
        self.grad: Any = None
        self.hooks: Hooks | None = None
        self.tensor = weakref.ref(tensor)

    def name(self) -> str:
        """PyTorch's name of such a node."""
        return "AccumulateGrad"

    @property
    def variable(self) -> Value | None:
        """The tensor whose gradient is accumulated, while it lives."""
        return self.tensor()

    def hooks_made(self) -> Hooks:
        """The hooks, made on first use."""
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    def __repr__(self) -> str:
        return f"<AccumulateGrad of shape {self.shape}>"


def record(
    rule: Rule,
    saved: tuple[Any, ...],
    parents: tuple[Node | Leaf | None, ...],
    attrs: Any,
    shape: tuple[int, ...],
    place: Place,
) -> Node:
    """A new node; the elementwise operations do the same inline."""
    n = new(Node)
    n.rule = rule
    n.saved = saved
    n.attrs = attrs
    n.parents = parents
    n.code, n.lasti = place
    n.shape = shape
    n.stamp = CLOCK.now
    n.hooks = None
    n.storage = None
    return n


def check_fresh(node: Node) -> None:
    """Raise `StaleTensorError` if something the node saved was written to since."""
    held = [(v._s, f"value {i} saved by") for i, v in enumerate(node.saved) if isinstance(v, Value)]
    if node.rule.keeps_output(node):
        held.append((node.storage, "the output of"))
    for storage, what in held:
        writes = storage.writes_since(node.stamp) if storage is not None else ()
        if storage is not None and writes:
            raise stale(node.name(), what, node.place, storage, list(writes))


def stale(
    name: str, what: str, place: Place, storage: Storage, writes: list[Write]
) -> StaleTensorError:
    """The error for a saved tensor that was written to, with both versions and both lines."""
    first = writes[0]
    lost = len(writes) == storage.log.writes.maxlen  # older writes may have been forgotten
    version = f"version {first.version - 1}{' or earlier' if lost else ''}"
    return StaleTensorError(
        f"{what} '{name}' (recorded at {place}) is needed for backward at {version}, but is now "
        f"at version {storage.version}: it was written in place at {first.place} "
        f"('{first.place.text}'). Write to a copy (x = x + …, or x.clone()) or move the write "
        "after backward"
    )
