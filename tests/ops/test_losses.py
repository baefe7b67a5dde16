"""Losses against PyTorch: value and two derivatives, ignored targets, smoothing, every shape."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from tests.ops.harness import check_half, check_op

import chainrule as cr
import chainrule.nn.functional as F
from chainrule.errors import DTypeError, IndexRangeError, InputError, ShapeError

RANDOM = np.random.default_rng(0)
SHAPES = {
    "(N, C)": ((6, 4), np.array([0, 3, -100, 2, 2, 1])),
    "(C,)": ((4,), np.array(2)),
    "(N, C, d)": ((3, 4, 2), np.array([[0, 3], [-100, 1], [2, 2]])),
    "(N, C, d, e)": ((2, 4, 2, 3), RANDOM.integers(0, 4, (2, 2, 3))),
}

both = pytest.mark.parametrize("device", ["cpu", "torch"])
reductions = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


def _of(module):
    return F if module is cr else TF


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@reductions
def test_cross_entropy_is_pytorchs(name, smoothing, reduction):
    shape, target = SHAPES[name]
    x = RANDOM.standard_normal(shape) * 3

    def loss(m, x, t):
        return _of(m).cross_entropy(x, t, reduction=reduction, label_smoothing=smoothing)

    # An expanded target would repeat its first entry, so only layouts that keep the data.
    check_op(loss, None, [x, target], layouts=["contiguous", "transposed", "sliced", "flipped"])


@pytest.mark.parametrize("name", SHAPES)
@reductions
def test_nll_loss_is_pytorchs(name, reduction):
    shape, target = SHAPES[name]
    x = RANDOM.standard_normal(shape)
    # PyTorch's own backward of 4 dimensions refuses any other layout than this one.
    layouts = ["contiguous"] if len(shape) == 4 else ["contiguous", "transposed", "sliced"]
    check_op(
        lambda m, x, t: _of(m).nll_loss(x, t, reduction=reduction), None, [x, target],
        layouts=layouts,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss"])
@reductions
def test_distances_are_pytorchs(name, reduction):
    x, t = RANDOM.standard_normal((2, 3, 4))
    x[0, 0] = t[0, 0]  # where |·| has its corner
    # A few equal shapes and different values: both inputs are differentiated.
    check_op(lambda m, x, t: getattr(_of(m), name)(x, t, reduction=reduction), None, [x, t])


def test_losses_of_half_types_are_computed_in_float32():
    x, t = RANDOM.standard_normal((2, 3, 4))
    check_half(lambda m, x, t: _of(m).mse_loss(x, t), None, [x, t])
    target = np.array([0, 3, 2])
    check_half(
        lambda m, x: _of(m).cross_entropy(
            x, torch.tensor(target) if m is torch else cr.tensor(target, device=str(x.device))
        ),
        None,
        [x],
    )


@both
@pytest.mark.parametrize("label_smoothing", [0.0, 0.5])
def test_ignored_rows_may_hold_nan(device, label_smoothing):
    x = cr.tensor([[0.0, 1.0], [float("nan")] * 2], device=device, requires_grad=True)
    loss = F.cross_entropy(
        x, cr.tensor([1, 7], device=device), ignore_index=7, label_smoothing=label_smoothing
    )
    loss.backward()
    assert np.isfinite(loss.item())
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()).all()
    assert x.grad.tolist()[1] == [0.0, 0.0]


@both
def test_the_mean_over_no_target_is_nan_with_gradient_zero_as_in_pytorch(device):
    x, t = np.ones((2, 3)), np.array([-100, -100])
    ours = cr.tensor(x, device=device, requires_grad=True)
    theirs = torch.tensor(x, requires_grad=True)
    loss = F.cross_entropy(ours, cr.tensor(t, device=device))
    wanted = TF.cross_entropy(theirs, torch.tensor(t))
    loss.backward()
    wanted.backward()
    assert np.isnan(loss.item())
    assert np.isnan(wanted.item())
    assert ours.grad is not None
    np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())


@both
def test_scores_of_thousands_neither_overflow_nor_lose_the_answer(device):
    x = np.array([[5000.0, 0.0, -5000.0], [-5000.0, -5000.0, 5000.0]])
    t = np.array([1, 2])
    check_op(
        lambda m, x, t: _of(m).cross_entropy(x, t, reduction="none"), None, [x, t],
        layouts=False, devices=[device],
    )  # fmt: skip
    x[0, 2] = -np.inf
    check_op(
        lambda m, x, t: _of(m).cross_entropy(x, t, reduction="none"), None, [x, t],
        layouts=False, devices=[device], second=False,
    )  # fmt: skip


@both
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_class_losses_say_what_is_wrong(name, device):
    loss = getattr(F, name)
    x = cr.zeros(3, 4, device=device)

    def target(*values, dtype=cr.int64):
        return cr.tensor(values, dtype=dtype, device=device)

    with pytest.raises(IndexRangeError, match=r"target 4 at row 1 is not one of 4 classes"):
        loss(x, target(0, 4, 0))
    with pytest.raises(IndexRangeError, match=r"target -1 at row 0"):
        loss(x, target(-1, 0, 0))
    with pytest.raises(ShapeError, match=r"scores of shape \(3, 4\).*got targets of shape \(2,\)"):
        loss(x, target(0, 1))
    with pytest.raises(DTypeError, match="so integers; got float32"):
        loss(x, target(0, 1, 2, dtype=cr.float32))
    with pytest.raises(InputError, match="reduction is"):
        loss(x, target(0, 1, 2), reduction="average")


def test_the_other_errors_have_words_too():
    with pytest.raises(InputError, match=r"label_smoothing is between 0 and 1, got 1\.5"):
        F.cross_entropy(cr.zeros(1, 2), cr.tensor([0]), label_smoothing=1.5)
    with pytest.raises(ShapeError, match=r"input \(3, 1\) and target \(3,\) differ"):
        F.mse_loss(cr.zeros(3, 1), cr.zeros(3))
    with pytest.raises(DTypeError, match="not int64"):
        F.l1_loss(cr.tensor([1]), cr.tensor([2]))
