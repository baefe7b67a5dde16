"""`x[key]` and `x[key] = value` for every key: basic ones are views, the rest gather and put.

Reading through index tensors is linear; its transpose adds into zeros, so that repeated places
accumulate. Relies on `_keys` for what a key means and on `inplace` for writing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.autograd.state import is_grad_enabled
from chainrule.autograd.value import (
    Value,
    backend_for,
    new_value,
    raw_of,
    share_memory,
    user_place,
)
from chainrule.errors import LayoutError
from chainrule.ops import inplace, views
from chainrule.ops._apply import ArrayRule, apply, coerce, common_backend, to_dtype
from chainrule.ops._keys import (
    BASIC,
    Key,
    check_range,
    is_basic,
    parse,
    raw_key,
    result_shape,
    split_key,
)
from chainrule.ops.family import has_history

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def get_item(input: Tensor, key: Any) -> Tensor:
    """`input[key]`: a view for integers, slices, None and ...; else a copy of the places.

    Index tensors, arrays and lists of integers broadcast together; a mask counts as the places
    where it holds. Negative indices count from the end. Raises `IndexRangeError` (an IndexError).
    """
    if type(key) in BASIC or is_basic(key):
        return views.basic_index(input, key)
    if isinstance(key, Value) and _is_plain(input, key):  # one index tensor: nothing to parse
        check_range(raw_of(key), 0, input._a.shape[0])
        return apply(INDEX, (input, key), ((True,),))
    parts = parse(input, key)
    if parts.basic is not None or not parts.indices:
        input = views.basic_index(input, Ellipsis if parts.basic is None else parts.basic)
    if not parts.indices:
        return input
    result_shape(input.shape, parts)  # raises where the index tensors do not broadcast
    return apply(INDEX, (input, *parts.indices), (parts.places,))


def _is_plain(input: Any, key: Any) -> bool:
    """Whether `key` is int64, at least 1-D, on the device of `input`, which has a dimension."""
    b = backend_for(key._a)
    same = b is backend_for(input._a)
    return same and bool(input._a.shape and key._a.shape) and b.dtype_of(key._a) is dtypes.int64


def _all_but_first(need: tuple[bool, ...]) -> tuple[int, ...]:
    return tuple(range(1, len(need)))


def accumulated(b: Any, shape: tuple[int, ...], key: tuple[Any, ...], g: Any) -> Any:
    """Zeros of `shape` with `g` added at `key`; half types add up in float32."""
    dtype = b.dtype_of(g)
    if not dtype.is_half:
        return b.index_add(shape, key, g)
    return b.cast(b.index_add(shape, key, b.cast(g, dtypes.float32)), dtype)


def _index_forward(b: Any, x: Any, *rest: Any) -> Any:
    *index, places = rest
    return b.index_get(x, raw_key(places, index))


def _index_vjp(b: Any, g: Any, saved: list[Any], n: Node) -> tuple[Any, ...]:
    (places,) = n.attrs
    shape = n.parents[0].shape  # pyright: ignore[reportOptionalMemberAccess]
    back = accumulated(b, shape, raw_key(places, saved), g)
    return (back, *[None] * len(saved))


INDEX = ArrayRule("index", _index_forward, _index_vjp, _all_but_first, half=False)


def _add_forward(b: Any, src: Any, *rest: Any) -> Any:
    *index, shape, places = rest
    return accumulated(b, shape, raw_key(places, index), src)


def _add_vjp(b: Any, g: Any, saved: list[Any], n: Node) -> tuple[Any, ...]:
    _, places = n.attrs
    return (b.index_get(g, raw_key(places, saved)), *[None] * len(saved))


INDEX_ADD = ArrayRule("index add", _add_forward, _add_vjp, _all_but_first, half=False)


def _tensors(key: Sequence[Any], like: Any) -> tuple[tuple[bool, ...], list[Any]]:
    places, index = split_key(key)
    kind = type(like)
    return places, [t if isinstance(t, Value) else new_value(kind, t) for t in index]


def index_get(x: Any, key: tuple[Any, ...]) -> Any:
    """`x[key]` for a key of whole slices and int64 index tensors, as rules use it."""
    places, index = _tensors(key, x)
    return apply(INDEX, (x, *index), (places,))


def index_add(shape: tuple[int, ...], key: tuple[Any, ...], src: Any) -> Any:
    """Zeros of `shape` into which `src` is added at `key`; repeated places add up."""
    places, index = _tensors(key, src)
    return apply(INDEX_ADD, (src, *index), (tuple(shape), places))


# Writing.


def set_item(target: Tensor, key: Any, value: Any) -> None:
    """`target[key] = value`, broadcast and converted; of repeated places the last one stays.

    Recorded, the gradient of what was overwritten is zero, and only values that stayed have one.
    """
    if type(key) in BASIC or is_basic(key):
        inplace.set_item(target, key, value)
        return
    parts = parse(target, key)
    basic = Ellipsis if parts.basic is None else parts.basic
    if not parts.indices:
        inplace.set_item(target, basic, value)
        return
    target.storage().check_writable()
    held = _operand(target, value)
    if is_grad_enabled() and (held.node is not None or has_history(target)):
        window = target if parts.basic is None else views.basic_index(target, basic)
        inplace.set_item(target, basic, index_put(window, parts, held))
        return
    window: Any = views.basic_index(views.detach(target), basic)
    if window.layout.self_overlaps:
        raise LayoutError(
            f"cannot write into shape {window.shape}, stride {window.stride()}: several elements "
            "share an address; write into .clone() instead"
        )
    held = inplace.fitted(held, result_shape(window.shape, parts))
    raw = raw_of(held)
    b = backend_for(raw)
    if share_memory(held, target):
        raw = b.copy(raw)  # it may overlap what is written
    b.index_put(window._a, raw_key(parts.places, [raw_of(t) for t in parts.indices]), raw)
    target.storage().wrote(user_place())


def _operand(target: Any, value: Any) -> Any:
    """`value` as a tensor of the dtype of `target`, on its device."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int, float)):
        raw = raw_of(target)
        return new_value(type(target), backend_for(raw).full((), value, raw))
    (held,), _ = coerce((value,), "assignment")
    common_backend((target, held), "assignment")
    return to_dtype(held, target.dtype)


