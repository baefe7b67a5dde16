"""Layouts: how shape, strides and offset turn flat memory into a tensor. Integers only.

`Layout` is the one class; the files beside it hold the arithmetic it is made of: `merging`
(which dimensions merge: contiguity and views), `indexing` (basic indices), `reach` (which
addresses are reached: bounds, overlap, density, memory transactions).
"""

from chainrule.layout._core import Layout
from chainrule.layout.merging import contiguous_strides

__all__ = ["Layout", "contiguous_strides"]
