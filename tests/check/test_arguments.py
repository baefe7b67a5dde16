"""What gradcheck takes and what it refuses, in words."""

from __future__ import annotations

import pytest
import torch

import chainrule as cr
from chainrule.check import (
    GradcheckError,
    PrecisionWarning,
    examine_twice,
    gradcheck,
    gradgradcheck,
)
from chainrule.errors import CheckError, DTypeError, InputError, LayoutError

HOSTS = {"torch": torch, "chainrule": cr}


@pytest.fixture(params=sorted(HOSTS))
def host(request):
    return HOSTS[request.param]


def ones(host, *shape, dtype="float64"):
    return host.ones(*shape, dtype=getattr(host, dtype)).requires_grad_()


def test_no_input_that_requires_a_gradient(host):
    with pytest.raises(ValueError, match="requires_grad=True"):
        gradcheck(lambda x: x, host.ones(3, dtype=host.float64))
    with pytest.raises(InputError, match="no input is a tensor"):
        gradcheck(lambda x: x, 3.0)


def test_float32_warns(host):
    with pytest.warns(PrecisionWarning, match="x: float32 inputs have too few digits"):
        assert gradcheck(lambda x: x * 2, ones(host, 2, dtype="float32"), eps=2.0**-9)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_sent_to_against(host, dtype):
    with pytest.raises(DTypeError, match=f"{dtype}, too coarse .* check.against"):
        gradcheck(lambda x: x * 2, ones(host, 2, dtype=dtype))


def test_complex_inputs_are_out_of_scope():
    with pytest.raises(DTypeError, match="complex inputs are out of scope"):
        gradcheck(lambda x: x * 2, torch.ones(2, dtype=torch.complex128, requires_grad=True))


def test_inputs_that_share_memory(host):
    x = host.ones(1, 3, dtype=host.float64).expand(2, 3).detach().requires_grad_()
    with pytest.raises(LayoutError, match=r"shape \(2, 3\) and strides \(0, 1\)"):
        gradcheck(lambda x: x * 2, x)
    unfolded = host.ones(4, dtype=host.float64).unfold(0, 2, 1).detach().requires_grad_()
    with pytest.raises(LayoutError, match="share memory"):
        gradcheck(lambda x: x * 2, unfolded)


@pytest.mark.parametrize("result", [None, 1.0, "text"])
def test_a_function_that_returns_no_tensor(host, result):
    kind = type(result).__name__
    for check in (gradcheck, gradgradcheck):
        with pytest.raises(ValueError, match=f"returns {kind}|is on the tape"):
            check(lambda x: result, ones(host, 3))


def test_outputs_that_cannot_be_differentiated(host):
    constants = {
        "int64": lambda x: x.argmax(),
        "float64": lambda x: host.ones(3, dtype=host.float64),
        "bool": lambda x: x > 0,
    }
    for kind, fn in constants.items():
        with pytest.raises(ValueError, match=rf"\({kind}\) can be differentiated"):
            gradcheck(fn, ones(host, 3))
    with pytest.raises(InputError, match="no second derivative to check"):
        gradgradcheck(lambda x: x.argmax(), ones(host, 3))


def test_a_first_gradient_that_is_constant_has_a_second_derivative_of_zero(host):
    g = host.ones(3, dtype=host.float64)
    report = examine_twice(lambda x: x * 3, ones(host, 3), g)
    assert report
    assert report.rows[0].detail == "constant, and so are the differences"


@pytest.mark.parametrize("eps", [0.0, -1e-6, float("nan"), float("inf")])
def test_a_step_that_is_no_step(host, eps):
    with pytest.raises(InputError, match="the step of the differences is a number above 0"):
        gradcheck(lambda x: x * 2, ones(host, 2), eps=eps)


def test_a_step_that_rounding_swallows(host):
    with pytest.raises(InputError, match="eps=1e-30 is lost in the rounding of x, float64"):
        gradcheck(lambda x: x * 2, ones(host, 2), eps=1e-30)


def test_tolerances_below_zero(host):
    for keyword in ("atol", "rtol", "nondet_tol"):
        with pytest.raises(InputError, match=f"{keyword}=-1: a tolerance"):
            gradcheck(lambda x: x * 2, ones(host, 2), **{keyword: -1.0})


def test_mixed_hosts():
    with pytest.raises(InputError, match="mix PyTorch's tensors with chainrule's"):
        gradcheck(lambda x, y: x, (ones(torch, 2), ones(cr, 2)))


@pytest.mark.parametrize("keyword", ["check_forward_ad", "check_batched_grad"])
def test_keywords_that_are_not_offered_say_so(keyword):
    with pytest.raises(InputError, match=f"{keyword}=True is not offered"):
        gradcheck(lambda x: x * 2, ones(torch, 2), **{keyword: True})


def test_pytorchs_keywords_are_taken(host):
    assert gradcheck(
        lambda x: x * 2,
        [ones(host, 2)],
        eps=1e-5,
        atol=1e-6,
        rtol=1e-4,
        raise_exception=True,
        nondet_tol=0.0,
        check_undefined_grad=True,
        check_grad_dtypes=True,
        check_batched_grad=False,
        check_forward_ad=False,
        check_backward_ad=True,
        fast_mode=False,
    )


def squareplus(host):
    """The course's listing: r is saved, and is neither input nor output."""

    class Squareplus(host.autograd.Function):
        @staticmethod
        def forward(ctx, x, b=4.0):
            r = (x * x + b).sqrt()
            ctx.save_for_backward(x, r)
            return 0.5 * (x + r)

        @staticmethod
        def backward(ctx, g):
            x, r = ctx.saved_tensors
            return g * 0.5 * (1 + x / r), None

    return Squareplus


def test_the_courses_function_passes_gradcheck(host):
    x = host.randn(8, dtype=host.float64).requires_grad_()
    assert gradcheck(squareplus(host).apply, x) is True


def test_a_saved_intermediate_fails_gradgradcheck_in_pytorch_with_the_reason():
    report = examine_twice(
        squareplus(torch).apply, torch.randn(8, dtype=torch.float64).requires_grad_()
    )
    assert not report
    assert "SquareplusBackward saves 1 tensor(s) that are neither inputs nor outputs" in str(report)


def test_a_saved_intermediate_fails_gradgradcheck_with_our_engines_sentence():
    x = cr.randn(8, dtype=cr.float64).requires_grad_()
    with pytest.raises(CheckError, match="neither") as caught:
        gradgradcheck(squareplus(cr).apply, x)
    assert isinstance(caught.value, GradcheckError)
    assert not caught.value.report
    assert gradgradcheck(squareplus(cr).apply, x, raise_exception=False) is False


def test_gradgradcheck_takes_incoming_gradients(host):
    x, g = ones(host, 3), ones(host, 3)
    assert gradgradcheck(lambda x: x * x * x, x, g)
    assert gradgradcheck(lambda x: x * x * x, x, gen_non_contig_grad_outputs=True)
    with pytest.raises(InputError, match="has 1 outputs that want a gradient, got 2"):
        gradgradcheck(lambda x: x * x, x, (g, g))


def test_the_error_is_what_users_of_pytorch_and_pytest_catch(host):
    class Wrong(host.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    for kind in (RuntimeError, AssertionError, CheckError):
        with pytest.raises(kind, match="half the derivative"):
            gradcheck(Wrong.apply, ones(host, 3))


def test_an_exception_of_the_function_itself_comes_through(host):
    def broken(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        gradcheck(broken, ones(host, 3))
