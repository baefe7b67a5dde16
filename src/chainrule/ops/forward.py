"""How array operations pass a tangent on, where that is simpler than transposing their rule.

A view and a linear map apply themselves to the tangent, a product rule sums one product an
operand, softmax's Jacobian is symmetric. Operations that are not named here are transposed by
`autograd.forward`, or pushed through their composite: nothing has to be stated to be right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chainrule.autograd.forward import transposed, zeros
from chainrule.autograd.node import Node
from chainrule.ops import (
    _apply,
    extrema,
    family,
    gathering,
    indexing,
    joining,
    linalg,
    masking,
    normalise,
    reductions,
    scans,
    views,
)
from chainrule.ops._apply import ArrayRule, apply, graph_value, namespace

Tangents = list[Any]


# Views.

_apply.ALIAS.tangent = lambda n, ts: ts[0]
_apply.REGION.tangent = lambda n, ts: views.region_of(ts[0], n.attrs[0])
_apply.RESHAPE.tangent = lambda n, ts: views.reshape(ts[0], n.shape)
_apply.EXPAND.tangent = lambda n, ts: views.expand(ts[0], n.shape)
_apply.FLIP.tangent = lambda n, ts: views.flip(ts[0], n.attrs[0])
family.MEMORY.tangent = lambda n, ts: views.scatter_region(ts[0], n.shape, n.attrs[0])


def _permute(n: Node, ts: Tangents) -> Any:
    (inverse,) = n.attrs
    return views.permute(ts[0], tuple(sorted(range(len(inverse)), key=inverse.__getitem__)))


_apply.PERMUTE.tangent = _permute


def _overwrite(n: Node, ts: Tangents) -> Any:
    (layout,) = n.attrs
    before, value = ts
    out = None if before is None else family.zeroed(before, layout)
    if value is not None:
        written = views.scatter_region(views.expand(value, layout.shape), n.shape, layout)
        out = written if out is None else out + written
    return out


family.OVERWRITE.tangent = _overwrite


# Linear in the inputs that have a gradient, whatever the others are: indices, which are saved.


def linear(rule: ArrayRule) -> None:
    """Say that `rule` applied to the tangents is its own forward mode."""
    rule.tangent = _apply_itself


def _apply_itself(n: Node, ts: Tangents) -> Any:
    rule: Any = n.rule
    like = next(t for t in ts if t is not None)
    saved = dict(zip(rule.saved_indices(tuple(p is not None for p in n.parents)), n.saved))  # noqa: B905
    inputs: list[Any] = []
    for i, (p, t) in enumerate(zip(n.parents, ts, strict=True)):
        if t is not None:
            inputs.append(t)
        elif p is not None:
            inputs.append(zeros(p.shape, like))
        elif i in saved:
            inputs.append(saved[i])
        else:  # an input without gradient that nothing kept: only the rule knows its shape
            return transposed(n, ts)
    return apply(rule, inputs, n.attrs)


for _rule in (
    reductions.SUM,
    reductions.MEAN,
    scans.CUMSUM,
    joining.CONCAT,
    masking.TRIL,
    masking.TRIU,
    views.CLONE,
    views.SCATTER_REGION,
    family.ZEROED,
    indexing.INDEX,
    indexing.INDEX_ADD,
    indexing.ZERO_AT,
    gathering.GATHER,
    gathering.SCATTER_ADD,
    gathering.EMBEDDING,  # `padding_idx` stops gradients alone, as in PyTorch
    extrema.PICK,
    _apply.CAST,
):
    linear(_rule)


# Products.


def _product(multiply: Callable[[Any, Any], Any]) -> Callable[[Node, Tangents], Any]:
    def tangent(n: Node, ts: Tangents) -> Any:
        tx, ty, *tb = ts
        kept = [i for i in (1, 0) if n.parents[1 - i] is not None]
        held = dict(zip(sorted(kept), n.saved, strict=True))
        out = None
        if tx is not None:
            out = multiply(tx, graph_value(held[1], n, 1))
        if ty is not None:
            other = multiply(graph_value(held[0], n, 0), ty)
            out = other if out is None else out + other
        if tb and tb[0] is not None:
            out = views.expand(tb[0], n.shape) if out is None else out + tb[0]
        return out

    return tangent


linalg.MATMUL.tangent = _product(lambda x, y: apply(linalg.MATMUL, (x, y)))
linalg.LINEAR.tangent = _product(lambda x, w: apply(linalg.LINEAR, (x, w)))


# A symmetric Jacobian: forward and reverse are the same product.


def _symmetric(n: Node, ts: Tangents) -> Any:
    rule: Any = n.rule
    saved = [graph_value(n.saved[0], n, -1)]
    return rule.vjp(namespace(), ts[0], saved, n)[0]


normalise.SOFTMAX.tangent = _symmetric
