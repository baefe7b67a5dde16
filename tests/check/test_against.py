"""check.against: right kernels pass in every dtype and layout, wrong ones fail with the reason."""

from __future__ import annotations

import pytest
import torch

import chainrule as cr
from chainrule.check import against
from chainrule.errors import CheckError, InputError


def randn(*shape, dtype=torch.float16):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(
        dtype
    )


def plain_softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def softmax(x):
    return torch.softmax(x.float(), -1).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_good_half_precision_function_passes_in_every_layout(dtype):
    report = against(softmax, plain_softmax, randn(5, 9, dtype=dtype))
    assert report, str(report)
    labels = [row.label for row in report.rows]
    assert "grad stride (0, 0)" in labels
    assert "input x stride (1, 5)" in labels
    assert against(torch.tanh, torch.tanh, randn(5, 9, dtype=dtype))


def test_errors_beyond_twice_the_plain_runs_fail_with_the_factor():
    def coarse(x):
        return (softmax(x.float()) * 64).round() / 64

    report = against(coarse, plain_softmax, randn(5, 9, dtype=torch.float32), gradients=False)
    row = report.rows[0]
    assert row.status == "FAIL"
    assert "times that of a plain float32 run" in row.detail
    assert "at most 2" in row.detail
    assert against(
        coarse, plain_softmax, randn(5, 9, dtype=torch.float32), gradients=False, factor=1e9
    )


def test_a_loss_of_precision_that_allclose_would_wave_through_fails():
    def variance(x):  # one pass: cancels when the mean is large
        return (x * x).mean(-1) - x.mean(-1) ** 2

    def plain(x):
        return ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1)

    x = randn(4, 64, dtype=torch.float32) + 30
    torch.testing.assert_close(variance(x), plain(x), rtol=1e-2, atol=1e-2)
    assert not against(variance, plain, x, gradients=False, layouts=False)


def test_wrong_gradients_fail_though_the_outputs_are_right():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.tanh()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            y = x.to(torch.bfloat16).tanh().to(x.dtype)  # the rounded output
            return g * (1 - y * y)

    x = randn(6, 7, dtype=torch.float32)
    report = against(Wrong.apply, torch.tanh, x)
    assert report.rows[0].status == "FAIL"
    assert report.rows[0].mismatch.name == "dx"
    assert against(Wrong.apply, torch.tanh, x, gradients=False)


def test_a_gradient_read_flat_is_named_in_half_precision():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, g):
            return 3 * g.as_strided(g.shape, (g.shape[1], 1), g.storage_offset())

    report = against(Wrong.apply, lambda x: x * 3, randn(4, 3))
    row = next(r for r in report.rows if r.label == "grad stride (0, 0)")
    assert row.cause == "the backward assumes a contiguous gradient"


def test_an_element_that_is_never_written_is_poison():
    def wrong(x):
        y = torch.empty_like(x)
        y[:-1] = softmax(x[:-1])
        return y

    report = against(wrong, plain_softmax, randn(5, 9), gradients=False)
    assert "y[4, 0] = nan" in report.rows[0].detail


def test_a_write_past_the_end_of_its_own_output_is_found():
    def wrong(x):
        y = torch.empty(x.shape, dtype=x.dtype)
        y.copy_(softmax(x))
        y.as_strided((y.numel() + 1,), (1,), y.storage_offset())[-1] = 3
        return y

    report = against(wrong, plain_softmax, randn(5, 9), gradients=False, layouts=False)
    assert "memory around a buffer the function allocated" in report.rows[0].detail


def test_a_write_past_the_end_of_an_input_is_found():
    def wrong(x):
        x.as_strided((x.numel() + 1,), (1,), x.storage_offset())[-1] = 3
        return x * 2

    report = against(wrong, lambda x: x * 2, randn(5, 9), gradients=False, layouts=False)
    assert "memory in or around the input x was written to" in report.rows[0].detail


def test_out_takes_any_strides_or_says_that_it_does_not():
    def flat(x, out=None):
        y = x * 2
        if out is None:
            return y
        return out.as_strided(x.shape, (x.shape[1], 1), out.storage_offset()).copy_(y)

    def right(x, out=None):
        return x * 2 if out is None else out.copy_(x * 2)

    def refusing(x, out=None):
        if out is not None and not out.is_contiguous():
            raise ValueError("out must be contiguous")
        return right(x, out=out)

    x, plain = randn(3, 4), lambda x: x * 2
    fate = {r.label: r for r in against(flat, plain, x, gradients=False).rows}
    assert fate["out= stride (4, 1)"].status == "ok"
    assert fate["out= stride (1, 3)"].status == "FAIL"
    assert fate["out= stride (9, 2) offset 3"].detail == "6 of 12 elements are not written"
    assert against(right, plain, x, gradients=False)
    report = against(refusing, plain, x, gradients=False)
    assert report
    assert "refused" in [r.status for r in report.rows]


def test_sizes_at_the_edges_of_a_block():
    def wrong(x):  # forgets the tail of the last block
        y = torch.zeros_like(x)
        n = x.shape[0] // 8 * 8
        y[:n] = x[:n] * 2
        return y

    report = against(
        wrong, lambda x: x * 2, lambda n: randn(n), sizes="edges", block=8, layouts=False
    )
    fate = {row.label: row.status for row in report.rows}
    assert fate == {
        "size 0 as given": "ok",
        "size 1 as given": "FAIL",
        "size 7 as given": "FAIL",
        "size 8 as given": "ok",
        "size 9 as given": "FAIL",
    }


