"""How an array operation is stated and run: `Rule` and `apply`.

A rule is a forward on raw arrays and a vector-Jacobian product, each written once against the
backend protocol; the second runs on raw arrays and, where a graph is wanted, on tensors. Half
types are computed in float32 and rounded once. Relies on `autograd` for the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np
from numpy import ndarray

from chainrule import dtypes
from chainrule.autograd import engine, forward
from chainrule.autograd.node import MAKERS, Node, Region, Rule, record
from chainrule.autograd.state import enable_grad, is_grad_enabled
from chainrule.autograd.value import (
    Value,
    backend_for,
    new_alias,
    new_value,
    raw_of,
    user_place,
)
from chainrule.backends import numpy as numpy_backend
from chainrule.dtypes import DType
from chainrule.errors import DeviceError, DTypeError
from chainrule.layout import Layout
from chainrule.storage import CLOCK

new = object.__new__
MAKERS.append(globals())

Saves = tuple[Any, ...]  # input indices, and "y" for the output


def namespace() -> Any:
    """The differentiable namespace that rules run on for second order: `chainrule.ops`."""
    return engine.TENSOR_LEVEL.ops


def tensor_type() -> type[Any]:
    """The class of tensors, known once the package is imported."""
    return engine.TENSOR_LEVEL.kind


class ArrayRule(Rule):
    """An operation on whole arrays.

    `forward(b, *raws, *attrs)` computes the output; `vjp(b, g, saved, node)` the inputs'
    gradients. `saves` names what `vjp` reads: input indices and "y", or a function from the
    needed-mask to them. `half` says that half types are computed in float32. An operation that
    would rather read an intermediate states `composite`: the same thing out of differentiable
    operations, run on `(*tensors, *attrs)` when a second derivative is wanted; `forward` may
    then return `(output, extras)`, and `vjp` finds the extras at the end of `saved`.
    """

    __slots__ = ("composite", "forward", "half", "linear", "saves", "vjp")

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        vjp: Callable[..., tuple[Any, ...]],
        saves: Saves | Callable[[tuple[bool, ...]], Saves] = (),
        *,
        broadcasts: bool = False,
        half: bool = True,
        composite: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(name, self._run, self._run_tensor, broadcasts)
        self.forward = forward
        self.vjp = vjp
        self.saves = saves
        self.half = half
        self.composite = composite
        if composite is not None:
            self.tangent = self._tangent_through_composite

    def saved_indices(self, need: tuple[bool, ...]) -> Saves:
        """What is saved when the inputs marked in `need` want a gradient."""
        return self.saves if isinstance(self.saves, tuple) else self.saves(need)

    def keeps_output(self, node: Node) -> bool:
        """Whether the output is among what `vjp` reads."""
        return "y" in self.saved_indices(_need(node))

    def _run(self, node: Node, g: Any) -> tuple[Any, ...]:
        saved = [raw_of(s) if isinstance(s, Value) else s for s in node.saved]
        b = backend_for(g)
        if not (self.half and g.dtype.itemsize == 2 and b.dtype_of(g).is_half):
            return self.vjp(b, g, saved, node)
        native = b.dtype_of(g)
        grads = self.vjp(b, _widen(b, g), [_widen(b, s) for s in saved], node)
        return tuple(_narrow(b, x, native) for x in grads)

    def _run_tensor(self, node: Node, g: Any) -> tuple[Any, ...]:
        indices = self.saved_indices(_need(node))
        saved = [
            graph_value(s, node, -1 if i == "y" else i)
            for i, s in zip(indices, node.saved, strict=False)
        ]
        if self.composite is not None:
            return self._through_composite(node, g, saved, indices)
        b = namespace()
        if not (self.half and g.dtype.is_half):
            return self.vjp(b, g, saved, node)
        wide = [to_dtype(s, dtypes.float32) if s.dtype.is_half else s for s in saved]
        grads = self.vjp(b, to_dtype(g, dtypes.float32), wide, node)
        return tuple(
            x if x is None or isinstance(x, Region) else to_dtype(x, g.dtype) for x in grads
        )

    def _through_composite(
        self, node: Node, g: Any, saved: list[Any], indices: Saves
    ) -> tuple[Any, ...]:
        with enable_grad():
            own, out = self._composed(node, saved, indices)
            wanted = [x.node for x in own if isinstance(x, Value) and x.node is not None]
            found = engine.walk(
                [(out.node, g)], type(g), retain_graph=True, create_graph=True, targets=wanted
            )
        return tuple(
            found.get(x.node) if isinstance(x, Value) and x.node is not None else None for x in own
        )

    def _composed(self, node: Node, saved: list[Any], indices: Saves) -> tuple[list[Any], Any]:
        """The inputs anew and the output that `composite` makes of them, on the tape."""
        inputs: list[Any] = [None] * len(node.parents)
        for i, s in zip(indices, saved, strict=False):
            if i != "y":
                inputs[i] = s
        assert self.composite is not None
        # Aliases, so that no path leads from one input to another.
        own = [namespace().alias(x) if isinstance(x, Value) else x for x in inputs]
        return own, self.composite(*own, *node.attrs)

    def _tangent_through_composite(self, node: Node, tangents: list[Any]) -> Any:
        at = node if is_grad_enabled() else forward.shadow(node)
        indices = self.saved_indices(_need(node))
        with enable_grad():
            saved = [
                graph_value(s, at, -1 if i == "y" else i)
                for i, s in zip(indices, at.saved, strict=False)
            ]
            own, out = self._composed(at, saved, indices)
        given = {x.node: t for x, t in zip(own, tangents, strict=True) if t is not None}
        others = {x.node for x in own if isinstance(x, Value) and x.node is not None} - set(given)
        # Histories of inputs without a tangent are not looked into.
        between = forward.order([out.node], {**given, **dict.fromkeys(others)})
        return forward.push(between, [out.node], given)[0]


def _widen(b: Any, x: Any) -> Any:
    if hasattr(x, "dtype") and not isinstance(x, np.generic) and b.dtype_of(x).is_half:
        return b.cast(x, dtypes.float32)
    return x


def _narrow(b: Any, x: Any, dtype: DType) -> Any:
    if x is None:
        return None
    if isinstance(x, Region):
        return Region(x.layout, b.cast(x.g, dtype))
    return b.cast(b.asarray(x), dtype)


def _need(node: Node) -> tuple[bool, ...]:
    return tuple(p is not None for p in node.parents)


def graph_value(held: Any, node: Node, index: int) -> Any:
    """A saved value as a tensor on the graph: input `index`, or the output for -1."""
    if index < 0:
        return new_value(tensor_type(), held, node)
    parent = node.parents[index]
    if not isinstance(held, Value) or held.node is parent:
        return held
    fresh = new_alias(type(held), held.storage(), held.layout)
    fresh.node = parent
    return fresh


def apply(rule: ArrayRule, inputs: Sequence[Value], attrs: tuple[Any, ...] = ()) -> Any:
    """Run `rule` on tensors of one device and put a node on the tape where a gradient is wanted."""
    try:
        raws = [t._a for t in inputs]
    except AttributeError:
        wrong: Any = next(t for t in inputs if not isinstance(t, Value))
        raise DTypeError(
            f"{rule.name} takes tensors, not {type(wrong).__name__}: wrap it with cr.tensor"
        ) from None
    first = raws[0]
    if type(first) is ndarray:
        b = numpy_backend
    else:
        b = backend_for(first)
        raws = [b.read(r) for r in raws]
    half = rule.half and first.dtype.itemsize == 2 and b.dtype_of(first).is_half
    if half:
        raws = [_widen(b, r) for r in raws]
    out = rule.forward(b, *raws, *attrs)
    extras: tuple[Any, ...] = ()
    if type(out) is tuple:
        out, extras = out
    if type(out) is not ndarray:
        out = b.asarray(out)
    if half and b.dtype_of(out) is dtypes.float32:
        out = b.cast(out, b.dtype_of(first))
    t = object.__new__(type(inputs[0]))
    t._a = out
    t._s = t.node = None
    parents = tuple([x.node for x in inputs])
    if any(parents) and is_grad_enabled():
        indices: Any = rule.saves
        if indices.__class__ is not tuple:
            indices = rule.saved_indices(tuple([p is not None for p in parents]))
        n = t.node = new(Node)
        n.rule = rule
        n.saved = (*[out if i == "y" else inputs[i] for i in indices], *extras)
        n.attrs = attrs
        n.parents = parents
        n.code, n.lasti = user_place(2)
        n.shape = out.shape if b is numpy_backend else tuple(out.shape)
        n.stamp = CLOCK.now
        n.hooks = n.storage = None
    return t


def run_on(b: Any, rule: ArrayRule, operands: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """`rule` as part of another one's: recorded on tensors, plain on raw arrays."""
    if isinstance(operands[0], Value):
        return apply(rule, operands, attrs)
    out = rule.forward(b, *operands, *attrs)
    return out[0] if type(out) is tuple else out


