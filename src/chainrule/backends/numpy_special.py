"""NumPy functions for every primitive of the table, accurate to 4 ulp over the whole range.

`NUMPY` gives one function for each name: the ufunc where NumPy has one, one of the functions here
where neither a ufunc nor the row's expansion is accurate enough, and else the expansion, written
out as a flat function. Relies on `calculus` for the expansions.

The error functions share one polynomial, for (1 + 2x) exp(x²) erfc(x) in t = (x - k)/(x + k), a
form due to M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of (1 + 2x)exp(x²)erfc x
in 0 ≤ x < ∞", Math. Comp. 36 (1981); the coefficients are our own, interpolated at Chebyshev nodes
in 50 digits. What is smaller than float64 is computed in float64 and rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.backends import numpy_gamma
from chainrule.backends.programs import UFUNCS, program
from chainrule.calculus.expr import topo, var
from chainrule.calculus.table import TABLE

__all__ = ["NUMPY"]

Raw = Any

# Elements a time: a kernel's half dozen float64 scratch arrays of this size stay in the L2 cache.
_BLOCK = 1 << 14

# (1 + 2x) exp(x²) erfc(x) for 0 ≤ x ≤ 28, k = 3.75: 1.5e-17 relative, and 3.9e-9 for what is
# rounded to float32.
_SCALED_ERFC = (
    1.2375126308378275, -0.1402405985855467, 0.003585415485463779, 0.08227673849011204,
    -0.10880393014171236, 0.09230432116153116, -0.05869339859030941, 0.028362277400457724,
    -0.009746579553431873, 0.001755626017152004, 0.00029371366631088616, -0.00029015496529570924,
    5.1648913469599865e-05, 2.2387259638230133e-05, -1.1442990926805438e-05, -9.801666755858578e-07,
    1.7481190468391965e-06, -4.815839621672849e-08, -2.5261465267715506e-07, 1.5996335215573707e-08,
    3.285083556233316e-08, -8.782125734803521e-10, -2.4108215365422332e-09,
)  # fmt: skip
_SCALED_ERFC_SHORT = (
    1.2375126308169544, -0.14024060541030123, 0.003585460003178754, 0.08227693877852914,
    -0.10880525891190124, 0.09230253498987996, -0.05868193534562202, 0.028370440773646723,
    -0.009788372888133313, 0.0017330388805617638, 0.0003645045305620942, -0.00025532367930287926,
)  # fmt: skip
# (1 + x) exp(x²/2) ndtr(-x) for 0 ≤ x ≤ 39, k = 5.25: 1.1e-17 and 3.1e-9. Its own fit, for the
# rounding of x/√2 would cost an ulp.
_SCALED_NDTR = (
    0.45930144282933044, -0.08996869142390287, 0.03382818312580569, 0.005958151992645264,
    -0.023979891586917594, 0.024646782627990176, -0.01689857619670424, 0.008429645195401321,
    -0.0029020032447439033, 0.0004891760845085012, 0.00011182808050558581, -9.162753224975062e-05,
    1.3074109545587786e-05, 8.234602913693254e-06, -3.4026586934586823e-06, -5.571919914687751e-07,
    5.601345454016486e-07, 2.733652062836074e-08, -8.447982557788984e-08, -2.1717941450705405e-09,
    1.0697578813409478e-08, 6.935256172584029e-10, -5.968597892186598e-10,
)  # fmt: skip
_SCALED_NDTR_SHORT = (
    0.4593014428034402, -0.08996869855357328, 0.03382819890668705, 0.00595837108887797,
    -0.023980312667193866, 0.0246448291453345, -0.016895230136811927, 0.00843740735108926,
    -0.002913357714525484, 0.00047319511455887084, 0.00013000574501324387, -7.435876142483015e-05,
)  # fmt: skip
# erf(x)/x in x² for |x| ≤ 0.65: 4.2e-18 relative.
_ERF = (
    1.1283791670955126, -0.3761263890318355, 0.11283791670939211, -0.026866170640301647,
    0.005223977550940325, -0.0008548320413496383, 0.00012054975230412003, -1.491362445242006e-05,
    1.6216123999750692e-06, -1.3532164374144134e-07,
)  # fmt: skip
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_SMALL = 1 << 12  # elements: below, setting up blocks costs more than it saves
_INV_SQRT_2PI = 0.3989422804014327
_SQRT_PI_2 = 0.886226925452758
_INF = float("inf")
_HIGH_BITS = np.int64(-(1 << 27))  # keeps 26 bits of a significand: their square is exact


def _horner(coefficients: tuple[float, ...], x: Raw) -> Raw:
    """Return Σ cᵢ xⁱ."""
    total = x * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        total += c
        total *= x
    total += coefficients[0]
    return total


def _high(x: Raw) -> Raw:
    """Return `x` (float64) cut to 26 significant bits."""
    return (x.view(np.int64) & _HIGH_BITS).view(np.float64)


def _gauss(x: Raw, scale: float, exact: bool) -> Raw:
    """Return exp(-scale x²) for finite x and a scale of 1 or ½.

    Rounding x² would cost x²/2 ulp, 350 at the end of the range; when `exact`, what the rounding
    drops is found and multiplied back.
    """
    squared = x * x
    result = np.exp(-scale * squared)
    if exact:
        high = _high(x)
        dropped = (high * high - squared) + (x - high) * (x + high)
        dropped *= scale
        dropped *= result
        result -= dropped
    return result


def _scaled_erfc(a: Raw, exact: bool) -> Raw:
    """Return exp(a²) erfc(a) for 0 ≤ a ≤ 28."""
    t = a - 3.75
    t /= a + 3.75
    result = _horner(_SCALED_ERFC if exact else _SCALED_ERFC_SHORT, t)
    result /= 1.0 + 2.0 * a
    return result


def _erfc_tail(x: Raw, exact: bool) -> Raw:
    """Return erfc(|x|); 0 from 28 on, where it is below the smallest float64."""
    a = np.minimum(np.abs(x), 28.0)
    return _gauss(a, 1.0, exact) * _scaled_erfc(a, exact)


def _scaled_ndtr(a: Raw, exact: bool) -> Raw:
    """Return exp(a²/2) ndtr(-a) for 0 ≤ a ≤ 39."""
    t = a - 5.25
    t /= a + 5.25
    result = _horner(_SCALED_NDTR if exact else _SCALED_NDTR_SHORT, t)
    result /= 1.0 + a
    return result


def _erf_near(x: Raw) -> tuple[Raw, Raw]:
    """Return |x|, at most 0.65, and erf(x) for |x| ≤ 0.65."""
    a = np.minimum(np.abs(x), 0.65)
    return a, x * _horner(_ERF, a * a)


def _erf(x: Raw, exact: bool) -> Raw:
    a, near = _erf_near(x)
    return np.where(a < 0.65, near, np.copysign(1.0 - _erfc_tail(x, exact), x))


def _erfc(x: Raw, exact: bool) -> Raw:
    a, near = _erf_near(x)
    tail = _erfc_tail(x, exact)
    return np.where(a < 0.65, 1.0 - near, np.where(x < 0.0, 2.0 - tail, tail))


def _erfinv(x: Raw, exact: bool) -> Raw:
    """Two steps of Halley's, each of which triples the digits; 1 - |x| is exact from ½ on."""
    with np.errstate(all="ignore"):
        a = np.abs(x)
        inside = np.minimum(a, 1.0 - 2.0**-53)
        y = numpy_gamma.erfinv_start(inside)
        for _ in range(2):
            error = np.where(a < 0.5, _erf(y, True) - inside, 1.0 - inside - _erfc_tail(y, True))
            step = error * _SQRT_PI_2 / _gauss(y, 1.0, True)
            y = y - step / (1.0 + y * step)
        return np.copysign(np.where(a < 1.0, y, np.where(a == 1.0, _INF, np.nan)), x)


