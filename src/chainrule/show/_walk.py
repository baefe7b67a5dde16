"""One backward, step by step: what comes into each node, what its rule makes of it, how large.

It is the engine's own walk, watched by hooks on every node; nothing is added to any `.grad`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import Any

import numpy as np

from chainrule.autograd import engine
from chainrule.autograd.node import Leaf, Node, RemovableHandle
from chainrule.autograd.value import Value, backend_for, raw_of
from chainrule.errors import GradError, InputError, ShapeError
from chainrule.show._tape import backward_order, formula_of
from chainrule.show._tape_text import where
from chainrule.storage import Place


@dataclass
class Gradient:
    """A gradient and its figures; `norm` is the Euclidean one of its finite elements."""

    tensor: Any
    shape: tuple[int, ...]
    numel: int
    norm: float
    nonfinite: int


@dataclass
class Step:
    """One node's turn: `incoming` is its output's gradient, `outgoing` pairs (to whom, gradient).

    Outgoing gradients are as the rule returns them, before broadcasting is summed away.
    """

    number: int
    name: str
    place: Place | None
    formula: str
    incoming: Gradient | None = None
    outgoing: list[tuple[str, Gradient | None]] = field(
        default_factory=list[tuple[str, Gradient | None]]
    )


class Walk:
    """The steps of one backward: a sequence of `Step`; `str()` is text, `.svg()` an SVG."""

    def __init__(self, steps: list[Step], width: int) -> None:
        self.steps = steps
        self.width = width

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, i: int) -> Step:
        return self.steps[i]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @property
    def first_nonfinite(self) -> Step | None:
        """The first step whose rule returns an infinity or NaN; None where all is finite."""
        for s in self.steps:
            if any(g is not None and g.nonfinite for _, g in s.outgoing):
                return s
        return None

    def summary(self) -> str:
        """How many steps there are and where the first number that is not finite comes from."""
        text = f"{len(self.steps)} steps"
        bad = self.first_nonfinite
        if bad is None:
            return f"{text}, every gradient finite"
        text += f"; the first gradient that is not finite comes out of {bad.number} '{bad.name}'"
        return text if bad.place is None else f"{text} at {where(bad.place)} ('{bad.place.text}')"

    def __str__(self) -> str:
        from chainrule.show._tape_text import walk

        return walk(self)

    __repr__ = __str__

    def svg(self) -> str:
        """A self-contained SVG: a bar a step, as long as the logarithm of the gradient's norm."""
        from chainrule.show._tape_svg import walk

        return walk(self)

    def _repr_svg_(self) -> str:
        return self.svg()


def walk(t: Any, gradient: Any = None, *, width: int = 96) -> Walk:
    """Walk back from `t` and keep every gradient on the way; the tape stays usable.

    `gradient` is the incoming one, of the shape of `t`; None is 1 for a tensor of one element.
    Raises `InputError` for a tensor without history and a width below 60, `GradError` where a
    gradient is needed, `ShapeError` where it does not fit.
    """
    if not isinstance(t, Value) or t.node is None:
        raise InputError("walk goes back from a tensor that requires grad: this has no history")
    if width < 60:
        raise InputError(f"width {width} is too narrow for the listing: use at least 60")
    raw = raw_of(t)
    if gradient is None:
        if prod(raw.shape) != 1:
            raise GradError(
                f"walk from shape {tuple(raw.shape)} needs the incoming gradient: pass it, or "
                "reduce the tensor first"
            )
        g = backend_for(raw).ones_like(raw)
    else:
        g = raw_of(gradient)
        if tuple(g.shape) != tuple(raw.shape):
            raise ShapeError(
                f"the gradient has shape {tuple(g.shape)}, the tensor {tuple(raw.shape)}"
            )
    return Walk(_steps(t, g), width)


def _steps(t: Value, g: Any) -> list[Step]:
    root = t.node
    assert root is not None
    order = backward_order(root)
    number = {n: i for i, n in enumerate(order)}
    steps: dict[Node | Leaf, Step] = {}
    for i, n in enumerate(order):
        place, formula = (n.place, formula_of(n)) if isinstance(n, Node) else (None, "")
        steps[n] = Step(i, n.name() if isinstance(n, Node) else "leaf", place, formula)
    handles: list[RemovableHandle] = []
    bare = [n for n in order if isinstance(n, Node) and n.hooks is None]

    def watch(node: Node) -> RemovableHandle:
        def look(grads: tuple[Any, ...], incoming: tuple[Any, ...]) -> None:
            step = steps[node]
            step.incoming = _figures(incoming[0]) if incoming else None
            for p, x in zip(node.parents, grads, strict=False):
                if p is not None:
                    to = f"{number[p]} {steps[p].name}"
                    step.outgoing.append((to, None if x is None else _figures(x)))

        return node.register_hook(look)

    leaves = [n for n in order if isinstance(n, Leaf)]
    try:
        handles = [watch(n) for n in order if isinstance(n, Node)]
        found = engine.walk(
            [(root, g)], type(t), retain_graph=True, create_graph=False, targets=leaves
        )
    finally:
        for handle in handles:
            handle.remove()
        for n in bare:
            n.hooks = None
    for leaf in leaves:
        arrived = found[leaf]
        if arrived is not None:
            steps[leaf].incoming = _figures(engine.read_only(type(t), arrived))
    return [steps[n] for n in order]


def _figures(t: Any) -> Gradient:
    raw = raw_of(t)
    values = np.asarray(backend_for(raw).to_numpy(raw)).astype(np.float64)
    finite = np.isfinite(values)
    good = values if finite.all() else values[finite]
    largest = float(np.abs(good).max()) if good.size else 0.0
    # Scaled, so that the squares neither overflow nor vanish.
    norm = largest * sqrt(float(np.square(good / largest).sum())) if largest > 0 else 0.0
    return Gradient(t, tuple(values.shape), values.size, norm, int(values.size - finite.sum()))
