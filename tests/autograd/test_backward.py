"""The backward walk: sums where paths meet, what is freed, what is refused, hooks in order."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
import torch

import chainrule as cr


def leaf(*values: float) -> cr.Tensor:
    return cr.tensor(list(values), dtype=cr.float64, requires_grad=True)


def test_paths_that_meet_are_summed_once() -> None:
    a = leaf(1.0)
    b = a + a
    (b + b).sum().backward()
    assert a.grad is not None and a.grad.tolist() == [4.0]


def test_gradients_accumulate_over_backwards_in_place() -> None:
    x = leaf(2.0, 3.0)
    (x * x).sum().backward()
    first = x.grad
    (x * x).sum().backward()
    assert x.grad is first
    assert x.grad is not None and x.grad.tolist() == [8.0, 12.0]


def test_a_diamond_agrees_with_torch_to_second_order() -> None:
    values = np.random.default_rng(0).normal(size=(3, 4))

    def f(lib: object, x: object) -> object:
        y = x * x  # type: ignore[operator]
        return (y * x + y / (x * x + 1.0)).sum()

    x, tx = cr.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    (g,) = cr.autograd.grad(f(cr, x), x, create_graph=True)
    (tg,) = torch.autograd.grad(f(torch, tx), tx, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), tg.detach().numpy(), rtol=1e-13)
    (h,) = cr.autograd.grad((g * g).sum(), x)
    (th,) = torch.autograd.grad((tg * tg).sum(), tx)
    np.testing.assert_allclose(h.numpy(), th.numpy(), rtol=1e-12)


def test_a_broadcast_operand_gets_a_gradient_of_its_own_shape() -> None:
    a = cr.ones(3, 1, requires_grad=True)
    b = cr.ones(1, 4, requires_grad=True)
    s = cr.tensor(2.0, requires_grad=True)
    ((a + b) * s).sum().backward()
    assert a.grad is not None and a.grad.tolist() == [[8.0]] * 3
    assert b.grad is not None and b.grad.tolist() == [[6.0] * 4]
    assert s.grad is not None and s.grad.shape == () and s.grad.item() == 24.0


def test_two_leaves_never_share_a_gradient_buffer() -> None:
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (a + b).backward(cr.ones(2, dtype=cr.float64))
    assert a.grad is not None and b.grad is not None
    with cr.no_grad():
        a.grad += 1.0
    assert b.grad.tolist() == [1.0, 1.0]


def test_the_callers_gradient_is_not_taken_over() -> None:
    x, g = leaf(1.0, 2.0), cr.ones(2, dtype=cr.float64)
    (x + 0.0).backward(g)
    assert x.grad is not None
    x.grad.zero_()
    assert g.tolist() == [1.0, 1.0]


def test_second_backward_is_refused_until_the_graph_is_kept() -> None:
    x = leaf(1.0)
    y = (x + x).sum()
    y.backward()
    with pytest.raises(cr.ChainruleError, match=r"a second time.*retain_graph=True"):
        y.backward()
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [6.0]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda x: (x * x).backward(), r"scalar outputs: this tensor has shape \(2,\)"),
        (lambda x: (x * x).backward(cr.ones(3)), r"shape \(3,\), the tensor \(2,\)"),
        (lambda x: cr.ones(2).sum().backward(), "does not require grad"),
        (lambda x: cr.autograd.grad(x.sum(), leaf(1.0)), "not used by the outputs"),
        (lambda x: cr.autograd.grad(x.sum(), cr.ones(2)), "does not require grad"),
        (lambda x: cr.arange(3).requires_grad_(), "floating-point"),
        (lambda x: (x * x).requires_grad_(False), "only a leaf"),
        (lambda x: x.numpy(), r"\.detach\(\)\.numpy\(\)"),
        (lambda x: x.data, "there is no .data"),
        (lambda x: cr.autograd.backward([]), "nothing to differentiate"),
    ],
)
def test_what_cannot_be_differentiated_says_so(act: object, message: str) -> None:
    with pytest.raises(cr.ChainruleError, match=message):
        act(leaf(1.0, 2.0))  # type: ignore[operator]


def test_grad_of_unused_inputs() -> None:
    x, unused = leaf(1.0), leaf(2.0)
    g, none = cr.autograd.grad((x * 3.0).sum(), (x, unused), allow_unused=True)
    assert g.tolist() == [3.0] and none is None
    _, zero = cr.autograd.grad((x * 3.0).sum(), (x, unused), materialize_grads=True)
    assert zero.tolist() == [0.0]
    assert x.grad is None


def test_grad_of_an_inner_tensor_and_of_its_ancestor() -> None:
    x = leaf(2.0)
    y = x * x
    z = (y * y).sum()
    gx, gy = cr.autograd.grad(z, (x, y))
    assert gy.tolist() == [8.0] and gx.tolist() == [32.0]


def test_backward_into_chosen_inputs_leaves_the_others_alone() -> None:
    x, w = leaf(2.0), leaf(3.0)
    (x * w).sum().backward(inputs=[w])
    assert x.grad is None and w.grad is not None and w.grad.tolist() == [2.0]


def test_hundred_thousand_nodes_forward_backward_and_free() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y * 1.0
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0]
    del y
    y = x
    for _ in range(100_000):
        y = y + x
    del y  # never walked: freeing it must not recurse either


def test_freeing_a_deep_graph_in_a_thread_with_a_small_stack() -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            x = leaf(1.0)
            y = x
            for _ in range(100_000):
                y = y * 1.0
            y.sum().backward(retain_graph=True)
            del y
        except BaseException as error:  # handed to the main thread
            failures.append(error)

    size = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
    assert not failures


def test_a_graph_dies_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        x = leaf(1.0, 2.0)
        y = cr.exp(x * x).sum()
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


def test_slicing_in_a_loop_adds_into_one_buffer() -> None:
    """Each slice's gradient must not cost a full-size array: peak memory stays flat."""
    import tracemalloc

    def peak(steps: int) -> int:
        x = cr.zeros(steps, 64, requires_grad=True)
        total = x[0]
        for i in range(1, steps):
            total = total + x[i]
        loss = total.sum()
        tracemalloc.start()
        loss.backward()
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert x.grad is not None and bool((x.grad.numpy() == 1.0).all())
        return used

    small, large = peak(100), peak(800)
    assert large < 12 * small  # 8 is linear, 64 quadratic


