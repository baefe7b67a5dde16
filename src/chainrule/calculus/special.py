"""Rows of the table: the gamma family, products with a logarithm, sinc, inverses of sigmoid and erf.

Each row reads: name, formula, derivative (output `y` first, then the arguments), edges.
"""

from __future__ import annotations

import math

from chainrule.calculus.arithmetic import abs_, isnan, where
from chainrule.calculus.exponential import atanh, gaussian, log, log1p
from chainrule.calculus.expr import Expr
from chainrule.calculus.primitive import row
from chainrule.calculus.trigonometric import cos

__all__ = [
    "digamma", "erfinv", "lgamma", "logit", "polygamma", "sinc", "softsign", "xlog1py", "xlogy",
]  # fmt: skip

# -- the gamma family: closed under differentiation by polygamma's order ---------------------------
lgamma = row(
    "lgamma", "ln |Γ(x)|", lambda y, x: digamma(x), "inf at 0, -1, -2, … and at ±inf",
)  # fmt: skip
digamma = row(
    "digamma", "Γ'(x) / Γ(x)", lambda y, x: polygamma(1.0, x), "-inf at 0, NaN at -1, -2, …",
)  # fmt: skip
polygamma = row(
    "polygamma", "dⁿ/dxⁿ digamma(x)", lambda y, n, x: (0.0, polygamma(n + 1.0, x)),
    "n is a whole number, 0 or more, and has gradient 0; at 0, -1, … inf for odd n", arity=2,
)  # fmt: skip

# -- products with a logarithm: 0 where the factor is 0 --------------------------------------------
xlogy = row(
    "xlogy", "a ln b", lambda y, a, b: (log(where((a == 0.0) & (b <= 0.0), 1.0, b)), a / b),
    "0 for a = 0 unless b is NaN, and there gradient 0 by a for b ≤ 0", arity=2,
    expansion=lambda a, b: where(isnan(b), b, a * log(where((a == 0.0) | isnan(b), 1.0, b))),
)  # fmt: skip
xlog1py = row(
    "xlog1py", "a ln(1 + b)", lambda y, a, b: (
        log1p(where((a == 0.0) & (b <= -1.0), 0.0, b)), a / (1.0 + b),
    ),
    "0 for a = 0 unless b is NaN, and there gradient 0 by a for b ≤ -1", arity=2,
    expansion=lambda a, b: where(isnan(b), b, a * log1p(where((a == 0.0) | isnan(b), 0.0, b))),
)  # fmt: skip

# -- inverses --------------------------------------------------------------------------------------
# ln(x / (1 - x)) would cancel about ½, where 2x - 1 is exact.
logit = row(
    "logit", "ln(x / (1 - x))", lambda y, x: 1.0 / (x * (1.0 - x)), "±inf at 1 and 0; NaN beyond",
    expansion=lambda x: where(
        x < 0.25, log(x) - log1p(-x), 2.0 * atanh(2.0 * where(x < 0.25, 0.25, x) - 1.0)
    ),
)  # fmt: skip
erfinv = row(
    "erfinv", "the y with erf y = x", lambda y, x: 0.5 * math.sqrt(math.pi) / gaussian(y),
    "±inf at ±1, NaN beyond",
)  # fmt: skip

# -- others ----------------------------------------------------------------------------------------
softsign = row(
    "softsign", "x / (1 + |x|)", lambda y, x: 1.0 / (1.0 + abs_(x)) / (1.0 + abs_(x)),
    "NaN at ±inf", expansion=lambda x: x / (1.0 + abs_(x)),
)  # fmt: skip
sinc = row("sinc", "sin(πx) / (πx)", lambda y, x: _sinc_slope(y, x), "1 at 0")

# Taylor's coefficients of sinc'(x) / x in x²: below ½ the terms of (cos πx - sinc x)/x cancel.
_SINC = [2 * k * (-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + 1) for k in range(1, 14)]


def _sinc_slope(y: Expr, x: Expr) -> Expr:
    near = abs_(x) < 0.5
    close, far = where(near, x, 0.5), where(near, 0.5, x)
    total: Expr | float = _SINC[-1]
    for c in _SINC[-2::-1]:
        total = total * (close * close) + c
    return where(near, close * total, (cos(math.pi * far) - where(near, 2 / math.pi, y)) / far)
