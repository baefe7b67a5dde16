"""Rows of the table: arithmetic, comparison, choice, rounding, powers.

Each row reads: name, formula, derivative (output `y` first, then the arguments), edges.
"""

from __future__ import annotations

from chainrule.calculus.expr import Expr
from chainrule.calculus.primitive import Partials, row

__all__ = [
    "abs_", "add", "ceil", "clamp", "copysign", "div", "eq", "floor", "fmod", "ge", "gt", "hypot", "hypot_slope", "isfinite",
    "isinf", "isnan", "le", "lerp", "logical_and", "logical_not", "logical_or", "lt", "maximum", "minimum",
    "mul", "ne", "neg", "one_minus_square", "pow_", "reciprocal", "remainder", "round_", "rsqrt", "sign", "sqrt",
    "square", "sub", "trunc", "where",
]  # fmt: skip

# -- field operations ------------------------------------------------------------------------------
add = row("add", "a + b", lambda y, a, b: (1.0, 1.0), arity=2, result="same")
sub = row("sub", "a - b", lambda y, a, b: (1.0, -1.0), arity=2, result="same")
mul = row("mul", "a b", lambda y, a, b: (b, a), arity=2, result="same")
div = row(
    "div", "a / b", lambda y, a, b: (1.0 / b, -y / b), "a/0 is ±inf, 0/0 is NaN; as IEEE", arity=2
)
neg = row("neg", "-x", lambda y, x: -1.0, result="same")
reciprocal = row(
    "reciprocal", "1 / x", lambda y, x: -y * y, "1/0 is inf, gradient -inf",
    expansion=lambda x: 1.0 / x, from_output=lambda y: -y * y,
)  # fmt: skip
square = row("square", "x²", lambda y, x: 2.0 * x, result="same", expansion=lambda x: x * x)

# -- comparison: truth values, of derivative zero --------------------------------------------------
lt = row("lt", "a < b", None, "false if either is NaN", arity=2, result="bool")
le = row("le", "a ≤ b", None, "false if either is NaN", arity=2, result="bool")
gt = row("gt", "a > b", None, "false if either is NaN", arity=2, result="bool")
ge = row("ge", "a ≥ b", None, "false if either is NaN", arity=2, result="bool")
eq = row("eq", "a = b", None, "false if either is NaN; 0 = -0", arity=2, result="bool")
ne = row("ne", "a ≠ b", None, "true if either is NaN", arity=2, result="bool")
logical_and = row("logical_and", "a and b", None, "NaN is true", arity=2, result="bool")
logical_or = row("logical_or", "a or b", None, "NaN is true", arity=2, result="bool")
logical_not = row("logical_not", "not a", None, "NaN is true", result="bool")
isnan = row("isnan", "x is NaN", None, result="bool", expansion=lambda x: x != x)
isinf = row("isinf", "|x| = ∞", None, result="bool", expansion=lambda x: abs(x) == float("inf"))
isfinite = row(
    "isfinite", "|x| < ∞", None, result="bool", expansion=lambda x: abs(x) < float("inf")
)

# -- choice ----------------------------------------------------------------------------------------
where = row(
    "where", "a if c else b", lambda y, c, a, b: (0.0, where(c, 1.0, 0.0), where(c, 0.0, 1.0)),
    "the branch not taken has gradient 0: within one expression even where its own derivative is "
    "infinite or NaN; between operations on the tape 0 · ∞ is NaN, as in PyTorch",
    arity=3, result="same",
)  # fmt: skip
maximum = row(
    "maximum", "max(a, b)", lambda y, a, b: (_share(a < b, a, b), _share(a > b, a, b)),
    "ties share the gradient, half each; NaN if either is", arity=2, result="same",
)  # fmt: skip
minimum = row(
    "minimum", "min(a, b)", lambda y, a, b: (_share(a > b, a, b), _share(a < b, a, b)),
    "ties share the gradient, half each; NaN if either is", arity=2, result="same",
)  # fmt: skip
clamp = row(
    "clamp", "min(max(x, lo), hi)", lambda y, x, lo, hi: _clamp_partials(x, lo, hi),
    "at a bound the gradient passes to x; lo > hi gives hi; NaN stays, with gradient 0",
    arity=3, result="same", defaults=(float("-inf"), float("inf")),
    expansion=lambda x, lo, hi: minimum(maximum(x, lo), hi),
)  # fmt: skip
abs_ = row("abs", "|x|", lambda y, x: sign(x), "gradient 0 at 0", result="same")
copysign = row(
    "copysign", "|a| with the sign of b", lambda y, a, b: (sign(a) * copysign(1.0, b), 0.0),
    "gradient 0 at a = 0; -0 counts as negative", arity=2,
)  # fmt: skip
lerp = row(
    "lerp", "a + w (b - a)", lambda y, a, b, w: (1.0 - w, w, b - a), "from b for w of ½ and more",
    arity=3, result="same",
    expansion=lambda a, b, w: where(
        abs_(w) < 0.5, a + w * (b - a), b - (b - a) * (1.0 - w)
    ),
)  # fmt: skip
sign = row("sign", "x / |x|", None, "0 at 0; NaN at NaN (PyTorch: 0)", result="same")

