"""The NumPy functions: 4 ulp from -inf to inf, in every dtype, layout and size, and silent."""

from __future__ import annotations

import ml_dtypes
import mpmath as mp
import numpy as np
import pytest
from tests.calculus.oracle import SMOOTH

from chainrule.backends import numpy_special
from chainrule.backends.numpy_special import NUMPY
from chainrule.calculus import TABLE

OWN = [
    "erf", "erfc", "ndtr", "npdf", "gaussian", "sigmoid", "logsigmoid", "softplus", "sech2",
    "silu", "mish", "gelu", "gelu_tanh", "squareplus", "squareplus_slope", "elu",
    "softsign",
]  # fmt: skip


def sweep(dtype):
    """Normal samples, the tails to beyond underflow, and the tiny."""
    rng = np.random.default_rng(0)
    end = 760.0 if dtype == np.float64 else 110.0
    parts = [
        rng.normal(size=150), rng.uniform(-40, 40, 250), rng.uniform(-end, end, 150),
        10 ** rng.uniform(-30, 1, 50) * rng.choice([-1, 1], 50), [0.0, -0.0],
    ]  # fmt: skip
    return np.concatenate(parts).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", OWN)
def test_within_4_ulp_over_the_whole_range(name, dtype):
    x = sweep(dtype)
    extra = TABLE[name].defaults
    got = NUMPY[name](x, *extra)
    assert got.dtype == dtype
    f, info = SMOOTH[name][0], np.finfo(dtype)
    with mp.workdps(400):  # 1 + exp(-760) needs 330 digits
        for a, b in zip(x, got, strict=True):
            want = f(mp.mpf(float(a)), *[mp.mpf(p) for p in extra])
            unit = max(float(np.spacing(dtype(abs(float(want))))), float(info.smallest_subnormal))
            error = abs(mp.mpf(float(b)) - want) / unit
            assert error <= 4, f"{name}({a!r}) = {b!r}: {float(error):.3g} ulp off"


LIMITS = {  # at -inf, -0.0, inf
    "erf": (-1, -0.0, 1), "erfc": (2, 1, 0), "ndtr": (0, 0.5, 1), "sigmoid": (0, 0.5, 1),
    "softplus": (0, np.log(2), np.inf), "sech2": (0, 1, 0), "gaussian": (0, 1, 0),
    "squareplus": (0, 1, np.inf), "squareplus_slope": (0, 0.5, 1), "logsigmoid": (-np.inf, -np.log(2), 0),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", LIMITS)
def test_limits(name, dtype):
    got = NUMPY[name](np.array([-np.inf, -0.0, np.inf], dtype), *TABLE[name].defaults)
    np.testing.assert_array_equal(got, np.array(LIMITS[name], dtype))
    assert np.signbit(got[1]) == np.signbit(np.float64(LIMITS[name][1]))


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_nan_is_never_lost(name, dtype):
    x = np.full(40_000, 0.5, dtype)
    x[::3] = np.nan
    got = NUMPY[name](x, *TABLE[name].defaults)
    np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), np.isnan(x.astype(np.float64)))


@pytest.mark.parametrize("name", OWN)
def test_extreme_finite_inputs_are_silent(name):
    # Warnings are errors: an overflow inside a formula would raise here.
    for dtype in (np.float64, np.float32):
        info = np.finfo(dtype)
        x = np.array([info.max, -info.max, info.tiny, info.smallest_subnormal, -info.tiny], dtype)
        assert not np.isnan(NUMPY[name](x, *TABLE[name].defaults)).any()


BASE = np.random.default_rng(1).normal(size=(300, 400)).astype(np.float32)
LAYOUTS = {
    "contiguous": BASE, "transposed": BASE.T, "sliced": BASE[::2, 1::3], "flipped": BASE[::-1],
    "expanded": np.broadcast_to(BASE[0], (200, 400)), "empty": BASE[:0], "0-d": BASE[0, 0, ...],
    "three dimensions, permuted": BASE.reshape(30, 100, 40).transpose(2, 0, 1),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["ndtr", "sigmoid"])
def test_every_layout_and_blocking_gives_the_same_bits(name, layout, monkeypatch):
    x = LAYOUTS[layout]
    got = NUMPY[name](x)
    monkeypatch.setattr(numpy_special, "_BLOCK", 1 << 30)
    assert got.shape == x.shape
    np.testing.assert_array_equal(got, NUMPY[name](np.ascontiguousarray(x)).reshape(x.shape))


def test_integers_become_float64_or_stay_as_the_table_says():
    x = np.array([1, 2, 3], np.int32)
    for name, entry in TABLE.items():
        if entry.result == "same" and entry.arity == 1:
            assert NUMPY[name](x).dtype == np.int32, name
    assert NUMPY["erf"](x).dtype == np.float64
    assert NUMPY["clamp"](x, 2).tolist() == [2, 2, 3]
    assert NUMPY["clamp"](x, 2).dtype == np.int32


def test_every_row_has_a_function():
    assert set(NUMPY) == set(TABLE)