def _zero_at(b: Any, g: Any, *rest: Any) -> Any:
    *index, places = rest
    if isinstance(g, Value):
        return apply(ZERO_AT, (g, *index), (places,))
    out = b.copy(g)
    b.index_put(out, raw_key(places, index), 0)
    return out


# Zeroing places is its own transpose.
ZERO_AT = ArrayRule(
    "zero at an index",
    _zero_at,
    lambda b, g, saved, n: (_zero_at(b, g, *saved, *n.attrs), *[None] * len(saved)),
    _all_but_first,
    half=False,
)


def _put_forward(b: Any, x: Any, value: Any, stays: Any, *rest: Any) -> Any:
    *index, places = rest
    out = b.copy(x)
    b.index_put(out, raw_key(places, index), value)
    return out


def _put_vjp(b: Any, g: Any, saved: list[Any], n: Node) -> tuple[Any, ...]:
    (places,) = n.attrs
    stays, *index = saved
    gx = gv = None
    if n.parents[0] is not None:
        gx = _zero_at(b, g, *index, places)
    if n.parents[1] is not None:
        gv = b.where(stays, b.index_get(g, raw_key(places, index)), b.zeros((), g))
    return (gx, gv, *[None] * len(saved))


def _all_but_two(need: tuple[bool, ...]) -> tuple[int, ...]:
    return tuple(range(2, len(need)))


INDEX_PUT = ArrayRule(
    "index put", _put_forward, _put_vjp, _all_but_two, broadcasts=True, half=False
)


def index_put(input: Any, key: Key, value: Any) -> Any:
    """A copy of `input` with `value` at the index tensors of `key` (whose view is done)."""
    shape = result_shape(tuple(input._a.shape), key)
    value = inplace.fitted(value, shape)
    stays = _that_stay(input, key, shape)
    return apply(INDEX_PUT, (input, value, stays, *key.indices), (key.places,))


def _that_stay(input: Any, key: Key, shape: tuple[int, ...]) -> Any:
    """Which of the written values are not overwritten by a later one at the same place."""
    b = backend_for(input._a)
    count = 1
    for n in shape:
        count *= n
    order = b.reshape(b.arange(count), shape)
    last = b.full(tuple(input._a.shape), 0, order)
    at = raw_key(key.places, [raw_of(t) for t in key.indices])
    b.index_put(last, at, order)
    return new_value(type(input), b.asarray(b.index_get(last, at) == order))
