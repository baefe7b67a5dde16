"""The table of primitives: every row of every family, by name.

The rows stand in `arithmetic`, `exponential`, `trigonometric`, `special` and
`activations`; what the columns mean stands in `primitive.Primitive`. The table is closed: derivatives of any order are
made of rows.
"""

from __future__ import annotations

from chainrule.calculus import activations, arithmetic, exponential, special, trigonometric
from chainrule.calculus.primitive import TABLE, Primitive

__all__ = ["FAMILIES", "TABLE", "Primitive"]

FAMILIES = (arithmetic, exponential, trigonometric, special, activations)
