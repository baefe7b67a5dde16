"""Scalar expressions as one hash-consed graph: equal expressions are the same object.

Operators and `make` build exactly what was written (`0 * x` stays, for it may be NaN); the
builder for derivatives, which may drop the zeros that it makes itself, is `simplify`. Relies on
nothing but `errors`; what a primitive means is stated in `table`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from chainrule.errors import InputError

__all__ = ["Expr", "Scalar", "const", "evaluate", "lift", "make", "topo", "var"]

Attr = float | str | tuple[int, ...] | None
Key = tuple[str, tuple[int, ...], Attr]

# A parent holds its arguments, and ids are never used twice: a key cannot outlive its meaning.
_nodes: WeakValueDictionary[Key, Expr] = WeakValueDictionary()
_next_id = itertools.count()
_COMMUTATIVE = frozenset({"add", "mul", "logical_and", "logical_or", "eq", "ne"})


class Expr:
    """One node: a constant, a variable, or a primitive applied to earlier nodes.

    `id` rises from arguments to results, so ascending ids are a topological order. Made by
    `make`, `const`, `var` and the operators, never directly.
    """

    __slots__ = ("__weakref__", "args", "attr", "id", "op")

    op: str
    args: tuple[Expr, ...]
    attr: Attr
    id: int

    def __repr__(self) -> str:
        from chainrule.calculus.text import formula

        return f"Expr({formula(self, limit=200)})"

    def __bool__(self) -> bool:
        raise InputError(
            "the truth of an expression is not known while it is being built; "
            "write where(condition, a, b) instead of if, and &, |, ~ instead of and, or, not"
        )

    def __add__(self, other: Scalar) -> Expr:
        return make("add", (self, lift(other)))

    def __radd__(self, other: Scalar) -> Expr:
        return make("add", (lift(other), self))

    def __sub__(self, other: Scalar) -> Expr:
        return make("sub", (self, lift(other)))

    def __rsub__(self, other: Scalar) -> Expr:
        return make("sub", (lift(other), self))

    def __mul__(self, other: Scalar) -> Expr:
        return make("mul", (self, lift(other)))

    def __rmul__(self, other: Scalar) -> Expr:
        return make("mul", (lift(other), self))

    def __truediv__(self, other: Scalar) -> Expr:
        return make("div", (self, lift(other)))

    def __rtruediv__(self, other: Scalar) -> Expr:
        return make("div", (lift(other), self))

    def __pow__(self, other: Scalar) -> Expr:
        return make("pow", (self, lift(other)))

    def __rpow__(self, other: Scalar) -> Expr:
        return make("pow", (lift(other), self))

    def __mod__(self, other: Scalar) -> Expr:
        return make("remainder", (self, lift(other)))

    def __rmod__(self, other: Scalar) -> Expr:
        return make("remainder", (lift(other), self))

    def __neg__(self) -> Expr:
        return make("neg", (self,))

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return make("abs", (self,))

    def __lt__(self, other: Scalar) -> Expr:
        return make("lt", (self, lift(other)))

    def __le__(self, other: Scalar) -> Expr:
        return make("le", (self, lift(other)))

    def __gt__(self, other: Scalar) -> Expr:
        return make("gt", (self, lift(other)))

    def __ge__(self, other: Scalar) -> Expr:
        return make("ge", (self, lift(other)))

    # == builds a comparison, as on arrays; sameness of nodes is `is`.
    def __eq__(self, other: Scalar) -> Expr:  # type: ignore[override]
        return make("eq", (self, lift(other)))

    def __ne__(self, other: Scalar) -> Expr:  # type: ignore[override]
        return make("ne", (self, lift(other)))

    def __hash__(self) -> int:
        return self.id

    def __and__(self, other: Scalar) -> Expr:
        return make("logical_and", (self, lift(other)))

    def __or__(self, other: Scalar) -> Expr:
        return make("logical_or", (self, lift(other)))

    def __invert__(self) -> Expr:
        return make("logical_not", (self,))


Scalar = Expr | float


def _rank(e: Expr) -> tuple[bool, int]:
    """Order the arguments of a commutative primitive: constants first, then by age."""
    return (e.op != "const", e.id)


def make(op: str, args: tuple[Expr, ...] = (), attr: Attr = None) -> Expr:
    """Return the one node for `op` applied to `args`, made if it does not exist yet."""
    if op in _COMMUTATIVE and _rank(args[0]) > _rank(args[1]):
        args = (args[1], args[0])
    # A constant is keyed by its bits: 0.0 and -0.0 differ, and NaN equals itself.
    key = (op, tuple([a.id for a in args]), attr.hex() if isinstance(attr, float) else attr)
    node = _nodes.get(key)
    if node is None:
        node = Expr.__new__(Expr)
        node.op, node.args, node.attr, node.id = op, args, attr, next(_next_id)
        _nodes[key] = node
    return node


def const(value: float) -> Expr:
    """Return the constant `value`; told apart from other constants by its float64 bits."""
    return make("const", (), float(value))


def var(name: str) -> Expr:
    """Return the variable `name`; the same name is the same variable."""
    return make("var", (), name)


def lift(value: Scalar) -> Expr:
    """Return `value` itself if it is an expression, and the constant `value` if it is a number."""
    if isinstance(value, Expr):
        return value
    try:
        return const(value)
    except (TypeError, ValueError):
        raise InputError(
            f"a {type(value).__name__} cannot take part in a scalar expression; "
            "use expressions and real numbers"
        ) from None


def topo(outs: Iterable[Expr]) -> list[Expr]:
    """Return every node that `outs` are made of, each once, arguments before results."""
    seen: dict[int, Expr] = {}
    stack = list(outs)
    while stack:
        node = stack.pop()
        if node.id not in seen:
            seen[node.id] = node
            stack.extend(node.args)
    return [seen[i] for i in sorted(seen)]


def evaluate(outs: Sequence[Expr], env: Mapping[str, Any], ns: Any) -> list[Any]:
    """Return the values of `outs`, with variables from `env` and primitives from `ns`.

    `ns` gives a function for each primitive name, as a mapping (`ns["exp"]`) or as attributes
    (`ns.exp`). A node's own parameters, if it has any, come first. Constants arrive as floats.
    """
    find: Callable[[str], Callable[..., Any]]
    find = ns.__getitem__ if isinstance(ns, Mapping) else lambda name: getattr(ns, name)
    values: dict[int, Any] = {}
    for e in topo(outs):
        if e.op == "const":
            values[e.id] = e.attr
        elif e.op == "var":
            if e.attr not in env:
                raise InputError(f"variable {e.attr!r} has no value; given: {sorted(env)}")
            values[e.id] = env[str(e.attr)]
        else:
            arguments = [values[a.id] for a in e.args]
            parameters = e.attr if isinstance(e.attr, tuple) else ()
            values[e.id] = find(e.op)(*parameters, *arguments)
    return [values[o.id] for o in outs]
