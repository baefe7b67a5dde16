"""Checkpointing: same gradients, less memory, and a second run that differs is named."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import chainrule as cr
from chainrule import func
from chainrule.errors import ChainruleError, CheckpointError, InputError, StaleTensorError
from chainrule.utils.checkpoint import checkpoint, checkpoint_sequential

W = cr.tensor(np.random.default_rng(1).standard_normal((6, 6)) * 0.4)
X = cr.tensor(np.random.default_rng(2).standard_normal((5, 6)))


class Twice(cr.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, _ = ctx.saved_tensors
        return 2 * g * x


def block(x, w):
    h = cr.nn.functional.layer_norm(cr.tanh(x @ w), (6,))
    h = cr.nn.functional.dropout(h, 0.5) + x
    h[0] = h[1] * 2
    return cr.softmax(h, 1) * Twice.apply(h) / 3


def gradients(run, create_graph=False):
    cr.manual_seed(7)
    x, w = X.clone().requires_grad_(True), W.clone().requires_grad_(True)
    y = run(x, w)
    first = cr.autograd.grad((y * y).sum(), (x, w), create_graph=create_graph)
    if not create_graph:
        return first
    return cr.autograd.grad(sum((g * g).sum() for g in first), (x, w))


RUNS = {
    "two arguments": lambda f, x, w: f(block, x, w),
    "weight by closure": lambda f, x, w: f(lambda x: block(x, w), x),
    "one after the other": lambda f, x, w: f(block, f(block, x, w), w),
    "one in another": lambda f, x, w: f(lambda x: f(block, block(x, w), w) * x, x),
    "three deep": lambda f, x, w: f(lambda x: f(lambda x: f(block, x, w) * x, block(x, w)), x),
    "nest of arguments": lambda f, x, w: f(
        lambda p, k: block(p["x"], p["w"]) * k, {"x": x, "w": w}, k=2.0
    ),
}


def plainly(function, *args, **kwargs):
    return function(*args, **kwargs)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_gradients_are_those_without_it(name, create_graph):
    want = gradients(lambda x, w: RUNS[name](plainly, x, w), create_graph)
    got = gradients(lambda x, w: RUNS[name](checkpoint, x, w), create_graph)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-13, atol=1e-13)


def test_forward_mode_and_hessians_go_through():
    f = lambda x: checkpoint(lambda x: (x.exp() * x.sin()).sum(), x)  # noqa: E731
    g = lambda x: (x.exp() * x.sin()).sum()  # noqa: E731
    x = X[0]
    np.testing.assert_allclose(func.jacfwd(f)(x).numpy(), func.jacfwd(g)(x).numpy())
    np.testing.assert_allclose(func.hessian(f)(x).numpy(), func.hessian(g)(x).numpy())


def test_several_backwards_and_grad_of_parameters():
    w = W.clone().requires_grad_(True)
    y = checkpoint(lambda x: (x @ w).exp(), X).sum()
    y.backward(retain_graph=True)
    once = w.grad.numpy().copy()
    y.backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * once)
    with pytest.raises(ChainruleError, match="a second time"):
        y.backward()


def test_the_function_runs_once_in_forward_and_once_in_backward():
    runs = []

    def f(x):
        runs.append(cr.is_grad_enabled())
        return x.exp().sin().exp()

    x = X.clone().requires_grad_(True)
    y = checkpoint(f, x).sum()
    assert runs == [True]
    y.backward()
    assert runs == [True, True]
    with cr.no_grad():
        checkpoint(f, x)
    assert runs[2:] == [False]


def test_random_numbers_are_set_back_and_afterwards_go_on():
    cr.manual_seed(3)
    x = cr.ones(1000, requires_grad=True)
    y = checkpoint(lambda x: cr.nn.functional.dropout(x * x, 0.5), x)
    after = cr.get_rng_state().tolist()
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * y.detach().numpy())
    assert cr.get_rng_state().tolist() == after


def numpy_bytes():
    """What NumPy's allocator has out now: arrays alone."""
    shot = tracemalloc.take_snapshot()
    arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    return sum(s.size for s in shot.filter_traces([arrays]).statistics("filename"))


@pytest.mark.parametrize("depth", [1, 2])
def test_only_the_arguments_are_kept(depth):
    """8 blocks of 8 operations on 80 kB: without it 64 arrays are kept, with it 8 (or 1 nested)."""

    def eight(x):
        for _ in range(8):
            x = cr.sin(x)
        return x

    def model(f, x):
        for _ in range(8):
            x = f(eight, x)
        return x

    def kept(f):
        x = cr.zeros(10_000, dtype=cr.float64, requires_grad=True)
        before = numpy_bytes()
        y = f(x)
        taken = numpy_bytes() - before
        y.sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), np.ones(10_000))
        return taken / 80_000

    tracemalloc.start()
    try:
        assert kept(lambda x: model(plainly, x)) == 64  # 63 saved and the result; x is outside
        if depth == 1:
            assert kept(lambda x: model(checkpoint, x)) == 8  # 7 arguments and the result
        else:
            assert kept(lambda x: checkpoint(lambda x: model(checkpoint, x), x)) == 1
    finally:
        tracemalloc.stop()


