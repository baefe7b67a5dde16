"""Norms and dropout against PyTorch, in every memory layout and to second order."""

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
X = RANDOM.standard_normal((3, 4, 5))
W, B = RANDOM.standard_normal((2, 5))
W2, B2 = RANDOM.standard_normal((2, 4, 5))

both = pytest.mark.parametrize("device", ["cpu", "torch"])


def _of(module):
    return F if module is cr else TF


@pytest.mark.parametrize(
    ("shape", "params"), [((5,), (W, B)), ((5,), (W,)), ((5,), ()), ((4, 5), (W2, B2))]
)
def test_layer_norm_is_pytorchs(shape, params):
    check_op(lambda m, x, *p: _of(m).layer_norm(x, shape, *p, eps=1e-3), None, [X, *params])


def test_layer_norm_takes_a_bias_without_a_weight():
    # PyTorch's own second derivative of this form raises, so it is asked for the sum.
    check_op(
        lambda m, x, b: F.layer_norm(x, (5,), None, b),
        lambda x, b: TF.layer_norm(x, (5,)) + b,
        [X, B],
    )


@pytest.mark.parametrize(("shape", "params"), [((5,), (W,)), ((5,), ()), ((4, 5), (W2,))])
@pytest.mark.parametrize("eps", [None, 1e-3])
def test_rms_norm_is_pytorchs(shape, params, eps):
    check_op(lambda m, x, *p: _of(m).rms_norm(x, shape, *p, eps=eps), None, [X, *params])


def test_norms_of_half_types_are_computed_in_float32():
    check_half(lambda m, x, w, b: _of(m).layer_norm(x, (5,), w, b), None, [X, W, B], roundings=3)
    check_half(lambda m, x, w: _of(m).rms_norm(x, (5,), w, eps=1e-3), None, [X, W], roundings=3)


def test_the_default_epsilon_of_half_types_is_float32s():
    """Seen where the mean square is about as small as the epsilon itself."""
    x = (RANDOM.standard_normal((4, 8)) * 3e-4).astype(np.float32)
    ours = F.rms_norm(cr.tensor(x).to(cr.bfloat16), (8,)).to(cr.float32).numpy()
    theirs = TF.rms_norm(torch.tensor(x).bfloat16(), (8,)).float().numpy()
    np.testing.assert_allclose(ours, theirs, rtol=2**-8)


def test_a_large_layer_norm_agrees_too():
    """Beyond one block of rows, where threads share the work."""
    x, w, b = RANDOM.standard_normal((700, 400)), *RANDOM.standard_normal((2, 400))
    check_op(
        lambda m, x, w, b: _of(m).layer_norm(x, (400,), w, b), None, [x, w, b],
        layouts=False, devices=["cpu"], second=False, float32=False,
    )  # fmt: skip


@both
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_a_norm_of_no_rows_is_empty(name, device):
    x = cr.zeros(0, 5, device=device, requires_grad=True)
    w = cr.ones(5, device=device, requires_grad=True)
    y = getattr(F, name)(x, (5,), w)
    y.sum().backward()
    assert y.shape == (0, 5)
    assert x.grad is not None
    assert x.grad.shape == (0, 5)
    assert w.grad is not None
    assert w.grad.tolist() == [0.0] * 5


def test_norms_say_what_does_not_fit():
    x = cr.zeros(2, 5)
    with pytest.raises(ShapeError, match=r"shape \(2, 5\), are not normalized_shape \(4,\)"):
        F.layer_norm(x, 4)
    with pytest.raises(ShapeError, match=r"weight and bias have shape \(5,\), got \(4,\)"):
        F.layer_norm(x, 5, cr.ones(4))
    with pytest.raises(DTypeError, match="float32 with float64 parameters"):
        F.rms_norm(x, 5, cr.ones(5, dtype=cr.float64))
    with pytest.raises(DTypeError, match="needs a floating-point input, not int64"):
        F.layer_norm(cr.zeros(2, 5, dtype=cr.int64), 5)


# Dropout.


@both
def test_dropout_keeps_the_mean_and_zeroes_the_fraction(device):
    x = cr.ones(200, 500, device=device)
    y = F.dropout(x, 0.2, generator=cr.Generator(1))
    values = np.unique(y.numpy())
    np.testing.assert_array_equal(values, np.float32([0, 1.25]))
    # 100,000 draws: five standard deviations of the fraction are 0.0063.
    assert abs(float((y == 0.0).to(cr.float32).mean()) - 0.2) < 0.0064


@both
def test_dropout_gradient_and_second_derivative_use_the_same_mask(device):
    x = cr.randn(50, dtype=cr.float64, device=device, requires_grad=True)
    y = F.dropout(x * x, 0.5, generator=cr.Generator(2))
    mask = (y / (x * x)).detach()
    (g,) = cr.autograd.grad(y.sum(), x, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), (mask * x.detach() * 2.0).numpy())
    (h,) = cr.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(h.numpy(), (mask * 2.0).numpy())
    assert set(np.round(mask.numpy())) == {0.0, 2.0}


def test_dropout_repeats_with_its_seed_and_is_the_same_on_both_devices():
    x = cr.ones(1000)
    a, b = (F.dropout(x, 0.3, generator=cr.Generator(5)) for _ in range(2))
    c = F.dropout(x.to("torch"), 0.3, generator=cr.Generator(5))
    d = F.dropout(x, 0.3, generator=cr.Generator(6))
    assert a.tolist() == b.tolist() == c.tolist()
    assert a.tolist() != d.tolist()
    cr.manual_seed(5)
    assert F.dropout(x, 0.3).tolist() == a.tolist()


@both
def test_dropout_at_its_edges(device):
    x = cr.randn(6, device=device, requires_grad=True)
    state = cr.get_rng_state().tolist()
    assert F.dropout(x, 0.0) is x
    assert F.dropout(x, 0.5, training=False) is x
    gone = F.dropout(x, 1.0)
    gone.sum().backward()
    assert gone.tolist() == [0.0] * 6
    assert x.grad is not None
    assert x.grad.tolist() == [0.0] * 6
    assert cr.get_rng_state().tolist() == state, "nothing was to be drawn"
    for p in (-0.1, 1.5):
        with pytest.raises(InputError, match=f"between 0 and 1, got {p}"):
            F.dropout(x, p)


def test_dropout_of_half_types_stays_half():
    x = cr.ones(100, dtype=cr.bfloat16)
    y = F.dropout(x, 0.5, generator=cr.Generator(0))
    assert y.dtype is cr.bfloat16
    assert set(y.to(cr.float32).tolist()) == {0.0, 2.0}
