"""A function and its derivatives as formulas: the rows of the table, or a function of scalars."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from chainrule.calculus import TABLE, Expr, lift, var, vjp
from chainrule.calculus import formula as text_of
from chainrule.calculus.latex import latex as latex_of
from chainrule.errors import InputError


class Formula:
    """A function and its derivatives: `str()` is text, `.latex()` LaTeX, notebooks show the LaTeX.

    `expression` is the function and `derivatives` one expression a variable, in `variables`.
    """

    def __init__(self, name: str, variables: list[str], expression: Expr, note: str = "") -> None:
        self.name = name
        self.variables = variables
        self.expression = expression
        self.note = note
        self.derivatives = vjp([expression], [lift(1.0)], [var(v) for v in variables])

    def __str__(self) -> str:
        head = f"{self.name}({', '.join(self.variables)})"
        lines = [(head, self.note or text_of(self.expression))]
        for v, d in zip(self.variables, self.derivatives, strict=True):
            lines.append((f"∂{self.name}/∂{v}", text_of(d)))
        width = max(len(left) for left, _ in lines)
        return "\n".join(f"{left:<{width}} = {right}" for left, right in lines)

    __repr__ = __str__

    def latex(self) -> str:
        """The same as LaTeX, an `aligned` block for math mode."""
        name = rf"\operatorname{{{self.name.replace('_', chr(92) + '_')}}}"
        rows = [rf"{name}({', '.join(self.variables)}) &= {latex_of(self.expression)}"]
        for v, d in zip(self.variables, self.derivatives, strict=True):
            rows.append(rf"\frac{{\partial {name}}}{{\partial {v}}} &= {latex_of(d)}")
        return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"

    def _repr_latex_(self) -> str:
        return f"$${self.latex()}$$"


def formula(function: str | Callable[..., Any]) -> Formula:
    """The formula of a primitive (its name, or `cr.tanh`), or of a Python function of scalars.

    A function is called once with symbols, for which Python's operators and the elementwise
    operations stand: `show.formula(lambda x, b: cr.exp(-x * b))`. Raises `InputError` for a name
    that is no primitive, and where the function does something else with its arguments.

    >>> print(formula("tanh"))
    tanh(x)  = sinh x / cosh x
    ∂tanh/∂x = sech2(x)
    """
    name = function if isinstance(function, str) else getattr(function, "__name__", "f")
    ours = getattr(function, "__module__", "").partition(".")[0] == "chainrule"
    if isinstance(function, str) or ours:
        if name not in TABLE:
            raise InputError(
                f"'{name}' is no primitive of the table: see chainrule.calculus.TABLE for their "
                "names, or give a function of scalars"
            )
        row = TABLE[name]
        variables = (
            list("xyz"[: row.arity]) if row.arity < 4 else [f"x{i}" for i in range(row.arity)]
        )
        return Formula(name, variables, row(*[var(v) for v in variables]), row.formula)
    variables = list(inspect.signature(function).parameters)
    made = function(*[var(v) for v in variables])
    if isinstance(made, (int, float)):
        made = lift(float(made))
    if not isinstance(made, Expr):
        raise InputError(
            f"{name} returned {type(made).__name__}: a formula is one expression of scalars"
        )
    return Formula("f" if name == "<lambda>" else name, variables, made)