# Hooks.


def test_a_tensor_hook_sees_the_summed_gradient_once() -> None:
    x = leaf(2.0)
    y = x * 2.0
    seen: list[list[float]] = []

    def times_ten(g: cr.Tensor) -> cr.Tensor:
        seen.append(g.tolist())
        return g * 10.0

    y.register_hook(times_ten)
    (y + y).sum().backward()
    assert seen == [[2.0]]
    assert x.grad is not None and x.grad.tolist() == [40.0]


def test_hooks_run_in_order_and_retain_grad_last() -> None:
    x = leaf(1.0)
    y = x * 3.0
    y.retain_grad()
    first = y.register_hook(lambda g: g + 1.0)
    y.register_hook(lambda g: g * 2.0)
    y.sum().backward(retain_graph=True)
    assert y.grad is not None and y.grad.tolist() == [4.0]
    first.remove()
    y.sum().backward()
    assert y.grad.tolist() == [2.0]


def test_a_gradient_in_a_hook_cannot_be_written() -> None:
    y = leaf(1.0, 2.0) * 2.0
    y.register_hook(lambda g: g.zero_())
    with pytest.raises(cr.ChainruleError, match=r"may not be written to.*clone"):
        y.sum().backward()


def test_a_hook_must_keep_the_shape() -> None:
    y = leaf(1.0, 2.0) * 2.0
    y.register_hook(lambda g: g.sum())
    with pytest.raises(cr.ChainruleError, match=r"returned shape \(\) for a gradient of shape"):
        y.sum().backward()


def test_node_hooks_before_and_after_the_rule() -> None:
    x = leaf(1.0)
    y = x * 3.0
    assert y.grad_fn is not None
    order: list[str] = []
    y.grad_fn.register_prehook(lambda gs: (order.append("pre"), (gs[0] * 2.0,))[1])

    def post(grad_inputs: tuple[cr.Tensor, ...], grad_outputs: tuple[cr.Tensor, ...]) -> object:
        order.append("post")
        assert grad_outputs[0].tolist() == [2.0] and grad_inputs[0].tolist() == [6.0]
        return (grad_inputs[0] + 1.0, None)

    y.grad_fn.register_hook(post)
    y.sum().backward()
    assert order == ["pre", "post"]
    assert x.grad is not None and x.grad.tolist() == [7.0]


def test_post_accumulate_hook_runs_after_the_gradient_is_there() -> None:
    x = leaf(1.0)
    seen: list[object] = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    (x * 5.0).sum().backward()
    assert seen == [[5.0]]


def test_a_gradient_hook_works_under_create_graph() -> None:
    x = leaf(3.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = cr.autograd.grad(y.sum(), x, create_graph=True)  # 2 x · x
    (h,) = cr.autograd.grad(g.sum(), x)
    assert g.tolist() == [18.0] and h.tolist() == [12.0]


# Modes.


def test_grad_modes_nest_and_restore() -> None:
    x = leaf(1.0)
    with cr.no_grad():
        assert (x * 2.0).grad_fn is None
        with cr.enable_grad():
            assert (x * 2.0).grad_fn is not None
        assert not cr.is_grad_enabled()
    assert cr.is_grad_enabled()

    @cr.no_grad()
    def inner() -> bool:
        return (x * 2.0).requires_grad

    @cr.inference_mode
    def bare() -> bool:
        return (x * 2.0).requires_grad

    assert inner() is False and bare() is False
    with cr.set_grad_enabled(False):
        assert not cr.is_grad_enabled()
    cr.set_grad_enabled(False)
    assert not cr.is_grad_enabled()
    cr.set_grad_enabled(True)
    with pytest.raises(ZeroDivisionError), cr.no_grad():
        _ = 1 / 0
    assert cr.is_grad_enabled()


def test_grad_mode_is_each_threads_own() -> None:
    seen: list[bool] = []
    with cr.no_grad():
        thread = threading.Thread(target=lambda: seen.append(cr.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_detach_shares_memory_without_history() -> None:
    x = leaf(1.0, 2.0)
    d = (x * 2.0).detach()
    assert not d.requires_grad
    y = x.detach()
    y.fill_(5.0)
    assert x.tolist() == [5.0, 5.0]


def test_a_leaf_is_updated_under_no_grad() -> None:
    p = leaf(1.0, 2.0)
    (p * p).sum().backward()
    assert p.grad is not None
    with cr.no_grad():
        p -= 0.5 * p.grad
    assert p.is_leaf and p.requires_grad and p.tolist() == [0.0, 0.0]
    with pytest.raises(cr.ChainruleError, match=r"with torch\.no_grad"):
        p += 1.0


def test_where_names_the_line_of_the_user() -> None:
    x = leaf(1.0)
    y = cr.exp(x).sum()
    text = repr(y.grad_fn)
    assert __file__ in text and "sum" in text
    assert y.grad_fn is not None
    line = y.grad_fn.place.text
    assert line == "y = cr.exp(x).sum()"
