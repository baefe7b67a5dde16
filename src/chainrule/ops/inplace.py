"""Writing into a tensor: raw where nothing is recorded, one `Overwrite` node where it is.

A write through a layout L gives the value's gradient as g[L] and the tensor's as g with L
zeroed. Refused in words: a self-overlapping target, a leaf that needs a gradient, and a recorded
write into memory that other recorded views look at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.autograd.node import Node, Rule, record
from chainrule.autograd.state import is_grad_enabled
from chainrule.autograd.value import (
    Value,
    backend_for,
    new_value,
    raw_of,
    user_place,
    write_raw,
)
from chainrule.errors import GradError, LayoutError, ShapeError
from chainrule.layout import Layout
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, apply, coerce, namespace, to_dtype

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def assign(target: Any, value: Any) -> Any:
    """Write `value`, broadcast and converted, into all of `target`; returns `target`."""
    return _write(target, target.layout, value, None)


def _write(target: Any, seen: Layout, value: Any, key: Any) -> Any:
    storage = target.storage()
    storage.check_writable()
    if seen.self_overlaps:
        raise LayoutError(
            f"cannot write into shape {seen.shape}, stride {seen.strides}: several elements share "
            "an address; write into .clone() instead"
        )
    if isinstance(value, np.generic):
        value = value.item()
    (held,), _ = coerce((value,), "assignment") if not _number(value) else ((value,), None)
    if isinstance(held, Value):
        if held._s is storage and held.layout == seen:  # pyright: ignore
            held = views.alias(held)  # pyright: ignore
        else:
            held = fitted(held, seen.shape)
        held = to_dtype(held, target.dtype)
    recorded = is_grad_enabled() and (
        target.node is not None or (isinstance(held, Value) and held.node is not None)
    )
    node = _overwrite(target, key, held) if recorded else None
    window = target if key is None else views.detach(target)
    if key is not None:
        window = views.basic_index(window, key)
    raw = raw_of(held) if isinstance(held, Value) else held
    if isinstance(held, Value) and held._s is storage:
        raw = backend_for(raw).copy(raw)  # it may overlap what is written
    write_raw(window, raw, user_place(3))
    if node is not None:
        target.node = node
    return target


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, Value)


def fitted(value: Any, into: tuple[int, ...]) -> Any:
    """`value` without leading sizes of 1 that `into` lacks; raises where it does not broadcast."""
    shape = tuple(value._a.shape)
    lead = len(shape) - len(into)
    trimmed = shape[lead:] if lead > 0 and all(n == 1 for n in shape[:lead]) else shape
    tail = into[len(into) - len(trimmed) :] if len(trimmed) <= len(into) else None
    if tail is None or any(n not in (1, m) for n, m in zip(trimmed, tail, strict=True)):
        raise ShapeError(f"a value of shape {shape} does not broadcast into shape {into}")
    return value if trimmed == shape else views.reshape(value, trimmed)


def _overwrite(target: Any, key: Any, value: Any) -> Node:
    """The node of a recorded write; raises where the write would make some gradient wrong."""
    layout = target.layout
    if target.node is not None and target.is_leaf:
        raise GradError(
            "a leaf that requires grad cannot be written in place while recording: use "
            "'with torch.no_grad(): p -= lr * p.grad', or write into p.clone()"
        )
    if any(r() is not None for r in target.storage().aliases or ()):
        raise GradError(
            "a recorded write into memory that a view shares would leave the other's gradient "
            "behind: write into x.clone(), or build the result with cat, stack or where"
        )
    base = Layout.contiguous(layout.shape)
    within = base if key is None else base.index(key)
    parent = value.node if isinstance(value, Value) else None
    return record(OVERWRITE, (), (target.node, parent), (within,), layout.shape, user_place(4))


# Zeroing a region is its own transpose.
ZEROED = ArrayRule(
    "zero a region",
    lambda b, x, layout: b.zeroed(x, layout),
    lambda b, g, saved, n: (b.zeroed(g, *n.attrs),),
)


def zeroed(g: Tensor, layout: Layout) -> Tensor:
    """`g` with zeros where `layout`, relative to a contiguous tensor, sees it."""
    return apply(ZEROED, (g,), (layout,))


def _split_gradient(b: Any, g: Any, layout: Layout) -> tuple[Any, ...]:
    return b.zeroed(g, layout), b.region(g, layout)


OVERWRITE = Rule(
    "overwrite",
    lambda node, g: _split_gradient(backend_for(g), g, *node.attrs),
    lambda node, g: _split_gradient(namespace(), g, *node.attrs),
    broadcasts=True,
)


def set_item(target: Tensor, key: Any, value: Any) -> None:
    """`target[key] = value` for a basic index."""
    _write(target, target.layout.index(key), value, key)


def _before_the_write(t: Any) -> Any:
    """A copy of `t` in its place on the tape: what a rule saved of a tensor about to change."""
    copied = new_value(type(t), backend_for(t._a).copy(t._a))
    copied.storage()  # made while it has no node, which would take the storage for its output's
    copied.node = t.node
    return copied


def in_place(operation: Callable[..., Any]) -> Callable[..., Any]:
    """The in-place form of an operation: `add_` from `add`."""

    def apply_in_place(input: Any, *args: Any, **kwargs: Any) -> Any:
        result = operation(input, *args, **kwargs)
        if tuple(result._a.shape) != tuple(input._a.shape):
            raise ShapeError(
                f"in-place {operation.__name__}: the result has shape {tuple(result._a.shape)}, "
                f"the tensor {tuple(input._a.shape)}"
            )
        have, want = result.dtype, input.dtype
        if have.category > want.category:
            raise ShapeError(
                f"in-place {operation.__name__}: a {have.name} result cannot be stored in a "
                f"{want.name} tensor"
            )
        node = result.node
        if isinstance(node, Node):
            node.code, node.lasti = user_place(2)
            if any(held is input for held in node.saved):
                kept = _before_the_write(input)
                node.saved = tuple([kept if held is input else held for held in node.saved])
        return assign(input, result)

    apply_in_place.__name__ = f"{operation.__name__}_"
    apply_in_place.__doc__ = f"`{operation.__name__}`, written into the first tensor."
    return apply_in_place
