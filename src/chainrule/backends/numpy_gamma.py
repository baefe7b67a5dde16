"""NumPy kernels of the gamma family, the inverse of erf, and sinc.

Part of `numpy_special`, which blocks them. For x > 0 all are within 4 ulp; for x < 0, lgamma and
digamma come by reflection and are within 4 ulp of the larger of the terms that cancel at their
zeros there. The polynomials in (x - k)/(x + k) are our own, interpolated at Chebyshev nodes in 50
digits; the asymptotic series are Stirling's, with Bernoulli numbers for coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["digamma", "erfinv_start", "lgamma", "polygamma", "sinc"]

Raw = Any

# lgamma(x) / ((x - 1)(x - 2)) and digamma(x) / (x - root) for 0.5 <= x <= 3, k = 1.25: 1.2e-16.
_LGAMMA = (
    0.5241164609163369, -0.4613959610920401, 0.1296399016142889, -0.1585962243324286,
    0.08634870697937905, -0.09697900088879062, 0.06438030189207225, -0.06988500448253605,
    0.051249636604092444, -0.0546267199115152, 0.04255060857266984, -0.04483863497628575,
    0.03635982706395389, -0.037992407142875426, 0.03188437333808794, -0.033338533399491437,
    0.027062409796184676, -0.026672060159742834, 0.03157523557269932, -0.03814208154544075,
    0.0015193783977921573, 0.01177050030423804, 0.05988982713792809, -0.07524930783543923,
)  # fmt: skip
_DIGAMMA = (
    1.0747589096650145, -1.447916204558855, 1.0535789888337834, -1.1296050155447208,
    1.075441998348326, -1.1077202694744868, 1.0853438551120895, -1.101678208995149,
    1.0892033084349901, -1.0990445851807633, 1.091077205111804, -1.0976443467241745,
    1.0922154151370906, -1.0971251851904982, 1.0914557948284822, -1.0923547241418432,
    1.107734255640588, -1.1336532880073709, 0.9853886274582183, -0.8518200339331982,
    1.627171217387324, -2.137336145030445, -0.5410074105499385, 1.6393278964748081,
    3.7336044773593313, -4.781155731276454,
)  # fmt: skip
_ROOT = (1.4616321449683622, 9.549995429965697e-17)  # of digamma, and what float64 leaves out
_STIRLING = (
    1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400,
)  # fmt: skip
_DIGAMMA_SERIES = (
    1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160,
)  # fmt: skip
# B₂ⱼ / (2j)!, of Euler and Maclaurin's sum
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000,
)  # fmt: skip
_HALF_LOG_2PI = 0.9189385332046727


def _horner(coefficients: tuple[float, ...], x: Raw) -> Raw:
    total = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        total *= x
        total += c
    return total


def _piecewise(x: Raw, pieces: list[tuple[Raw, Callable[[Raw], Raw]]]) -> Raw:
    """`fn(x)` where `held`, for each (held, fn); NaN elsewhere."""
    out = np.full(x.shape, np.nan)
    for held, fn in pieces:
        if held.any():
            out[held] = fn(x[held])
    return out


def _tangent(x: Raw) -> Raw:
    """π / tan(π x), with x first reduced to [-½, ½]; 0 at the halves."""
    rest = x - np.rint(x)
    return np.where(np.abs(rest) == 0.5, 0.0, math.pi / np.tan(math.pi * rest))


def _middle(coefficients: tuple[float, ...], x: Raw) -> Raw:
    return _horner(coefficients, (x - 1.25) / (x + 1.25))


def _lgamma_middle(x: Raw) -> Raw:
    return (x - 1.0) * (x - 2.0) * _middle(_LGAMMA, x)


def _lgamma_shifted(x: Raw) -> Raw:
    """For 3 <= x < 8: ln Γ(y) + ln(y (y + 1) … (x - 1)), y in [2, 3); both are positive."""
    y, product = x.copy(), np.ones_like(x)
    for _ in range(5):
        high = y >= 3.0
        y[high] -= 1.0
        product[high] *= y[high]
    return _lgamma_middle(y) + np.log(product)


def _lgamma_large(x: Raw) -> Raw:
    series = _horner(_STIRLING, 1.0 / (x * x)) / x
    return (x - 0.5) * (np.log(x) - 1.0) + (_HALF_LOG_2PI - 0.5) + series


def _lgamma_positive(x: Raw) -> Raw:
    return _piecewise(x, [
        (x < 0.5, lambda u: _lgamma_middle(np.maximum(u + 1.0, 0.5)) - np.log(u)),
        ((x >= 0.5) & (x < 3.0), _lgamma_middle),
        ((x >= 3.0) & (x < 8.0), _lgamma_shifted),
        ((x >= 8.0) & (x < 1e300), _lgamma_large),
        (x >= 1e300, lambda u: u * (np.log(u) - 1.0)),
    ])  # fmt: skip


def _lgamma_negative(x: Raw) -> Raw:
    """ln(π / |x sin π x|) - ln Γ(-x)."""
    rest = np.abs(x - np.rint(x))
    return np.log(math.pi / (np.sin(math.pi * rest) * -x)) - _lgamma_positive(-x)


def lgamma(x: Raw, exact: bool) -> Raw:
    """ln |Γ(x)|; inf at ±inf and at 0, -1, -2, …"""
    with np.errstate(all="ignore"):
        negative = (x < 0.0) & (x > -1e15)  # whole numbers from there on
        out = _piecewise(x, [(x > 0.0, _lgamma_positive), (negative, _lgamma_negative)])
        out[(x <= 0.0) & (x == np.rint(x))] = np.inf
        return out


def _digamma_middle(x: Raw) -> Raw:
    return ((x - _ROOT[0]) - _ROOT[1]) * _middle(_DIGAMMA, x)


def _digamma_shifted(x: Raw) -> Raw:
    """For 3 <= x < 10: the value at y in [2, 3), and Σ 1/(y + i)."""
    y, total = x.copy(), np.zeros_like(x)
    for _ in range(8):
        high = y >= 3.0
        y[high] -= 1.0
        total[high] += 1.0 / y[high]
    return _digamma_middle(y) + total


def _digamma_large(x: Raw) -> Raw:
    inverse = 1.0 / (x * x)
    return np.log(x) - (0.5 / x + inverse * _horner(_DIGAMMA_SERIES, inverse))


def _digamma_positive(x: Raw) -> Raw:
    return _piecewise(x, [
        (x < 0.5, lambda u: _digamma_middle(u + 1.0) - 1.0 / u),
        ((x >= 0.5) & (x < 3.0), _digamma_middle),
        ((x >= 3.0) & (x < 10.0), _digamma_shifted),
        (x >= 10.0, _digamma_large),
    ])  # fmt: skip


def digamma(x: Raw, exact: bool) -> Raw:
    """Γ'(x) / Γ(x); ∓inf at ±0, NaN at -1, -2, … and at -inf."""
    with np.errstate(all="ignore"):
        whole = (x <= 0.0) & (x == np.rint(x))
        out = _piecewise(x, [
            (x > 0.0, _digamma_positive),
            ((x < 0.0) & ~whole, lambda u: _digamma_positive(-u) - 1.0 / u - _tangent(u)),
        ])  # fmt: skip
        zero = x == 0.0
        out[zero] = np.copysign(np.inf, -x[zero])
        return out


