"""Hooks on saved tensors: what they are given, that derivatives survive, and that they are free."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import chainrule as cr
from chainrule.autograd.graph import saved_tensors_hooks
from chainrule.errors import ChainruleError, GradError, StaleTensorError
from chainrule.ops import _apply, elementwise, forms

X = cr.tensor(np.random.default_rng(4).standard_normal((3, 4)))


def model(x, w):
    y = (x @ w).tanh() * x[:, :2]
    y = cr.nn.functional.layer_norm(y, (2,)).half().float().to(x.dtype)
    return (y**3 / 2).logsumexp(1)


def gradients(create_graph=False, hooks=None):
    x, w = (t.clone().requires_grad_(True) for t in (X, X.T[:, :2]))
    if hooks is None:
        y = model(x, w)
    else:
        with saved_tensors_hooks(*hooks):
            y = model(x, w)
    first = cr.autograd.grad(y.sum(), (x, w), create_graph=create_graph)
    if not create_graph:
        return first
    return cr.autograd.grad(sum((g * g).sum() for g in first), (x, w))


HOOKS = {
    "nothing": (lambda t: t, lambda t: t),
    "a copy": (lambda t: t.clone(), lambda t: t),
    "bytes": (
        lambda t: (t.numpy().tobytes(), t.shape, t.dtype),
        lambda held: cr.tensor(
            np.frombuffer(held[0], np.dtype(held[2].name)).reshape(held[1]).copy()
        ),
    ),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", HOOKS)
def test_gradients_survive_packing(name, create_graph):
    want = gradients(create_graph)
    got = gradients(create_graph, HOOKS[name])
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-13)


def test_each_saved_tensor_is_packed_once_in_order_and_unpacked_when_needed():
    seen, back = [], []
    x = cr.tensor([1.0, 2.0], requires_grad=True)
    with saved_tensors_hooks(
        lambda t: seen.append((t.tolist(), t.requires_grad)) or len(seen) - 1,
        lambda k: back.append(k) or cr.tensor(seen[k][0]),
    ):
        y = x * x  # saves x for either side: twice
        z = y.exp()  # saves its output
        loss = z.sum()  # saves nothing
        assert len(seen) == 3
    assert [s for s, _ in seen[:2]] == [[1.0, 2.0]] * 2
    assert seen[2][0] == z.tolist() and not any(r for _, r in seen)
    assert back == []
    loss.backward()
    assert back == [2, 0, 1]
    x.exp().sum().backward()
    assert len(seen) == 3  # outside, nothing is packed


def test_the_innermost_scope_counts_and_scopes_may_end_by_an_error():
    names = []
    x = cr.tensor([1.0, 2.0], requires_grad=True)

    def scope(name):
        return saved_tensors_hooks(lambda t: names.append(name) or t, lambda t: t)

    with scope("outer"):
        x.exp()
        with scope("inner"):
            x.exp()
        with pytest.raises(KeyError), scope("broken"):
            raise KeyError
        x.exp()
    assert names == ["outer", "inner", "outer"]


def test_unused_it_costs_nothing_and_other_threads_see_nothing():
    assert all(m.new is object.__new__ for m in (forms, _apply, elementwise))
    packed = []
    x = cr.tensor([1.0, 2.0], requires_grad=True)
    with saved_tensors_hooks(packed.append, lambda t: t):
        assert forms.new is not object.__new__
        thread = threading.Thread(target=lambda: x.exp().sum().backward())
        thread.start()
        thread.join()
    assert packed == []
    assert all(m.new is object.__new__ for m in (forms, _apply, elementwise))


def test_packed_values_are_freed_with_the_tape():
    x = cr.tensor([1.0, 2.0], requires_grad=True)
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        y = x.exp().sum()
    y.backward()
    with pytest.raises(ChainruleError, match="a second time"):
        y.backward()


def test_what_the_hooks_return_is_checked():
    x = cr.tensor([1.0, 2.0], requires_grad=True)
    for unpack, words in (
        (lambda t: 3, "must return a tensor, not int"),
        (
            lambda t: t[:1],
            r"shape \(1,\) float32 for a tensor of shape \(2,\) float32 saved by 'exp'",
        ),
        (lambda t: t.double(), "float64 for a tensor of shape"),
    ):
        with saved_tensors_hooks(lambda t: t, unpack):
            y = x.exp().sum()
        with pytest.raises(GradError, match=words):
            y.backward()


def test_a_write_into_a_tensor_that_the_hook_kept_is_noticed():
    def run(pack):
        x = cr.tensor([1.0, 2.0], requires_grad=True)
        with saved_tensors_hooks(pack, lambda t: t):
            y = x.exp()
            z = (y * y).sum()
        with cr.no_grad():
            y.mul_(2)
        z.backward()
        return x.grad

    with pytest.raises(StaleTensorError, match="a hooked value saved by 'mul'"):
        run(lambda t: t)
    np.testing.assert_allclose(run(lambda t: t.clone()).numpy(), 2 * np.exp([2.0, 4.0]), rtol=1e-6)


def test_hooks_hold_the_arguments_of_a_checkpoint():
    from chainrule.utils.checkpoint import checkpoint

    sizes = []
    x = cr.ones(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: sizes.append(t.shape) or t, lambda t: t):
        y = checkpoint(lambda x: x.exp().sin().exp(), x * 1).sum()
    assert sizes == [(3,)]
    y.backward()
    want = np.exp(np.sin(np.e)) * np.cos(np.e) * np.e
    np.testing.assert_allclose(x.grad.numpy(), [want] * 3, rtol=1e-6)


def test_every_module_that_makes_nodes_lets_a_scope_see_them():
    from pathlib import Path

    root = Path(cr.__file__).parent
    sources = {p: p.read_text(encoding="utf-8") for p in root.rglob("*.py")}
    makers = [p for p, text in sources.items() if "new(Node)" in text]
    assert len(makers) >= 4
    for path in makers:
        assert "MAKERS" in sources[path], path
    assert not [p for p, text in sources.items() if "object.__new__(Node)" in text]