def test_several_sizes_are_tried_together_and_one_by_one():
    seen = []

    def make(rows, columns):
        seen.append((rows, columns))
        return randn(rows, columns)

    assert against(torch.neg, torch.neg, make, sizes="edges", block=2, layouts=False)
    assert set(seen) == {(n, n) for n in (0, 1, 2, 3)} | {(n, 3) for n in (0, 1, 2)} | {
        (3, n) for n in (0, 1, 2)
    }
    seen.clear()
    assert against(torch.neg, torch.neg, make, sizes=[(2, 5), (0, 1)], layouts=False)
    assert seen == [(2, 5), (0, 1)]


def test_a_kernel_without_a_backward_is_judged_by_its_outputs_and_says_so():
    def kernel(x):
        with torch.no_grad():
            return x * 2

    report = against(kernel, lambda x: x * 2, randn(3), layouts=False)
    assert report
    assert "gradients not judged" in report.rows[0].detail
    x = randn(3).requires_grad_()
    assert "cut off from the tape" in against(kernel, lambda x: x * 2, x).rows[0].detail


def test_overflow_is_fine_where_the_plain_run_overflows_and_wrong_elsewhere():
    x = torch.tensor([1.0, 300.0], dtype=torch.float16)
    assert against(lambda x: x * x, lambda x: x * x, x, layouts=False)
    y = torch.tensor([1.0, 200.0], dtype=torch.float16)
    report = against(lambda x: x * x * 4 / 4, lambda x: x * x, y, layouts=False)
    assert "not finite, where the plain run is" in report.rows[0].detail


def test_integer_results_are_exact():
    x = randn(3, 4)
    assert against(lambda x: x.argmax(1), lambda x: x.argmax(1), x)
    report = against(lambda x: x.argmax(1) * 0, lambda x: x.argmax(1), x)
    assert not report
    assert "an exact result is wanted" in str(report)


def test_the_report_is_a_truth_value_a_text_and_an_error():
    report = against(lambda x: x * 3, lambda x: x * 2, randn(3))
    assert not report
    with pytest.raises(CheckError, match="against"):
        report.raise_if_failed()
    against(torch.neg, torch.neg, randn(3)).raise_if_failed()


def test_nothing_judged_is_no_pass():
    for sizes in ({}, {"sizes": [1, 2]}):
        given = (lambda n: randn(n)) if sizes else randn(3)
        report = against(lambda x: x, lambda x: 1 / 0, given, **sizes)
        assert {row.status for row in report.rows} == {"skip"}
        assert not report
        assert not report.failures
        assert "nothing was judged" in str(report)
        with pytest.raises(CheckError, match="nothing was judged"):
            report.raise_if_failed()


def test_a_reference_that_gives_nan_everywhere_judges_nothing():
    report = against(lambda x: x * float("nan"), lambda x: x * float("nan"), randn(3))
    assert not report
    assert {row.status for row in report.rows} == {"skip"}
    assert against(lambda x: x, lambda x: x * float("nan"), randn(3)).failures


def test_one_judged_size_is_enough():
    def plain(x):
        return x * 2 if x.numel() else 1 / 0

    report = against(lambda x: x * 2, plain, lambda n: randn(n), sizes=[0, 3], layouts=False)
    assert [row.status for row in report.rows] == ["skip", "ok"]
    assert report


@pytest.mark.parametrize("result", [None, 1.0, "text"])
def test_a_reference_or_function_without_tensors_is_no_pass(result):
    with pytest.raises(InputError, match="returns no torch tensor"):
        against(lambda x: result, lambda x: result, randn(3))
    assert not against(lambda x: result, lambda x: x, randn(3))


def test_a_reference_off_the_tape_cannot_judge_gradients_that_are_asked_for():
    def plain(x):
        return x.detach() * 2

    x = randn(3).requires_grad_()
    with pytest.raises(InputError, match="reference plain is on the tape"):
        against(lambda x: x * 2, plain, x)
    assert against(lambda x: x * 2, plain, x, gradients=False)
    assert against(lambda x: x * 2, plain, randn(3))


def test_what_makes_no_sense_is_said():
    with pytest.raises(InputError, match="sizes need a function"):
        against(torch.neg, torch.neg, randn(3), sizes="edges")
    with pytest.raises(InputError, match="takes no size"):
        against(torch.neg, torch.neg, lambda: randn(3))
    with pytest.raises(InputError, match="give 'edges'"):
        against(torch.neg, torch.neg, lambda n: randn(n), sizes="all")
    with pytest.raises(InputError, match="write the reference without casts"):
        against(torch.neg, lambda x: -x.float(), randn(3))


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_our_own_functions_are_judged_alike(device, dtype):
    x = cr.tensor([[1.0, -2.0, 3.0], [0.5, 7.0, -1.0]], dtype=getattr(cr, dtype), device=device)
    report = against(lambda x: x * x + x, lambda x: x * (x + 1), x)
    assert report, str(report)
    assert any("stride (-3, -1)" in row.label for row in report.rows)
    assert not against(lambda x: x * x + x, lambda x: x * (x + 2), x)