def _zeta(s: float, x: Raw) -> Raw:
    """Hurwitz's Σ (x + k)⁻ˢ, s > 1, x > 0, by Euler and Maclaurin; every term is positive."""
    few = 10 + int(min(s, 60.0))
    large = x >= few
    if large.any() and not large.all():
        return _piecewise(x, [(large, lambda u: _zeta(s, u)), (~large, lambda u: _zeta(s, u))])
    steps = 0 if large.any() else few  # a rounded x + steps would cost s/2 ulp
    with np.errstate(all="ignore"):
        total = np.zeros_like(x)
        top = x + steps
        power = top**-s
        total += power * (top / (s - 1.0) + 0.5)
        factor, scale = s, power / top
        for j, b in enumerate(_BERNOULLI):
            total += b * factor * scale
            factor *= (s + 2 * j + 1) * (s + 2 * j + 2)
            scale = scale / (top * top)
        for k in range(steps - 1, -1, -1):  # the small ones first
            total += (x + k) ** -s
        return np.where(x == np.inf, 0.0, total)


def _cotangent_derivative(n: int, x: Raw) -> Raw:
    """The n-th derivative of π cot(π x), a polynomial in the cotangent."""
    polynomial = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        polynomial = -polynomial.deriv() * np.polynomial.Polynomial([1.0, 0.0, 1.0])
    return math.pi ** (n + 1) * polynomial(_tangent(x) / math.pi)


def _polygamma(n: int, x: Raw) -> Raw:
    if n == 0:
        return digamma(x, True)
    sign = 1.0 if n % 2 else -1.0
    size = math.factorial(n) if n < 171 else np.inf
    whole = (x <= 0.0) & (x == np.rint(x))
    out = _piecewise(x, [
        (x > 0.0, lambda u: sign * size * _zeta(n + 1.0, u)),
        ((x < 0.0) & ~whole,
         lambda u: -size * _zeta(n + 1.0, 1.0 - u) - _cotangent_derivative(n, u)),
    ])  # fmt: skip
    out[whole] = np.inf if n % 2 else np.nan
    return out


def polygamma(n: Raw, exact: bool, x: Raw) -> Raw:
    """The n-th derivative of digamma, n = 0, 1, …; NaN for any other n."""
    n, x = np.broadcast_arrays(n, x)
    out = np.full(x.shape, np.nan)
    with np.errstate(all="ignore"):
        for order in np.unique(n):
            if order >= 0 and order == np.rint(order):
                held = n == order
                out[held] = _polygamma(int(order), x[held])
    return out


# The inverse of erf: a start good to 2e-3 (S. Winitzki 2008), and two steps of Halley's in
# `numpy_special`, which has erf and erfc.


def erfinv_start(x: Raw) -> Raw:
    """Roughly the y with erf(y) = x, for |x| < 1."""
    log = np.log1p(-x * x)
    half = 2.0 / (math.pi * 0.147) + 0.5 * log
    far = np.sqrt(np.sqrt(half * half - log / 0.147) - half)
    near = np.abs(x) * (0.5 * math.sqrt(math.pi)) * (1.0 + math.pi / 12.0 * (x * x))
    return np.where(np.abs(x) < 0.1, near, far)


def sinc(x: Raw, exact: bool) -> Raw:
    """sin(π x) / (π x), 1 at 0 and 0 at ±inf."""
    with np.errstate(all="ignore"):
        whole = np.rint(x)
        sine = (1.0 - 2.0 * np.mod(whole, 2.0)) * np.sin(math.pi * (x - whole))
        return np.where(x == 0.0, 1.0, np.where(np.isinf(x), 0.0, sine / (math.pi * x)))