def _ndtr(x: Raw, exact: bool) -> Raw:
    a = np.minimum(np.abs(x), 39.0)
    tail = _gauss(a, 0.5, exact) * _scaled_ndtr(a, exact)
    return np.where(x > 0.0, 1.0 - tail, tail)


def _npdf(x: Raw, exact: bool) -> Raw:
    return _gauss(np.minimum(np.abs(x), 39.0), 0.5, exact) * _INV_SQRT_2PI


def _gaussian(x: Raw, exact: bool) -> Raw:
    return _gauss(np.minimum(np.abs(x), 28.0), 1.0, exact)


def _sigmoid(x: Raw, exact: bool) -> Raw:
    small = np.exp(-np.abs(x))
    return np.where(x < 0.0, small, 1.0) / (1.0 + small)


def _logsigmoid(x: Raw, exact: bool) -> Raw:
    return np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x)))


def _softplus(x: Raw, exact: bool) -> Raw:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _sech2(x: Raw, exact: bool) -> Raw:
    small = np.exp(-2.0 * np.minimum(np.abs(x), 400.0))
    denominator = 1.0 + small
    denominator *= denominator
    return 4.0 * small / denominator


def _squareplus(x: Raw, exact: bool, b: Raw) -> Raw:
    """The row's expansion, in fewer passes: ½(|x| + √(x² + b)), or b/4 over it for x ≤ 0."""
    size = np.abs(x)
    # Beyond, b no longer counts, and x² might overflow.
    half = np.minimum(size, _constant(2.0**60, x.dtype))
    half *= half
    half = half + b  # which may be larger, and broadcast
    np.sqrt(half, out=half)
    np.maximum(half, size, out=half)
    one_half = _constant(0.5, x.dtype)
    half *= one_half  # before the sum, which might overflow
    size *= one_half
    half += size
    below = _constant(0.25, x.dtype) * b / half
    np.copyto(below, half, where=x > _constant(0.0, x.dtype))
    return below


