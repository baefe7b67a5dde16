"""What a recorded write does to everyone who looks at the same memory.

Every alias is (memory, Layout). The first recorded write puts the memory as a whole on the tape
as one flat tensor; a write through L is a node `overwrite(L)` on it: the value's gradient is
g[L], the memory's is g with L zeroed. After the write each tensor of the family, the written one
and its relatives, becomes a view of the new memory node. Unrecorded work pays nothing for this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chainrule.autograd.node import Erased, Leaf, Node, Rule, record
from chainrule.autograd.value import Value, backend_for, user_place
from chainrule.errors import GradError, LayoutError
from chainrule.layout import Layout
from chainrule.ops._apply import REGION, ArrayRule, ViewRule, apply, namespace
from chainrule.storage import Place

AnyNode = Node | Leaf | None

# The first tensor's elements laid out in memory; the transpose reads them back.
MEMORY = ViewRule("memory", lambda b, g, layout: b.region(g, layout))

ZEROED = ArrayRule(
    "zero a region",
    lambda b, x, layout: b.zeroed(x, layout),
    lambda b, g, saved, n: (b.zeroed(g, *n.attrs),),  # its own transpose
)


def zeroed(g: Any, layout: Layout) -> Any:
    """`g` with zeros where `layout`, relative to a contiguous tensor, sees it."""
    return apply(ZEROED, (g,), (layout,))


def _split(b: Any, node: Node, g: Any) -> tuple[Any, ...]:
    (layout,) = node.attrs
    before = Erased(layout, g) if node.parents[0] is not None else None
    # A copy, for the engine may zero the region of `g` in place.
    value = b.copy(b.region(g, layout)) if node.parents[1] is not None else None
    return before, value


OVERWRITE = Rule(
    "overwrite",
    lambda node, g: _split(backend_for(g), node, g),
    lambda node, g: _split(namespace(), node, g),
    broadcasts=True,
)


def members(target: Value) -> Iterator[Value]:
    """The living tensors that share memory and history with `target`, itself included."""
    storage = target.storage()
    root = storage.root() if storage.root is not None else None
    if root is not None:
        yield root
    for reference in storage.aliases or ():
        alias = reference()
        if alias is not None and alias is not root:
            yield alias


def has_history(target: Value) -> bool:
    """Whether anyone in the family of `target` is on the tape."""
    return target.node is not None or any(m.node is not None for m in members(target))


def overwrite(target: Value, seen: Layout, value: AnyNode) -> tuple[Node, list[Value]]:
    """The node of a write through `seen`, and whom `rederive` is to give a new history.

    Raises `GradError` where the write would make some gradient wrong: the memory begins at a leaf
    that requires grad, or `target` was made where nothing was recorded.
    """
    family = list(members(target))
    storage = target.storage()
    if not any(m is target for m in family):
        raise GradError(
            "a recorded write through a view that was made under no_grad would leave its "
            "relatives' gradients behind: make the view again while recording"
        )
    home, span = storage.home, _span(storage.home)
    place = user_place(4)
    before = _memory_node(family, home, span, place)
    within = _relative(seen, home, span)
    if within == Layout.contiguous((span,)) or (within.is_dense and within.numel == span):
        before = None  # nothing of the old memory is left
    shape = (span,)
    return record(OVERWRITE, (), (before, value), (within,), shape, place), family


def rederive(family: list[Value], memory: Node) -> None:
    """Make every tensor of the family a view of the memory after the write."""
    home, span = next(iter(family)).storage().home, memory.shape[0]
    for m in family:
        within = _relative(m.layout, home, span)
        m.node = record(REGION, (), (memory,), (within,), m.layout.shape, memory.place)


def _memory_node(family: list[Value], home: Layout, span: int, place: Place) -> AnyNode:
    """The node of the flat memory: of the last write, or made of the first tensor's node."""
    node: AnyNode = next((m.node for m in family if m.node is not None), None)
    while isinstance(node, Node) and isinstance(node.rule, ViewRule) and node.rule is not MEMORY:
        node = node.parents[0]
    if node is None or (isinstance(node, Node) and node.rule is OVERWRITE):
        return node
    if isinstance(node, Leaf):
        raise GradError(
            "a leaf that requires grad, or a view of one, cannot be written in place while "
            "recording: use 'with torch.no_grad(): p -= lr * p.grad', or write into p.clone()"
        )
    within = Layout(home.shape, home.strides, home.offset - _start(home))
    return record(MEMORY, (), (node,), (within,), (span,), place)


def _start(home: Layout) -> int:
    bounds = home.bounds()
    return 0 if bounds is None else bounds[0]


def _span(home: Layout) -> int:
    bounds = home.bounds()
    return 0 if bounds is None else bounds[1] - bounds[0] + 1


def _relative(seen: Layout, home: Layout, span: int) -> Layout:
    """`seen` relative to the first address of `home`."""
    start = _start(home)
    bounds = seen.bounds()
    if bounds is None:  # an empty view sees nothing, wherever it is
        return Layout(seen.shape, seen.strides, 0)
    if bounds[0] < start or bounds[1] >= start + span:
        raise LayoutError(
            f"the recorded write reaches addresses {bounds[0]} to {bounds[1]}, outside the first "
            f"tensor of this memory, which has {start} to {start + span - 1}"
        )
    return Layout(seen.shape, seen.strides, seen.offset - start)
