"""The fused training kernels against PyTorch in float64, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from chainrule.backends import fused, parallel
from chainrule.errors import DTypeError, IndexRangeError, InputError, ShapeError

SHAPES = [(7,), (3, 5), (2, 3, 16), (2048, 128), (300, 512), (4, 1), (0, 8), (3, 0)]
DTYPES = [(torch.float64, 1e-12), (torch.float32, 1e-5)]


@pytest.fixture(autouse=True)
def two_threads():
    before = parallel.get_num_threads()
    parallel.set_num_threads(2)
    yield
    parallel.set_num_threads(before)


def normal(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def agree(ours, theirs, atol):
    """Compare with the float64 truth, relative to its largest element."""
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    size = max(1.0, np.abs(theirs).max()) if theirs.size else 1.0
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol * size)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "atol"), DTYPES, ids=str)
@pytest.mark.parametrize("affine", ["none", "weight", "both"])
def test_layer_norm(shape, dtype, atol, affine):
    if 0 in shape and affine == "none":
        shape = (0, 8)
    x, g = (normal(*shape, seed=s).to(dtype) for s in (0, 1))
    weight = normal(shape[-1], seed=2).to(dtype) if affine != "none" else None
    bias = normal(shape[-1], seed=3).to(dtype) if affine == "both" else None
    leaves = [
        t.double().clone().requires_grad_() if t is not None else None for t in (x, weight, bias)
    ]
    raw = [t.numpy() if t is not None else None for t in (x, weight, bias)]
    y, mean, rstd = fused.layer_norm_forward(*raw, 1e-5)
    grads = fused.layer_norm_backward(g.numpy(), raw[0], mean, rstd, raw[1])
    if shape[-1] == 0:  # PyTorch refuses
        assert y.shape == shape
        return
    want = F.layer_norm(leaves[0], shape[-1:], leaves[1], leaves[2], 1e-5)
    assert y.dtype == raw[0].dtype
    # At width 1 the variance is 0 and 1/√eps = 316 magnifies rounding.
    agree(y, want, atol)
    wanted = torch.autograd.grad(want, [t for t in leaves if t is not None], g.double())
    for ours, theirs in zip(grads, wanted, strict=False):
        agree(ours, theirs, atol)
    assert grads[2].shape == (shape[-1],)
    agree(grads[2], g.double().reshape(-1, shape[-1]).sum(0), atol)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "atol"), DTYPES, ids=str)
@pytest.mark.parametrize("affine", [False, True])
def test_rms_norm(shape, dtype, atol, affine):
    x, g, weight = (normal(*s).to(dtype) for s in (shape, shape, shape[-1:]))
    raw_weight = weight.numpy() if affine else None
    y, rstd = fused.rms_norm_forward(x.numpy(), raw_weight, 1e-6)
    dx, dw = fused.rms_norm_backward(g.numpy(), x.numpy(), rstd, raw_weight)
    leaf, leaf_weight = (t.double().clone().requires_grad_() for t in (x, weight))
    if shape[-1] == 0:
        assert y.shape == dx.shape == shape
        return
    want = F.rms_norm(leaf, shape[-1:], leaf_weight if affine else None, 1e-6)
    agree(y, want, atol)
    wanted = torch.autograd.grad(want, [leaf, leaf_weight] if affine else [leaf], g.double())
    agree(dx, wanted[0], atol)
    if affine:
        agree(dw, wanted[1], atol)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "atol"), DTYPES, ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(shape, dtype, atol, name):
    x, g = ((4 * normal(*shape, seed=s)).to(dtype) for s in (0, 1))
    if x.numel() and shape[-1] > 1:
        x[..., 0] = -torch.inf if name == "softmax" else -500.0
    leaf = x.double().clone().requires_grad_()
    want = getattr(F, name)(leaf, -1)
    (wanted,) = torch.autograd.grad(want, leaf, g.double())
    y = getattr(fused, f"{name}_forward")(x.numpy())
    agree(y, want, atol)
    agree(getattr(fused, f"{name}_backward")(g.numpy(), y), wanted, atol)


def test_softmax_of_nothing_but_minus_infinity_is_nan():
    x = np.full((2, 3), -np.inf)
    assert np.isnan(fused.softmax_forward(x)).all()
    assert torch.isnan(torch.softmax(torch.from_numpy(x), -1)).all()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(("n", "classes"), [(1, 1), (5, 7), (2048, 256), (3, 70_000), (0, 4)])
@pytest.mark.parametrize(("dtype", "atol"), DTYPES, ids=str)
def test_cross_entropy(reduction, smoothing, n, classes, dtype, atol):
    logits = (3 * normal(n, classes)).to(dtype)
    targets = torch.randint(0, classes, (n,), generator=torch.Generator().manual_seed(1))
    targets[1::3] = -100
    g = normal(*((n,) if reduction == "none" else ())).to(dtype)
    leaf = logits.double().clone().requires_grad_()
    want = F.cross_entropy(leaf, targets, reduction=reduction, label_smoothing=smoothing)
    (wanted,) = torch.autograd.grad(want, leaf, g.double())
    options = {"reduction": reduction, "label_smoothing": smoothing}
    loss, lse = fused.cross_entropy_forward(logits.numpy(), targets.numpy(), **options)
    assert loss.dtype == logits.numpy().dtype
    agree(loss, want, atol)
    dx = fused.cross_entropy_backward(g.numpy(), logits.numpy(), targets.numpy(), lse, **options)
    agree(dx, wanted, atol)


def test_cross_entropy_with_every_target_ignored():
    logits, targets = np.ones((2, 3)), np.full(2, 9)
    loss, lse = fused.cross_entropy_forward(logits, targets, ignore_index=9)
    assert np.isnan(loss)  # 0/0, as PyTorch's
    dx = fused.cross_entropy_backward(np.float64(1), logits, targets, lse, ignore_index=9)
    assert (dx == 0).all()


def test_an_ignored_row_may_hold_nan():
    logits = np.array([[np.nan, 1.0], [0.0, 1.0]])
    targets = np.array([-100, 1])
    loss, lse = fused.cross_entropy_forward(logits, targets)
    np.testing.assert_allclose(loss, np.log1p(np.exp(-1.0)))
    assert (fused.cross_entropy_backward(np.float64(1), logits, targets, lse)[0] == 0).all()


@pytest.mark.parametrize("change", [-1, 3, 1000])
def test_a_target_that_is_no_class_is_named(change):
    targets = np.array([0, change, 2])
    with pytest.raises(IndexRangeError, match=rf"target {change} at row 1 is not one of 3"):
        fused.cross_entropy_forward(np.ones((3, 3)), targets)


@pytest.mark.parametrize(
    ("n", "rows", "d"), [(2048, 256, 128), (2048, 50_000, 16), (1, 1, 1), (0, 5, 3), (50, 5, 0)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_embedding_backward(n, rows, d, dtype):
    rng = np.random.default_rng(0)
    indices = (rng.random(n) ** 2 * rows).astype(np.int64)
    # Small whole numbers: every order of summation gives the same bits, so equality is exact.
    g = rng.integers(-8, 9, (n, d)).astype(dtype)
    want = np.zeros((rows, d), dtype)
    np.add.at(want, indices, g)
    np.testing.assert_array_equal(fused.embedding_backward(g, indices, rows), want)
    want[0] = 0
    np.testing.assert_array_equal(fused.embedding_backward(g, indices, rows, 0), want)


def test_embedding_backward_of_a_batch_and_bad_indices():
    g = np.ones((2, 3, 4))
    out = fused.embedding_backward(g, np.array([[0, 1, 1], [1, 4, 0]]), 5)
    np.testing.assert_array_equal(out[:, 0], [2, 3, 0, 0, 1])
    for wrong in (-1, 5):
        with pytest.raises(IndexRangeError, match=rf"index {wrong} is not a row of 0 … 4"):
            fused.embedding_backward(g[0], np.array([0, wrong, 1]), 5)


@pytest.mark.parametrize("shape", [(), (3,), (128, 512), (300, 700)], ids=str)
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(("dtype", "atol"), DTYPES, ids=str)
def test_adamw(shape, decay, dtype, atol):
    p = normal(*shape).to(dtype)
    theirs = p.double().clone().requires_grad_()
    options = {"lr": 3e-2, "weight_decay": decay, "eps": 1e-6}
    optimiser = torch.optim.AdamW([theirs], betas=(0.8, 0.95), **options)
    ours = p.numpy().copy()
    first, second = np.zeros_like(ours), np.zeros_like(ours)
    for step in range(1, 6):
        g = normal(*shape, seed=step).to(dtype)
        theirs.grad = g.double()
        optimiser.step()
        kept = g.numpy().copy()
        fused.adamw_step(
            ours, g.numpy(), first, second, step=step, beta1=0.8, beta2=0.95, **options
        )
        np.testing.assert_array_equal(g.numpy(), kept)
    agree(ours, theirs, atol)


def test_adamw_on_a_strided_parameter():
    base = np.ones((400, 400))
    view, g = base[:, ::2], np.full((400, 200), 2.0)
    fused.adamw_step(view, g, np.zeros_like(g), np.zeros_like(g), step=1, lr=0.1, weight_decay=0)
    np.testing.assert_allclose(base[:, ::2], 0.9, atol=1e-8)
    assert (base[:, 1::2] == 1).all()


def test_results_do_not_depend_on_the_thread_count():
    x, g = (normal(3000, 256, seed=s).float().numpy() for s in (0, 1))
    w = x[0].copy()
    results = []
    for n in (1, 2, 4):
        parallel.set_num_threads(n)
        y, mean, rstd = fused.layer_norm_forward(x, w, w, 1e-5)
        results.append([y, *fused.layer_norm_backward(g, x, mean, rstd, w)])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_strided_inputs_give_the_same_numbers():
    wide = normal(64, 32).numpy()
    for x in (wide.T, wide[:, ::-1], wide[::2, 1::3], np.broadcast_to(wide[:1], (9, 32))):
        copy = np.ascontiguousarray(x)
        np.testing.assert_allclose(
            fused.softmax_forward(x), fused.softmax_forward(copy), atol=1e-15
        )
        stats = fused.layer_norm_forward(copy, None, None, 1e-5)[1:]
        for a, b in zip(
            fused.layer_norm_backward(x, x, *stats, None),
            fused.layer_norm_backward(copy, copy, *stats, None),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, atol=1e-13)


def test_bad_input_is_one_clear_sentence():
    with pytest.raises(DTypeError, match="float32 or float64 is needed, got int64"):
        fused.softmax_forward(np.ones((2, 2), np.int64))
    with pytest.raises(ShapeError, match="at least 1 dimension"):
        fused.softmax_forward(np.float64(1).reshape(()))
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(3,\)"):
        fused.cross_entropy_forward(np.ones((2, 3)), np.zeros(3, np.int64))
    with pytest.raises(DTypeError, match="integers; got float64"):
        fused.cross_entropy_forward(np.ones((2, 3)), np.zeros(2))
    with pytest.raises(InputError, match="reduction"):
        fused.cross_entropy_forward(np.ones((2, 3)), np.zeros(2, np.int64), reduction="max")
    with pytest.raises(ShapeError, match="must have one shape"):
        fused.adamw_step(*(np.ones(i + 1) for i in range(4)), step=1, lr=0.1)
    with pytest.raises(InputError, match="counts from 1, got 0"):
        fused.adamw_step(*(np.ones(2) for _ in range(4)), step=0, lr=0.1)
    with pytest.raises(ShapeError, match="does not fit indices"):
        fused.embedding_backward(np.ones((2, 3)), np.zeros(3, np.int64), 4)
