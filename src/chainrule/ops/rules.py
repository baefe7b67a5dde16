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
from chainrule.backends import programs
from chainrule.calculus.table import TABLE
from chainrule.ops import codegen
from chainrule.ops._apply import graph_value, namespace, to_dtype


class ElementwiseRule(Rule):
    """A rule printed from the table for one primitive, operand kinds and needed gradients."""

    __slots__ = ("_indices", "asked", "keeps", "text")

    def __init__(
        self, name: str, text: codegen.RuleText, run: Any, run_tensor: Any, asked: tuple[Any, ...]
    ) -> None:
        super().__init__(name, run, run_tensor, broadcasts=len(asked[0]) > 1)
        self.asked = asked  # kinds, need, constants and half, as `rule_for` was asked for them
        self.tangent = self._push
        self.text = text
        self._indices = text.keeps
        n = len(asked[0])
        self.keeps = sum(1 << (n if i < 0 else i) for i in text.keeps)

    def keeps_output(self, node: Node) -> bool:
        """Whether the rule reads the output."""
        return -1 in self._indices

    def keep(self, *operands: Any) -> tuple[Any, ...]:
        """The operands to save, in the rule's order; the output comes last."""
        return tuple([operands[i] for i in self._indices])

    def _push(self, node: Node, tangents: list[Any]) -> Any:
        """Forward mode: Σ tangentᵢ · ∂y/∂xᵢ, of the very partials that the rule was printed from."""
        have = tuple([t is not None for t in tangents])
        out = _forward_rule(self.name, *self.asked, have)(node, *tangents)
        if out is None or tuple(out.shape) == node.shape:
            return out
        return namespace().expand(out, node.shape)


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
        scope["scalar"] = backends.get("cpu")  # for what is computed of Python numbers alone
        return codegen.make(source, "rule", scope, label)

    run = compiled(text.source, backends.get(host))
    if host == "cpu" and not half:
        run = _tiled(run, text, need)
    lazy: list[Callable[..., Any]] = []

    def run_tensor(node: Node, g: Any) -> tuple[Any, ...]:
        if not lazy:  # second order is rare: compiled when first wanted
            lazy.append(compiled(twice.source, namespace(), graph=graph_value))
        return lazy[0](node, g)

    return ElementwiseRule(name, text, run, run_tensor, (kinds, need, constants, half))


@lru_cache(maxsize=4096)
def _forward_rule(
    name: str,
    kinds: str,
    need: tuple[bool, ...],
    constants: tuple[float | None, ...],
    half: bool,
    have: tuple[bool, ...],
) -> Callable[..., Any]:
    source = codegen.tangent_text(name, kinds, need, constants, half, have)
    scope = {"b": namespace(), "F32": dtypes.float32, "restore": _restore, "graph": graph_value}
    scope["scalar"] = backends.get("cpu")
    return codegen.make(source, "rule", scope, f"forward mode of {name}({kinds})")


_FEW = 4  # statements: fewer are a few passes over memory, which tiles would hardly save
_LARGE = 1 << 15  # elements: below, the arrays stay in the cache anyway
_F32 = np.dtype(np.float32)


def _tiled(
    run: Callable[..., Any], text: codegen.RuleText, need: tuple[bool, ...]
) -> Callable[..., Any]:
    """`run`, with large contiguous float32 arrays given to a tiled program of the same formulas."""
    if text.steps < _FEW:
        return run
    names = ["g", *["y" if i < 0 else f"a{i}" for i in text.keeps]]
    made: list[Any] = []

    def rule(node: Node, g: Any) -> tuple[Any, ...]:
        if g.__class__ is not ndarray or g.size < _LARGE or g.dtype is not _F32:
            return run(node, g)
        held = [g, *[v._a if isinstance(v, Value) else v for v in node.saved]]
        for h in held:
            if type(h) is ndarray:
                if h.shape != g.shape or h.dtype is not _F32 or not h.flags.c_contiguous:
                    return run(node, g)
            elif type(h) is not float:
                return run(node, g)
        if not made:
            made.append(programs.program(text.results, names))
        if made[0] is None:
            return run(node, g)
        out = made[0](*held)
        results = iter(out if isinstance(out, tuple) else (out,))
        return tuple([next(results) if wanted else None for wanted in need])

    return rule


def _restore(x: Any, native: Any) -> Any:
    if isinstance(x, Value):
        return to_dtype(x, native)
    return x.astype(native) if isinstance(x, (ndarray, np.generic)) else x.to(native)


def source(name: str, need: tuple[bool, ...] | None = None) -> str:
    """The printed backward rule of a primitive, as it runs."""
    arity = TABLE[name].arity
    return rule_for(name, "T" * arity, need or (True,) * arity).text.source
