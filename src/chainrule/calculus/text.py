"""Expressions as readable text: infix operators, as few parentheses as the meaning allows."""

from __future__ import annotations

from collections.abc import Sequence

from chainrule.calculus.expr import Expr, topo

__all__ = ["formula"]

# How tightly an operator binds, as in Python; a function call or a name binds tightest.
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(9)
_INFIX = {
    "add": ("+", _SUM), "sub": ("-", _SUM), "mul": ("*", _PRODUCT), "div": ("/", _PRODUCT),
    "remainder": ("%", _PRODUCT), "pow": ("**", _POWER), "lt": ("<", _COMPARE),
    "le": ("<=", _COMPARE), "gt": (">", _COMPARE), "ge": (">=", _COMPARE), "eq": ("==", _COMPARE),
    "ne": ("!=", _COMPARE), "logical_and": ("and", _AND), "logical_or": ("or", _OR),
}  # fmt: skip
_ASSOCIATIVE = frozenset({"add", "mul", "logical_and", "logical_or"})


def formula(expr: Expr | Sequence[Expr], *, share: bool = False, limit: int | None = None) -> str:
    """Return `expr` (or several, one a line) as text, such as `0.5*(x + sqrt(x*x + 4))`.

    With `share`, a subexpression used more than once is named on a line of its own. With `limit`,
    longer subexpressions are cut to `...`.
    """
    outs = (expr,) if isinstance(expr, Expr) else tuple(expr)
    nodes = topo(outs)
    uses: dict[int, int] = {}
    for e in nodes:
        for a in e.args:
            uses[a.id] = uses.get(a.id, 0) + 1
    text: dict[int, tuple[str, int]] = {}
    lines: list[str] = []
    for e in nodes:
        written, level = _write(e, text)
        if limit is not None and len(written) > limit:
            written, level = "...", _ATOM
        if share and e.args and uses.get(e.id, 0) > 1:
            name = f"t{len(lines) + 1}"
            lines.append(f"{name} = {written}")
            written, level = name, _ATOM
        text[e.id] = written, level
    return "\n".join([*lines, *[text[o.id][0] for o in outs]])


def _write(e: Expr, text: dict[int, tuple[str, int]]) -> tuple[str, int]:
    """Return the text of one node and how tightly its outermost operator binds."""

    def within(a: Expr, level: int) -> str:
        written, binds = text[a.id]
        return written if binds >= level else f"({written})"

    if e.op == "const":
        return _number(e.attr)
    if e.op == "var":
        return str(e.attr), _ATOM
    if e.op == "neg":
        # -a*b is (-a)*b to a parser, which is the same number
        written = f"-{within(e.args[0], _PRODUCT)}"
        return written, min(_SIGN, max(_PRODUCT, text[e.args[0].id][1]))
    if e.op == "logical_not":
        return f"not {within(e.args[0], _NOT)}", _NOT
    if e.op in _INFIX:
        sign, level = _INFIX[e.op]
        a, b = e.args
        if e.op in ("add", "eq", "ne") and a.op == "const" and b.op != "const":
            a, b = b, a  # x + 4 reads better than 4 + x
        tighter = level + 1
        left = within(a, tighter if level in (_POWER, _COMPARE) else level)
        right = within(b, level if e.op in _ASSOCIATIVE or level == _POWER else tighter)
        if level in (_PRODUCT, _POWER):
            return f"{left}{sign}{right}", level
        return f"{left} {sign} {right}", level
    parameters = [str(p) for p in e.attr] if isinstance(e.attr, tuple) else []
    arguments = parameters + [text[a.id][0] for a in e.args]
    return f"{e.op}({', '.join(arguments)})", _ATOM


def _number(value: object) -> tuple[str, int]:
    assert isinstance(value, float)
    written = repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if written == "0" and str(value).startswith("-"):
        written = "-0.0"
    return written, _SIGN if written.startswith("-") else _ATOM
