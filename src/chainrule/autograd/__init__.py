"""The tape: `backward`, `grad`, `Function`, grad modes. It knows nothing of what any op computes.

`gradcheck` and `gradgradcheck` live in `chainrule.check` and are offered here under PyTorch's
names by the package itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chainrule.autograd import engine, graph
from chainrule.autograd.function import Function, FunctionCtx, once_differentiable
from chainrule.autograd.node import Leaf, Node, RemovableHandle
from chainrule.autograd.state import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from chainrule.autograd.value import Value, backend_for, raw_of
from chainrule.errors import GradError, ShapeError

gradcheck: Callable[..., bool]  # both set by the package: see `chainrule.check`
gradgradcheck: Callable[..., bool]

__all__ = [
    "Function",
    "FunctionCtx",
    "Leaf",
    "Node",
    "RemovableHandle",
    "backward",
    "enable_grad",
    "grad",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "once_differentiable",
    "set_grad_enabled",
]


def backward(
    tensors: Value | Sequence[Value],
    grad_tensors: Value | Sequence[Value | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Value | Sequence[Value] | None = None,
) -> None:
    """Add the gradients of `tensors` to the `.grad` of the leaves (or of `inputs` alone).

    `grad_tensors` are the incoming gradients, of the shapes of `tensors`; None is 1 for a tensor
    of one element. Raises `GradError` where there is nothing to differentiate.
    """
    roots, kind = _roots(tensors, grad_tensors, create_graph)
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        engine.walk(roots, kind, retain_graph=keep, create_graph=create_graph)
        return
    leaves = [inputs] if isinstance(inputs, Value) else list(inputs)
    nodes = [_node(t, "inputs") for t in leaves]
    found = engine.walk(roots, kind, retain_graph=keep, create_graph=create_graph, targets=nodes)
    into = engine.Walk(kind, {}, {}, True, create_graph)
    for t, node in zip(leaves, nodes, strict=True):
        g = found[node]
        if g is None:
            continue
        if isinstance(node, Leaf):
            into.accumulate(node, g)
        else:
            t.more()["grad"] = g if create_graph else engine.new_value(kind, g)


def grad(
    outputs: Value | Sequence[Value],
    inputs: Value | Sequence[Value],
    grad_outputs: Value | Sequence[Value | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs` with respect to `inputs`, as a tuple; `.grad` is not touched.

    An input that no output depends on is an error, or None with `allow_unused=True`, or zeros
    with `materialize_grads=True`.
    """
    roots, kind = _roots(outputs, grad_outputs, create_graph)
    wanted = [inputs] if isinstance(inputs, Value) else list(inputs)
    nodes = [_node(t, "inputs") for t in wanted]
    keep = create_graph if retain_graph is None else retain_graph
    found = engine.walk(roots, kind, retain_graph=keep, create_graph=create_graph, targets=nodes)
    results: list[Any] = []
    seen: set[int] = {id(g) for _, g in roots}
    for i, (t, node) in enumerate(zip(wanted, nodes, strict=True)):
        g = found[node]
        if g is None and materialize_grads:
            raw = raw_of(t)
            results.append(engine.new_value(kind, backend_for(raw).zeros(tuple(raw.shape), raw)))
        elif g is None:
            if not allow_unused:
                raise GradError(
                    f"input {i} (shape {tuple(t._a.shape)}) is not used by the outputs: pass "
                    "allow_unused=True to get None for it, or materialize_grads=True for zeros"
                )
            results.append(None)
        else:
            results.append(g if create_graph else _unshared(kind, g, seen))
    return tuple(results)


def _unshared(kind: type[Any], g: Any, seen: set[int]) -> Any:
    """A tensor around `g`; a copy where another result, or a view, shares its memory."""
    b = backend_for(g)
    shared = id(g) in seen or getattr(g, "base", None) is not None
    seen.add(id(g))
    return engine.new_value(kind, b.copy(g) if shared else b.asarray(g))


def _node(t: Value, what: str) -> Node | Leaf:
    if t.node is None:
        raise GradError(f"one of the {what} does not require grad: set requires_grad=True on it")
    return t.node


def _roots(
    tensors: Value | Sequence[Value],
    grads: Value | Sequence[Value | None] | None,
    create_graph: bool,
) -> tuple[list[tuple[Node | Leaf, Any]], type[Any]]:
    many = [tensors] if isinstance(tensors, Value) else list(tensors)
    given: list[Any]
    if grads is None:
        given = [None] * len(many)
    else:
        given = [grads] if isinstance(grads, Value) else list(grads)
    if not many:
        raise GradError("there is nothing to differentiate: no tensor was given")
    if len(many) != len(given):
        raise GradError(f"{len(given)} incoming gradients were given for {len(many)} tensors")
    kind = type(many[0])
    roots: list[tuple[Node | Leaf, Any]] = []
    for t, g in zip(many, given, strict=True):
        node = t.node
        if node is None:
            raise GradError(
                "this tensor does not require grad and has no grad_fn: no input of it was made "
                "with requires_grad=True, or it was computed under no_grad or detached"
            )
        raw = raw_of(t)
        b = backend_for(raw)
        if g is None:
            size = 1
            for n in raw.shape:
                size *= n
            if size != 1:
                raise GradError(
                    "grad can be implicitly created only for scalar outputs: this tensor has "
                    f"shape {tuple(raw.shape)}; pass the incoming gradient, or reduce it first"
                )
            one = b.ones_like(raw)
            roots.append((node, engine.new_value(kind, one) if create_graph else one))
            continue
        if tuple(g._a.shape) != tuple(raw.shape):
            raise ShapeError(
                f"the incoming gradient has shape {tuple(g._a.shape)}, the tensor "
                f"{tuple(raw.shape)}: they must be equal"
            )
        if create_graph:
            roots.append((node, g if g.dtype is t.dtype else g.to(t.dtype)))  # pyright: ignore
        else:
            have = raw_of(g)
            same = have.dtype == raw.dtype
            roots.append((node, have if same else b.cast(have, b.dtype_of(raw))))
    return roots, kind