# -- rounding: steps, of derivative zero -----------------------------------------------------------
floor = row("floor", "⌊x⌋", None, "gradient 0 at the steps too", result="same")
ceil = row("ceil", "⌈x⌉", None, "gradient 0 at the steps too", result="same")
trunc = row("trunc", "x towards 0", None, "gradient 0 at the steps too", result="same")
round_ = row("round", "nearest integer", None, "halves go to the even one", result="same")
# y - a is a whole multiple of b: rounding the quotient makes it exact.
remainder = row(
    "remainder", "a - ⌊a/b⌋ b", lambda y, a, b: (1.0, round_((y - a) / b)),
    "has the sign of b; NaN for b = 0", arity=2, result="same",
)  # fmt: skip
fmod = row(
    "fmod", "a - trunc(a/b) b", lambda y, a, b: (1.0, round_((y - a) / b)),
    "has the sign of a; NaN for b = 0", arity=2, result="same",
)  # fmt: skip

# -- powers and roots ------------------------------------------------------------------------------
pow_ = row(
    "pow", "aᵇ", lambda y, a, b: (_pow_by_base(a, b), _pow_by_exponent(y, a, b)),
    "a⁰ is 1 with gradient 0, also at a = 0; at a = 0 and b ≥ 0 the gradient by b is 0",
    arity=2, result="same",
)  # fmt: skip
sqrt = row(
    "sqrt", "√x", lambda y, x: 0.5 / y, "gradient inf at 0; NaN for x < 0",
    from_output=lambda y: 0.5 / y,
)  # fmt: skip
rsqrt = row(
    "rsqrt", "1 / √x", lambda y, x: -0.5 * (y * y * y), "inf at 0, gradient -inf",
    expansion=lambda x: 1.0 / sqrt(x), from_output=lambda y: -0.5 * (y * y * y),
)  # fmt: skip
hypot = row(
    "hypot", "√(a² + b²), without overflow", lambda y, a, b: (
        hypot_slope(a, b), hypot_slope(b, a),
    ),
    "gradient 0 at (0, 0), as for the norm of zeros (PyTorch's hypot: NaN)", arity=2,
)  # fmt: skip
# a row of its own, for 1 - (a/y)² would cancel in the second derivative
hypot_slope = row(
    "hypot_slope", "a / √(a² + b²)", lambda y, a, b: (
        hypot_slope(b, a) * hypot_slope(b, a) / _nonzero(hypot(a, b)),
        -(y * hypot_slope(b, a)) / _nonzero(hypot(a, b)),
    ),
    "0 at (0, 0), with gradient 0", arity=2, expansion=lambda a, b: a / _nonzero(hypot(a, b)),
)  # fmt: skip
one_minus_square = row(
    "one_minus_square", "1 - x²", lambda y, x: -2.0 * x,
    expansion=lambda x: (1.0 - x) * (1.0 + x),  # each difference is exact next to ±1
)  # fmt: skip


def _share(loses: Expr, a: Expr, b: Expr) -> Expr:
    """Return an argument's share of the gradient of max or min: 0, a half, or all of it."""
    return where(loses, 0.0, where(a == b, 0.5, 1.0))


def _clamp_partials(x: Expr, lo: Expr, hi: Expr) -> Partials:
    """Return PyTorch's: every condition is false for NaN, and `hi` wins where `lo > hi`."""
    return (
        where((x >= lo) & (x <= hi), 1.0, 0.0),
        where((x < lo) & (lo < hi), 1.0, 0.0),
        where((x > hi) | (lo > hi), 1.0, 0.0),
    )


def _nonzero(x: Expr) -> Expr:
    """Return a divisor: `x`, or 1 where x is 0, so that 0 / x is 0 there and not NaN."""
    return where(x == 0.0, 1.0, x)


def _pow_by_base(a: Expr, b: Expr) -> Expr | float:
    """Return b aᵇ⁻¹; simple for the exponents that are known, and 0 at a = b = 0."""
    if isinstance(b.attr, float):
        simple = {0.0: 0.0, 1.0: 1.0, 2.0: 2.0 * a}
        return simple.get(b.attr, b.attr * pow_(a, b.attr - 1.0))
    # The exponent is replaced as well: an untaken 0 * 0⁻¹ would be evaluated, and warn.
    both = (a == 0.0) & (b == 0.0)
    return where(both, 0.0, b * pow_(a, where(both, 0.0, b - 1.0)))


def _pow_by_exponent(y: Expr, a: Expr, b: Expr) -> Expr:
    """Return aᵇ ln a; 0 at a = 0 unless the power itself is infinite there."""
    from chainrule.calculus.exponential import log

    if isinstance(a.attr, float) and a.attr > 0.0:
        return y * log(a)
    return y * log(where((a == 0.0) & (b >= 0.0), 1.0, a))
