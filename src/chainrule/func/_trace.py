"""One level of differentiation: inputs made anew, the function recorded, results let go.

Each level differentiates with respect to aliases of its own, so that levels never mix. What a
level computes stays on the tape only where an outer level, or a tensor that requires grad
outside, could ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chainrule import _tree, autograd, ops
from chainrule.autograd.forward import zeros
from chainrule.autograd.node import Leaf, Node
from chainrule.autograd.state import enable_grad, is_grad_enabled
from chainrule.autograd.value import Value, detached
from chainrule.errors import DTypeError, GradError, InputError

Argnums = int | tuple[int, ...]


class Trace:
    """A function recorded at inputs of its own.

    `inputs` are the aliases that were differentiated, `outputs` the tensors that came out, both
    flat; `result` what the function returned, `aux` its second result.
    """

    def __init__(self, who: str, tree: Any) -> None:
        self.who = who
        self.outer = is_grad_enabled()  # whether anyone outside could differentiate again
        self.tree = tree
        with enable_grad():
            self.inputs = [self._own(x) for x in _tree.leaves(tree)]
        self.result: Any = None
        self.aux: Any = None

    def _own(self, x: Any) -> Any:
        if not isinstance(x, Value):
            raise InputError(f"{self.who} differentiates tensors, not {type(x).__name__}")
        dtype = x.dtype  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
        if not dtype.is_floating_point:  # pyright: ignore[reportUnknownMemberType]
            raise DTypeError(
                f"{self.who}: an input has dtype {dtype.name}; only floating point tensors have "  # pyright: ignore[reportUnknownMemberType]
                "derivatives: convert it with .to(cr.float64)"
            )
        if self.outer and x.node is not None:
            return ops.alias(x)  # pyright: ignore[reportArgumentType]
        own = detached(x)
        own.node = Leaf(own)
        return own

    def run(self, fn: Callable[..., Any], args: Sequence[Any], has_aux: bool, **more: Any) -> None:
        """Call `fn`, recording, and keep what it returns."""
        with enable_grad():
            result = fn(*args, **more)
        if has_aux:
            if not (isinstance(result, tuple) and len(result) == 2):  # pyright: ignore
                raise GradError(
                    f"{self.who} with has_aux=True: the function must return a pair "
                    f"(output, aux), not {type(result).__name__}"
                )
            result, self.aux = result  # pyright: ignore[reportUnknownVariableType]
        self.result = result
        self.outputs = _tree.leaves(result)
        for y in self.outputs:
            if not isinstance(y, Value):
                raise GradError(
                    f"{self.who}: the function must return tensors, not {type(y).__name__}"
                )

    def own_tree(self) -> Any:
        """The inputs in the nest that they came in."""
        return _tree.filled(self.tree, self.inputs)

    def wanted(self, *directions: Any) -> bool:
        """Whether derivatives must be recorded: someone outside could differentiate them."""
        if not self.outer:
            return False
        if any(isinstance(x.node, Node) for x in self.inputs):
            return True
        if any(isinstance(v, Value) and v.node is not None for v in directions):
            return True
        return any(self._reaches_outside(y) for y in self.outputs)

    def _reaches_outside(self, y: Any) -> bool:
        """Whether `y` depends on a leaf that is not of this level."""
        own = {x.node for x in self.inputs}
        seen: set[Any] = set(own)
        stack = [y.node] if y.node is not None and y.node not in own else []
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, Leaf):
                return True
            stack.extend(p for p in node.parents if p is not None and p not in seen)
        return False

    def let_go(self, tree: Any) -> Any:
        """Results as the caller gets them: without this level's history, unless it is wanted."""
        linked = self.outer and any(isinstance(x.node, Node) for x in self.inputs)

        def one(y: Any) -> Any:
            if not isinstance(y, Value) or y.node is None:
                return y
            return y if linked or (self.outer and self._reaches_outside(y)) else detached(y)

        return _tree.rebuilt(tree, one)

    def pull(self, cotangents: Sequence[Any], recorded: bool) -> list[Any]:
        """The gradients of the inputs for one gradient an output; zeros where none arrives."""
        pairs = [
            (y, g)
            for y, g in zip(self.outputs, cotangents, strict=True)
            if y.node is not None and g is not None
        ]
        if not pairs:
            return [zeros(tuple(x._a.shape), x) for x in self.inputs]
        return list(
            autograd.grad(
                [y for y, _ in pairs],
                self.inputs,
                [g for _, g in pairs],
                retain_graph=True,
                create_graph=recorded,
                materialize_grads=True,
            )
        )


def chosen(argnums: Argnums, args: Sequence[Any], who: str) -> tuple[int, ...]:
    """`argnums` as places counted from 0; raises `InputError` where there is no such argument."""
    many = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    n = len(args)
    for i in many:
        if not -n <= i < n:
            raise InputError(f"{who}: argnums has {i}, but the function was called with {n}")
    places = tuple(i % n for i in many)
    if not places or len(set(places)) != len(places):
        raise InputError(f"{who}: argnums {argnums} must name different arguments, at least one")
    return places


def replaced(args: Sequence[Any], places: Sequence[int], new: Any) -> list[Any]:
    """`args` with those at `places` replaced."""
    out = list(args)
    for i, x in zip(places, new, strict=True):
        out[i] = x
    return out
