"""The static rules of elementwise nodes: printed by `codegen`, compiled once, shared by all nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy import ndarray

from chainrule import backends, dtypes
from chainrule.autograd.node import Node, Rule
from chainrule.autograd.value import Value, raw_of
from chainrule.calculus.table import TABLE
from chainrule.ops import codegen
from chainrule.ops._apply import graph_value, namespace, to_dtype


class ElementwiseRule(Rule):
    """A rule printed from the table for one primitive, operand kinds and needed gradients."""

    __slots__ = ("_indices", "keeps", "text")

    def __init__(self, name: str, text: codegen.RuleText, run: Any, run_tensor: Any, n: int):
        super().__init__(name, run, run_tensor, broadcasts=n > 1)
        self.text = text
        self._indices = text.keeps
        self.keeps = sum(1 << (n if i < 0 else i) for i in text.keeps)

    def keeps_output(self, node: Node) -> bool:
        """Whether the rule reads the output."""
        return -1 in self._indices

    def keep(self, *operands: Any) -> tuple[Any, ...]:
        """The operands to save, in the rule's order; the output comes last."""
        return tuple([operands[i] for i in self._indices])


@lru_cache(maxsize=4096)
def rule_for(
    name: str,
    kinds: str,
    need: tuple[bool, ...],
    constants: tuple[float | None, ...] = (),
    host: str = "cpu",
    half: bool = False,
) -> ElementwiseRule:
    """The rule of primitive `name`, printed and compiled on first use."""
    constants = constants or (None,) * len(kinds)
    where = "numpy" if host == "cpu" else "torch"
    text = codegen.rule_text(name, kinds, need, constants, half, where)
    twice = codegen.rule_text(name, kinds, need, constants, half, "tensor")

    def compiled(source: str, b: Any, **more: Any) -> Callable[..., Any]:
        label = f"rule of {name}({kinds})"
        scope = {"b": b, "F32": dtypes.float32, "restore": _restore, "raw": raw_of, **more}
        return codegen.make(source, "rule", scope, label)

    run = compiled(text.source, backends.get(host))
    lazy: list[Callable[..., Any]] = []

    def run_tensor(node: Node, g: Any) -> tuple[Any, ...]:
        if not lazy:  # second order is rare: compiled when first wanted
            lazy.append(compiled(twice.source, namespace(), graph=graph_value))
        return lazy[0](node, g)

    return ElementwiseRule(name, text, run, run_tensor, len(kinds))


def _restore(x: Any, native: Any) -> Any:
    if isinstance(x, Value):
        return to_dtype(x, native)
    return x.astype(native) if isinstance(x, (ndarray, np.generic)) else x.to(native)


def source(name: str, need: tuple[bool, ...] | None = None) -> str:
    """The printed backward rule of a primitive, as it runs."""
    arity = TABLE[name].arity
    return rule_for(name, "T" * arity, need or (True,) * arity).text.source
