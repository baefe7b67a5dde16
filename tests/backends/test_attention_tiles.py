"""Tiled attention against the naive form, in float64 and by PyTorch's autograd."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from chainrule.backends import attention, blas, parallel
from chainrule.backends.attention import Tile, attention_backward, attention_forward
from chainrule.errors import DTypeError, InputError, ShapeError

SHAPES = [  # Sq, Sk, D, Dv, lead
    (37, 53, 8, 5, (2, 3)),
    (53, 37, 8, 5, (2,)),
    (1, 9, 4, 4, ()),
    (64, 64, 16, 16, (1,)),
    (5, 3, 0, 2, (2,)),
]
CAUSAL = [None, "upper_left", "lower_right"]
TILES = [None, Tile(2, 16, 8), Tile(1, 7, 11), Tile(4, 64, 5)]


def naive(q, k, v, causal, mask, scale):
    """The textbook form with the whole score matrix; rows that see nothing give 0."""
    s = torch.matmul(q, k.mT) * scale
    rows, keys = s.shape[-2:]
    if causal:
        offset = 0 if causal == "upper_left" else keys - rows
        s = s.masked_fill(~torch.ones(rows, keys, dtype=torch.bool).tril(offset), -torch.inf)
    if mask is not None:
        s = s.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else s + mask
    dead = (s == -torch.inf).all(-1, keepdim=True)
    p = torch.softmax(s.masked_fill(dead, 0.0), -1).masked_fill(dead, 0.0)
    lse = torch.logsumexp(s.masked_fill(dead, 0.0), -1).masked_fill(dead[..., 0], -torch.inf)
    return p @ v, lse


def operands(shape, seed=0, dtype=torch.float64):
    rows, keys, d, dv, lead = shape
    g = torch.Generator().manual_seed(seed)
    sizes = [
        (*lead, rows, d),
        (*lead, keys, d),
        (*lead, keys, dv),
        (*lead, rows, dv),
        (*lead, rows),
    ]
    return [torch.randn(s, generator=g, dtype=torch.float64).to(dtype) for s in sizes]


def make_mask(kind, shape):
    rows, keys, _, _, lead = shape
    g = torch.Generator().manual_seed(7)
    if kind == "bool":
        mask = torch.rand(rows, keys, generator=g) > 0.4
        mask[0] = False
        return mask
    if kind == "bias":
        bias = torch.randn(*lead, 1, keys, generator=g, dtype=torch.float64)
        bias[..., :1] = -torch.inf
        return bias
    return None


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("kind", [None, "bool", "bias"])
@pytest.mark.parametrize("scale", [0.3, -0.7])
def test_forward_and_gradients_equal_the_naive_form(shape, causal, kind, scale):
    q, k, v, d_out, d_lse = operands(shape)
    mask = make_mask(kind, shape)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    out, lse = naive(*leaves, causal, mask, scale)
    alive = torch.isfinite(lse)
    loss = (out * d_out).sum() + (lse.masked_fill(~alive, 0.0) * d_lse).sum()
    grads = torch.autograd.grad(loss, leaves)
    raw = [t.numpy() for t in (q, k, v)]
    options = {"causal": causal, "mask": None if mask is None else mask.numpy(), "scale": scale}
    for tile in TILES:
        got, got_lse = attention_forward(*raw, **options, tile=tile)
        np.testing.assert_allclose(got, out.detach(), rtol=0, atol=1e-12)
        np.testing.assert_allclose(got_lse, lse.detach(), rtol=0, atol=1e-12)
        d_alive = np.where(alive.numpy(), d_lse.numpy(), 0.0)
        got_grads = attention_backward(
            *raw, got, got_lse, d_out.numpy(), d_alive, **options, tile=tile
        )
        for ours, theirs in zip(got_grads, grads, strict=True):
            assert ours.shape == tuple(theirs.shape)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", CAUSAL)
def test_long_sequences_through_the_default_tiles(causal):
    shape = (700, 1500, 16, 16, (2,))
    q, k, v, d_out, _ = operands(shape)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    out, _ = naive(*leaves, causal, None, 0.25)
    grads = torch.autograd.grad((out * d_out).sum(), leaves)
    raw = [t.numpy() for t in (q, k, v)]
    got, got_lse = attention_forward(*raw, causal=causal)
    np.testing.assert_allclose(got, out.detach(), rtol=0, atol=1e-12)
    for ours, theirs in zip(
        attention_backward(*raw, got, got_lse, d_out.numpy(), causal=causal), grads, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [None, "upper_left"])
def test_float32_is_as_accurate_as_pytorch(causal):
    shape = (300, 300, 32, 32, (2, 2))
    exact = [t.requires_grad_() for t in operands(shape)[:3]]
    d_out = operands(shape)[3]
    scale = 32**-0.5
    want = naive(*exact, causal, None, scale)[0]
    want = [want.detach(), *torch.autograd.grad((want * d_out).sum(), exact)]
    single = [t.detach().float().requires_grad_() for t in exact]
    out = torch.nn.functional.scaled_dot_product_attention(*single, is_causal=causal is not None)
    peer = [out.detach(), *torch.autograd.grad((out * d_out.float()).sum(), single)]
    raw = [t.detach().numpy() for t in single]
    got, lse = attention_forward(*raw, causal=causal)
    ours = [got, *attention_backward(*raw, got, lse, d_out.float().numpy(), causal=causal)]
    for w, p, o in zip(want, peer, ours, strict=True):
        assert o.dtype == np.float32
        assert np.abs(o - w.numpy()).max() <= 2 * np.abs(p.numpy() - w.numpy()).max() + 1e-7


def test_leading_dimensions_broadcast_and_gradients_are_summed_back():
    g = torch.Generator().manual_seed(3)
    q = torch.randn(2, 3, 6, 4, dtype=torch.float64, generator=g).requires_grad_()
    k = torch.randn(3, 5, 4, dtype=torch.float64, generator=g).requires_grad_()
    v = torch.randn(2, 1, 5, 4, dtype=torch.float64, generator=g).requires_grad_()
    out, _ = naive(q, k, v, None, None, 0.5)
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    raw = [t.detach().numpy() for t in (q, k, v)]
    got, lse = attention_forward(*raw)
    np.testing.assert_allclose(got, out.detach(), rtol=0, atol=1e-12)
    for ours, theirs in zip(
        attention_backward(*raw, got, lse, np.ones_like(got)), grads, strict=True
    ):
        assert ours.shape == tuple(theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def test_any_strides_give_the_same_numbers():
    packed = np.random.default_rng(0).standard_normal((2, 40, 3, 4, 8))
    views = [packed[:, :, i].transpose(0, 2, 1, 3) for i in range(3)]
    copies = [np.ascontiguousarray(x) for x in views]
    flipped = [np.ascontiguousarray(x[..., ::-1])[..., ::-1] for x in copies]
    want, lse = attention_forward(*copies, causal="upper_left")
    d_out = np.broadcast_to(np.float64(1.0), want.shape)
    d_want = attention_backward(*copies, want, lse, np.ones_like(want), causal="upper_left")
    for operands_ in (views, flipped):
        got, _ = attention_forward(*operands_, causal="upper_left")
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)
        grads = attention_backward(*operands_, want, lse, d_out, causal="upper_left")
        for a, b in zip(grads, d_want, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("rows", "keys", "lead"), [(0, 4, (2,)), (4, 0, (2,)), (3, 3, (0,)), (0, 0, ())]
)
def test_empty_sizes(rows, keys, lead):
    q, k, v = np.ones((*lead, rows, 4)), np.ones((*lead, keys, 4)), np.ones((*lead, keys, 5))
    out, lse = attention_forward(q, k, v, causal="lower_right")
    assert out.shape == (*lead, rows, 5)
    assert (out == 0).all() or keys
    assert np.isneginf(lse).all() or keys
    grads = attention_backward(q, k, v, out, lse, np.ones_like(out), causal="lower_right")
    assert [g.shape for g in grads] == [q.shape, k.shape, v.shape]
    assert all(np.isfinite(g).all() for g in grads)


def test_a_masked_key_may_hold_nan():
    q, k, v, d_out, _ = (t.numpy() for t in operands((8, 8, 4, 4, ())))
    k = k.copy()
    k[7] = np.nan
    out, lse = attention_forward(q, k, v, causal="upper_left")
    assert np.isfinite(out[:7]).all()
    assert np.isnan(out[7]).all()
    mask = np.arange(8) < 7
    out, lse = attention_forward(q, k, v, mask=mask)
    assert np.isfinite(out).all()
    dk = attention_backward(q, k, v, out, lse, d_out, mask=mask)[1]
    assert np.isfinite(dk).all()


def test_large_scores_do_not_overflow():
    q = np.full((2, 4), 1e4, np.float32)
    out, lse = attention_forward(q, q, q, scale=1.0)
    np.testing.assert_allclose(out, q, rtol=1e-6)
    assert np.isfinite(lse).all()


@pytest.mark.parametrize("lead", [(1,), (3,), (40,)])
def test_bits_do_not_depend_on_the_thread_count(lead):
    q, k, v, d_out, _ = (t.numpy() for t in operands((300, 300, 16, 16, lead), dtype=torch.float32))
    before = parallel.get_num_threads()
    blas_before = blas.num_threads()
    results = []
    try:
        for n in (2, 3, 4):
            parallel.set_num_threads(n)
            out, lse = attention_forward(q, k, v, causal="upper_left")
            grads = attention_backward(q, k, v, out, lse, d_out, causal="upper_left")
            results.append([out, lse, *grads])
    finally:
        parallel.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
    assert blas.num_threads() == blas_before


def test_causal_skips_what_it_masks(monkeypatch):
    """Half of the score elements above the diagonal are never computed."""
    computed = []
    original = attention._mask_scores

    def count(p, s, g, r0, c0):
        computed.append(s.size)
        original(p, s, g, r0, c0)

    monkeypatch.setattr(attention, "_mask_scores", count)
    q, k, v, _, _ = (t.numpy() for t in operands((256, 256, 4, 4, ())))
    attention_forward(q, k, v, causal="upper_left", tile=Tile(1, 16, 16))
    assert sum(computed) == 16 * 17 // 2 * 16 * 16


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"k": np.ones((3, 5))}, ShapeError, r"make D equal in q and k"),
        ({"v": np.ones((4, 4))}, ShapeError, r"Sk in k and v"),
        ({"q": np.ones(4)}, ShapeError, "at least 2 dimensions"),
        ({"q": np.ones((2, 3, 4)), "k": np.ones((3, 3, 4))}, ShapeError, "do not broadcast"),
        ({"q": np.ones((3, 4), np.float32)}, DTypeError, "one dtype, float32 or float64"),
        ({"causal": "left"}, InputError, "upper_left"),
        ({"mask": np.ones((2, 3), bool)}, ShapeError, r"\(2, 3\) does not broadcast"),
        ({"mask": np.ones((3, 3), np.int64)}, DTypeError, "bool or float64"),
    ],
)
def test_bad_input_is_one_clear_sentence(change, error, message):
    arguments = {"q": np.ones((3, 4)), "k": np.ones((3, 4)), "v": np.ones((3, 4)), **change}
    with pytest.raises(error, match=message):
        attention_forward(**arguments)


def test_tiles_cover_every_shape():
    for heads, rows, keys in itertools.product((0, 1, 64), (0, 1, 100, 5000), (0, 1, 257, 5000)):
        tile = attention.choose_tile(heads, rows, keys)
        assert min(tile) >= 1
        assert tile.heads * tile.rows * tile.keys <= 256 * 1024 + 64
