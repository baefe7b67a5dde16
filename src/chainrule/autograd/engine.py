"""The backward walk: count dependants in one pass, then follow a ready list. No recursion.

It relies on nodes alone. The same walk runs on raw arrays (first order) and on tensors
(`create_graph=True`), where every rule records what it does. Counts and sums live in the walk,
not on the nodes, so that a walk that raises half-way, nests or shares nodes leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np
from numpy import ndarray

from chainrule.autograd.node import FREED, Erased, Leaf, Node, Region, Slot, check_fresh
from chainrule.autograd.state import recording
from chainrule.autograd.value import Value, backend_for, new_value, user_place
from chainrule.errors import GradError, ShapeError
from chainrule.storage import CLOCK

AnyNode = Node | Leaf


# The differentiable namespace (`chainrule.ops`), set when it is imported: the engine sums,
# un-broadcasts and scatters tensors through it and knows nothing else of it.
class _TensorLevel:
    ops: Any = None
    kind: type[Any] = Value


TENSOR_LEVEL = _TensorLevel()


def set_tensor_ops(namespace: Any, kind: type[Any]) -> None:
    """Tell the engine which namespace records and what a tensor's class is: called once."""
    TENSOR_LEVEL.ops, TENSOR_LEVEL.kind = namespace, kind


def walk(
    roots: Sequence[tuple[AnyNode, Any]],
    kind: type[Any],
    *,
    retain_graph: bool,
    create_graph: bool,
    targets: Iterable[AnyNode] = (),
) -> dict[AnyNode, Any]:
    """Walk from `roots` (node, incoming gradient) and return the gradients at `targets`.

    Without targets, gradients are accumulated into leaves. Gradients are raw arrays, or tensors
    of class `kind` where `create_graph`.
    """
    wanted: dict[AnyNode, Any] = dict.fromkeys(targets)
    counts = _count([node for node, _ in roots], bool(wanted))
    if wanted:
        counts = _restrict(counts, wanted)
    run = Walk(kind, counts, wanted, retain_graph, create_graph)
    ready: list[AnyNode] = []
    for node, g in roots:
        if node in counts:
            if counts[node] == 0 and node not in run.sums:
                ready.append(node)
            run.add(node, g)
    token = recording.set(create_graph)
    try:
        with np.errstate(all="ignore"):  # a gradient of inf or NaN is an answer
            run.go(ready)
    finally:
        recording.reset(token)
    return wanted


def _count(roots: Sequence[AnyNode], freed_too: bool) -> dict[AnyNode, int]:
    """How many edges of the reachable graph lead into each node.

    Where a part is chosen later (`freed_too`), used-up nodes may lie outside it.
    """
    counts: dict[AnyNode, int] = dict.fromkeys(roots, 0)
    stack = list(counts)
    push, pop, get = stack.append, stack.pop, counts.get
    while stack:
        node = pop()
        if node.saved is FREED and not freed_too:
            raise _second_time(node)
        for p in node.parents:
            if p is not None:
                c = get(p)
                if c is None:
                    counts[p] = 1
                    push(p)
                else:
                    counts[p] = c + 1
    return counts


def _second_time(node: AnyNode) -> GradError:
    return GradError(
        f"backward through '{node.name()}' (recorded at {node.place}) a second time: its "  # pyright: ignore[reportAttributeAccessIssue]
        "saved values are gone. Pass retain_graph=True to the first backward to keep them"
    )


def _restrict(counts: dict[AnyNode, int], wanted: dict[AnyNode, Any]) -> dict[AnyNode, int]:
    """The counts of the part of the graph that lies between the roots and `wanted`."""
    children: dict[AnyNode, list[AnyNode]] = {}
    for node in counts:
        for p in node.parents:
            if p is not None:
                children.setdefault(p, []).append(node)
    useful: dict[AnyNode, int] = {n: 0 for n in wanted if n in counts}
    stack = list(useful)
    while stack:
        for child in children.get(stack.pop(), ()):
            if child not in useful:
                useful[child] = 0
                stack.append(child)
    for node in useful:
        for p in node.parents:
            if p in useful:
                if node.saved is FREED:
                    raise _second_time(node)
                useful[p] += 1  # pyright: ignore[reportArgumentType]
    return useful


