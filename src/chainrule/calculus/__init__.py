"""Scalar calculus: primitives and their derivatives as one expression graph.

Build (`expr`), state (`table`), differentiate (`derive`), simplify (`simplify`), print
(`text`). Knows nothing of arrays and devices.
"""

from __future__ import annotations

from chainrule.calculus.derive import expand, jvp, vjp
from chainrule.calculus.expr import Expr, Scalar, const, evaluate, lift, make, topo, var
from chainrule.calculus.table import TABLE, Primitive
from chainrule.calculus.text import formula

__all__ = [
    "TABLE", "Expr", "Primitive", "Scalar", "const", "evaluate", "expand", "formula", "jvp",
    "lift", "make", "topo", "var", "vjp",
]  # fmt: skip
