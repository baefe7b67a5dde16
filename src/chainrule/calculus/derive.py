"""The derivative of a graph is a graph: the adjoint (reverse mode) over shared nodes.

Working on the graph and not on the formula tree of each input keeps derivatives small: each node
is visited once, whatever the number of inputs. Relies on the table for the local derivatives.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from chainrule.calculus.expr import Expr, make, topo
from chainrule.calculus.simplify import ZERO, add, mul
from chainrule.calculus.table import TABLE

__all__ = ["dependents", "expand", "jvp", "substitute", "vjp"]


def dependents(nodes: Sequence[Expr], xs: Sequence[Expr]) -> set[int]:
    """Return the ids of those of `nodes` (in `topo` order) that depend on any of `xs`."""
    found = {x.id for x in xs}
    for e in nodes:
        if e.id not in found and any(a.id in found for a in e.args):
            found.add(e.id)
    return found


def vjp(outs: Sequence[Expr], gs: Sequence[Expr], xs: Sequence[Expr]) -> list[Expr]:
    """Return Σ gᵢ ∂outᵢ/∂x for each x of `xs`: the vector-Jacobian product."""
    order = topo(outs)
    reached = dependents(order, xs)
    adjoint: dict[int, Expr] = {}

    def accumulate(e: Expr, g: Expr) -> None:
        if g is not ZERO:
            adjoint[e.id] = add(adjoint[e.id], g) if e.id in adjoint else g

    for out, g in zip(outs, gs, strict=True):
        accumulate(out, g)
    for e in reversed(order):  # every use of a node comes before the node
        g = adjoint.get(e.id)
        if g is None or not e.args or e.id not in reached:
            continue
        for argument, partial in zip(e.args, TABLE[e.op].partials(e), strict=True):
            if argument.id in reached:
                accumulate(argument, mul(g, partial))
    return [adjoint.get(x.id, ZERO) for x in xs]


def jvp(outs: Sequence[Expr], xs: Sequence[Expr], vs: Sequence[Expr]) -> list[Expr]:
    """Return Σ vⱼ ∂out/∂xⱼ for each out of `outs`: the Jacobian-vector product."""
    order = topo(outs)
    reached = dependents(order, xs)
    tangent = {x.id: v for x, v in zip(xs, vs, strict=True)}
    for e in order:
        if e.id in tangent or e.id not in reached:
            continue
        total = ZERO
        for argument, partial in zip(e.args, TABLE[e.op].partials(e), strict=True):
            if argument.id in tangent:
                total = add(total, mul(tangent[argument.id], partial))
        tangent[e.id] = total
    return [tangent.get(o.id, ZERO) for o in outs]


def expand(outs: Sequence[Expr], native: Collection[str]) -> list[Expr]:
    """Return `outs` with every primitive outside `native` replaced by its expansion, if it has one.

    What is left outside `native` after that has no expansion; the caller decides.
    """
    done: dict[int, Expr] = {}
    replacement: dict[int, Expr] = {}  # also keeps alive what `done` knows by id
    stack = list(outs)
    while stack:
        e = stack[-1]
        if e.id in done:
            stack.pop()
            continue
        if e.id in replacement:
            done[e.id] = done[replacement[e.id].id]
            continue
        waiting = [a for a in e.args if a.id not in done]
        if waiting:
            stack.extend(waiting)
            continue
        args = tuple([done[a.id] for a in e.args])
        rule = TABLE[e.op].expansion if e.args and e.op not in native else None
        if rule is None:
            done[e.id] = make(e.op, args, e.attr) if e.args else e
            stack.pop()
            continue
        # An expansion may use rows that need one themselves; its arguments are done already.
        done.update({a.id: a for a in args})
        replacement[e.id] = rule(*args)
        stack.append(replacement[e.id])
    return [done[o.id] for o in outs]


def substitute(outs: Sequence[Expr], replacements: Mapping[int, Expr]) -> list[Expr]:
    """Return `outs` with the nodes of these ids replaced; what only they used is gone."""
    done: dict[int, Expr] = dict(replacements)
    stack = list(outs)
    while stack:
        e = stack[-1]
        waiting = [a for a in e.args if a.id not in done] if e.id not in done else []
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        if e.id not in done:
            done[e.id] = make(e.op, tuple([done[a.id] for a in e.args]), e.attr) if e.args else e
    return [done[o.id] for o in outs]