class Walk:
    """One walk: what has been summed so far, and which sums the walk itself owns."""

    def __init__(
        self,
        kind: type[Any],
        counts: dict[AnyNode, int],
        wanted: dict[AnyNode, Any],
        retain_graph: bool,
        create_graph: bool,
    ) -> None:
        self.kind = kind
        self.counts = counts
        self.wanted = wanted
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.sums: dict[AnyNode, Any] = {}
        self.owned: set[AnyNode] = set()
        self.regions: dict[AnyNode, Any] = {}

    def go(self, ready: list[AnyNode]) -> None:
        """Follow the ready list until it is empty.

        The node that became ready last is walked next without a detour through the list.
        """
        counts, sums, wanted, owned = self.counts, self.sums, self.wanted, self.owned
        create_graph, keep = self.create_graph, self.retain_graph
        push, pop, find = ready.append, ready.pop, counts.get
        held_by, take = sums.get, sums.pop
        grads: Sequence[Any]
        node: Any = None
        while True:
            if node is None:
                if not ready:
                    return
                node = pop()
            g = take(node, None)
            hooks = node.hooks
            if hooks is not None and g is not None:
                g = self.before(node, g)
                owned.discard(node)
            if wanted and node in wanted:
                wanted[node] = g
                owned.discard(node)
                if not any(p in counts for p in node.parents):
                    node = None
                    continue
            if node.__class__ is Leaf:
                if g is not None and not wanted:
                    self.accumulate(node, g)
                node = None
                continue
            parents = node.parents
            if g is None:
                grads = (None,) * len(parents)
            else:
                if node.stamp != CLOCK.now:
                    check_fresh(node)
                rule = node.rule
                grads = rule.run_tensor(node, g) if create_graph else rule.run(node, g)
                if hooks is not None:
                    grads = self.after(node, g, grads)
            if not keep:
                node.saved = FREED
            del g
            following = gi = None
            for p, gi in zip(parents, grads):  # noqa: B905 - a rule's own length is checked by it
                if p is None or (c := find(p)) is None:
                    continue  # no gradient wanted, or not between the roots and the targets
                if gi is not None:
                    if gi.__class__ is ndarray:
                        if gi.shape != p.shape:
                            gi = self.fit(node, p, gi)
                        held = held_by(p)
                        if held is None:
                            sums[p] = gi
                        elif p in owned:
                            held += gi
                        else:
                            sums[p] = held = held + gi
                            if held.__class__ is ndarray:  # 0-d sums are NumPy scalars
                                owned.add(p)
                        held = None
                    elif gi.__class__ is Region:
                        self.add_region(p, gi)
                    else:
                        self.add(p, gi, node)
                if c == 1:
                    if following is not None:
                        push(following)
                    following = p
                else:
                    counts[p] = c - 1
            del grads, gi  # so that a leaf can tell whether it alone holds a gradient
            node = following

    def add(self, p: AnyNode, gi: Any, node: Node | None = None) -> None:
        """Add one contribution of any form into the sum of `p`."""
        sums = self.sums
        if type(gi) is Erased:
            gi = self.erase(p, gi, node)
            if gi is None:
                return
        if type(gi) is Slot:
            outputs = sums.setdefault(p, {})
            held = outputs.get(gi.number)
            outputs[gi.number] = gi.g if held is None else held + gi.g
            return
        if node is not None and tuple(gi.shape) != p.shape:
            gi = self.fit(node, p, gi)
        held = sums.get(p)
        sums[p] = gi if held is None else held + gi
        self.owned.discard(p)

    def add_region(self, p: AnyNode, region: Region) -> None:
        layout, g = region
        if self.create_graph:
            self.add(p, TENSOR_LEVEL.ops.scatter_region(g, p.shape, layout))
            return
        b = backend_for(g)
        held = self.sums.get(p)
        if held is None or held is not self.regions.get(p):
            # From here on every region of `p` is added into one contiguous buffer of ours.
            held = b.zeros(p.shape, g) if held is None else b.copy(held)
            self.sums[p] = self.regions[p] = held
            self.owned.add(p)
        b.add_region(held, layout, g)

    def erase(self, p: AnyNode, erased: Erased, node: Node | None) -> Any:
        """The gradient before a write: zero where it wrote, in place if the buffer is ours."""
        layout, g = erased
        if self.create_graph:
            return TENSOR_LEVEL.ops.zeroed(g, layout)
        b = backend_for(g)
        if node not in self.owned or g is not self.regions.get(node):
            return b.zeroed(g, layout)
        b.assign_region(g, layout, 0)
        if p in self.sums:
            return g
        self.sums[p] = self.regions[p] = g
        self.owned.add(p)
        return None

    def fit(self, node: Node, p: AnyNode, g: Any) -> Any:
        """Sum a broadcast gradient back to its parent's shape; refuse any other misfit."""
        if not node.rule.broadcasts:
            raise ShapeError(
                f"the backward of '{node.name()}' (recorded at {node.place}) returned a gradient "
                f"of shape {tuple(g.shape)} for an input of shape {p.shape}"
            )
        b = TENSOR_LEVEL.ops if self.create_graph else backend_for(g)
        return sum_to(b, g, p.shape)

    def before(self, node: AnyNode, g: Any) -> Any:
        """Run tensor hooks, then retain_grad; node pre-hooks last of all."""
        hooks = node.hooks
        assert hooks is not None
        if type(g) is dict:
            return g
        for fn in tuple(hooks.before.values()):
            g = self.replaced(fn(self.wrap(g)), g, "a tensor hook")
        kept = hooks.retained() if hooks.retained is not None else None
        if kept is not None:
            kept.more()["grad"] = self.wrap(g if self.create_graph else backend_for(g).copy(g))
        for fn in tuple(hooks.pre.values()):
            result = fn((self.wrap(g),))
            g = self.replaced(result[0] if isinstance(result, tuple) else result, g, "a prehook")
        return g

    def after(self, node: Node, g: Any, grads: Sequence[Any]) -> Sequence[Any]:
        """Run node hooks on what the rule returned."""
        assert node.hooks is not None
        for fn in tuple(node.hooks.post.values()):
            plain = [self.dense(p, x) for p, x in zip(node.parents, grads, strict=False)]
            shown = tuple(None if x is None else self.wrap(x) for x in plain)
            result = fn(shown, (self.wrap(g),) if type(g) is not dict else ())
            grads = plain
            if result is not None:
                result = result if isinstance(result, tuple) else (result,)
                if len(result) != len(plain):
                    raise GradError(
                        f"a hook on '{node.name()}' returned {len(result)} gradients, "
                        f"not {len(plain)}"
                    )
                grads = [None if r is None else self.unwrap(r) for r in result]
        return grads

    def dense(self, p: AnyNode | None, g: Any) -> Any:
        """A rule's result as hooks see it: a whole array."""
        if p is None or type(g) is Slot:
            return None
        b = TENSOR_LEVEL.ops if self.create_graph else None
        if type(g) is Region:
            return (b or backend_for(g.g)).scatter_region(g.g, p.shape, g.layout)
        if type(g) is Erased:
            return (b or backend_for(g.g)).zeroed(g.g, g.layout)
        return g

    def replaced(self, result: Any, g: Any, who: str) -> Any:
        if result is None:
            return g
        if not isinstance(result, Value):
            raise GradError(f"{who} must return a tensor or None, not {type(result).__name__}")
        if tuple(result._a.shape) != tuple(g.shape):
            raise ShapeError(
                f"{who} returned shape {tuple(result._a.shape)} for a gradient of shape "
                f"{tuple(g.shape)}"
            )
        return self.unwrap(result)

    def wrap(self, g: Any) -> Any:
        """A gradient as user code sees it: a tensor that may not be written to."""
        return g if self.create_graph else read_only(self.kind, g)

    def unwrap(self, t: Any) -> Any:
        return t if self.create_graph else backend_for(t._a).read(t._a)

    def accumulate(self, leaf: Leaf, g: Any) -> None:
        """Add into `.grad`: in place unless the gradient itself is being recorded."""
        held = leaf.grad
        if self.create_graph:
            leaf.grad = g if held is None else TENSOR_LEVEL.ops.add(held, g)
        elif held is None:
            leaf.grad = new_value(self.kind, _own(g))
        elif held.node is None:
            b = backend_for(held._a)
            b.add_into(held._a, g)
            if held._s is not None:
                held._s.wrote(user_place())
        else:
            leaf.grad = new_value(self.kind, held._a + g)
        if leaf.hooks is not None:
            for fn in tuple(leaf.hooks.after.values()):
                fn(leaf.tensor())


