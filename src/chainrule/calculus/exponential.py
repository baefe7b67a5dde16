"""Rows of the table: exponentials, logarithms, hyperbolic functions, and the normal law.

Each row reads: name, formula, derivative (output `y` first, then the arguments), edges. Where the
textbook derivative cancels (1 - tanh², 1 + erf), the derivative is a primitive of its own.
"""

from __future__ import annotations

import math

from chainrule.calculus.arithmetic import (
    abs_,
    hypot,
    maximum,
    minimum,
    one_minus_square,
    rsqrt,
    where,
)
from chainrule.calculus.primitive import row

__all__ = [
    "acosh",
    "asinh",
    "atanh",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "gaussian",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logsigmoid",
    "ndtr",
    "npdf",
    "sech2",
    "sigmoid",
    "sinh",
    "softplus",
    "tanh",
]  # fmt: skip

# -- exponentials and logarithms -------------------------------------------------------------------
exp = row("exp", "eˣ", lambda y, x: y, from_output=lambda y: y)
exp2 = row("exp2", "2ˣ", lambda y, x: math.log(2) * y, from_output=lambda y: math.log(2) * y)
expm1 = row("expm1", "eˣ - 1", lambda y, x: exp(x))  # y + 1 would cancel for x ≪ 0
log = row("log", "ln x", lambda y, x: 1.0 / x, "-inf at 0, gradient inf; NaN for x < 0")
log2 = row("log2", "log₂ x", lambda y, x: 1 / math.log(2) / x, "-inf at 0; NaN for x < 0")
log10 = row("log10", "log₁₀ x", lambda y, x: 1 / math.log(10) / x, "-inf at 0; NaN for x < 0")
log1p = row("log1p", "ln(1 + x)", lambda y, x: 1.0 / (1.0 + x), "-inf at -1; NaN for x < -1")
logaddexp = row(
    "logaddexp", "ln(eᵃ + eᵇ)", lambda y, a, b: (sigmoid(a - b), sigmoid(b - a)),
    "gradient NaN where both are the same infinity", arity=2,
)  # fmt: skip

# -- the logistic family ---------------------------------------------------------------------------
# y (1 - y) would cancel for x ≫ 0, and y sigmoid(-x) in the second derivative near 0.
sigmoid = row(
    "sigmoid", "1 / (1 + e⁻ˣ)", lambda y, x: 0.25 * sech2(0.5 * x),
    expansion=lambda x: where(x < 0.0, exp(-abs_(x)), 1.0) / (1.0 + exp(-abs_(x))),
)  # fmt: skip
logsigmoid = row(
    "logsigmoid", "-ln(1 + e⁻ˣ)", lambda y, x: sigmoid(-x),
    expansion=lambda x: minimum(x, 0.0) - log1p(exp(-abs_(x))),
)  # fmt: skip
softplus = row(
    "softplus", "ln(1 + eˣ)", lambda y, x: sigmoid(x), from_output=lambda y: -expm1(-y),
    expansion=lambda x: maximum(x, 0.0) + log1p(exp(-abs_(x))),
)  # fmt: skip

# -- hyperbolic ------------------------------------------------------------------------------------
sinh = row("sinh", "(eˣ - e⁻ˣ) / 2", lambda y, x: cosh(x))
cosh = row("cosh", "(eˣ + e⁻ˣ) / 2", lambda y, x: sinh(x))
tanh = row("tanh", "sinh x / cosh x", lambda y, x: sech2(x))  # 1 - y² would cancel for |x| ≫ 0
sech2 = row(
    "sech2", "1 / cosh² x", lambda y, x: -2.0 * (tanh(x) * y),
    expansion=lambda x: 4.0 * exp(-2.0 * abs_(x)) / (1.0 + exp(-2.0 * abs_(x))) ** 2,
)  # fmt: skip
asinh = row("asinh", "ln(x + √(x² + 1))", lambda y, x: 1.0 / hypot(x, 1.0))
acosh = row(
    "acosh", "ln(x + √(x² - 1))", lambda y, x: rsqrt(x - 1.0) * rsqrt(x + 1.0),
    "gradient inf at 1; NaN for x < 1",
)  # fmt: skip
atanh = row(
    "atanh", "½ ln((1 + x) / (1 - x))", lambda y, x: 1.0 / one_minus_square(x),
    "±inf at ±1, gradient inf; NaN beyond",
)  # fmt: skip

# -- the normal law: ndtr is its distribution function, npdf its density ---------------------------
# The expansions lose x²/2 ulp in the tails to the rounding of x²; targets that can, do better.
gaussian = row(
    "gaussian", "exp(-x²)", lambda y, x: -2.0 * (x * y), expansion=lambda x: exp(-(x * x)),
)  # fmt: skip
npdf = row(
    "npdf", "exp(-x²/2) / √(2π)", lambda y, x: -x * y,
    expansion=lambda x: _INV_SQRT_2PI * exp(-0.5 * (x * x)),
)  # fmt: skip
ndtr = row(
    "ndtr", "∫₋∞ˣ npdf", lambda y, x: npdf(x),
    expansion=lambda x: 0.5 * erfc(-math.sqrt(0.5) * x),
)  # fmt: skip
erf = row("erf", "2/√π ∫₀ˣ exp(-t²)", lambda y, x: _2_SQRT_PI * gaussian(x))
erfc = row("erfc", "1 - erf x", lambda y, x: -_2_SQRT_PI * gaussian(x))
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_2_SQRT_PI = 2.0 / math.sqrt(math.pi)
