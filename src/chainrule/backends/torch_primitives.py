"""What PyTorch calls each primitive of the calculus table; what it lacks comes by expansion.

Only names and argument order stand here: the meaning of a primitive is its table row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from chainrule.calculus.derive import expand
from chainrule.calculus.expr import evaluate, var
from chainrule.calculus.table import TABLE


def _lifted(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` with Python numbers among its operands made tensors of the others' dtype."""

    def apply(*args: Any) -> Any:
        like = next((a for a in args if isinstance(a, torch.Tensor)), None)
        if like is None:
            return fn(*[torch.tensor(a) for a in args])
        return fn(
            *[a if isinstance(a, torch.Tensor) else torch.tensor(a, dtype=like.dtype) for a in args]
        )

    return apply


def _polygamma(n: Any, x: Any) -> Any:
    """PyTorch's, which takes one whole number: for each that is in `n`; NaN for others."""
    if not isinstance(n, torch.Tensor):
        return _at_poles(int(n), x, torch.polygamma(int(n), x))
    out = torch.full_like(x * n, float("nan"))
    for order in n.unique().tolist():
        if order >= 0 and float(order).is_integer():
            found = _at_poles(int(order), x, torch.polygamma(int(order), x))
            out = torch.where(n == order, found, out)
    return out


def _at_poles(n: int, x: Any, found: Any) -> Any:
    """Infinite at -1, -2, … for odd n, where PyTorch has a large number."""
    if n % 2 == 0:
        return found
    return torch.where((x < 0) & (x == torch.floor(x)), math.inf, found)


def _same(name: str) -> Callable[..., Any]:
    return _lifted(getattr(torch, name))


_SAME_NAME = [
    "add",
    "sub",
    "mul",
    "neg",
    "reciprocal",
    "square",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "abs",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "tanh",
    "sigmoid",
    "erf",
    "erfc",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "logical_and",
    "logical_or",
    "logical_not",
    "isnan",
    "isinf",
    "isfinite",
    "floor",
    "ceil",
    "trunc",
    "maximum",
    "minimum",
    "atan2",
    "hypot",
    "logaddexp",
    "remainder",
    "fmod",
    "relu",
    "digamma",
    "lgamma",
    "sinc",
    "copysign",
    "erfinv",
    "lerp",
    "logit",
    "xlogy",
]

_NATIVE: dict[str, Callable[..., Any]] = {
    **{n: _same(n) for n in _SAME_NAME if n in TABLE},
    "div": _lifted(torch.true_divide),
    "pow": torch.pow,
    "round": torch.round,
    "sign": lambda x: (
        torch.where(torch.isnan(x), x, torch.sign(x)) if x.is_floating_point() else x.sign()
    ),
    "polygamma": _polygamma,
    "softsign": F.softsign,
    "xlog1py": _lifted(torch.special.xlog1py),
    "ndtr": torch.special.ndtr,
    "npdf": lambda x: torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi),
    "logsigmoid": F.logsigmoid,
    "softplus": lambda x: torch.logaddexp(x, torch.zeros((), dtype=x.dtype)),
    "gelu": F.gelu,
    "silu": F.silu,
    "where": lambda c, x, y: torch.where(c, x, y),
}


class _Namespace:
    """Attribute access to the functions above, for `evaluate`."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return TORCH[name]


def _expanded(name: str) -> Callable[..., Any]:
    """A primitive that PyTorch lacks, evaluated from its expansion."""
    row = TABLE[name]
    variables = [var(f"a{i}") for i in range(row.arity)]
    (formula,) = expand([row(*variables)], set(_NATIVE))

    def apply(*args: Any) -> Any:
        given = (
            (*args, *row.defaults[len(row.defaults) - (row.arity - len(args)) :])
            if len(args) < row.arity
            else args
        )
        env = {f"a{i}": a for i, a in enumerate(given)}
        return evaluate([formula], env, _Namespace())[0]

    return apply


TORCH: dict[str, Callable[..., Any]] = {
    name: _NATIVE[name] if name in _NATIVE else _expanded(name) for name in TABLE
}
