"""Convolution, pooling, norms by channel and losses as modules: PyTorch's, with its weights by key."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.nn.test_layers import compare, pair

import chainrule as cr
from chainrule import nn
from chainrule.errors import InputError, ShapeError

RANDOM = np.random.default_rng(0)
both = pytest.mark.parametrize("device", ["cpu", "torch"])

LAYERS = {
    "Conv1d": (lambda m: m.Conv1d(3, 4, 3, padding=1), (2, 3, 7)),
    "Conv2d": (lambda m: m.Conv2d(4, 6, (3, 2), 2, 1, groups=2, bias=False), (2, 4, 6, 5)),
    "Conv2d same": (lambda m: m.Conv2d(3, 2, 3, padding="same", dilation=2), (2, 3, 6, 5)),
    "Conv3d": (lambda m: m.Conv3d(2, 3, 2), (1, 2, 3, 4, 3)),
    "ConvTranspose1d": (lambda m: m.ConvTranspose1d(3, 2, 3, 2, output_padding=1), (2, 3, 4)),
    "ConvTranspose2d": (lambda m: m.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2), (2, 4, 3, 4)),
    "ConvTranspose3d": (lambda m: m.ConvTranspose3d(2, 3, 2), (1, 2, 3, 2, 3)),
    "MaxPool1d": (lambda m: m.MaxPool1d(3, 2), (2, 3, 7)),
    "MaxPool2d": (lambda m: m.MaxPool2d(3, 2, 1, ceil_mode=True), (2, 3, 7, 6)),
    "MaxPool3d": (lambda m: m.MaxPool3d(2), (1, 2, 4, 4, 5)),
    "AvgPool1d": (lambda m: m.AvgPool1d(3, 2, 1), (2, 3, 7)),
    "AvgPool2d": (lambda m: m.AvgPool2d(2, count_include_pad=False, padding=1), (2, 3, 7, 6)),
    "AvgPool3d": (lambda m: m.AvgPool3d(2, divisor_override=3), (1, 2, 4, 4, 5)),
    "AdaptiveAvgPool1d": (lambda m: m.AdaptiveAvgPool1d(3), (2, 3, 7)),
    "AdaptiveAvgPool2d": (lambda m: m.AdaptiveAvgPool2d((None, 2)), (2, 3, 7, 6)),
    "AdaptiveAvgPool3d": (lambda m: m.AdaptiveAvgPool3d(2), (1, 2, 4, 3, 5)),
    "Upsample": (lambda m: m.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 4, 5)),
    "Flatten": (lambda m: m.Flatten(), (2, 3, 4, 5)),
    "Unflatten": (lambda m: m.Unflatten(1, (2, 3)), (2, 6, 4)),
    "BatchNorm1d": (lambda m: m.BatchNorm1d(4), (5, 4)),
    "BatchNorm2d": (lambda m: m.BatchNorm2d(3, momentum=None), (2, 3, 4, 5)),
    "BatchNorm3d": (lambda m: m.BatchNorm3d(2, affine=False), (2, 2, 3, 2, 3)),
    "BatchNorm, untracked": (lambda m: m.BatchNorm1d(3, track_running_stats=False), (2, 3, 4)),
    "InstanceNorm1d": (lambda m: m.InstanceNorm1d(3), (3, 5)),
    "InstanceNorm2d": (lambda m: m.InstanceNorm2d(3, affine=True, track_running_stats=True),
                       (2, 3, 4, 5)),
    "InstanceNorm3d": (lambda m: m.InstanceNorm3d(2), (2, 2, 3, 2, 3)),
    "GroupNorm": (lambda m: m.GroupNorm(2, 4), (3, 4, 5)),
    "GroupNorm, no bias": (lambda m: m.GroupNorm(2, 4, bias=False), (3, 4, 5)),
    "BatchNorm1d, no bias": (lambda m: m.BatchNorm1d(4, bias=False), (5, 4)),
}  # fmt: skip


@both
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_pytorchs(name, device):
    make, shape = LAYERS[name]
    ours, theirs = pair(make(nn), make(torch.nn), device)
    for training in (True, True, False):  # the running averages move, then are used
        for module in (ours, theirs):
            module.train(training)
            module.zero_grad()
        compare(ours, theirs, RANDOM.standard_normal(shape), device=device)
        state = theirs.state_dict()
        for key, value in ours.state_dict().items():
            np.testing.assert_allclose(value.detach().numpy(), state[key].numpy(), rtol=1e-12)
            assert value.dtype.name == str(state[key].dtype).removeprefix("torch.")


P, Q = RANDOM.random((2, 4, 5)) * 0.9 + 0.05
ROWS = np.array([1, -1, 1, -1])
W = RANDOM.random(5) + 0.5
LOSSES = {
    "BCELoss": (lambda m, t: m.BCELoss(t(W), reduction="sum"), (P, Q)),
    "BCEWithLogitsLoss": (lambda m, t: m.BCEWithLogitsLoss(pos_weight=t(W)), (P * 4 - 2, Q)),
    "HuberLoss": (lambda m, t: m.HuberLoss(delta=0.2), (P, Q)),
    "SmoothL1Loss": (lambda m, t: m.SmoothL1Loss(beta=0.3), (P, Q)),
    "KLDivLoss": (lambda m, t: m.KLDivLoss(reduction="batchmean", log_target=True), (P, Q)),
    "CosineSimilarity": (lambda m, t: m.CosineSimilarity(), (P, Q)),
    "CosineEmbeddingLoss": (lambda m, t: m.CosineEmbeddingLoss(0.3), (P, Q, ROWS)),
    "TripletMarginLoss": (lambda m, t: m.TripletMarginLoss(swap=True), (P, Q, P[::-1])),
}


@both
@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_pytorchs(name, device):
    make, inputs = LOSSES[name]
    ours = make(nn, lambda v: cr.tensor(v, device=device))
    compare(ours, make(torch.nn, torch.tensor), *inputs, device=device)


@pytest.mark.parametrize(
    ("make", "fan"),
    [
        (lambda m: m.Conv2d(8, 64, 3, groups=2), 4 * 9),
        (lambda m: m.ConvTranspose1d(64, 80, 5), 80 * 5),
    ],
)
def test_initial_values_fill_pytorchs_interval(make, fan):
    bound = 1 / math.sqrt(fan)
    for module in (make(nn), make(torch.nn)):
        for p in module.parameters():
            values = p.detach().numpy()
            assert np.abs(values).max() <= bound
            assert np.abs(values).max() > 0.8 * bound
            assert np.abs(values.mean()) < 3 * bound / math.sqrt(3 * values.size)


def test_layers_say_what_does_not_fit():
    with pytest.raises(InputError, match="groups=3 must be positive and divide 4 input"):
        nn.Conv2d(4, 6, 3, groups=3)
    with pytest.raises(InputError, match="pads with zeros; for 'reflect'"):
        nn.Conv2d(4, 6, 3, padding_mode="reflect")
    with pytest.raises(ShapeError, match="BatchNorm2d takes an input of 4 dimensions"):
        nn.BatchNorm2d(3)(cr.zeros(2, 3))
    with pytest.raises(InputError, match="num_groups=3 must be positive and divide 4"):
        nn.GroupNorm(3, 4)


def test_a_layer_prints_its_options():
    text = repr(nn.Conv2d(3, 8, 3, padding=1, bias=False))
    assert text == "Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)"
    assert text == repr(torch.nn.Conv2d(3, 8, 3, padding=1, bias=False))
    assert repr(nn.BatchNorm1d(4)) == repr(torch.nn.BatchNorm1d(4))
    assert repr(nn.GroupNorm(2, 4)) == repr(torch.nn.GroupNorm(2, 4))
    assert repr(nn.MaxPool2d(2)) == repr(torch.nn.MaxPool2d(2))
