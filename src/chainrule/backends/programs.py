"""Expressions of the calculus as tiled float32 programs: the emitter behind large eager arrays.

An expression is expanded until NumPy's own ufuncs spell it, and its steps run tile by tile (see
`tiled`), on float32 throughout. float64 keeps the slower functions of `numpy_special`, which
answer for every ulp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.backends.tiled import Program, Step, compile_program
from chainrule.calculus.derive import expand
from chainrule.calculus.expr import Expr, make, topo
from chainrule.calculus.table import TABLE

Raw = Any

UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide,
    "neg": np.negative, "reciprocal": np.reciprocal, "square": np.square, "pow": np.power,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_not": np.logical_not, "isnan": np.isnan,
    "isinf": np.isinf, "isfinite": np.isfinite, "maximum": np.maximum, "minimum": np.minimum,
    "abs": np.abs, "sign": np.sign, "remainder": np.remainder, "fmod": np.fmod, "sqrt": np.sqrt,
    "hypot": np.hypot, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log,
    "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "logaddexp": np.logaddexp,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "copysign": np.copysign,
}  # fmt: skip
"""The primitives that a NumPy ufunc spells exactly, on floating arrays."""


def _where(c: Raw, x: Raw, y: Raw, out: Raw) -> None:
    np.copyto(out, y)
    np.copyto(out, x, where=c)


def _sigmoid(x: Expr) -> Expr:
    """1 / (1 + e⁻ˣ): in float32 an overflowing e⁻ˣ gives 0, right to the smallest normal number."""
    return 1.0 / (1.0 + TABLE["exp"](-x))


def _spelled(outs: Sequence[Expr]) -> list[Expr] | None:
    """`outs` in ufuncs and `where` alone, or None where that is not possible."""
    native = {*UFUNCS, "where", "sigmoid"}
    spelled = expand(outs, native)
    replaced: dict[int, Expr] = {}
    for e in topo(spelled):
        args = tuple([replaced[a.id] for a in e.args])
        if e.op == "sigmoid":
            replaced[e.id] = _sigmoid(args[0])
        elif e.op == "pow" and args[1].op == "const" and args[1].attr == 2.0:
            replaced[e.id] = TABLE["square"](args[0])
        else:
            replaced[e.id] = make(e.op, args, e.attr) if args else e
            if args and e.op not in native:
                return None
    return [replaced[o.id] for o in spelled]


def program(outs: Sequence[Expr], inputs: Sequence[str]) -> Program | None:
    """A program of `outs` over the variables `inputs`, or None where NumPy cannot spell it."""
    spelled = _spelled(outs)
    if spelled is None:
        return None
    place: dict[int, Any] = {}
    slots = {name: i for i, name in enumerate(inputs)}
    steps: list[Step] = []
    for e in topo(spelled):
        if e.op == "const":
            place[e.id] = float(e.attr)  # pyright: ignore[reportArgumentType]
        elif e.op == "var":
            place[e.id] = slots[str(e.attr)]
        else:
            operands = [place[a.id] for a in e.args]
            if all(isinstance(o, float) for o in operands):
                return None  # a constant expression: nothing to tile
            target = len(inputs) + len(steps)
            fn: Callable[..., Any] = _where if e.op == "where" else UFUNCS[e.op]
            steps.append((fn, operands, target))
            place[e.id] = target
    results = [place[o.id] for o in spelled]
    if any(isinstance(r, float) for r in results):
        return None
    return compile_program(steps, len(inputs), results)
