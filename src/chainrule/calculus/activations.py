"""Rows of the table: the activation functions of networks.

Each row reads: name, formula, derivative (output `y` first, then the arguments), edges. All have
an expansion, so that a target needs only the primitives of the other families.
"""

from __future__ import annotations

import math

from .arithmetic import abs_, clamp, maximum, minimum, rsqrt, sqrt, where
from .exponential import exp, expm1, ndtr, npdf, sech2, sigmoid, softplus, tanh
from .expr import Expr
from .primitive import row

__all__ = [
    "elu", "gelu", "gelu_tanh", "hardtanh", "leaky_relu", "mish", "relu", "relu6", "silu",
    "squareplus", "squareplus_slope",
]  # fmt: skip

# -- piecewise linear ------------------------------------------------------------------------------
relu = row(
    "relu", "max(x, 0)", lambda y, x: where(x <= 0.0, 0.0, 1.0), "gradient 0 at 0, 1 at NaN",
    result="same", expansion=lambda x: maximum(x, 0.0),
)  # fmt: skip
relu6 = row(
    "relu6", "min(max(x, 0), 6)", lambda y, x: where((x > 0.0) & (x < 6.0), 1.0, 0.0),
    "gradient 0 at 0 and at 6", result="same", expansion=lambda x: minimum(maximum(x, 0.0), 6.0),
)  # fmt: skip
hardtanh = row(
    "hardtanh", "min(max(x, lo), hi)", lambda y, x, lo, hi: (
        where((x > lo) & (x < hi), 1.0, 0.0),
        where(x <= lo, 1.0, 0.0),
        where(x >= hi, 1.0, 0.0),
    ),
    "gradient 0 at the bounds (clamp passes there)", arity=3, defaults=(-1.0, 1.0),
    expansion=lambda x, lo, hi: clamp(x, lo, hi),
)  # fmt: skip
leaky_relu = row(
    "leaky_relu", "x if x > 0 else slope x", lambda y, x, slope: (
        where(x > 0.0, 1.0, slope), where(x > 0.0, 0.0, x),
    ),
    "gradient slope at 0", arity=2, defaults=(0.01,),
    expansion=lambda x, slope: where(x > 0.0, x, slope * x),
)  # fmt: skip

# -- exponential -----------------------------------------------------------------------------------
# The exponent is min(x, 0) as -relu(-x): the branch not taken must not overflow, and the second
# derivative at 0 is relu's 0.
elu = row(
    "elu", "x if x > 0 else α(eˣ - 1)", lambda y, x, alpha: (
        where(x > 0.0, 1.0, alpha * exp(-relu(-x))), expm1(-relu(-x)),
    ),
    "gradient α at 0", arity=2, defaults=(1.0,),
    expansion=lambda x, alpha: where(x > 0.0, x, alpha * expm1(-relu(-x))),
)  # fmt: skip
silu = row(
    "silu", "x sigmoid(x)", lambda y, x: sigmoid(x) * (1.0 + x * sigmoid(-x)),
    "NaN at -inf", expansion=lambda x: x * sigmoid(x),
)  # fmt: skip
mish = row(
    "mish", "x tanh(softplus(x))", lambda y, x: (
        tanh(softplus(x)) + x * (sech2(softplus(x)) * sigmoid(x))
    ),
    "NaN at -inf", expansion=lambda x: x * tanh(softplus(x)),
)  # fmt: skip
gelu = row(
    "gelu", "x ndtr(x)", lambda y, x: ndtr(x) + x * npdf(x), "NaN at -inf",
    expansion=lambda x: x * ndtr(x),
)  # fmt: skip
# ½(1 + tanh u) = sigmoid(2u), which keeps its digits for u ≪ 0.
gelu_tanh = row(
    "gelu_tanh", "½ x (1 + tanh(√(2/π)(x + 0.044715 x³)))", lambda y, x: (
        sigmoid(_gelu_argument(x))
        + x * (sigmoid(_gelu_argument(x)) * sigmoid(-_gelu_argument(x)) * _gelu_slope(x))
    ),
    "NaN at -inf", expansion=lambda x: x * sigmoid(_gelu_argument(x)),
)  # fmt: skip
_GELU = 2.0 * math.sqrt(2.0 / math.pi)


def _gelu_argument(x: Expr) -> Expr:
    return x * (_GELU + (_GELU * 0.044715) * (x * x))


def _gelu_slope(x: Expr) -> Expr:
    return _GELU + (_GELU * 0.134145) * (x * x)


# -- squareplus: an algebraic softplus (Barron 2021, arXiv:2112.11687) -----------------------------
# The root is added to |x|, never to a negative x, and 2⁶⁰ is where b no longer counts and before
# x² overflows, in float32 too.
squareplus = row(
    "squareplus", "½(x + √(x² + b))", lambda y, x, b: (
        squareplus_slope(x, b), 0.25 * rsqrt(x * x + b),
    ),
    "for 0 < b < 2⁶⁰", arity=2, defaults=(4.0,),
    from_output=lambda y, b: 1.0 / (1.0 + 0.25 * b / (y * y)),
    expansion=lambda x, b: where(x > 0.0, _half_sum(x, b), 0.25 * b / _half_sum(x, b)),
)  # fmt: skip
squareplus_slope = row(
    "squareplus_slope", "½(1 + x / √(x² + b))", lambda y, x, b: (
        0.5 * b * (rsqrt(x * x + b) * rsqrt(x * x + b) * rsqrt(x * x + b)),
        -0.25 * x * (rsqrt(x * x + b) * rsqrt(x * x + b) * rsqrt(x * x + b)),
    ),
    "for 0 < b < 2⁶⁰", arity=2, defaults=(4.0,),
    expansion=lambda x, b: 1.0 / (1.0 + 0.25 * b / (squareplus(x, b) * squareplus(x, b))),
)  # fmt: skip


def _half_sum(x: Expr, b: Expr) -> Expr:
    """Return ½(|x| + √(x² + b))."""
    size = abs_(x)
    near = minimum(size, 2.0**60)
    return 0.5 * size + 0.5 * where(size > 2.0**60, size, sqrt(near * near + b))
