"""`Function`: an operation whose forward and backward the user writes, as in PyTorch.

Stricter than PyTorch in three ways: a gradient is never summed to fit, an output stored on `ctx`
is refused (it would leak), and a saved intermediate that takes part in a second derivative
raises instead of silently dropping its term.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from chainrule.autograd import engine, forward
from chainrule.autograd.node import FREED, Leaf, Node, Rule, Slot, record
from chainrule.autograd.state import enable_grad, is_grad_enabled, no_grad
from chainrule.autograd.value import (
    Value,
    backend_for,
    new_alias,
    new_value,
    raw_of,
    user_place,
)
from chainrule.errors import GradError, ShapeError

Parent = Node | Leaf | None


class _Saved(NamedTuple):
    """What a saved tensor is: "input" or "output" with its place, or "intermediate" by name."""

    role: str
    place: int
    name: str


class FunctionCtx:
    """Where `forward` leaves what `backward` needs; any attribute may be set on it."""

    needs_input_grad: tuple[bool, ...]
    _backward_count: int
    _forward_names: tuple[str, ...]

    def __init__(self) -> None:
        self._to_save: tuple[Any, ...] = ()
        self._for_forward: tuple[Any, ...] | None = None  # where save_for_forward differs
        self._pushing = False
        self._names: tuple[str, ...] = ()
        self._dirty: tuple[Any, ...] = ()
        self._non_differentiable: tuple[Any, ...] = ()
        self._materialize = True
        self._roles: tuple[_Saved | None, ...] = ()
        self._node: Node | None = None
        self._recording = False

    def save_for_backward(self, *tensors: Value | None) -> None:
        """Keep tensors (or None) for backward; a later write into one of them is noticed."""
        _only_tensors("save_for_backward", tensors)
        self._names = _names_of(tensors)
        self._to_save = tensors

    def save_for_forward(self, *tensors: Value | None) -> None:
        """Keep tensors (or None) for `jvp`, which finds them in `saved_tensors`."""
        _only_tensors("save_for_forward", tensors)
        self._for_forward = tensors
        self._forward_names = _names_of(tensors)

    def mark_dirty(self, *tensors: Value) -> None:
        """Say that `forward` wrote into these inputs; each must be returned."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Value) -> None:
        """Say that these outputs have no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether an output without gradient reaches `backward` as zeros (default) or None."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept, in the same order."""
        node = self._node
        if node is None:
            return self._to_save
        first, last = 0, self._backward_count
        if self._pushing and self._for_forward is not None:
            first, last = last, len(node.saved)
        if node.saved is FREED:
            raise GradError("the saved tensors of this function were freed by an earlier backward")
        return tuple(
            None if t is None or role is None else self._unpack(node, t, role)
            for t, role in zip(node.saved[first:last], self._roles[first:last], strict=True)
        )

    def _unpack(self, node: Node, t: Any, role: _Saved) -> Any:
        if not self._recording:
            return t
        fresh = new_alias(type(t), t.storage(), t.layout)
        if role.role == "input":
            fresh.node = node.parents[role.place]
        elif role.role == "output":
            fresh.node = node if role.place < 0 else _output_node(node, role.place, node.place)
        else:
            lost = record(
                _LOST, (), node.parents, (node.name(), role.name), fresh.shape, node.place
            )
            fresh.node = lost
        return fresh


def _only_tensors(who: str, tensors: tuple[Any, ...]) -> None:
    for t in tensors:
        if t is not None and not isinstance(t, Value):
            raise GradError(
                f"{who} takes tensors, not {type(t).__name__}: "
                "keep other values as attributes of ctx"
            )


def _names_of(tensors: tuple[Any, ...]) -> tuple[str, ...]:
    """What the caller's caller calls these tensors."""
    local = sys._getframe(2).f_locals  # pyright: ignore[reportPrivateUsage]
    return tuple(
        next((n for n, v in local.items() if v is t), f"saved tensor {i}")
        for i, t in enumerate(tensors)
    )


def _refuse_lost(node: Node, g: Any) -> tuple[Any, ...]:
    function, name = node.attrs
    raise GradError(
        f"'{name}', saved by {function}, is neither input nor output of it, so a second "
        f"derivative would lose every term that flows through '{name}' to the inputs. Recompute "
        f"'{name}' in backward from saved inputs, or return it as an output and save that, or "
        "mark backward @once_differentiable"
    )


def _refuse_once(node: Node, g: Any) -> tuple[Any, ...]:
    raise GradError(
        f"the backward of {node.attrs} is marked @once_differentiable: it has no second derivative"
    )


_LOST = Rule("saved intermediate", _refuse_lost, _refuse_lost)
_ONCE = Rule("once_differentiable", _refuse_once, _refuse_once)


def _to_slot(node: Node, g: Any) -> tuple[Slot]:
    return (Slot(node.attrs, g),)


_OUTPUT = Rule("output", _to_slot, _to_slot)
_OUTPUT.tangent = lambda node, tangents: tangents[0][node.attrs]


