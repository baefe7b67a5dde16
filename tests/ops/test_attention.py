"""Scaled dot product attention against PyTorch: masks, causality, groups, dropout, two orders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from tests.ops.harness import check_half, check_op
from torch.nn.attention import SDPBackend, sdpa_kernel

import chainrule as cr
import chainrule.nn.functional as F
from chainrule.errors import DTypeError, InputError, ShapeError

RANDOM = np.random.default_rng(0)
Q = RANDOM.standard_normal((2, 3, 5, 4))
K = RANDOM.standard_normal((2, 3, 7, 4))
V = RANDOM.standard_normal((2, 3, 7, 6))
SEEN = RANDOM.random((5, 7)) < 0.6
SEEN[:, 0] = True

both = pytest.mark.parametrize("device", ["cpu", "torch"])


def _theirs(*args, **options):
    """PyTorch's own, by the form whose second derivative it knows."""
    with sdpa_kernel(SDPBackend.MATH):
        return TF.scaled_dot_product_attention(*args, **options)


def check(inputs, masked=False, **options):
    def place(mask):
        return {"attn_mask": mask} if masked else {}

    def ours(m, q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, **place(mask), **options)

    def theirs(q, k, v, mask=None):
        return _theirs(q, k, v, **place(mask), **options)

    check_op(ours, theirs, inputs, layouts=["contiguous", "transposed", "flipped"])


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
def test_attention_is_pytorchs(options):
    check([Q, K, V], **options)


def test_a_query_without_a_batch():
    check([Q[0, 0], K[0, 0], V[0, 0]], is_causal=True)


def test_leading_dimensions_broadcast():
    check_op(
        lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v),
        lambda q, k, v: _theirs(q, k.expand(2, 3, 7, 4), v.expand(2, 3, 7, 6)),
        [Q, K[:1, :1], V[:, :1]],
        layouts=["contiguous", "transposed"],
    )


def test_a_boolean_mask_says_who_attends():
    check([Q, K, V, SEEN], masked=True)
    check([Q, K, V, RANDOM.random((2, 1, 5, 7)) < 0.7], masked=True)


def test_a_bias_is_added_and_differentiated():
    check([Q, K, V, RANDOM.standard_normal((3, 5, 7))], masked=True)


def test_a_bias_without_a_gradient_takes_the_tiled_path():
    bias = RANDOM.standard_normal((3, 5, 7))
    q, k, v = (cr.tensor(x, requires_grad=True) for x in (Q, K, V))
    y = F.scaled_dot_product_attention(q, k, v, cr.tensor(bias))
    assert y.grad_fn is not None
    assert y.grad_fn.name() == "scaled_dot_product_attention"
    wanted = _theirs(*map(torch.tensor, (Q, K, V)), attn_mask=torch.tensor(bias))
    np.testing.assert_allclose(y.detach().numpy(), wanted.numpy(), rtol=1e-12)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_grouped_queries(kv_heads):
    q = RANDOM.standard_normal((2, 4, 5, 4))
    check([q, K[:, :kv_heads], V[:, :kv_heads]], enable_gqa=True)
    check([q, K[:, :kv_heads], V[:, :kv_heads], SEEN], masked=True, enable_gqa=True)
    mask = RANDOM.random((2, 4, 5, 7)) < 0.8
    check([q, K[:, :kv_heads], V[:, :kv_heads], mask], masked=True, enable_gqa=True)


def test_several_tiles_agree_with_one():
    """Longer than one tile of rows and keys, float64: the online softmax within 1e-12."""
    q, k, v = RANDOM.standard_normal((3, 2, 600, 16))
    check_op(
        lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: _theirs(q, k, v, is_causal=True),
        [q, k, v],
        layouts=False,
        devices=["cpu"],
        second=False,
        rtol=1e-12,
    )


@both
def test_a_row_that_sees_nothing_gives_zero_and_takes_no_gradient(device):
    mask = SEEN.copy()
    mask[2] = False
    q, k, v = (cr.tensor(x, device=device, requires_grad=True) for x in (Q, K, V))
    y = F.scaled_dot_product_attention(q, k, v, cr.tensor(mask, device=device))
    (g,) = cr.autograd.grad((y * y).sum(), q, create_graph=True)
    assert not y.detach().numpy()[..., 2, :].any()
    assert not g.detach().numpy()[..., 2, :].any()
    g.sum().backward()
    for x in (q, k, v):
        assert np.isfinite(x.grad.numpy()).all()


def test_half_types_are_computed_in_float32():
    check_half(
        lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: _theirs(q, k, v, is_causal=True),
        [Q, K, V],
        roundings=3,
    )


# Dropout.


@both
def test_dropout_zeroes_probabilities_and_keeps_the_mean(device):
    q = cr.zeros(1, 300, 8, device=device)
    v = cr.eye(300, dtype=cr.float32, device=device)[None]
    y = F.scaled_dot_product_attention(q, q, v, dropout_p=0.25, generator=cr.Generator(3))
    got = y.numpy()  # with v the identity, the probabilities themselves: uniform, 1/300
    np.testing.assert_allclose(np.unique(got), [0, 1 / 300 / 0.75], rtol=1e-5, atol=1e-9)
    # 90,000 draws: five standard deviations are 0.0073.
    assert abs((got == 0).mean() - 0.25) < 0.0074


@both
def test_dropout_has_gradients_that_pass_gradcheck(device):
    q, k, v = (cr.tensor(x[0, 0], device=device, requires_grad=True) for x in (Q, K, V))

    def fn(q, k, v):
        return F.scaled_dot_product_attention(
            q, k, v, dropout_p=0.4, is_causal=True, generator=cr.Generator(0)
        )

    assert cr.autograd.gradcheck(fn, (q, k, v))


# What is refused.


def test_attention_says_what_does_not_fit():
    q, k, v = (cr.tensor(x) for x in (Q, K, V))
    call = F.scaled_dot_product_attention
    with pytest.raises(ShapeError, match=r"Sk in key and value; got query \(2, 3, 5, 4\), key"):
        call(q, k, v[..., :6, :])
    with pytest.raises(ShapeError, match="D must be equal"):
        call(q[..., :3], k, v)
    with pytest.raises(ShapeError, match="at least 2 dimensions"):
        call(q[0, 0, 0], k, v)
    with pytest.raises(DTypeError, match="float64, float32, float64"):
        call(q, k.float(), v)
    with pytest.raises(InputError, match="attn_mask or is_causal=True, not both"):
        call(q, k, v, cr.tensor(SEEN), is_causal=True)
    with pytest.raises(DTypeError, match="bool or float64 like the query, not int64"):
        call(q, k, v, cr.tensor(SEEN.astype(np.int64)))
    with pytest.raises(ShapeError, match="query has 3 heads"):
        call(q, k[:, :2], v[:, :2], enable_gqa=True)
    with pytest.raises(InputError, match="between 0 and 1, got 2"):
        call(q, k, v, dropout_p=2)
