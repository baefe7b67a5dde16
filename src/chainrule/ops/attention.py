"""Scaled dot product attention as one node: tiled online softmax, recomputing backward.

The NumPy backend has the tiled kernels (`backends/attention.py`), with memory linear in the
sequence length. Dropout, a bias that wants a gradient, second derivatives and other devices take
the plain form, softmax(scale · q kᵀ + mask) v out of differentiable operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.autograd.state import is_grad_enabled
from chainrule.autograd.value import Value, backend_for, new_value
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, apply, common_backend, namespace, to_dtype
from chainrule.ops.losses import still
from chainrule.ops.neural import dropout

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def _plain(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    causal: bool,
    scale: float,
    dropout_p: float = 0.0,
    generator: Any = None,
) -> Any:
    """The definition, on tensors. A row that sees no key gives 0, and so do its gradients."""
    b = namespace()
    dtype = q.dtype
    if dtype.is_half:
        q, k, v = (to_dtype(x, dtypes.float32) for x in (q, k, v))
        if mask is not None and mask.dtype is not dtypes.bool:
            mask = to_dtype(mask, dtypes.float32)
    scores = b.matmul(q * scale, views.transpose(k, -2, -1))
    if mask is not None:
        if mask.dtype is dtypes.bool:
            scores = b.where(mask, scores, b.full((), -math.inf, scores))
        else:
            scores = scores + mask
    if causal:
        host = backend_for(q._a)
        seen = np.tri(q.shape[-2], k.shape[-2], dtype=bool)
        visible = new_value(type(q), host.from_numpy(seen))
        scores = b.where(visible, scores, b.full((), -math.inf, scores))
    if not k.shape[-2]:
        return to_dtype(b.matmul(scores, v), dtype)
    top = still(b.amax(scores, (len(scores.shape) - 1,), True))
    top = b.where(top == -math.inf, b.zeros((), top), top)
    powers = b.exp(scores - top)
    total = b.sum(powers, (len(scores.shape) - 1,), True)
    prob = powers / b.where(total == 0.0, b.full((), 1.0, total), total)
    if dropout_p:
        prob = dropout(prob, dropout_p, generator)
    return to_dtype(b.matmul(prob, v), dtype)


def _again(q: Any, k: Any, v: Any, *rest: Any) -> Any:
    *mask, causal, scale = rest
    return _plain(q, k, v, mask[0] if mask else None, causal, scale)


def _forward(b: Any, q: Any, k: Any, v: Any, *rest: Any) -> Any:
    *mask, causal, scale = rest
    out, lse = b.attention.attention_forward(
        q,
        k,
        v,
        causal="upper_left" if causal else None,
        mask=mask[0] if mask else None,
        scale=scale,
    )
    return out, (lse,)


def _vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    q, k, v, *mask, out, lse = saved
    causal, scale = n.attrs
    grads = b.attention.attention_backward(
        q,
        k,
        v,
        out,
        lse,
        g,
        causal="upper_left" if causal else None,
        mask=mask[0] if mask else None,
        scale=scale,
    )
    return (*grads, None) if mask else grads


def _saves(need: tuple[bool, ...]) -> tuple[Any, ...]:
    return (*range(len(need)), "y")


ATTENTION = ArrayRule("scaled_dot_product_attention", _forward, _vjp, _saves, composite=_again)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    generator: Any = None,
) -> Tensor:
    """softmax(scale · query keyᵀ + mask) value over (…, sequence, head dim).

    query (…, Sq, D), key (…, Sk, D), value (…, Sk, Dv), leading dimensions broadcast; the result
    is (…, Sq, Dv). `attn_mask` broadcasts to (…, Sq, Sk): bool (True = attend) or added to the
    scores. `is_causal`: query i sees keys j ≤ i (upper left). `scale` is 1/√D by default.
    `enable_gqa`: dimension −3 of key and value may divide query's. Dropout, always on when
    `dropout_p` > 0, draws from `generator`. A row that sees no key gives 0.
    """
    q, k, v, mask = _checked(query, key, value, attn_mask, is_causal)
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    if not 0.0 <= dropout_p <= 1.0:
        raise InputError(f"the dropout probability is between 0 and 1, got {dropout_p}")
    heads = q.shape
    if enable_gqa and len(heads) > 2:
        q, k, v, mask = _grouped(q, k, v, mask)
    scale = float(scale)
    biased = mask is not None and mask.node is not None and is_grad_enabled()
    if backend_for(q._a).attention is None or dropout_p or biased:
        out = _plain(q, k, v, mask, is_causal, scale, dropout_p, generator)
    else:
        inputs = (q, k, v) if mask is None else (q, k, v, mask)
        out = apply(ATTENTION, inputs, (bool(is_causal), scale))
    if enable_gqa and len(heads) > 2:
        out = views.reshape(out, (*heads[:-1], out.shape[-1]))
    return out


def _checked(
    query: Any, key: Any, value: Any, mask: Any, causal: bool
) -> tuple[Any, Any, Any, Any]:
    operands = [query, key, value]
    shapes = [tuple(x._a.shape) for x in operands]
    shown = ", ".join(f"{n} {s}" for n, s in zip(("query", "key", "value"), shapes, strict=True))
    names = [x.dtype.name for x in operands]
    common_backend([x for x in (*operands, mask) if isinstance(x, Value)], "attention")
    if len(set(names)) > 1 or not query.dtype.is_floating_point:
        raise DTypeError(
            "attention takes query, key and value of one floating dtype; got " + ", ".join(names)
        )
    if min(len(s) for s in shapes) < 2:
        raise ShapeError(f"attention needs at least 2 dimensions: {shown}")
    if shapes[0][-1] != shapes[1][-1] or shapes[1][-2] != shapes[2][-2]:
        raise ShapeError(
            "attention takes query (…, Sq, D), key (…, Sk, D) and value (…, Sk, Dv): D must be "
            f"equal in query and key, Sk in key and value; got {shown}"
        )
    if mask is not None:
        if causal:
            raise InputError(
                "attention takes attn_mask or is_causal=True, not both: put the causal part into "
                "the mask, or leave the mask out"
            )
        if mask.dtype is not dtypes.bool and not mask.dtype.is_floating_point:
            raise DTypeError(
                f"attn_mask is bool or {query.dtype.name} like the query, not {mask.dtype.name}"
            )
        if mask.dtype is not dtypes.bool:
            mask = to_dtype(mask, query.dtype)
    return query, key, value, mask


def _grouped(q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """Grouped-query attention as broadcasting: heads become (kv heads, group), kv's group is 1."""
    heads, kv_heads = q.shape[-3], k.shape[-3] if k.ndim > 2 else 1
    if k.ndim < 3 or v.ndim < 3 or v.shape[-3] != kv_heads or heads % kv_heads:
        raise ShapeError(
            f"enable_gqa: query has {heads} heads, which must be a multiple of those of key and "
            f"value; got query {q.shape}, key {k.shape}, value {v.shape}"
        )
    group = heads // kv_heads
    q = views.unflatten(q, -3, (kv_heads, group))
    if mask is not None and mask.ndim > 2:
        mask = (
            views.unsqueeze(mask, -3)
            if mask.shape[-3] == 1
            else views.unflatten(mask, -3, (kv_heads, group))
        )
    return q, views.unsqueeze(k, -3), views.unsqueeze(v, -3), mask