def _output_node(parent: Node, index: int, place: Any) -> Node:
    shape = parent.attrs._shapes[index]
    return record(_OUTPUT, (), (parent,), index, shape, place)


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a `backward` that must not be differentiated again."""

    @functools.wraps(fn)
    def wrapped(ctx: FunctionCtx, *grads: Any) -> Any:
        recording = ctx._recording
        if not recording:
            return fn(ctx, *grads)
        ctx._recording = False
        try:
            with no_grad():
                results = fn(ctx, *grads)
        finally:
            ctx._recording = True
        node = ctx._node
        assert node is not None
        parents = (*node.parents, *(g.node for g in grads if isinstance(g, Value)))
        many = results if isinstance(results, tuple) else (results,)
        for r in many:
            if isinstance(r, Value):
                r.node = record(_ONCE, (), parents, node.name(), tuple(r._a.shape), node.place)
        return results

    return wrapped


class Function:
    """An operation with a hand-written backward; call it through `apply`.

    Subclasses define `forward(ctx, *args)` and `backward(ctx, *grads)` as static methods, or
    `forward(*args)` with `setup_context(ctx, inputs, output)`. `backward` receives the gradient
    of the loss with respect to each output (never to be written into) and returns one gradient
    per forward input: a tensor of that input's shape, or None. Trailing extra Nones are accepted.
    """

    _rule: ClassVar[Rule]

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; recorded operations inside are not on the tape."""
        raise GradError("a Function must define a static method forward")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save what backward needs, where `forward` does not take `ctx`."""
        raise GradError("this Function has no setup_context")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Turn the outputs' gradients into the inputs' gradients."""
        raise GradError("this Function defines no backward: its result cannot be differentiated")

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Turn the inputs' tangents into the outputs'; without it `backward` is transposed."""
        raise GradError("this Function defines no jvp")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run `forward` and put one node on the tape."""
        ctx = FunctionCtx()
        parents: tuple[Parent, ...] = tuple(a.node if isinstance(a, Value) else None for a in args)
        ctx.needs_input_grad = tuple(p is not None for p in parents)
        with no_grad():
            if cls.setup_context is Function.setup_context:
                out = cls.forward(ctx, *args)
            else:
                out = cls.forward(*args)
                cls.setup_context(ctx, args, out)
        outputs: tuple[Any, ...] = out if isinstance(out, tuple) else (out,)
        recorded = is_grad_enabled() and any(ctx.needs_input_grad)
        results = _outputs(cls, ctx, args, parents, outputs, recorded)
        return results if isinstance(out, tuple) else results[0]


def _outputs(
    cls: type[Function],
    ctx: FunctionCtx,
    args: tuple[Any, ...],
    parents: tuple[Parent, ...],
    outputs: tuple[Any, ...],
    recorded: bool,
) -> tuple[Any, ...]:
    kept: list[Any] = []
    for o in outputs:
        if not isinstance(o, Value):
            kept.append(o)
        elif any(o is a for a in args) and not any(o is d for d in ctx._dirty):
            kept.append(new_alias(type(o), o.storage(), o.layout))  # an input returned as it is
        else:
            kept.append(o)
    ctx_values = [v for k, v in vars(ctx).items() if not k.startswith("_")]
    for o in outputs:
        if isinstance(o, Value) and any(v is o for v in ctx_values):
            raise GradError(
                f"{cls.__name__} stored an output on ctx, which would keep it alive forever: "
                "use ctx.save_for_backward"
            )
    if not recorded:
        return tuple(kept)
    differentiable = [
        i
        for i, (o, k) in enumerate(zip(outputs, kept, strict=True))
        if isinstance(o, Value)
        and not any(o is n for n in ctx._non_differentiable)
        and backend_for(k._a).dtype_of(k._a).category >= 2
    ]
    ctx._shapes = tuple(  # pyright: ignore[reportAttributeAccessIssue]
        tuple(o._a.shape) if isinstance(o, Value) else () for o in outputs
    )
    place = user_place(3)
    single = len(outputs) == 1
    saved, ctx._roles = _saved(ctx, args, outputs, kept, single)
    ctx._to_save = ()
    if ctx._for_forward is not None:
        ctx._for_forward = ()
    ctx._inputs = tuple(  # pyright: ignore[reportAttributeAccessIssue]
        (tuple(a._a.shape), backend_for(a._a).dtype_of(a._a)) if isinstance(a, Value) else None
        for a in args
    )
    ctx._like = next(a for a in args if isinstance(a, Value) and a.node is not None)._a.dtype  # pyright: ignore[reportAttributeAccessIssue]
    shape = ctx._shapes[0] if single else ()  # pyright: ignore
    node = record(_rule_of(cls), saved, parents, ctx, shape, place)
    for i in differentiable:
        kept[i].node = node if single else _output_node(node, i, place)
    ctx._dirty = ctx._non_differentiable = ()
    return tuple(kept)


