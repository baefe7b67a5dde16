"""What a row of the table is, and the registry that the rows enter themselves in.

A row is also the function that builds its expression: `exp(x)`. Relies on `expr`, `simplify`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from chainrule.calculus.expr import Expr, Scalar, lift, make
from chainrule.calculus.simplify import tidy
from chainrule.errors import InputError

__all__ = ["TABLE", "Partials", "Primitive", "row"]

Partials = Expr | float | tuple[Expr | float, ...]


@dataclass(frozen=True)
class Primitive:
    """One primitive function of scalars, and everything that the project knows about it.

    The columns:

    - `name`, `arity`; `defaults` are the values of trailing arguments that may be left out.
    - `formula`: the function as a reader would write it.
    - `derivative(y, *args)`: the partial derivatives, one an argument, as expressions in the
      output `y` and the arguments. None where the derivative is zero wherever it exists.
    - `edges`: value and derivative where they are a convention; PyTorch's unless it says so.
    - `result`: what an integer input becomes. `"float"`: the default float; `"same"`: it stays an
      integer; `"bool"`: the result is a truth value.
    - `expansion(*args)`: the same function in other primitives, accurate over the whole range
      (a target without a spelling of its own uses it). None where a target must supply one.
    - `from_output(y, *parameters)`: the first derivative in the output alone, stated only where
      it stays within 4 ulp of the storage dtype when `y` has been rounded to it: then `y` can be
      saved in place of the input.
    """

    name: str
    arity: int
    formula: str
    derivative: Callable[..., Partials] | None
    edges: str = ""
    result: Literal["float", "same", "bool"] = "float"
    defaults: tuple[float, ...] = ()
    expansion: Callable[..., Expr] | None = None
    from_output: Callable[..., Expr] | None = None

    def __call__(self, *args: Scalar) -> Expr:
        """Return this primitive of `args` as an expression."""
        missing = self.arity - len(args)
        if missing < 0 or missing > len(self.defaults):
            least = self.arity - len(self.defaults)
            takes = str(self.arity) if least == self.arity else f"{least} to {self.arity}"
            raise InputError(f"{self.name} takes {takes} arguments, got {len(args)}")
        given = args + self.defaults[len(self.defaults) - missing :] if missing else args
        return make(self.name, tuple([lift(a) for a in given]))

    @property
    def differentiable(self) -> bool:
        """Whether any derivative of the row is other than zero."""
        return self.derivative is not None

    def partials(self, e: Expr) -> tuple[Expr, ...]:
        """Return the derivative of `e`, a node of this primitive, by each of its arguments."""
        if self.derivative is None:
            return tuple([lift(0.0)] * self.arity)
        stop = {e.id, *[a.id for a in e.args]}
        partials = self.derivative(e, *e.args)
        listed = partials if isinstance(partials, tuple) else (partials,)
        return tuple([tidy(lift(p), stop) for p in listed])


TABLE: dict[str, Primitive] = {}
"""Every primitive by its name."""


def row(
    name: str,
    formula: str,
    derivative: Callable[..., Partials] | None,
    edges: str = "",
    *,
    arity: int = 1,
    result: Literal["float", "same", "bool"] = "float",
    defaults: tuple[float, ...] = (),
    expansion: Callable[..., Expr] | None = None,
    from_output: Callable[..., Expr] | None = None,
) -> Primitive:
    """Enter a primitive into `TABLE` and return it."""
    entry = Primitive(
        name, arity, formula, derivative, edges, result, defaults, expansion, from_output
    )
    TABLE[name] = entry
    return entry
