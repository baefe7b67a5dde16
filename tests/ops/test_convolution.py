"""Convolution against PyTorch: every option, both memory formats, two derivatives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from tests.ops.harness import check_half, check_op, check_same

import chainrule as cr
import chainrule.nn.functional as F
from chainrule.backends import convolution
from chainrule.errors import DTypeError, InputError, ShapeError

RANDOM = np.random.default_rng(0)
both = pytest.mark.parametrize("device", ["cpu", "torch"])


def _of(module):
    return F if module is cr else TF


def _arrays(*shapes):
    return [RANDOM.standard_normal(s) for s in shapes]


CASES = {
    # name: (function, input, weight, options)
    "1d": ("conv1d", (2, 3, 7), (4, 3, 3), {}),
    "1d stride": ("conv1d", (2, 4, 9), (6, 2, 3), {"stride": 2, "groups": 2, "padding": 2}),
    "1d same, even": ("conv1d", (2, 3, 7), (2, 3, 4), {"padding": "same", "dilation": 2}),
    "1d no batch": ("conv1d", (3, 7), (2, 3, 2), {"padding": "valid"}),
    "1d one tap": ("conv1d", (2, 3, 5), (4, 3, 1), {}),
    "2d": ("conv2d", (2, 3, 5, 6), (4, 3, 3, 2), {}),
    "2d padding": ("conv2d", (2, 3, 4, 5), (2, 3, 3, 3), {"padding": (1, 2)}),
    "2d stride": ("conv2d", (2, 2, 7, 6), (3, 2, 3, 2), {"stride": (2, 3), "padding": 1}),
    "2d dilation": ("conv2d", (1, 2, 7, 8), (2, 2, 3, 2), {"dilation": (2, 3), "padding": 1}),
    "2d all": ("conv2d", (2, 4, 8, 7), (4, 2, 2, 3), {"stride": (3, 2), "dilation": (1, 2),
               "padding": (2, 1), "groups": 2}),
    "2d same": ("conv2d", (2, 2, 4, 5), (2, 2, 2, 3), {"padding": "same"}),
    "2d depthwise": ("conv2d", (2, 3, 5, 5), (3, 1, 3, 3), {"padding": 1, "groups": 3}),
    "2d depthwise ×2": ("conv2d", (2, 3, 5, 6), (6, 1, 2, 3), {"stride": 2, "groups": 3}),
    "2d one tap": ("conv2d", (2, 3, 4, 5), (4, 3, 1, 1), {}),
    "2d one tap, stride": ("conv2d", (2, 3, 4, 5), (4, 3, 1, 1), {"stride": 2, "padding": 1}),
    "2d much padding": ("conv2d", (1, 2, 3, 3), (2, 2, 2, 2), {"padding": 3}),
    "3d": ("conv3d", (1, 2, 4, 3, 5), (2, 2, 2, 2, 3), {"padding": 1}),
    "3d all": ("conv3d", (1, 4, 4, 5, 6), (2, 2, 2, 2, 2), {"stride": (1, 2, 3), "dilation": 2,
               "padding": (1, 2, 0), "groups": 2}),
    "transpose 1d": ("conv_transpose1d", (2, 3, 5), (3, 4, 3), {"stride": 2, "padding": 1,
                     "output_padding": 1}),
    "transpose 2d": ("conv_transpose2d", (2, 3, 4, 3), (3, 2, 3, 2), {}),
    "transpose 2d all": ("conv_transpose2d", (2, 4, 3, 4), (4, 3, 2, 3), {"stride": (3, 2),
                         "padding": 1, "output_padding": (2, 1), "groups": 2, "dilation": (1, 2)}),
    "transpose 3d": ("conv_transpose3d", (1, 2, 2, 3, 2), (2, 2, 2, 1, 3), {"stride": 2}),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("case", CASES)
def test_convolution_is_pytorchs(case):
    name, x, w, options = CASES[case]
    groups = options.get("groups", 1)
    out = w[1] * groups if "transpose" in name else w[0]

    def run(m, x, w, *b):
        return getattr(_of(m), name)(x, w, *b, **options)

    layouts = ("contiguous", "flipped", "expanded") if case != "2d all" else True
    check_op(run, None, _arrays(x, w, (out,)), layouts=layouts, rtol=1e-9, atol=1e-10)
    check_op(run, None, _arrays(x, w), layouts=["sliced"], second=False, rtol=1e-9, atol=1e-10)


def _channels_last(x):
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


@both
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_channels_last_gives_the_same_numbers_and_keeps_its_layout(device, stride, groups):
    x, w, g = _arrays(
        (2, 4, 6, 5), (4, 4 // groups, 3, 3), (2, 4, -(-6 // stride), -(-5 // stride))
    )
    found = []
    for change in (lambda t: t, _channels_last):
        leaf = cr.tensor(x, device=device, requires_grad=True)
        weight = cr.tensor(w, device=device, requires_grad=True)
        seen = change(leaf)
        y = F.conv2d(seen, weight, None, stride, 1, groups=groups)
        gx, gw = cr.autograd.grad(y, [seen, weight], cr.tensor(g, device=device))
        assert y.layout.is_channels_last == (change is _channels_last)
        back = F.conv_transpose2d(y, weight, None, stride, 1, groups=groups)
        assert back.layout.is_channels_last == (change is _channels_last)
        found.append((y.detach().numpy(), gx.numpy(), gw.numpy()))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"groups": 4}, {"dilation": 2}])
def test_large_batches_are_shared_among_threads(options, monkeypatch):
    """In several chunks, of which the last is smaller; the sums do not depend on the threads."""
    monkeypatch.setattr(convolution, "_CHUNK", 2**13)
    x, w, b = _arrays((7, 8, 20, 18), (12, 8 // options.get("groups", 1), 3, 3), (12,))
    check_op(
        lambda m, *t: _of(m).conv2d(*t, padding=1, **options), None, [x, w, b],
        layouts=["contiguous", "sliced"], devices=["cpu"], rtol=1e-9, atol=1e-9,
    )  # fmt: skip


def test_half_types_are_computed_in_float32():
    arrays = _arrays((2, 3, 5, 5), (4, 3, 3, 3), (4,))
    check_half(lambda m, *t: _of(m).conv2d(*t, padding=1), None, arrays, roundings=3)


@both
def test_no_images_give_no_images(device):
    x = cr.zeros(0, 3, 5, 5, device=device, requires_grad=True)
    w = cr.ones(2, 3, 3, 3, device=device, requires_grad=True)
    y = F.conv2d(x, w)
    y.sum().backward()
    assert y.shape == (0, 2, 3, 3)
    assert w.grad is not None
    assert w.grad.abs().sum().item() == 0.0


def test_the_unpadded_pixel_of_a_kernel_of_one_is_no_copy():
    """A 1 × 1 kernel reads a channels_last input where it lies."""
    x = _channels_last(cr.randn(2, 8, 4, 4))
    raw = np.moveaxis(x.numpy(), 1, -1)
    block = convolution._blocked(raw[:1], (0, 0), (4, 4))
    assert np.shares_memory(block, raw)


def test_convolution_says_what_does_not_fit():
    x, w = cr.zeros(1, 3, 4, 4), cr.zeros(2, 3, 3, 3)
    with pytest.raises(ShapeError, match=r"\(1, 3, 4, 4\) has 3 channels, the weight .* wants 2"):
        F.conv2d(x, cr.zeros(2, 2, 3, 3))
    with pytest.raises(ShapeError, match=r"spans \(5, 3\) elements, the padded input .*\(4, 4\)"):
        F.conv2d(x, cr.zeros(2, 3, 5, 3))
    with pytest.raises(ShapeError, match=r"bias \(3,\) should be \(2,\)"):
        F.conv2d(x, w, cr.zeros(3))
    with pytest.raises(ShapeError, match="the weight has 4 dimensions and the input 3 or 4"):
        F.conv2d(cr.zeros(3, 4), w)
    with pytest.raises(DTypeError, match="float32 and float64"):
        F.conv2d(x, w.double())
    with pytest.raises(DTypeError, match="needs floating-point tensors, not int64"):
        F.conv2d(x.long(), w.long())
    with pytest.raises(InputError, match="groups=3 must be positive and divide"):
        F.conv2d(x, w, groups=3)
    with pytest.raises(InputError, match='padding="same" needs stride 1'):
        F.conv2d(x, w, stride=2, padding="same")
    with pytest.raises(InputError, match=r"stride .* must be at least 1"):
        F.conv2d(x, w, stride=0)
    with pytest.raises(InputError, match=r"padding .* must be at least 0"):
        F.conv2d(x, w, padding=-1)
    with pytest.raises(InputError, match=r"output_padding .* must be smaller"):
        F.conv_transpose2d(x, cr.zeros(3, 2, 3, 3), output_padding=1)


def test_a_weight_trains_where_the_input_needs_no_gradient():
    x, w = _arrays((2, 3, 5, 5), (4, 3, 3, 3))
    weight = cr.tensor(w, requires_grad=True)
    y = F.conv2d(cr.tensor(x), weight)
    (first,) = cr.autograd.grad((y * y).sum(), [weight], create_graph=True)
    (second,) = cr.autograd.grad((first * first).sum(), [weight])
    tw = torch.tensor(w, requires_grad=True)
    ty = TF.conv2d(torch.tensor(x), tw)
    (one,) = torch.autograd.grad((ty * ty).sum(), [tw], create_graph=True)
    (two,) = torch.autograd.grad((one * one).sum(), [tw])
    check_same(second, two, "second derivative", rtol=1e-9)