def _saved(
    ctx: FunctionCtx,
    args: Sequence[Any],
    outputs: Sequence[Any],
    kept: Sequence[Any],
    single: bool,
) -> tuple[tuple[Any, ...], tuple[_Saved | None, ...]]:
    saved: list[Any] = []
    roles: list[_Saved | None] = []
    ctx._backward_count = len(ctx._to_save)
    tensors, names = ctx._to_save, ctx._names
    if ctx._for_forward is not None:
        tensors, names = tensors + ctx._for_forward, names + ctx._forward_names
    for t, name in zip(tensors, names, strict=True):
        if t is None:
            saved.append(None)
            roles.append(None)
            continue
        as_output = next((i for i, o in enumerate(outputs) if o is t), None)
        as_input = next((i for i, a in enumerate(args) if a is t), None)
        if as_output is not None:
            out = kept[as_output]
            saved.append(new_alias(type(out), out.storage(), out.layout))  # without its node
            roles.append(_Saved("output", -1 if single else as_output, name))
        elif as_input is not None:
            saved.append(t)
            roles.append(_Saved("input", as_input, name))
        else:
            saved.append(t)
            roles.append(_Saved("intermediate", -1, name))
    return tuple(saved), tuple(roles)


def _rule_of(cls: type[Function]) -> Rule:
    rule = cls.__dict__.get("_rule")
    if rule is None:

        def run(node: Node, g: Any) -> tuple[Any, ...]:
            return _run(cls, node, g, recording=False)

        def run_tensor(node: Node, g: Any) -> tuple[Any, ...]:
            return _run(cls, node, g, recording=True)

        rule = cls._rule = Rule(cls.__name__, run, run_tensor)
        if cls.jvp is not Function.jvp:
            rule.tangent = lambda node, tangents: _push(cls, node, tangents)
    return rule


def _push(cls: type[Function], node: Node, tangents: list[Any]) -> Any:
    """Forward mode through the user's `jvp`; a tuple of tangents where there are several outputs."""
    ctx: Any = node.attrs
    like = next(t for t in tangents if t is not None)
    given: list[Any] = []
    for t, meta in zip(tangents, ctx._inputs, strict=True):
        if t is None and meta is not None and ctx._materialize and meta[1].category == 2:
            t = forward.zeros(meta[0], like)
        given.append(t)
    ctx._node, ctx._recording, ctx._pushing = node, is_grad_enabled(), True
    try:
        result = cls.jvp(ctx, *given)
    finally:
        ctx._node, ctx._recording, ctx._pushing = None, False, False
    results: tuple[Any, ...] = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if len(results) != len(ctx._shapes):
        raise GradError(
            f"the jvp of {cls.__name__} returned {len(results)} tangents, expected "
            f"{len(ctx._shapes)}: one per output, None where there is none"
        )
    what = f"the jvp of {cls.__name__}"
    checked = tuple(
        None if r is None else forward.fitted(r, shape, what)
        for r, shape in zip(results, ctx._shapes, strict=True)
    )
    return checked[0] if len(checked) == 1 else checked


def _run(cls: type[Function], node: Node, g: Any, recording: bool) -> tuple[Any, ...]:
    ctx: Any = node.attrs
    kind = engine.TENSOR_LEVEL.kind
    grads: list[Any] = []
    pieces = g if type(g) is dict else {0: g}
    for i, shape in enumerate(ctx._shapes):
        piece = pieces.get(i)
        if piece is None:
            like = next(iter(pieces.values()))
            raw = like._a if recording else like
            zero = backend_for(raw).zeros(shape, raw)
            grads.append(new_value(kind, zero) if ctx._materialize else None)
        else:
            grads.append(piece if recording else engine.read_only(kind, piece))
    ctx._node, ctx._recording = node, recording
    try:
        if recording:
            with enable_grad():
                result = cls.backward(ctx, *grads)
        else:
            result = cls.backward(ctx, *grads)
    finally:
        ctx._node, ctx._recording = None, False
    return _checked(cls, ctx, result, recording)


def _checked(cls: type[Function], ctx: Any, result: Any, recording: bool) -> tuple[Any, ...]:
    results: tuple[Any, ...] = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    expected = len(ctx._inputs)
    if len(results) < expected or any(r is not None for r in results[expected:]):
        raise GradError(
            f"the backward of {cls.__name__} returned {len(results)} gradients, expected "
            f"{expected}: one per forward input, None where there is none"
        )
    checked: list[Any] = []
    for i, (r, meta) in enumerate(zip(results, ctx._inputs, strict=False)):
        if r is None or not ctx.needs_input_grad[i]:
            checked.append(None)
            continue
        if not isinstance(r, Value):
            raise GradError(
                f"the backward of {cls.__name__} returned {type(r).__name__} for input {i}: "
                "return a tensor or None"
            )
        shape, dtype = meta
        if tuple(r._a.shape) != shape:
            raise ShapeError(
                f"the backward of {cls.__name__} returned a gradient of shape "
                f"{tuple(r._a.shape)} for input {i} of shape {shape}: a gradient is never "
                "broadcast or summed to fit"
            )
        b = backend_for(r._a)
        have = b.dtype_of(r._a)
        if recording:
            checked.append(r if have is dtype else r.to(dtype))  # pyright: ignore
        else:
            raw = raw_of(r)
            checked.append(raw if have is dtype else b.cast(raw, dtype))
    return tuple(checked)
