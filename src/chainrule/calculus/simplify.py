"""The builder of derivatives: as the operators of `Expr`, with the zeros it made itself removed.

Differentiation multiplies by structural zeros and ones, which may go; a zero that the user wrote
may not, for `0 * x` is NaN at infinity, and that is why `Expr`'s own operators keep it.

An untaken branch must not poison a gradient: `0 * inf` is NaN. The gradient of `where(c, a, b)`
reaches `a` as the *guarded* term `where(c, g, 0)`, and guards are kept outermost by four rules:
(a) `where(c, 0, q)` is kept as `where(not c, q, 0)`;
(b) neg, mul and div act inside a guard, so that no factor outside can meet the zero;
(c) terms with the same condition add inside it;
(d) terms with different conditions are guarded by the union of the two.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from chainrule.calculus.expr import Expr, const, make

__all__ = ["ONE", "ZERO", "add", "div", "mul", "neg", "select", "sub", "tidy"]

ZERO = const(0.0)
ONE = const(1.0)


def _value(e: Expr) -> float | None:
    """Return the number that `e` is, or None if it is not a constant."""
    return e.attr if isinstance(e.attr, float) and e.op == "const" else None


def _guarded(e: Expr) -> bool:
    return e.op == "where" and e.args[2] is ZERO


def _stepwise(e: Expr) -> bool:
    """Say whether `e` only chooses between constants: a factor of it moves into the choice."""
    while e.op == "where":
        if e.args[1].op != "const":
            return False
        e = e.args[2]
    return e.op == "const"


def _not(c: Expr) -> Expr:
    return c.args[0] if c.op == "logical_not" else make("logical_not", (c,))


def _or(c: Expr, d: Expr) -> Expr:
    if c is d or (c.op == "logical_or" and any(d is a for a in c.args)):
        return c
    if d.op == "logical_or" and any(c is a for a in d.args):
        return d
    return make("logical_or", (c, d))


def select(c: Expr, a: Expr, b: Expr) -> Expr:
    """Return `where(c, a, b)`, in guarded form where one of the two is a structural zero."""
    if a is b:
        return a
    chosen = _value(c)
    if chosen is not None:
        return a if chosen else b
    if a is ZERO:  # rule (a)
        return select(_not(c), b, ZERO)
    if b is ZERO and a.op == "where" and a.args[0] is c:
        return select(c, a.args[1], ZERO)
    if b is not ZERO and c.op == "logical_not":
        return make("where", (c.args[0], b, a))
    return make("where", (c, a, b))


def neg(a: Expr) -> Expr:
    """Return `-a`, with the sign moved outward or into a constant."""
    value = _value(a)
    if a is ZERO:
        return ZERO
    if value is not None:
        return const(-value)
    if a.op == "neg":
        return a.args[0]
    if a.op == "sub":
        return sub(a.args[1], a.args[0])
    if a.op == "mul" and (factor := _value(a.args[0])) is not None:
        return mul(const(-factor), a.args[1])
    if a.op == "where" and (_guarded(a) or _stepwise(a)):  # rule (b)
        return select(a.args[0], neg(a.args[1]), neg(a.args[2]))
    return make("neg", (a,))


def add(a: Expr, b: Expr) -> Expr:
    """Return `a + b`; guarded terms stay guarded."""
    if a is ZERO:
        return b
    if b is ZERO:
        return a
    p, q = _value(a), _value(b)
    if p is not None and q is not None:
        return const(p + q)
    if a.op == "neg":
        return neg(add(a.args[0], b.args[0])) if b.op == "neg" else sub(b, a.args[0])
    if b.op == "neg":
        return sub(a, b.args[0])
    if a is b:
        return mul(const(2.0), a)
    if a.op == "where" and b.op == "where":
        c, d = a.args[0], b.args[0]
        if c is d:  # rule (c)
            return select(c, add(a.args[1], b.args[1]), add(a.args[2], b.args[2]))
        if _guarded(a) and _guarded(b):
            if c is _not(d):
                return select(c, a.args[1], b.args[1])
            return make("where", (_or(c, d), make("add", (a, b)), ZERO))  # rule (d)
    return make("add", (a, b))


def sub(a: Expr, b: Expr) -> Expr:
    """Return `a - b`; guarded terms stay guarded."""
    if b is ZERO:
        return a
    if a is ZERO:
        return neg(b)
    p, q = _value(a), _value(b)
    if p is not None and q is not None:
        return const(p - q)
    if b.op == "neg":
        return add(a, b.args[0])
    if a.op == "neg":
        return neg(add(a.args[0], b))
    if _guarded(b) or (a.op == "where" and b.op == "where" and a.args[0] is b.args[0]):
        c, left, right = b.args
        return add(a, make("where", (c, neg(left), neg(right))))
    return make("sub", (a, b))


def mul(a: Expr, b: Expr) -> Expr:
    """Return `a * b`: constants and signs outward, other factors into guards."""
    if b.op == "const":
        a, b = b, a
    if a is ZERO or b is ZERO:
        return ZERO
    if a is ONE:
        return b
    p = _value(a)
    if p == -1.0:
        return neg(b)
    if p is not None:
        q = _value(b)
        if q is not None:
            return const(p * q)
        if b.op == "mul" and (factor := _value(b.args[0])) is not None:
            return mul(const(p * factor), b.args[1])
    if a.op == "neg":
        return neg(mul(a.args[0], b))
    if b.op == "neg":
        return neg(mul(a, b.args[0]))
    if p is None:
        for s, other in ((b, a), (a, b)):
            if s.op == "mul" and s.args[0].op == "const":
                return mul(s.args[0], mul(s.args[1], other))
    for s, other in ((a, b), (b, a)):
        if s.op == "where" and (_guarded(s) or _stepwise(s)):  # rule (b)
            c, left, right = s.args
            return select(c, mul(left, other), mul(right, other))
        if s.op == "div" and s.args[0].op == "const":
            return mul(s.args[0], div(other, s.args[1]))
    return make("mul", (a, b))


def div(a: Expr, b: Expr) -> Expr:
    """Return `a / b`; a power of two becomes a factor, which is exact."""
    if a is ZERO:
        return ZERO
    if b is ONE:
        return a
    q = _value(b)
    if q and math.isfinite(q) and abs(math.frexp(q)[0]) == 0.5 and math.isfinite(1.0 / q):
        return mul(const(1.0 / q), a)
    if a.op == "neg":
        return neg(div(a.args[0], b))
    if b.op == "neg":
        return neg(div(a, b.args[0]))
    if a.op == "mul" and a.args[0].op == "const":
        return mul(a.args[0], div(a.args[1], b))
    if a.op == "where" and (_guarded(a) or _stepwise(a)):  # rule (b)
        return select(a.args[0], div(a.args[1], b), div(a.args[2], b))
    return make("div", (a, b))


_BUILDERS = {"add": add, "sub": sub, "mul": mul, "div": div, "neg": neg, "where": select}


def tidy(expr: Expr, stop: Collection[int]) -> Expr:
    """Return `expr` rebuilt by this builder, down to the nodes whose ids are in `stop`.

    The rows of the table write derivatives with plain operators; the nodes in `stop` are the
    user's own, and stay as they are.
    """
    done: dict[int, Expr] = {}
    stack = [expr]
    while stack:
        e = stack[-1]
        if e.id in done:
            stack.pop()
            continue
        if e.id in stop or not e.args:
            done[e.id] = stack.pop()
            continue
        waiting = [a for a in e.args if a.id not in done]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        args = tuple([done[a.id] for a in e.args])
        builder = _BUILDERS.get(e.op)
        done[e.id] = builder(*args) if builder else make(e.op, args, e.attr)
    return done[expr.id]
