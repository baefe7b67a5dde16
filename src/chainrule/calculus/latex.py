"""Expressions as LaTeX: fractions, powers, roots and cases as they stand in a textbook."""

from __future__ import annotations

from collections.abc import Callable

from chainrule.calculus.expr import Expr, topo

__all__ = ["latex"]

_CASES, _COMPARE, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(7)
_RELATION = {
    "lt": "<", "le": r"\le", "gt": ">", "ge": r"\ge", "eq": "=", "ne": r"\ne",
    "logical_and": r"\land", "logical_or": r"\lor",
}  # fmt: skip
_NAMED = {
    "sin": r"\sin", "cos": r"\cos", "tan": r"\tan", "sinh": r"\sinh", "cosh": r"\cosh",
    "tanh": r"\tanh", "log": r"\ln", "asin": r"\arcsin", "acos": r"\arccos", "atan": r"\arctan",
    "sigmoid": r"\sigma", "maximum": r"\max", "minimum": r"\min", "ndtr": r"\Phi",
    "npdf": r"\varphi",
}  # fmt: skip

Written = tuple[str, int]


def latex(expr: Expr) -> str:
    r"""Return `expr` as LaTeX for math mode, such as `\frac{1}{1 + x^{2}}`."""
    done: dict[int, Written] = {}
    for e in topo((expr,)):
        done[e.id] = _write(e, done)
    return done[expr.id][0]


def _write(e: Expr, done: dict[int, Written]) -> Written:
    def within(i: int, level: int) -> str:
        text, binds = done[e.args[i].id]
        return text if binds >= level else rf"\left({text}\right)"

    def plain(i: int) -> str:
        return done[e.args[i].id][0]

    match e.op:
        case "const":
            return _number(e.attr)
        case "var":
            return _name(str(e.attr)), _ATOM
        case "add":
            a, b = (1, 0) if e.args[0].op == "const" and e.args[1].op != "const" else (0, 1)
            return f"{within(a, _SUM)} + {within(b, _SIGN if _signed(e, b, done) else _SUM)}", _SUM
        case "sub":
            return f"{within(0, _SUM)} - {within(1, _PRODUCT)}", _SUM
        case "mul":
            return rf"{within(0, _PRODUCT)} \, {within(1, _POWER)}", _PRODUCT
        case "div":
            return rf"\frac{{{plain(0)}}}{{{plain(1)}}}", _PRODUCT
        case "neg":
            return f"-{within(0, _PRODUCT)}", _SIGN if done[e.args[0].id][1] > _SIGN else _PRODUCT
        case "pow":
            return f"{within(0, _ATOM)}^{{{plain(1)}}}", _POWER
        case "square":
            return f"{within(0, _ATOM)}^{{2}}", _POWER
        case "exp":
            return f"e^{{{plain(0)}}}", _POWER
        case "exp2":
            return f"2^{{{plain(0)}}}", _POWER
        case "sqrt":
            return rf"\sqrt{{{plain(0)}}}", _ATOM
        case "rsqrt":
            return rf"\frac{{1}}{{\sqrt{{{plain(0)}}}}}", _PRODUCT
        case "reciprocal":
            return rf"\frac{{1}}{{{plain(0)}}}", _PRODUCT
        case "abs":
            return rf"\left|{plain(0)}\right|", _ATOM
        case "floor" | "ceil":
            return rf"\left\l{e.op} {plain(0)} \right\r{e.op}", _ATOM
        case "where":
            rows = rf"{plain(1)} & {plain(0)} \\ {plain(2)} & \text{{otherwise}}"
            return rf"\begin{{cases}} {rows} \end{{cases}}", _CASES
        case "logical_not":
            return rf"\lnot {within(0, _ATOM)}", _COMPARE
        case _:
            return _called(e, done, within)


def _called(e: Expr, done: dict[int, Written], within: Callable[[int, int], str]) -> Written:
    """A relation, or a function with its arguments in brackets."""
    if e.op in _RELATION:
        return f"{within(0, _SUM)} {_RELATION[e.op]} {within(1, _SUM)}", _COMPARE
    name = _NAMED.get(e.op) or rf"\operatorname{{{e.op.replace('_', chr(92) + '_')}}}"
    parameters = [str(p) for p in e.attr] if isinstance(e.attr, tuple) else []
    inside = ", ".join([*parameters, *[done[a.id][0] for a in e.args]])
    return rf"{name}\left({inside}\right)", _ATOM


def _signed(e: Expr, i: int, done: dict[int, Written]) -> bool:
    """Whether argument `i` starts with a minus sign, which must not follow a plus."""
    return done[e.args[i].id][0].startswith("-")


def _name(name: str) -> str:
    head, _, tail = name.partition("_")
    head = head if len(head) == 1 else rf"\mathit{{{head}}}"
    tail = tail.replace("_", r"\_")
    return f"{head}_{{{tail}}}" if tail else head


def _number(value: object) -> Written:
    assert isinstance(value, float)
    if value != value:
        return r"\mathrm{NaN}", _ATOM
    if abs(value) == float("inf"):
        return (r"\infty", _ATOM) if value > 0 else (r"-\infty", _SIGN)
    text = repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if "e" in text:
        digits, _, power = text.partition("e")
        return rf"{digits} \cdot 10^{{{int(power)}}}", _SIGN if value < 0 else _PRODUCT
    return text, _SIGN if text.startswith("-") else _ATOM
