"""Batch, group and instance norm against PyTorch, with their running averages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from tests.ops.harness import SAME_DATA, check_half, check_op

import chainrule as cr
import chainrule.nn.functional as F
from chainrule.errors import DTypeError, InputError, ShapeError

RANDOM = np.random.default_rng(0)
W, B, MEAN = RANDOM.standard_normal((3, 4))
VAR = RANDOM.random(4) + 0.5
SHAPES = [(5, 4), (3, 4, 5), (2, 4, 3, 2), (2, 4, 2, 1, 3)]
both = pytest.mark.parametrize("device", ["cpu", "torch"])
LOOSE = {"rtol": 1e-8, "atol": 1e-9}


def _of(module):
    return F if module is cr else TF


@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm_in_training_is_pytorchs(shape):
    x = RANDOM.standard_normal(shape) + 3

    def run(m, x, *p):
        return _of(m).batch_norm(x, None, None, *p, training=True, eps=1e-3)

    # PyTorch's own gradient of a two-dimensional input reads a weight of stride 0 wrongly.
    layouts = SAME_DATA if len(shape) == 2 else True
    check_op(run, None, [x, W, B], layouts=layouts, **LOOSE)
    check_op(run, None, [x], layouts=["sliced"], **LOOSE)


def test_batch_norm_in_evaluation_is_pytorchs():
    x = RANDOM.standard_normal((3, 4, 5))

    def run(m, x, w, b):
        like = {"dtype": x.dtype, **({"device": x.device} if m is cr else {})}
        mean, var = (m.tensor(v, **like) for v in (MEAN, VAR))
        return _of(m).batch_norm(x, mean, var, w, b)

    check_op(run, None, [x, W, B], **LOOSE)


@both
@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
@pytest.mark.parametrize("momentum", [0.1, 1.0, 0.0])
def test_running_averages_move_as_pytorchs(name, momentum, device):
    x = RANDOM.standard_normal((3, 4, 5)) * 2 + 1
    ours = [cr.tensor(v, device=device) for v in (MEAN, VAR)]
    theirs = [torch.tensor(v) for v in (MEAN, VAR)]
    leaf = cr.tensor(x, device=device, requires_grad=True)
    getattr(F, name)(leaf, *ours, None, None, True, momentum)
    getattr(TF, name)(torch.tensor(x), *theirs, None, None, True, momentum)
    for a, b in zip(ours, theirs, strict=True):
        assert not a.requires_grad
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


# Not four groups of shape (5, 4): one element a group is 0 over √eps, where PyTorch's second
# derivative is noise.
@pytest.mark.parametrize(
    ("shape", "groups"),
    [(s, g) for s in SHAPES for g in (1, 2, 4) if (s, g) != ((5, 4), 4)],
)
def test_group_norm_is_pytorchs(shape, groups):
    check_op(
        lambda m, x, *p: _of(m).group_norm(x, groups, *p, eps=1e-3), None,
        [RANDOM.standard_normal(shape), W, B], layouts=("transposed", "expanded"), **LOOSE,
    )  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_instance_norm_is_pytorchs(shape):
    check_op(
        lambda m, x, w, b: _of(m).instance_norm(x, weight=w, bias=b, eps=1e-3), None,
        [RANDOM.standard_normal(shape), W, B], layouts=("sliced", "expanded"), **LOOSE,
    )  # fmt: skip


def test_norms_of_half_types():
    x = RANDOM.standard_normal((6, 4, 5))
    check_half(
        lambda m, x, w, b: _of(m).batch_norm(x, None, None, w, b, True), None, [x, W, B],
        roundings=3,
    )  # fmt: skip
    check_half(lambda m, x: _of(m).group_norm(x, 2), None, [x], roundings=3)


@both
def test_an_empty_batch_stays_empty(device):
    x = cr.zeros(0, 4, 3, device=device, requires_grad=True)
    w = cr.ones(4, device=device, requires_grad=True)
    for y in (F.batch_norm(x, None, None, w, training=True), F.group_norm(x, 2, w)):
        assert y.shape == (0, 4, 3)
        assert cr.autograd.grad(y.sum(), [w])[0].tolist() == [0.0] * 4


def test_channel_norms_say_what_does_not_fit():
    x = cr.zeros(2, 4, 3)
    with pytest.raises(ShapeError, match=r"4 channels, a parameter has shape \(3,\)"):
        F.batch_norm(x, None, None, cr.ones(3), training=True)
    with pytest.raises(InputError, match="needs running_mean and running_var"):
        F.batch_norm(x)
    with pytest.raises(ShapeError, match="more than one value a channel"):
        F.batch_norm(cr.zeros(1, 4), training=True)
    with pytest.raises(InputError, match="num_groups=3 must be positive and divide the 4"):
        F.group_norm(x, 3)
    with pytest.raises(ShapeError, match="more than one element a channel"):
        F.instance_norm(cr.zeros(2, 4, 1))
    with pytest.raises(DTypeError, match="floating-point input, not int64"):
        F.group_norm(x.long(), 2)
