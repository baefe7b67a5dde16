"""Formulas: what is shown evaluates to what the engine computes; LaTeX says the same."""

from __future__ import annotations

import numpy as np
import pytest

import chainrule as cr
from chainrule import show
from chainrule.backends import numpy
from chainrule.calculus import TABLE, evaluate
from chainrule.errors import InputError


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_primitive_has_a_formula_in_text_and_latex(name):
    f = show.formula(name)
    assert TABLE[name].formula in str(f)
    text = f.latex()
    assert text.count("{") == text.count("}") and text.count(r"\left") == text.count(r"\right")
    assert text.count(r"\begin{cases}") == text.count(r"\end{cases}")


def test_the_derivative_shown_is_the_one_that_runs():
    def f(x, b):
        return cr.where(x > 0, cr.exp(-x * b), cr.tanh(b) / (1 + x * x)) ** 2

    shown = show.formula(f)
    assert shown.variables == ["x", "b"]
    for x, b in ((0.7, 1.3), (-0.4, 0.2)):
        xs = [cr.tensor(v, dtype=cr.float64, requires_grad=True) for v in (x, b)]
        want = cr.autograd.grad(f(*xs), xs)
        got = evaluate(shown.derivatives, {"x": x, "b": b}, numpy)
        np.testing.assert_allclose([float(g) for g in got], [g.item() for g in want], rtol=1e-14)


def test_text_and_latex():
    # Names of its own: a product is printed in the order in which its variables were first used.
    assert str(show.formula(lambda t0, rate: cr.exp(-t0 * rate) / 2)) == (
        "f(t0, rate) = exp(rate*-t0)/2\n"
        "∂f/∂t0      = -0.5*rate*exp(rate*-t0)\n"
        "∂f/∂rate    = -0.5*t0*exp(rate*-t0)"
    )
    latex = show.formula("sigmoid").latex()
    assert latex.startswith(
        "\\begin{aligned}\n\\operatorname{sigmoid}(x) &= \\sigma\\left(x\\right)"
    )
    assert show.formula(cr.tanh).name == "tanh"
    assert r"\frac{1}{\sqrt{x}}" in show.formula("rsqrt").latex()


def test_a_minus_never_follows_a_plus_and_sums_are_bracketed():
    x = show.formula(lambda x: x + (-x) * 2 - (x - 1)).latex().splitlines()[1]
    assert "+ -" not in x and r"- \left(x - 1\right)" in x
    assert r"\left(x + 1\right)^{2}" in show.formula(lambda x: (x + 1) ** 2).latex()


def test_symbols_are_for_formulas_alone():
    with pytest.raises(InputError, match="'matmul' is no primitive"):
        show.formula(cr.matmul)
    with pytest.raises(InputError, match="returned str"):
        show.formula(lambda x: "x")
    assert "f(x)  = 3" in str(show.formula(lambda x: 3.0))