# x f(x) with an f that becomes subnormal long before the product does: the small factor is taken
# apart, so that x meets it before its digits are lost.


def _x_sigmoid(x: Raw, u: Raw) -> Raw:
    """Return x sigmoid(u), where u has the sign of x."""
    root = np.exp(-0.5 * np.abs(u))
    small = root * root
    return np.where(u < 0.0, x * root * root, x) / (1.0 + small)


def _silu(x: Raw, exact: bool) -> Raw:
    return _x_sigmoid(x, x)


def _mish(x: Raw, exact: bool) -> Raw:
    # tanh(ln(1 + e)) = (e² + 2e) / (e² + 2e + 2), multiplied by 1/e² for x > 0.
    root = np.exp(-0.5 * np.abs(x))
    e = root * root
    negative = x < 0.0
    numerator = np.where(negative, x * root * root * (e + 2.0), x * (1.0 + 2.0 * e))
    return numerator / np.where(negative, e * (e + 2.0) + 2.0, 1.0 + 2.0 * e * (1.0 + e))


def _gelu(x: Raw, exact: bool) -> Raw:
    a = np.minimum(np.abs(x), 39.0)
    gauss, scaled = _gauss(a, 0.5, exact), _scaled_ndtr(a, exact)
    return np.where(x > 0.0, x * (1.0 - gauss * scaled), x * scaled * gauss)


# 2√(2/π) and 2√(2/π)·0.044715, each as a float64 and what it leaves out.
_LINEAR = (1.5957691216057308, -9.96930880911092e-17)
_CUBIC = (0.07135481627260025, -6.175149918155315e-19)