def test_backward_holds_one_block_at_a_time():
    def block(x):
        for _ in range(10):
            x = cr.sin(x)
        return x

    def peak(f):
        x = cr.zeros(10_000, dtype=cr.float64, requires_grad=True)
        y = x
        tracemalloc.start()
        for _ in range(10):
            y = f(block, y)
        y.sum().backward()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most / 80_000

    assert peak(plainly) > 100
    assert peak(checkpoint) < 10 + 10 + 6  # arguments, one block, and what a rule works with


# What differs is named ---------------------------------------------------------------------------


def changing(first, second):
    runs = []

    def f(x):
        runs.append(1)
        return (first if len(runs) == 1 else second)(x)

    return f


def backward_of(f, **options):
    x = X.clone().requires_grad_(True)
    checkpoint(f, x, **options).sum().backward()


def test_another_shape_names_tensor_shapes_and_lines():
    f = changing(lambda x: x.exp() * 1, lambda x: x.exp()[:2].sin())
    with pytest.raises(CheckpointError) as error:
        backward_of(changing(lambda x: x[:3].exp().sin(), lambda x: x[:2].exp().sin()))
    text = str(error.value)
    assert "saved tensor 0 is another" in text
    assert "'exp' at" in text and "test_checkpoint.py" in text
    assert "shape (3, 6) float64" in text and "shape (2, 6) float64" in text
    with pytest.raises(CheckpointError, match=r"tensor 1 .*First: nothing.*now: 'sin'"):
        backward_of(f)


def test_fewer_tensors_name_the_first_that_is_missing():
    f = changing(lambda x: x.exp().sin(), lambda x: x.exp())
    with pytest.raises(
        CheckpointError, match=r"saved 2 tensors, the second 1: .* tensor 1 on: 'sin'"
    ):
        backward_of(f)


def test_random_numbers_that_are_not_set_back():
    def f(x):
        return x.exp().sin() if cr.rand(1).item() < 0.5 else x.exp().exp().sin()

    cr.manual_seed(1)  # whose first two numbers fall on both sides
    assert [cr.rand(1).item() < 0.5 for _ in range(2)] == [True, False]
    cr.manual_seed(1)
    with pytest.raises(CheckpointError, match="preserve_rng_state"):
        backward_of(f, preserve_rng_state=False)
    cr.manual_seed(1)
    backward_of(f)


def test_writes_between_the_runs_are_noticed():
    x = X.clone().requires_grad_(True)
    a = x * 1
    y = checkpoint(cr.exp, a).sum()
    with cr.no_grad():
        a.mul_(2)
    with pytest.raises(StaleTensorError, match="tensor argument 0 of 'checkpoint'"):
        y.backward()
    w = W.clone().requires_grad_(True)
    y = checkpoint(lambda x: (x @ w).sin(), x).sum()
    with cr.no_grad():
        w.mul_(2)
    with pytest.raises(StaleTensorError, match="a leaf saved by 'matmul'"):
        y.backward()


def test_a_write_inside_that_spoils_a_saved_tensor_is_noticed():
    def f(x):
        y = x.exp()
        y += 1
        return y

    with pytest.raises(StaleTensorError, match="the output of 'exp'"):
        backward_of(f)


def test_an_error_in_the_function_leaves_nothing_behind():
    def f(x):
        x.exp()
        raise KeyError("mine")

    x = X.clone().requires_grad_(True)
    with pytest.raises(KeyError):
        checkpoint(f, x)
    from chainrule.ops import forms

    assert forms.new is object.__new__
    x.exp().sum().backward()


def test_sequential_and_refusals():
    steps = [cr.sin, cr.exp, lambda x: x * x, cr.tanh]
    x = X.clone().requires_grad_(True)
    y = checkpoint_sequential(steps, 2, x)
    y.sum().backward()
    z = X.clone().requires_grad_(True)
    cr.tanh(cr.exp(cr.sin(z)) ** 2).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy())
    with pytest.raises(InputError, match="segments must be 1 to 4"):
        checkpoint_sequential(steps, 5, x)
    with pytest.raises(InputError, match="use_reentrant=False"):
        checkpoint(cr.sin, x, use_reentrant=True)
    with pytest.raises(InputError, match="determinism_check"):
        checkpoint(cr.sin, x, determinism_check="all")