def _own(g: Any) -> Any:
    """`g` itself where no one else can see its memory, else a contiguous copy."""
    if type(g) is ndarray:
        if g.base is None and g.flags.c_contiguous and getrefcount(g) <= _SOLE:
            return g
        return np.array(g, order="C", copy=True)
    b = backend_for(g)
    return b.copy(b.asarray(g))


def _references_when_sole() -> int:
    def go() -> int:
        g = np.empty(1)
        return accumulate(g)

    def accumulate(g: Any) -> int:
        return own(g)

    def own(g: Any) -> int:
        return getrefcount(g)

    return go()


_SOLE = _references_when_sole()  # differs between Python versions


def sum_to(b: Any, g: Any, shape: tuple[int, ...]) -> Any:
    """Sum `g` over the dimensions that broadcasting added or stretched; `b` is any namespace."""
    lead = len(g.shape) - len(shape)
    dims = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1
    )
    if dims:
        g = b.sum(g, dims, True)
    return b.reshape(g, shape)


def read_only(kind: type[Any], g: Any) -> Any:
    """A tensor around a raw gradient that refuses writes: it may be shared."""
    b = backend_for(g)
    raw = b.asarray(g)
    if type(raw) is ndarray:
        raw = raw.view()
        raw.flags.writeable = False
    t = new_value(kind, raw)
    t.storage().log.readonly = (
        "a gradient handed to a backward or a hook is shared and may not be written to: "
        "use g = g * …, or g.clone()"
    )
    return t