def _product(a: Raw, b: Raw) -> tuple[Raw, Raw]:
    """Return a b as a rounded product and its error (T. J. Dekker 1971)."""
    product = a * b
    a1, b1 = _high(a), _high(b)
    a2, b2 = a - a1, b - b1
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def _gelu_tanh(x: Raw, exact: bool) -> Raw:
    """Return x sigmoid(u), u = x (p + q x²); in the tail an ulp of u is |u| ulp of the result."""
    a = np.clip(x, -25.0, 25.0)  # sigmoid(u) is 0 or 1 beyond, in float64
    squared = a * a
    if not exact:
        return _x_sigmoid(x, a * (_LINEAR[0] + _CUBIC[0] * squared))
    squared, below = _product(a, a)
    cubic, rest = _product(squared, np.full_like(a, _CUBIC[0]))
    rest += _CUBIC[0] * below + _CUBIC[1] * squared
    factor = _LINEAR[0] + cubic
    # The larger term first makes the sum's error exact (Dekker's fast two-sum).
    larger, smaller = np.maximum(cubic, _LINEAR[0]), np.minimum(cubic, _LINEAR[0])
    rest += smaller - (factor - larger) + _LINEAR[1]
    u, error = _product(a, factor)
    error += a * rest
    result = _x_sigmoid(x, u)
    result += result * (_sigmoid(-u, exact) * error)
    # Where x itself is infinite, 0 · ∞ in the correction says nothing: ∞ at ∞, NaN at −∞.
    infinite = np.isinf(x)
    if infinite.any():
        result[infinite] = np.where(x[infinite] > 0.0, _INF, np.nan)
    return result


@functools.lru_cache(maxsize=256)
def _constant(value: float, dtype: Any) -> Raw:
    """Return a 0-d array: NumPy converts a Python float at every call."""
    constant = np.asarray(value, dtype)
    constant.flags.writeable = False
    return constant


def _memory_order(x: Raw) -> list[int]:
    """Return the dimensions by falling stride: a dense `x` is contiguous in that order."""
    return sorted(range(x.ndim), key=lambda d: -abs(x.strides[d]))


def _blocked(name: str, kernel: Callable[..., Raw], narrow: bool) -> Raw:
    """Return the array function of `kernel(x, exact, *parameters)`, for any shape and dtype.

    The result has the dtype of the arrays, float64 for integers. The kernel gets blocks of
    float64, or of float32 for what is no wider if it is as accurate in that (`narrow`); `exact`
    says that the result is float64. Parameters other than numbers are broadcast, in one piece.
    """
    numbers = TABLE[name].defaults

    @functools.cache
    def tiled() -> Any:
        arguments = [f"x{i}" for i in range(TABLE[name].arity)]
        return program([TABLE[name](*map(var, arguments))], arguments)

    def function(x: Raw, *parameters: Raw) -> Raw:
        if type(x) is np.ndarray and x.ndim and ((d := x.dtype) is _F64 or d is _F32):
            given = parameters + numbers[len(parameters) :] if numbers else parameters
            if all([type(p) is float or type(p) is int for p in given]):
                if x.size <= _SMALL:  # plain: no blocks
                    if narrow or d is _F64:
                        return kernel(x, d is _F64, *[_constant(p, d) for p in given])
                    return kernel(x.astype(np.float64), False, *given).astype(np.float32)
                if d is _F32 and tiled() is not None:
                    order = _memory_order(x)
                    y = tiled()(x.transpose(order), *map(float, given))
                    return y.transpose(np.argsort(order))
        given = parameters + TABLE[name].defaults[len(parameters) :]
        arrays = [p for p in given if isinstance(p, (np.ndarray, np.generic))]
        dtype = np.result_type(x, *arrays)  # of `x` as given: a Python number is weak
        x = np.asarray(x)
        if dtype.kind in "biu":
            dtype = np.dtype(np.float64)
        exact = dtype == np.float64
        work = np.dtype(np.float32) if narrow and not exact else np.dtype(np.float64)
        # As 0-d arrays of the working dtype: a NumPy scalar would turn float32 into float64.
        given = [np.asarray(p).astype(work) for p in given]
        if x.size <= _BLOCK or any(p.ndim for p in given):
            part = kernel(np.atleast_1d(np.ascontiguousarray(x, work)), exact, *given)
            shape = np.broadcast_shapes(x.shape, *[p.shape for p in given])
            return part.astype(dtype, copy=False).reshape(shape)
        # In memory order, so that a transposed input is read straight and the result is like it.
        blocks = np.nditer(
            [x, None],
            flags=["external_loop", "buffered"],
            op_flags=[["readonly"], ["writeonly", "allocate"]],
            op_dtypes=[work, dtype],
            casting="unsafe",
            order="K",
            buffersize=_BLOCK,
        )
        with blocks:
            for source, target in blocks:
                target[...] = kernel(source, exact, *given)
            return blocks.operands[1]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {TABLE[name].formula} for each element."
    return function


