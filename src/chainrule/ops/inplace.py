"""Writing into a tensor: the raw write, what it is refused for, and the in-place operations.

A self-overlapping target is refused; what a recorded write means for the tape, and for the views
of the same memory, is the business of `family`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.autograd.node import Node
from chainrule.autograd.state import is_grad_enabled
from chainrule.autograd.value import (
    Value,
    backend_for,
    new_alias,
    new_value,
    raw_of,
    share_memory,
    user_place,
    write_raw,
)
from chainrule.dtypes import check_fits
from chainrule.errors import DTypeError, LayoutError, ShapeError
from chainrule.layout import Layout
from chainrule.ops import family, views
from chainrule.ops._apply import coerce, common_backend, to_dtype

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
    held: Any = value
    shared = False
    if isinstance(value, (bool, int, float)):
        if storage.dtype.category == 1:
            check_fits(value, storage.dtype, "assignment")
    else:
        (held,), _ = coerce((value,), "assignment")
        common_backend((target, held), "assignment")
        held = to_dtype(fitted(held, seen.shape), target.dtype)
        shared = share_memory(held, target)
    source = held.node if isinstance(held, Value) else None
    memory = relatives = None
    if is_grad_enabled() and (source is not None or family.has_history(target)):
        memory, relatives = family.overwrite(target, seen, source)
    raw = raw_of(held) if isinstance(held, Value) else held
    if shared:
        raw = backend_for(raw).copy(raw)  # it may overlap what is written
    window = target if key is None else new_alias(type(target), storage, seen)
    write_raw(window, raw, user_place(3))
    if memory is not None and relatives is not None:
        family.rederive(relatives, memory)
    return target


def fitted(value: Any, into: tuple[int, ...]) -> Any:
    """`value` without leading sizes of 1 that `into` lacks; raises where it does not broadcast."""
    shape = tuple(value._a.shape)
    lead = len(shape) - len(into)
    trimmed = shape[lead:] if lead > 0 and all(n == 1 for n in shape[:lead]) else shape
    tail = into[len(into) - len(trimmed) :] if len(trimmed) <= len(into) else None
    if tail is None or any(n not in (1, m) for n, m in zip(trimmed, tail, strict=True)):
        raise ShapeError(f"a value of shape {shape} does not broadcast into shape {into}")
    return value if trimmed == shape else views.reshape(value, trimmed)


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
            raise DTypeError(
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
