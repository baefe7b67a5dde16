"""What every row of the table must equal: mpmath's functions, and the points to compare at."""

from __future__ import annotations

import mpmath as mp

mp.mp.dps = 260

_LINE = (-30.0, -7.3, -2.5, -1.1, -0.3, -1e-3, 1e-8, 0.2, 0.7, 1.9, 5.5, 20.0)
_POSITIVE = (1e-8, 0.2, 0.7, 1.9, 5.5, 20.0, 1e12)
_UNIT = (-0.999, -0.6, -1e-5, 0.1, 0.5, 0.9, 0.99999)
_PAIRS = ((-3.1, 1.5), (2.0, 0.3), (0.7, -4.0), (1e-3, 5.0), (11.0, 2.25), (-1.25, -0.5))


def _line(f):
    return f, tuple((x,) for x in _LINE)


def _unit(f):
    return f, tuple((x,) for x in _UNIT)


def _pairs(f):
    return f, _PAIRS


def _sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def _ndtr(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _squareplus(x, b):
    root = mp.sqrt(x * x + b)
    return (x + root) / 2 if x > 0 else b / 2 / (root - x)


# On either side of the zeros at 1, 2 and 1.46, and between the poles.
_GAMMA = (-7.3, -3.5, -0.3, 1e-8, 0.2, 0.9, 1.3, 1.9, 2.2, 3.5, 5.5, 9.5, 20.0, 1e6)


def _lgamma(x):
    return mp.re(mp.loggamma(x))


_WITH_B = tuple((x, b) for x in (*_LINE, -1e5, 1e5) for b in (4.0, 0.3))

# name: (function of mpf, points)
SMOOTH = {
    "add": _pairs(lambda a, b: a + b),
    "sub": _pairs(lambda a, b: a - b),
    "mul": _pairs(lambda a, b: a * b),
    "div": _pairs(lambda a, b: a / b),
    "neg": _line(lambda x: -x),
    "reciprocal": _line(lambda x: 1 / x),
    "square": _line(lambda x: x * x),
    "maximum": _pairs(max),
    "minimum": _pairs(min),
    "abs": _line(abs),
    "clamp": (
        lambda x, lo, hi: min(max(x, lo), hi),
        ((0.3, -1.0, 2.0), (-5.0, -1.0, 2.0), (9.0, -1.0, 2.0)),
    ),
    "remainder": _pairs(lambda a, b: a - mp.floor(a / b) * b),
    "fmod": _pairs(lambda a, b: a - (mp.floor(a / b) if a / b > 0 else mp.ceil(a / b)) * b),
    "pow": (
        lambda a, b: a**b,
        ((2.0, 3.0), (0.3, 1.7), (5.0, -2.5), (1.1, 0.5), (9.0, 0.0), (1e-3, 2.0)),
    ),
    "sqrt": (mp.sqrt, tuple((x,) for x in _POSITIVE)),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), tuple((x,) for x in _POSITIVE)),
    "hypot": _pairs(lambda a, b: mp.sqrt(a * a + b * b)),
    "hypot_slope": _pairs(lambda a, b: a / mp.sqrt(a * a + b * b)),
    "one_minus_square": _unit(lambda x: 1 - x * x),
    "exp": _line(mp.exp),
    "exp2": _line(lambda x: mp.mpf(2) ** x),
    "expm1": _line(mp.expm1),
    "log": (mp.log, tuple((x,) for x in _POSITIVE)),
    "log2": (lambda x: mp.log(x) / mp.log(2), tuple((x,) for x in _POSITIVE)),
    "log10": (lambda x: mp.log(x) / mp.log(10), tuple((x,) for x in _POSITIVE)),
    "log1p": (mp.log1p, tuple((x,) for x in (*_POSITIVE, -0.3, -0.999))),
    "logaddexp": _pairs(lambda a, b: mp.log(mp.exp(a) + mp.exp(b))),
    "sigmoid": _line(_sigmoid),
    "logsigmoid": _line(lambda x: -mp.log1p(mp.exp(-x))),
    "softplus": _line(lambda x: mp.log1p(mp.exp(x))),
    "sinh": _line(mp.sinh),
    "cosh": _line(mp.cosh),
    "tanh": _line(mp.tanh),
    "sech2": _line(lambda x: mp.sech(x) ** 2),
    "asinh": _line(mp.asinh),
    "acosh": (mp.acosh, tuple((x,) for x in (1.001, 1.5, 7.0, 1e5))),
    "atanh": _unit(mp.atanh),
    "npdf": _line(lambda x: mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)),
    "gaussian": (lambda x: mp.exp(-x * x), tuple((x,) for x in (*_LINE[1:-1], 17.0))),
    "ndtr": _line(_ndtr),
    "erf": (mp.erf, tuple((x,) for x in (*_LINE[1:-1], 17.0))),
    "erfc": (mp.erfc, tuple((x,) for x in (*_LINE[1:-1], 17.0))),
    "sin": _line(mp.sin),
    "cos": _line(mp.cos),
    "tan": _line(mp.tan),
    "asin": _unit(mp.asin),
    "acos": _unit(mp.acos),
    "atan": _line(mp.atan),
    "atan2": _pairs(mp.atan2),
    "relu": _line(lambda x: max(x, mp.mpf(0))),
    "relu6": _line(lambda x: min(max(x, mp.mpf(0)), mp.mpf(6))),
    "hardtanh": (
        lambda x, lo, hi: min(max(x, lo), hi),
        ((0.3, -1.0, 2.0), (-5.0, -1.0, 2.0), (9.0, -1.0, 2.0)),
    ),
    "leaky_relu": (lambda x, s: x if x > 0 else s * x, ((-3.0, 0.01), (2.0, 0.2), (-0.1, 0.3))),
    "elu": (
        lambda x, a: x if x > 0 else a * mp.expm1(x),
        ((-30.0, 1.0), (-3.0, 0.5), (-1e-9, 1.0), (2.0, 0.2), (800.0, 1.0)),
    ),
    "silu": _line(lambda x: x * _sigmoid(x)),
    "mish": _line(lambda x: x * mp.tanh(mp.log1p(mp.exp(x)))),
    "gelu": _line(lambda x: x * _ndtr(x)),
    "gelu_tanh": (
        lambda x: x * _sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)),
        tuple((x,) for x in (-20.0, *_LINE[1:-1])),
    ),
    "copysign": _pairs(lambda a, b: abs(a) if b > 0 else -abs(a)),
    "lerp": (
        lambda a, b, w: a + w * (b - a),
        ((1.0, 3.0, 0.25), (2.0, 0.5, 0.75), (-1.0, -7.0, 1.5), (0.3, 4.0, -2.0)),
    ),
    "lgamma": (_lgamma, tuple((x,) for x in _GAMMA)),
    "digamma": (mp.digamma, tuple((x,) for x in _GAMMA)),
    "polygamma": (
        lambda n, x: mp.polygamma(int(n), x),
        tuple((n, x) for n in (0.0, 1.0, 2.0, 5.0) for x in _GAMMA if x > 0),
    ),
    "xlogy": (lambda a, b: a * mp.log(b), ((0.7, 0.3), (-2.0, 5.5), (1e-3, 20.0), (3.0, 1.1))),
    "xlog1py": (
        lambda a, b: a * mp.log1p(b),
        ((0.7, -0.3), (-2.0, 5.5), (1e-3, 20.0), (3.0, 1e-8)),
    ),
    "logit": (
        lambda x: mp.log(x / (1 - x)),
        tuple((x,) for x in (1e-12, 0.01, 0.2, 0.3, 0.45, 0.55, 0.9, 0.999999)),
    ),
    "erfinv": _unit(mp.erfinv),
    "softsign": _line(lambda x: x / (1 + abs(x))),
    "sinc": (
        lambda x: mp.sin(mp.pi * x) / (mp.pi * x),
        tuple((x,) for x in (-30.25, -7.3, -2.6, -0.3, 1e-8, 0.2, 0.49, 0.51, 0.8, 5.4, 20.3)),
    ),
    "squareplus": (_squareplus, _WITH_B),
    "squareplus_slope": (lambda x, b: _squareplus(x, b) / mp.sqrt(x * x + b), _WITH_B),
}