def _expansion(name: str, known: dict[str, Raw]) -> Callable[..., Raw]:
    """Return a kernel that computes a row's expansion with the functions in `known`."""
    entry = TABLE[name]
    if entry.expansion is None:
        raise KeyError(f"{name} has neither a NumPy function nor an expansion")
    arguments = [f"x{i}" for i in range(entry.arity)]
    out = entry.expansion(*[var(a) for a in arguments])
    names: dict[int, str] = {}
    lines = [f"def {name}({', '.join([arguments[0], 'exact', *arguments[1:]])}):"]
    for e in topo([out]):
        if e.op == "var":
            names[e.id] = str(e.attr)
        elif e.op == "const":
            names[e.id] = f"float({str(e.attr)!r})"
        else:
            names[e.id] = f"t{e.id}"
            call = f"known[{e.op!r}]({', '.join(names[a.id] for a in e.args)})"
            lines.append(f"    {names[e.id]} = {call}")
    scope: dict[str, Any] = {"known": known}
    exec("\n".join([*lines, f"    return {names[out.id]}"]), scope)
    return scope[name]


def _integers_stay(ufunc: Raw) -> Raw:
    """Return `ufunc`, which rounds, as a function that returns integers as they are."""

    @functools.wraps(ufunc)
    def function(x: Raw) -> Raw:
        x = np.asarray(x)
        return x.copy() if x.dtype.kind in "biu" else ufunc(x)

    return function


def _relu(x: Raw) -> Raw:
    return np.maximum(x, 0)


def _relu6(x: Raw) -> Raw:
    return np.minimum(np.maximum(x, 0), 6)


def _clamp(x: Raw, lo: Raw = -_INF, hi: Raw = _INF) -> Raw:
    # An absent bound is skipped: an infinite one would make integers floats.
    if not (isinstance(lo, float) and lo == -_INF):
        x = np.maximum(x, lo)
    if not (isinstance(hi, float) and hi == _INF):
        x = np.minimum(x, hi)
    return x


def _functions() -> dict[str, Raw]:
    known: dict[str, Raw] = dict(UFUNCS) | {
        "where": np.where, "clamp": _clamp, "floor": _integers_stay(np.floor),
        "ceil": _integers_stay(np.ceil), "trunc": _integers_stay(np.trunc),
        "round": _integers_stay(np.rint), "relu": _relu, "relu6": _relu6,
    }  # fmt: skip
    special: dict[str, Callable[..., Raw]] = {
        "erf": _erf, "erfc": _erfc, "ndtr": _ndtr, "npdf": _npdf, "gaussian": _gaussian,
        "logsigmoid": _logsigmoid,
        "softplus": _softplus, "sech2": _sech2, "silu": _silu, "mish": _mish, "gelu": _gelu,
        "gelu_tanh": _gelu_tanh, "lgamma": numpy_gamma.lgamma, "digamma": numpy_gamma.digamma,
        "polygamma": numpy_gamma.polygamma, "sinc": numpy_gamma.sinc, "erfinv": _erfinv,
    }  # fmt: skip
    known |= {name: _blocked(name, kernel, narrow=False) for name, kernel in special.items()}
    known["sigmoid"] = _blocked("sigmoid", _sigmoid, narrow=True)
    known["squareplus"] = _blocked("squareplus", _squareplus, narrow=True)
    for name in TABLE:
        if name not in known:
            known[name] = _blocked(name, _expansion(name, known), narrow=True)
    return known


NUMPY: dict[str, Raw] = _functions()
"""A NumPy function for every primitive of the table, by name."""
