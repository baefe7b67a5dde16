"""Pooling and interpolation against PyTorch: every option, layout and two derivatives."""

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
both = pytest.mark.parametrize("device", ["cpu", "torch"])


def _of(module):
    return F if module is cr else TF


POOLS = {
    "avg_pool1d": [
        ((2, 3, 7), (3,), {}),
        ((3, 8), (3, 2, 1), {"ceil_mode": True, "count_include_pad": False}),
    ],
    "avg_pool2d": [
        ((2, 3, 5, 6), (2,), {}),
        ((2, 2, 5, 6), ((3, 2), (2, 1), 1), {"count_include_pad": False}),
        ((2, 6, 7), (3, 2, 1), {"ceil_mode": True}),
        ((1, 2, 5, 5), (3, 3), {"ceil_mode": True, "divisor_override": 5}),
    ],
    "avg_pool3d": [((1, 2, 4, 5, 4), (2, (1, 2, 3), 1), {"ceil_mode": True})],
    "max_pool1d": [((2, 3, 7), (3,), {}), ((2, 8), (3, 2, 1), {"dilation": 2})],
    "max_pool2d": [
        ((2, 3, 5, 6), (2,), {}),
        ((2, 2, 6, 7), ((3, 2), (2, 1), 1), {"dilation": (1, 2), "return_indices": True}),
        ((2, 6, 7), (3, 2, 1), {"ceil_mode": True, "return_indices": True}),
    ],
    "max_pool3d": [((1, 2, 4, 5, 4), (2, (1, 2, 3), 1), {"return_indices": True})],
}
CASES = [(name, *case) for name, cases in POOLS.items() for case in cases]


@pytest.mark.parametrize(("name", "shape", "args", "options"), CASES)
def test_pooling_is_pytorchs(name, shape, args, options):
    def run(m, x):
        return getattr(_of(m), name)(x, *args, **options)

    # Ties of an expanded input have several largest elements: PyTorch takes the first, as we do.
    check_op(run, None, [RANDOM.standard_normal(shape)])


@both
def test_the_largest_of_equal_nan_and_minus_infinity(device):
    """The first of equals; NaN wins; padding is never chosen, even among −∞."""
    rows = [[1, 1, 0, 1], [np.nan, 2, np.nan, 3], [-np.inf] * 4, [-np.inf, -np.inf, np.inf, 0]]
    x = np.array(rows)[None]
    for args in ((2, 1), (2, 2, 1), (3, 1, 1), (2, 1, 1, 2)):
        ours = F.max_pool1d(cr.tensor(x, device=device), *args, return_indices=True)
        theirs = TF.max_pool1d(torch.tensor(x), *args, return_indices=True)
        np.testing.assert_array_equal(ours[0].numpy(), theirs[0].numpy())
        keep = ~np.isnan(theirs[0].numpy())
        np.testing.assert_array_equal(ours[1].numpy()[keep], theirs[1].numpy()[keep])


def test_pooling_of_half_types():
    x = RANDOM.standard_normal((2, 3, 6, 6))
    check_half(lambda m, x: _of(m).avg_pool2d(x, 3, 2), None, [x])
    check_half(lambda m, x: _of(m).max_pool2d(x, 3, 2), None, [x])


def test_pooling_says_what_does_not_fit():
    x = cr.zeros(1, 2, 4, 4)
    with pytest.raises(InputError, match="more than half of kernel_size"):
        F.max_pool2d(x, 2, padding=2)
    with pytest.raises(ShapeError, match=r"a kernel of \(5, 5\)"):
        F.avg_pool2d(x, 5)
    with pytest.raises(ShapeError, match="3 or 4 dimensions"):
        F.max_pool2d(cr.zeros(4, 4), 2)
    with pytest.raises(DTypeError, match="needs a floating-point tensor, not int64"):
        F.avg_pool2d(x.long(), 2)
    with pytest.raises(InputError, match="divisor_override"):
        F.avg_pool2d(x, 2, divisor_override=0)
    with pytest.raises(InputError, match=r"kernel_size .* at least 1"):
        F.max_pool2d(x, 0)


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("adaptive_avg_pool1d", (2, 3, 7), 3),
        ("adaptive_avg_pool2d", (2, 3, 6, 7), (3, 4)),
        ("adaptive_avg_pool2d", (2, 5, 6), (None, 1)),
        ("adaptive_avg_pool2d", (1, 2, 2, 3), 5),
        ("adaptive_avg_pool3d", (1, 2, 3, 4, 5), (2, 4, 3)),
    ],
)
def test_adaptive_pooling_is_pytorchs(name, shape, size):
    check_op(lambda m, x: getattr(_of(m), name)(x, size), None, [RANDOM.standard_normal(shape)])


INTERPOLATIONS = [
    ((2, 3, 5), {"size": 8, "mode": "nearest"}),
    ((2, 3, 5, 4), {"scale_factor": 2, "mode": "nearest"}),
    ((1, 2, 5, 7), {"size": (3, 11), "mode": "nearest-exact"}),
    ((2, 3, 5), {"scale_factor": 1.7, "mode": "linear"}),
    ((2, 2, 4, 5), {"size": (7, 3), "mode": "bilinear"}),
    ((2, 2, 4, 5), {"size": (7, 3), "mode": "bilinear", "align_corners": True}),
    ((1, 2, 4, 5), {"scale_factor": (1.5, 0.7), "mode": "bilinear"}),
    ((1, 2, 4, 5), {"scale_factor": (1.6, 0.7), "mode": "bilinear", "recompute_scale_factor": True}),
    ((1, 2, 4, 5), {"size": (1, 5), "mode": "bilinear", "align_corners": True}),
    ((1, 2, 4, 5), {"size": (4, 5), "mode": "bilinear"}),
    ((1, 2, 5, 4), {"size": (8, 3), "mode": "bicubic"}),
    ((1, 2, 5, 4), {"scale_factor": 1.4, "mode": "bicubic", "align_corners": True}),
    ((1, 2, 3, 4, 2), {"size": (5, 2, 3), "mode": "trilinear"}),
    ((1, 2, 5, 4), {"size": (3, 6), "mode": "area"}),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "options"), INTERPOLATIONS)
def test_interpolation_is_pytorchs(shape, options):
    check_op(
        lambda m, x: _of(m).interpolate(x, **options), None, [RANDOM.standard_normal(shape)],
        layouts=("transposed", "flipped"), rtol=1e-9, atol=1e-11,
    )  # fmt: skip


def test_interpolation_keeps_images_apart():
    """A pixel that is not finite spoils only what is made of it."""
    x = np.ones((1, 1, 4))
    x[..., 0] = np.inf
    check_op(
        lambda m, x: _of(m).interpolate(x, size=8), None, [x], layouts=SAME_DATA[:1], second=False
    )


def test_interpolation_says_what_does_not_fit():
    x = cr.zeros(1, 2, 4, 4)
    with pytest.raises(InputError, match="either size or scale_factor"):
        F.interpolate(x)
    with pytest.raises(ShapeError, match='mode "linear" is for'):
        F.interpolate(x, size=3, mode="linear")
    with pytest.raises(InputError, match="mode is one of"):
        F.interpolate(x, size=3, mode="best")
    with pytest.raises(InputError, match="align_corners has no meaning"):
        F.interpolate(x, size=3, align_corners=True)
    with pytest.raises(ShapeError, match="must be at least 1"):
        F.interpolate(x, size=0)