def _step(x):
    return mp.mpf(10) ** -15 * (abs(x) or 1)


def partial(f, i):
    """The partial derivative of `f` by argument `i`, by central differences in 260 digits.

    Its relative error is about 1e-30 in the first and 1e-25 in the second derivative, for
    functions that vary on the scale of their arguments.
    """

    def derivative(*point):
        h = _step(point[i])
        up, down = list(point), list(point)
        up[i], down[i] = point[i] + h, point[i] - h
        difference = f(*up) - f(*down)
        # What is below the rounding of f is zero, as for the second derivative of a line.
        if abs(difference) < abs(f(*point)) * mp.mpf(10) ** -200:
            return mp.mpf(0)
        return difference / (2 * h)

    return derivative


# Exact answers: truth values and whole numbers, by Python's own operators.
EXACT = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b),
    "logical_not": lambda a: not a,
    "isnan": lambda a: a != a,
    "isinf": lambda a: abs(a) == float("inf"),
    "isfinite": lambda a: abs(a) < float("inf"),
    "sign": lambda a: float(a > 0) - float(a < 0),
    "floor": lambda a: mp.floor(a),
    "ceil": lambda a: mp.ceil(a),
    "trunc": lambda a: int(a),
    "round": lambda a: round(a),
    "where": lambda c, a, b: a if c else b,
}
