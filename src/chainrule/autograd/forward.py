"""Forward mode: tangents pushed along the tape, from inputs to outputs.

A rule may state how it passes a tangent on; of any other the vector-Jacobian product is transposed:
v ↦ vjp(v) is linear, and its own vector-Jacobian product is the Jacobian-vector product. Tangents
are tensors; they are recorded where recording is on, so that derivatives nest in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chainrule.autograd import engine
from chainrule.autograd.node import FREED, Erased, Leaf, Node, Region, check_fresh, record
from chainrule.autograd.state import enable_grad, is_grad_enabled
from chainrule.autograd.value import Value, backend_for, new_value
from chainrule.errors import GradError, ShapeError
from chainrule.storage import CLOCK

AnyNode = Node | Leaf


def order(outputs: Sequence[AnyNode], stops: Mapping[AnyNode, Any] | set[AnyNode]) -> list[Node]:
    """The nodes between `stops` and `outputs`, parents first; iterative, so any depth will do.

    Only nodes that depend on one of `stops` are listed.
    """
    dependent: dict[AnyNode, bool] = dict.fromkeys(stops, True)
    listed: list[Node] = []
    stack: list[tuple[AnyNode, bool]] = [(n, False) for n in outputs]
    while stack:
        node, parents_done = stack.pop()
        if node in dependent:
            continue
        if parents_done:
            dependent[node] = any(dependent.get(p, False) for p in node.parents if p is not None)
            if dependent[node]:
                assert isinstance(node, Node)
                listed.append(node)
            continue
        stack.append((node, True))
        stack.extend((p, False) for p in node.parents if p is not None and p not in dependent)
    return listed


def push(
    nodes: Sequence[Node], outputs: Sequence[AnyNode], tangents: Mapping[AnyNode, Any]
) -> list[Any]:
    """The tangents at `outputs`, None where there is none, along `nodes` (of `order`)."""
    held: dict[AnyNode, Any] = dict(tangents)
    uses: dict[AnyNode, int] = {}
    for node in (*outputs, *(p for n in nodes for p in n.parents if p is not None)):
        uses[node] = uses.get(node, 0) + 1
    for node in nodes:
        if node.saved is FREED:
            raise GradError(
                f"forward mode through '{node.name()}' (recorded at {node.place}): a backward has "
                "freed its saved values; pass retain_graph=True to that backward"
            )
        if node.stamp != CLOCK.now:
            check_fresh(node)
        given = [None if p is None else held.get(p) for p in node.parents]
        if any(t is not None for t in given):
            stated = node.rule.tangent
            held[node] = transposed(node, given) if stated is None else stated(node, given)
        for p in node.parents:
            if p is not None:
                uses[p] -= 1
                if not uses[p]:
                    held.pop(p, None)
    return [held.get(n) for n in outputs]


def transposed(node: Node, tangents: Sequence[Any]) -> Any:
    """The tangent of the output out of the rule's vector-Jacobian product alone.

    A node of several outputs gives a tuple of tangents.
    """
    like = next(t for t in tangents if t is not None)
    recorded = is_grad_enabled()
    shapes = getattr(node.attrs, "_shapes", (node.shape,))
    several = len(shapes) > 1
    # Where nothing is recorded, what the rule saved need not lead to its own history.
    at = node if recorded else shadow(node)
    with enable_grad():
        probes = [probe(shape, like) for shape in shapes]
        given: Any = dict(enumerate(probes)) if several else probes[0]
        grads = at.rule.run_tensor(at, given)
        roots: list[tuple[AnyNode, Any]] = []
        for p, g, t in zip(node.parents, grads, tangents, strict=False):
            if p is None or g is None or t is None:
                continue
            whole = _dense(p, g)
            if whole.node is not None:
                roots.append((whole.node, t if recorded else t._a))
    wanted = [u.node for u in probes]
    if not roots:
        return (None,) * len(probes) if several else None
    found = engine.walk(
        roots, type(like), retain_graph=recorded, create_graph=recorded, targets=wanted
    )
    results = tuple(_tensor(type(like), found[w], recorded) for w in wanted)
    return results if several else results[0]


def probe(shape: tuple[int, ...], like: Value) -> Any:
    """A leaf of zeros: only what depends on it linearly will be asked."""
    u = zeros(shape, like)
    u.node = Leaf(u)
    return u


def zeros(shape: tuple[int, ...], like: Value) -> Any:
    """Zeros of the dtype and device of `like`."""
    raw = like._a
    return new_value(type(like), backend_for(raw).zeros(shape, raw))


def shadow(node: Node) -> Node:
    """The same operation on inputs without history."""
    stubs = tuple(None if p is None else stub(p.shape) for p in node.parents)
    twin = record(node.rule, node.saved, stubs, node.attrs, node.shape, node.place)
    twin.storage = node.storage
    return twin


def stub(shape: tuple[int, ...]) -> Leaf:
    """A leaf of no tensor."""
    leaf = object.__new__(Leaf)
    leaf.shape, leaf.grad, leaf.hooks = shape, None, None
    leaf.tensor = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    return leaf


def fitted(t: Any, shape: tuple[int, ...], what: str) -> Any:
    """The tangent that user code returned, refused where it has another shape than the output."""
    if not isinstance(t, Value):
        raise GradError(f"{what} returned {type(t).__name__}: return a tensor or None")
    if tuple(t._a.shape) != shape:
        raise ShapeError(
            f"{what} returned a tangent of shape {tuple(t._a.shape)} for an output of shape {shape}"
        )
    return t


def _dense(p: AnyNode, g: Any) -> Any:
    ops = engine.TENSOR_LEVEL.ops
    if type(g) is Region:
        return ops.scatter_region(g.g, p.shape, g.layout)
    if type(g) is Erased:
        return ops.zeroed(g.g, g.layout)
    return g if tuple(g.shape) == p.shape else engine.sum_to(ops, g, p.shape)


def _tensor(kind: type[Any], g: Any, recorded: bool) -> Any:
    if g is None or recorded:
        return g
    return new_value(kind, backend_for(g).asarray(g))
