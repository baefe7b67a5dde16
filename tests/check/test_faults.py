"""Wrong backwards of every common kind, on both hosts: gradcheck must fail and name the cause."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.check import GradcheckError, examine, examine_twice, gradcheck
from chainrule.errors import InputError

HOSTS = {"torch": torch, "chainrule": cr}


@pytest.fixture(params=sorted(HOSTS))
def host(request):
    return HOSTS[request.param]


def randn(host, *shape, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape)
    return host.tensor(values, dtype=host.float64).requires_grad_()


def function(host, forward, backward):
    """A Function of `host` that saves its inputs."""

    def save(ctx, *inputs):
        ctx.save_for_backward(*inputs)
        return forward(*inputs)

    def back(ctx, g):
        return backward(g, *ctx.saved_tensors)

    members = {"forward": staticmethod(save), "backward": staticmethod(back)}
    return type("Wrong", (host.autograd.Function,), members).apply


def contiguous_strides(shape):
    return tuple(int(np.prod(shape[d + 1 :])) for d in range(len(shape)))


def flat(t, offset=True):
    """What a kernel sees that takes `t` for row-major memory."""
    start = t.storage_offset() if offset else 0
    return t.as_strided(tuple(t.shape), contiguous_strides(tuple(t.shape)), start)


def reported(apply, inputs, status="FAIL"):
    report = examine(apply, inputs)
    assert not report
    return [row for row in report.rows if row.status == status], str(report)


def square(host, backward):
    return function(host, lambda x: x * x, backward)


def test_a_backward_that_reads_the_gradient_flat_passes_pytorchs_gradcheck_and_fails_ours():
    wrong = square(torch, lambda g, x: 2 * x * flat(g))
    x = randn(torch, 4, 2)
    assert torch.autograd.gradcheck(wrong, x)
    with pytest.raises(GradcheckError, match="the backward assumes a contiguous gradient"):
        gradcheck(wrong, x)


def test_a_gradient_read_flat_fails_every_layout_but_the_row_major_ones(host):
    wrong = square(host, lambda g, x: 2 * x * flat(g))
    report = examine(wrong, randn(host, 4, 2))
    fate = {row.label: row.status for row in report.rows if row.label.startswith("grad stride")}
    failing = {"(1, 4)", "(5, 2) offset 3", "(0, 0)", "(0, 1)", "(1, 0)"}
    if host is cr:
        failing.add("(-2, -1) offset 9")
    assert {k.removeprefix("grad stride ") for k, v in fate.items() if v == "FAIL"} == failing
    for row in report.failures:
        assert row.cause == "the backward assumes a contiguous gradient"
    assert fate["grad stride (2, 1)"] == "ok"


def test_the_row_names_the_element_and_both_numbers(host):
    wrong = square(host, lambda g, x: 2 * x * flat(g))
    x = randn(host, 4, 2)
    report = examine(wrong, x)
    row = next(r for r in report.rows if r.label == "grad stride (0, 0)")
    at = row.mismatch
    assert at.want == pytest.approx(2 * float(x.detach().numpy()[at.index]), rel=1e-6)
    assert str(at) in str(report)
    assert f"dx[{at.index[0]}, {at.index[1]}] = nan, want" in row.detail


def test_a_backward_that_ignores_the_storage_offset():
    def backward(g, x):
        return 2 * x * g.as_strided(tuple(g.shape), g.stride(), 0)

    rows, _ = reported(square(torch, backward), randn(torch, 4, 2))
    assert rows[0].label == "grad stride (2, 1) offset 5"
    assert rows[0].cause == "the backward ignores the gradient's storage offset"


CAUSES = {
    "the sign is flipped": lambda g, x: -2 * x * g,
    "twice the derivative": lambda g, x: 4 * x * g,
    "half the derivative": lambda g, x: x * g,
    "every element is 3.0 times the derivative": lambda g, x: 6 * x * g,
    "does not multiply by the incoming gradient": lambda g, x: 2 * x,
    "returns zero for x": lambda g, x: 0 * g,
    "no gradient (None) comes back for x": lambda g, x: None,
    "comes back transposed": lambda g, x: (2 * x * g).transpose(0, 1),
    "not finite": lambda g, x: g * x / 0.0,
}


@pytest.mark.filterwarnings("ignore:.*divide by zero:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*invalid value:RuntimeWarning")
@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_of_a_wrong_derivative_is_named(host, cause):
    rows, text = reported(square(host, CAUSES[cause]), randn(host, 3, 3))
    assert rows[0].label == "as given"
    assert cause in rows[0].cause, text


def test_swapped_gradients(host):
    wrong = function(host, lambda x, y: x * y, lambda g, x, y: (g * x, g * y))
    _rows, text = reported(wrong, (randn(host, 3), randn(host, 3, seed=1)))
    assert "this is the gradient of x1: the two are swapped" in text
    assert "this is the gradient of x0: the two are swapped" in text


def test_a_broadcast_bias_that_gets_a_mean(host):
    wrong = function(host, lambda x, b: x + b, lambda g, x, b: (g, g.sum(0) / g.shape[0]))
    rows, text = reported(wrong, (randn(host, 4, 3), randn(host, 3, seed=1)))
    assert "0.25 times the derivative" in rows[0].cause, text


def test_a_broadcast_bias_that_is_not_summed_over(host):
    wrong = function(host, lambda x, b: x + b, lambda g, x, b: (g, g[0]))
    rows, _ = reported(wrong, (randn(host, 4, 3), randn(host, 3, seed=1)))
    assert rows[0].cause.startswith("9 of 12 contributions are missing")


def test_the_jacobian_where_its_transpose_belongs(host):
    wrong = function(host, lambda a, x: a @ x, lambda g, a, x: (g[:, None] * x[None, :], a @ g))
    rows, text = reported(wrong, (randn(host, 3, 3), randn(host, 3, seed=1)))
    assert rows[0].cause == "the backward applies the Jacobian where its transpose belongs", text


def test_a_gradient_of_the_wrong_shape_is_a_row_with_the_engines_sentence(host):
    wrong = square(host, lambda g, x: (2 * x * g).sum(0))
    rows, text = reported(wrong, randn(host, 3, 2))
    assert "raised" in rows[0].detail
    assert "shape" in text


def test_too_few_gradients_is_a_row_with_the_engines_sentence(host):
    wrong = function(host, lambda x, y: x * y, lambda g, x, y: g * y)
    rows, _ = reported(wrong, (randn(host, 3), randn(host, 3, seed=1)))
    assert "gradients" in rows[0].detail
    assert "expected 2" in rows[0].detail


def test_a_backward_that_takes_its_input_for_contiguous(host):
    wrong = function(host, lambda x: x * x, lambda g, x: 2 * flat(x) * g)
    rows, _ = reported(wrong, randn(host, 3, 4))
    assert {row.label.split()[0] for row in rows} <= {"input", "all"}
    transposed = next(r for r in rows if r.label == "input x stride (1, 3)")
    assert transposed.cause == "the backward assumes that x is contiguous"


def test_a_forward_that_takes_its_input_for_contiguous(host):
    wrong = function(host, lambda x: flat(x) * 2, lambda g, x: 2 * g)
    rows, _ = reported(wrong, randn(host, 3, 4))
    transposed = next(r for r in rows if r.label == "input x stride (1, 3)")
    assert transposed.mismatch.name == "y"
    assert transposed.cause == "the forward assumes that x is contiguous"


def test_a_gradient_filled_flat_into_a_buffer_with_the_inputs_strides():
    def backward(g, x):
        dx = torch.empty_like(x)  # keeps the strides of a dense x
        dx.as_strided((x.numel(),), (1,)).copy_((2 * x * g).reshape(-1))
        return dx

    rows, _ = reported(square(torch, backward), randn(torch, 3, 4))
    transposed = next(r for r in rows if r.label == "input x stride (1, 3)")
    assert transposed.cause == "the gradient is written in the memory order of x"


def test_a_backward_that_views_its_gradient_refuses_layouts_and_fails(host):
    wrong = square(host, lambda g, x: 2 * x * g.view(-1).view(*g.shape))
    rows, _ = reported(wrong, randn(host, 3, 4))
    row = next(r for r in rows if r.label == "grad stride (1, 3)")
    assert "raised" in row.detail
    assert row.cause == "the backward refuses this layout"


def test_a_backward_that_is_not_reentrant(host):
    noise = itertools.count(1)
    wrong = square(host, lambda g, x: 2 * x * g * (1 + 1e-7 * next(noise)))
    rows, _ = reported(wrong, randn(host, 3))
    assert "not reentrant: dx differs by" in rows[0].detail
    assert "nondet_tol=0" in rows[0].detail
    assert gradcheck(wrong, randn(host, 3), nondet_tol=1e-5)


def test_a_backward_that_writes_into_its_gradient():
    def backward(g, x):
        g.mul_(x).mul_(2)
        return g

    rows, _ = reported(square(torch, backward), randn(torch, 3))
    assert any("writes into its incoming gradient" in row.detail for row in rows)


def test_a_function_that_writes_into_its_input():
    def wrong(x):
        y = x * 2
        with torch.no_grad():
            x.add_(1)
        return y

    rows, _ = reported(wrong, randn(torch, 3))
    assert rows[0].detail == "the function writes into its input x"


def test_a_random_function_is_told_apart_from_a_wrong_one(host):
    drawn = itertools.count()
    rows, _ = reported(lambda x: x * next(drawn), randn(host, 3))
    assert "the function is random or keeps state" in rows[0].detail


def test_an_output_cut_off_from_the_tape(host):
    rows, _ = reported(lambda x: x.detach() * 2, randn(host, 3))
    assert "output 0 depends on x but is cut off from the tape" in rows[0].detail
    with pytest.raises(InputError, match="can be differentiated, since none depends"):
        gradcheck(lambda x: x.detach() * 0, randn(host, 3))


def test_the_step_sweep_tells_a_bug_from_noise(host):
    assert "a bug, not noise" in str(examine(square(host, lambda g, x: x * g), randn(host, 3)))
    big = lambda x: x * 1e8 + x * x - x * 1e8  # noqa: E731
    text = str(examine(big, randn(host, 3)))
    assert "noise of the step, not a bug" in text
    h = float(text.rpartition("pass eps=")[2].split()[0])
    assert gradcheck(big, randn(host, 3), eps=h)


def test_a_kink_is_called_a_kink(host):
    x = host.tensor([1.0, 0.0, -1.0], dtype=host.float64).requires_grad_()
    text = str(examine(host.relu, x))
    assert "the function has a kink here" in text


def test_an_undefined_gradient_is_zero_not_an_error():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    rows, _ = reported(Wrong.apply, randn(torch, 3))
    assert rows[0].label == "grad undefined"
    assert gradcheck(Wrong.apply, randn(torch, 3), check_undefined_grad=False)


def test_fast_mode_finds_the_same_faults(host):
    for backward in (lambda g, x: x * g, lambda g, x: 2 * x * flat(g)):
        assert not gradcheck(
            square(host, backward), randn(host, 4, 2), fast_mode=True, raise_exception=False
        )
    assert gradcheck(square(host, lambda g, x: 2 * x * g), randn(host, 4, 2), fast_mode=True)


def test_without_layouts_only_the_plain_derivative_is_judged(host):
    wrong = square(host, lambda g, x: 2 * x * flat(g))
    assert gradcheck(wrong, randn(host, 4, 2), layouts=False)
    assert not gradcheck(wrong, randn(host, 4, 2), raise_exception=False)


@pytest.mark.parametrize("check", [examine, examine_twice])
@pytest.mark.parametrize("total", [False, True])
def test_a_function_that_gives_nan_is_told_so_and_no_layout_is_blamed(host, check, total):
    def nan(x):
        y = x * float("nan")
        return y.sum() if total else y

    text = str(check(nan, host.ones(2, 3, dtype=host.float64).requires_grad_()))
    assert "rows fail" in text
    assert "the function itself gives nan here" in text
    assert "no difference is finite, whatever the step" in text
    for claim in ("contiguous", "offset", "strides of", "a bug"):
        assert f"backward assumes {claim}" not in text
        assert f"ignores the gradient's storage {claim}" not in text
        assert f"depends on the {claim}" not in text
    assert "a bug, not noise" not in text
    assert "no gradient (None)" not in text


@pytest.mark.filterwarnings("ignore:(invalid value|divide by zero):RuntimeWarning")
def test_a_point_at_the_edge_of_the_domain_is_told_so(host):
    report = examine(lambda x: x.sqrt(), host.zeros(2, dtype=host.float64).requires_grad_())
    assert "the function is not finite within one step of this point" in report.rows[0].cause


def test_a_layout_is_still_blamed_beside_an_element_that_is_nan():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.log()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            flat = g.as_strided(g.shape, (g.shape[1], 1), g.storage_offset())
            return flat * (x.log() / x.log()) / x

    x = torch.tensor([[-1.0, 2.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    fate = {row.label: row.cause for row in examine(Wrong.apply, x).rows}
    assert fate["as given"].startswith("the function itself gives nan here")
    assert fate["grad stride (1, 2)"] == "the backward assumes a contiguous gradient"
