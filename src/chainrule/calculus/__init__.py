"""Scalar calculus: primitives and their derivatives as one expression graph.

Build (`expr`), state (`table`), differentiate (`derive`), simplify (`simplify`), print
(`formula`). Knows nothing of arrays and devices.
"""

from __future__ import annotations

from .derive import expand, jvp, vjp
from .expr import Expr, Scalar, const, evaluate, lift, make, topo, var
from .formula import formula
from .table import TABLE, Primitive

__all__ = [
    "TABLE", "Expr", "Primitive", "Scalar", "const", "evaluate", "expand", "formula", "jvp",
    "lift", "make", "topo", "var", "vjp",
]  # fmt: skip
