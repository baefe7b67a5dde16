"""Clipping gradients against PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule import nn
from chainrule.errors import GradError, InputError

RANDOM = np.random.default_rng(0)

both = pytest.mark.parametrize("device", ["cpu", "torch"])


def pairs(device, dtype="float64"):
    """Three parameters, one of them without a gradient, in both libraries."""
    ours, theirs = [], []
    for shape in ((3, 4), (5,), ()):
        x = RANDOM.standard_normal(shape).astype(dtype)
        p, q = cr.tensor(x, device=device, requires_grad=True), torch.tensor(x, requires_grad=True)
        if shape != (5,):
            (p * p).sum().backward()
            (q * q).sum().backward()
        ours.append(p)
        theirs.append(q)
    return ours, theirs


@both
@pytest.mark.parametrize("norm_type", [2.0, math.inf])
@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_clip_by_norm_is_pytorchs(device, norm_type, limit):
    ours, theirs = pairs(device)
    a = nn.utils.clip_grad_norm_(ours, limit, norm_type)
    b = torch.nn.utils.clip_grad_norm_(theirs, limit, norm_type)
    assert a.dtype is cr.float64
    assert a.shape == ()
    assert a.item() == pytest.approx(b.item(), rel=1e-14)
    for p, q in zip(ours, theirs, strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-14)


@both
def test_clip_by_value_is_pytorchs(device):
    ours, theirs = pairs(device, "float32")
    nn.utils.clip_grad_value_(ours, 0.7)
    torch.nn.utils.clip_grad_value_(theirs, 0.7)
    for p, q in zip(ours, theirs, strict=True):
        if p.grad is not None:
            np.testing.assert_array_equal(p.grad.numpy(), q.grad.numpy())


@both
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_is_told_or_refused(device, value):
    p = cr.tensor([1.0, 2.0], device=device, requires_grad=True)
    (p * cr.tensor([value, 1.0], device=device)).sum().backward()
    with pytest.raises(GradError, match=f"norm of the gradients is {value}"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert p.grad.tolist()[1] == 1.0, "nothing was scaled"
    assert str(nn.utils.clip_grad_norm_(p, 1.0).item()) == str(value)


def test_clipping_nothing_is_fine_and_wrong_options_are_not():
    assert nn.utils.clip_grad_norm_([], 1.0).item() == 0.0
    with pytest.raises(InputError, match="norm_type is 2 or infinity, got 1"):
        nn.utils.clip_grad_norm_([], 1.0, norm_type=1)
    with pytest.raises(InputError, match="must not be negative"):
        nn.utils.clip_grad_value_([], -1.0)


def test_the_norm_of_half_gradients_does_not_overflow():
    p = cr.tensor(np.ones(4, np.float16), requires_grad=True)
    (p * 200.0).sum().backward()
    assert nn.utils.clip_grad_norm_([p], 4.0).item() == 400.0
    assert p.grad.tolist() == [2.0] * 4
