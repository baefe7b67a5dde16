"""Rows of the table: the activation functions of networks.

Each row reads: name, formula, derivative (output `y` first, then the arguments), edges. All have
an expansion, so that a target needs only the primitives of the other families.
"""

from __future__ import annotations

import math

from chainrule.calculus.arithmetic import abs_, clamp, maximum, minimum, rsqrt, sqrt, where
from chainrule.calculus.exponential import exp, expm1, ndtr, npdf, sech2, sigmoid, softplus, tanh
from chainrule.calculus.expr import Expr
from chainrule.calculus.primitive import row

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
# The root is added to |x|, never to a negative x; 2⁶⁰ is where b no longer counts beside x², and
# x² is still finite in float32.
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
    expansion=lambda x, b: where(
        x > 0.0,
        _half_sum(_near(x), b) / _root(_near(x), b),
        0.5 * b / (_near(x) * _near(x) + b + _near(x) * _root(_near(x), b)) * _shrink(x),
    ),
)  # fmt: skip
_FAR = 2.0**60


def _near(x: Expr) -> Expr:
    return minimum(abs_(x), _FAR)


def _shrink(x: Expr) -> Expr:
    """Return (near / |x|)², which is 1 for every x but the far ones."""
    ratio = _FAR / maximum(abs_(x), _FAR)
    return ratio * ratio


def _root(x: Expr, b: Expr) -> Expr:
    """Return √(x² + b)."""
    return where(abs_(x) > _FAR, abs_(x), sqrt(_near(x) * _near(x) + b))


def _half_sum(x: Expr, b: Expr) -> Expr:
    """Return ½(|x| + √(x² + b)), halved first, for the sum may overflow."""
    return 0.5 * abs_(x) + 0.5 * _root(x, b)
