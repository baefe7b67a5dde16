"""Layouts: how shape, strides and offset turn flat memory into a tensor. Integers only.

`Layout` is the one class: `facts` holds what it is, `_core` every view of it. The files beside them
hold the arithmetic: `merging` (which dimensions merge: contiguity and views), `indexing` (basic
indices), `reach` (which addresses are reached: bounds, density, overlap, memory transactions).
"""

from chainrule.layout._core import Layout, unchecked_layout
from chainrule.layout.merging import contiguous_strides

__all__ = ["Layout", "contiguous_strides", "unchecked_layout"]