def untracked(name: str, inputs: Sequence[Value], fn: Callable[..., Any], *attrs: Any) -> Any:
    """Run `fn(b, *raws, *attrs)` for a result that has no gradient (indices, truth values)."""
    raws = [raw_of(t) for t in inputs]
    b = backend_for(raws[0])
    return new_value(type(inputs[0]), b.asarray(fn(b, *raws, *attrs)))


# Operands.


def coerce(args: Sequence[Any], name: str) -> tuple[list[Any], type[Any]]:
    """Tensors and Python numbers out of what a user passes; arrays become tensors."""
    kind = tensor_type()
    backend: Any = None
    for a in args:
        if isinstance(a, Value):
            backend = backend_for(a._a)
            break
    operands: list[Any] = []
    for a in args:
        if isinstance(a, (Value, bool)):
            operands.append(a)
        elif isinstance(a, int):
            operands.append(int(a))
        elif isinstance(a, float):
            operands.append(float(a))
        elif isinstance(a, np.generic):
            operands.append(a.item())
        elif isinstance(a, ndarray):
            home = backend if backend is not None else backend_for(a)
            operands.append(new_value(kind, home.from_numpy(np.asarray(a))))
        else:
            raise DTypeError(
                f"{name} takes tensors, NumPy arrays and numbers, not {type(a).__name__}"
            )
    if not any(isinstance(a, Value) for a in operands):
        raise DTypeError(f"{name} needs at least one tensor; for numbers alone use the math module")
    return operands, kind


