"""The expression graph: sharing, the two builders, guards, size of derivatives, printing."""

from __future__ import annotations

import gc
import itertools
import math

import numpy as np
import pytest

from chainrule.backends.numpy_special import NUMPY
from chainrule.calculus import TABLE, const, evaluate, formula, jvp, topo, var, vjp
from chainrule.calculus import expr as graph
from chainrule.errors import InputError

exp, log, sqrt, where = (TABLE[n] for n in ("exp", "log", "sqrt", "where"))
sin, maximum = TABLE["sin"], TABLE["maximum"]
x, y, g = var("x"), var("y"), var("g")


def value(e, **env):
    with np.errstate(all="ignore"):
        return evaluate([e], {k: np.float64(v) for k, v in env.items()}, NUMPY)[0]


def size(outs):
    return sum(bool(e.args) for e in topo(outs))


# -- sharing ---------------------------------------------------------------------------------------


def test_equal_expressions_are_one_object():
    assert sin(x * y) + 1.0 is sin(y * x) + 1.0
    assert x - y is not y - x


def test_constants_are_told_apart_by_their_bits():
    assert const(0.0) is not const(-0.0)
    assert const(math.nan) is const(math.nan)
    assert math.copysign(1.0, value(1.0 / (const(-0.0) + const(-0.0) * x), x=1.0)) == -1.0


def test_ids_rise_from_arguments_to_results():
    for e in topo([sin(x * y) + exp(x) / y]):
        assert all(a.id < e.id for a in e.args)


def test_dropped_expressions_are_forgotten():
    gc.collect()
    before = len(graph._nodes)
    e = x
    for _ in range(50_000):  # deep enough to overflow a recursive release
        e = sin(e + 1.0)
    assert len(graph._nodes) >= before + 100_000
    del e
    gc.collect()
    assert len(graph._nodes) <= before + 1


# -- the two builders ------------------------------------------------------------------------------


def test_the_users_own_zero_survives():
    assert math.isnan(value(0.0 * x, x=math.inf))
    assert math.copysign(1.0, value(x + 0.0, x=-0.0)) == 1.0
    assert size([0.0 * x + 0.0]) == 2


def test_zeros_made_by_differentiation_do_not():
    assert vjp([x + 3.0], [g], [x])[0] is g
    assert vjp([TABLE["floor"](x)], [g], [x])[0] is const(0.0)
    assert vjp([x**2.0], [const(1.0)], [x])[0] is 2.0 * x
    assert vjp([y], [g], [x])[0] is const(0.0)


def test_an_expression_has_no_truth_value():
    with pytest.raises(InputError, match="write where"):
        bool(x > 0.0)
    with pytest.raises(InputError, match="str cannot take part"):
        x + "a"


def test_a_variable_without_a_value_is_named():
    with pytest.raises(InputError, match=r"variable 'y' has no value; given: \['x'\]"):
        evaluate([x + y], {"x": 1.0}, NUMPY)


# -- untaken branches ------------------------------------------------------------------------------
u = log(x)
GUARDED = {
    "product of three": where(x > 0.0, sqrt(x) * u * exp(sqrt(x)), x),
    "two conditions": where(x > 0.0, 2.0 * u, x) + where(x > 1.0, u, 0.0),
    "three conditions": (
        where(x > 0.0, u * u, x) + where(x > 1.0, u, 0.0) - where(x > 2.0, sqrt(x) / x, x * x)
    ),
    "nested": where(x > 0.0, where(x > 1.0, u / x, u * x), x * x * x),
    "max of logs": where(x > 0.0, maximum(u, 2.0 * u), x),
    "difference": where(x > 0.0, u, x) - where(x > 0.0, sqrt(x), x * x),
    "opposite conditions": where(x > 0.0, u, x) * where(x <= 0.0, exp(x), u),
}


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("at", [0.0, -1.0])
def test_an_untaken_branch_never_poisons_a_gradient(name, at):
    (first,) = vjp([GUARDED[name]], [const(1.0)], [x])
    (second,) = vjp([first], [const(1.0)], [x])
    assert math.isfinite(value(first, x=at))
    assert math.isfinite(value(second, x=at))


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("at", [-1.3, 0.4, 1.7, 3.1])
def test_guards_leave_the_gradient_as_it_was(name, at):
    f = GUARDED[name]
    (first,) = vjp([f], [const(1.0)], [x])
    (second,) = vjp([first], [const(1.0)], [x])
    h = 1e-5
    for of, derivative in ((f, first), (first, second)):
        numeric = (value(of, x=at + h) - value(of, x=at - h)) / (2 * h)
        assert value(derivative, x=at) == pytest.approx(numeric, rel=1e-7, abs=1e-7)


def test_a_branch_that_is_live_keeps_its_honest_nan():
    (d,) = vjp([where(x >= 0.0, sqrt(x) * sqrt(x), x)], [const(1.0)], [x])
    assert math.isnan(value(d, x=0.0))


# -- size ------------------------------------------------------------------------------------------


def test_a_long_chain_does_not_swell():
    z, w = y, x
    for _ in range(3000):
        z = sin(z) * w
    (dz, dw) = vjp([z], [const(1.0)], [y, w])
    assert size([z]) == 6000
    assert size([z, dz, dw]) <= 21_000


def test_gradients_cost_a_small_multiple_of_the_value():
    q = [var(f"q{i}") for i in range(4)]
    p = [var(f"p{i}") for i in range(4)]
    a, b, c, d = q
    e, f, h, k = p
    product = [
        a * e - b * f - c * h - d * k,
        a * f + b * e + c * k - d * h,
        a * h - b * k + c * e + d * f,
        a * k + b * h - c * f + d * e,
    ]
    first = vjp(product, [var(f"g{i}") for i in range(4)], [*q, *p])
    assert size(product) == 28
    assert size([*product, *first]) <= 84


def test_forward_and_reverse_mode_agree():
    f = exp(sin(x * y) / (1.0 + x * x)) + where(x > y, x * y, y)
    (tangent,) = jvp([f], [x, y], [const(0.3), const(-1.7)])
    dx, dy = vjp([f], [const(1.0)], [x, y])
    for a, b in itertools.product((0.4, -1.2, 2.0), (0.3, -0.7)):
        want = 0.3 * value(dx, x=a, y=b) - 1.7 * value(dy, x=a, y=b)
        assert value(tangent, x=a, y=b) == pytest.approx(want, rel=1e-13)


# -- text ------------------------------------------------------------------------------------------
TEXT = {
    "0.5*(x + sqrt(x*x + 4))": 0.5 * (x + sqrt(x * x + 4.0)),
    "x - (y - 1)": x - (y - 1.0),
    "x - y - 1": x - y - 1.0,
    "x/(y/2)": x / (y / 2.0),
    "(-x)**2": (-x) ** 2.0,
    "-x**2": -(x**2.0),
    "(x + y)*(y - x)": (x + y) * (y - x),
    "where(x > 0 and not y == 1, x, -y)": where((x > 0.0) & ~(y == 1.0), x, -y),
    "exp(-0.0)": exp(const(-0.0)),
}


@pytest.mark.parametrize("text", TEXT)
def test_formulas_read_as_one_would_write_them(text):
    assert formula(TEXT[text]) == text


def test_shared_subexpressions_can_be_named():
    s = sqrt(x * x + 4.0)
    assert formula((x + s) / s, share=True) == "t1 = sqrt(x*x + 4)\n(x + t1)/t1"


def test_a_long_expression_is_cut_short_in_a_repr():
    e = x
    for _ in range(30):
        e = e * e + y
    assert len(repr(e)) < 300
