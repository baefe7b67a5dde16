"""Rows of the table: circular functions and their inverses.

Each row reads: name, formula, derivative (output `y` first, then the arguments), edges.
"""

from __future__ import annotations

from chainrule.calculus.arithmetic import hypot, one_minus_square, rsqrt, where
from chainrule.calculus.expr import Expr
from chainrule.calculus.primitive import Partials, row

__all__ = ["acos", "asin", "atan", "atan2", "cos", "sin", "tan"]

sin = row("sin", "sin x", lambda y, x: cos(x), "NaN at ±inf")
cos = row("cos", "cos x", lambda y, x: -sin(x), "NaN at ±inf")
tan = row("tan", "sin x / cos x", lambda y, x: 1.0 + y * y, "NaN at ±inf")
asin = row(
    "asin", "arcsin x", lambda y, x: rsqrt(one_minus_square(x)),
    "gradient inf at ±1; NaN beyond",
)  # fmt: skip
acos = row(
    "acos", "arccos x", lambda y, x: -rsqrt(one_minus_square(x)),
    "gradient -inf at ±1; NaN beyond",
)  # fmt: skip
atan = row("atan", "arctan x", lambda y, x: 1.0 / (1.0 + x * x))
atan2 = row(
    "atan2", "angle of the point (x, y), from arguments y, x", lambda t, y, x: _turn(y, x),
    "0 at (0, 0) with gradient (0, 0); the sign of a zero y tells the side of the cut", arity=2,
)  # fmt: skip


def _turn(y: Expr, x: Expr) -> Partials:
    """Return (x, -y) / r², with r² never formed, which would overflow, and 0 at the origin."""
    r = hypot(y, x)
    r = where(r == 0.0, 1.0, r)
    return x / r / r, -(y / r / r)