def alike(tensors: Sequence[Value]) -> bool:
    """Whether all are NumPy floats of one dtype, so that nothing is to be converted or refused."""
    kind: Any = None
    for t in tensors:
        a = t._a
        if type(a) is not ndarray or (kind is not None and a.dtype is not kind):
            return False
        kind = a.dtype
    return kind is not None and kind.kind == "f"


def common_backend(operands: Sequence[Any], name: str) -> Any:
    """The one backend that all tensors are on; raises `DeviceError` where they differ."""
    found: Any = None
    for a in operands:
        if isinstance(a, Value):
            b = backend_for(a._a)
            if found is not None and b is not found:
                raise DeviceError(
                    f"{name}: one tensor is on device '{found.name}', another on '{b.name}': "
                    "move one with .to(device)"
                )
            found = b
    return found


def _cast_forward(b: Any, x: Any, dtype: DType, source: DType) -> Any:
    return b.cast(x, dtype)


def _cast_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    return (b.cast(g, n.attrs[1]),)


CAST = ArrayRule("to", _cast_forward, _cast_vjp, half=False)


def to_dtype(t: Any, dtype: Any) -> Any:
    """`t` in another dtype, differentiable between floating dtypes."""
    if isinstance(dtype, (type, str)):
        dtype = dtypes.as_dtype(dtype)
    elif not isinstance(dtype, DType):
        dtype = backend_for(t._a).dtype_of(new_value_like(t, dtype))
    source = backend_for(t._a).dtype_of(t._a)
    if source is dtype:
        return t
    if dtype.category < 2 or source.category < 2:
        return untracked("to", (t,), lambda b, x: b.cast(x, dtype))
    return apply(CAST, (t,), (dtype, source))


def new_value_like(t: Value, native: Any) -> Any:
    """An empty raw array of a native dtype on the device of `t`."""
    return np.empty(0, native) if isinstance(t._a, ndarray) else t._a.new_empty(0, dtype=native)


# Views.


class ViewRule(Rule):
    """A view: the gradient goes back to the region that the view sees."""

    __slots__ = ("back",)

    def __init__(self, name: str, back: Callable[..., Any], broadcasts: bool = False) -> None:
        super().__init__(name, self._run, self._run_tensor, broadcasts)
        self.back = back

    def _run(self, node: Node, g: Any) -> tuple[Any, ...]:
        return (self.back(backend_for(g), g, *node.attrs),)

    def _run_tensor(self, node: Node, g: Any) -> tuple[Any, ...]:
        return (self.back(namespace(), g, *node.attrs),)


REGION = ViewRule("view of a region", lambda b, g, layout: Region(layout, g))
REGION.run = REGION.run_tensor = lambda node, g: (Region(node.attrs[0], g),)
PERMUTE = ViewRule("permute", lambda b, g, inverse: b.permute(g, inverse))
RESHAPE = ViewRule("view", lambda b, g, shape: b.reshape(g, shape))
EXPAND = ViewRule("expand", lambda b, g: g, broadcasts=True)
FLIP = ViewRule("flip", lambda b, g, dims: b.flip(g, dims))
ALIAS = ViewRule("alias", lambda b, g: g)


def register_alias(t: Value) -> None:
    """Make a view one of its storage's family: a recorded write gives it its history anew."""
    storage = t._s
    assert storage is not None
    known = storage.aliases
    if known is None:
        storage.aliases = [ref(t)]
        return
    known.append(ref(t))
    if len(known) > 64 and len(known) & (len(known) - 1) == 0:  # at powers of two: drop the dead
        storage.aliases = [r for r in known if r() is not None]


def view(t: Any, layout: Layout, rule: ViewRule = ALIAS, attrs: tuple[Any, ...] = ()) -> Any:
    """The alias of `t` with `layout`, a layout of the same storage."""
    out = new_alias(type(t), t.storage(), layout)
    if is_grad_enabled():
        register_alias(out)
        node = t.node
        if node is not None:
            out.node = record(rule, (), (node,), attrs, layout.shape, user_place(2))
    return out
