"""What modules and optimisers do to the gradients of many leaves at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chainrule.autograd.value import write_raw


def zero_grads(leaves: Iterable[Any], set_to_none: bool = True) -> None:
    """Drop the gradient of each leaf, or write zeros into it."""
    for leaf in leaves:
        g = leaf.grad
        if g is None:
            continue
        if set_to_none:
            leaf.grad = None
        else:
            g.node = None  # a gradient made with create_graph has a history
            write_raw(g, 0)
