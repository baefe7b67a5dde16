"""Losses by element and by row against PyTorch: value and two derivatives, edges, half types."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from tests.ops.harness import check_half, check_op

import chainrule as cr
import chainrule.nn.functional as F
from chainrule.errors import DTypeError, InputError, ShapeError

RANDOM = np.random.default_rng(0)
X, Y, Z = RANDOM.standard_normal((3, 4, 5)) * 1.5
P, Q = RANDOM.random((2, 4, 5)) * 0.9 + 0.05
SIGNS = np.sign(RANDOM.standard_normal((4, 5)))
both = pytest.mark.parametrize("device", ["cpu", "torch"])
reductions = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
SOME = ("contiguous", "flipped", "expanded")


def _of(module):
    return F if module is cr else TF


CASES = {
    "binary_cross_entropy": ([P, Q], {}),
    "binary_cross_entropy_with_logits": ([X, Q], {}),
    "huber_loss": ([X, Y], {"delta": 0.8}),
    "smooth_l1_loss": ([X, Y], {"beta": 0.6}),
    "kl_div": ([np.log(P), Q], {}),
    "poisson_nll_loss": ([X, Q * 3], {"full": False}),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", CASES)
@reductions
def test_losses_are_pytorchs(name, reduction):
    inputs, options = CASES[name]
    check_op(
        lambda m, *t: getattr(_of(m), name)(*t, **options, reduction=reduction), None, inputs,
        # PyTorch's second derivative of the first adds 1e-12 to p(1 − p).
        layouts=SOME, rtol=1e-8 if name == "binary_cross_entropy" else 1e-10,
    )  # fmt: skip


MORE = {
    "bce with a weight": lambda m, p, q, w: _of(m).binary_cross_entropy(p, q, w.detach()),
    "logits with both weights": lambda m, p, q, w: _of(m).binary_cross_entropy_with_logits(
        p, q, w.detach(), pos_weight=w.detach()[0] + 0.5
    ),
    "kl of logarithms": lambda m, p, q, w: _of(m).kl_div(p, q, reduction="sum", log_target=True),
    "kl by batch": lambda m, p, q, w: _of(m).kl_div(p, q, reduction="batchmean"),
    "poisson of rates": lambda m, p, q, w: _of(m).poisson_nll_loss(p, q * 5, log_input=False,
                                                                 full=True),
    "smooth l1 with no bend": lambda m, p, q, w: _of(m).smooth_l1_loss(p, q, beta=0.0),
    "cosine": lambda m, p, q, w: _of(m).cosine_similarity(p, q - 0.5),
    "cosine, broadcast": lambda m, p, q, w: _of(m).cosine_similarity(p[0], q - 0.5, dim=-1),
    "normalize": lambda m, p, q, w: _of(m).normalize(p - 0.5) + _of(m).normalize(q, 3.0, 0),
    "distance": lambda m, p, q, w: _of(m).pairwise_distance(p, q),
    "distance, kept": lambda m, p, q, w: _of(m).pairwise_distance(p, q, 1.0, keepdim=True),
    "triplet": lambda m, p, q, w: _of(m).triplet_margin_loss(p, q, w),
    "triplet, swapped": lambda m, p, q, w: _of(m).triplet_margin_loss(
        p, q, w, swap=True, reduction="none"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_their_options_are_pytorchs(name):
    rtol = 1e-8 if name == "bce with a weight" else 1e-10
    check_op(MORE[name], None, [P, Q, RANDOM.random((4, 5)) + 0.1], layouts=SOME, rtol=rtol)


@reductions
def test_losses_of_signs_are_pytorchs(reduction):
    rows = SIGNS[:, 0]
    check_op(
        lambda m, x, s: _of(m).hinge_embedding_loss(x, s, 0.7, reduction=reduction), None,
        [X, SIGNS], layouts=["contiguous", "flipped"],
    )  # fmt: skip
    check_op(
        lambda m, x, y, s: _of(m).margin_ranking_loss(x, y, s, 0.3, reduction=reduction), None,
        [X, Y, SIGNS], layouts=["contiguous", "flipped"],
    )  # fmt: skip
    check_op(
        lambda m, x, y, s: _of(m).cosine_embedding_loss(x, y, s, 0.1, reduction=reduction), None,
        [X, Y, rows.astype(np.int64)], layouts=["contiguous", "flipped"],
    )  # fmt: skip

    def soft(m, x):  # PyTorch does not differentiate the target of this one
        like = {"dtype": x.dtype, **({"device": x.device} if m is cr else {})}
        return _of(m).soft_margin_loss(x, m.tensor(SIGNS, **like), reduction=reduction)

    check_op(soft, None, [X], layouts=["contiguous", "flipped"])


@both
def test_the_edges_of_binary_cross_entropy(device):
    """At probabilities 0 and 1 and at scores of any size: PyTorch's numbers, no warning."""
    p, t = np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0, 1.0])
    x = np.array([-1e4, 1e4, -800.0, 800.0])
    for name, v in (("binary_cross_entropy", p), ("binary_cross_entropy_with_logits", x)):
        a = cr.tensor(v, device=device, requires_grad=True)
        b = torch.tensor(v, requires_grad=True)
        ya = getattr(F, name)(a, cr.tensor(t, device=device), reduction="none")
        yb = getattr(TF, name)(b, torch.tensor(t), reduction="none")
        ya.sum().backward()
        yb.sum().backward()
        np.testing.assert_allclose(ya.detach().numpy(), yb.detach().numpy(), rtol=1e-12)
        assert a.grad is not None
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-8)


@both
def test_no_probability_of_nothing_costs_nothing(device):
    x = cr.tensor([-1.0, -2.0], dtype=cr.float64, device=device, requires_grad=True)
    loss = F.kl_div(x, cr.tensor([0.0, 0.5], dtype=cr.float64, device=device), reduction="none")
    loss.sum().backward()
    assert loss.tolist()[0] == 0.0
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, -0.5]


def test_losses_of_half_types_are_computed_in_float32():
    for name, (inputs, options) in CASES.items():
        check_half(
            lambda m, *t, name=name, options=options: getattr(_of(m), name)(
                *t, **options, reduction="none"
            ),
            None, inputs, roundings=4,
        )  # fmt: skip


def test_losses_say_what_does_not_fit():
    x = cr.zeros(2, 3)
    with pytest.raises(ShapeError, match=r"input \(2, 3\) and target \(3,\) differ"):
        F.huber_loss(x, cr.zeros(3))
    with pytest.raises(InputError, match="probabilities, between 0 and 1"):
        F.binary_cross_entropy(x - 1.0, x)
    with pytest.raises(InputError, match="delta must be positive"):
        F.huber_loss(x, x, delta=0.0)
    with pytest.raises(InputError, match="reduction is"):
        F.kl_div(x, x, reduction="max")
    with pytest.raises(DTypeError, match="floating-point tensors, not int64"):
        F.smooth_l1_loss(x.long(), x.long())
