"""Recorded writes through views: the base and every other view get the right history."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule as cr


def pair(*shape: int, seed: int = 0) -> tuple[cr.Tensor, torch.Tensor]:
    values = np.random.default_rng(seed).normal(size=shape)
    return cr.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)


def same_gradients(
    ours: list[cr.Tensor], theirs: list[torch.Tensor], loss: Any, wanted: Any
) -> None:
    loss.backward()
    wanted.backward()
    np.testing.assert_allclose(loss.item(), wanted.item(), rtol=1e-12)
    for o, t in zip(ours, theirs, strict=True):
        want = t.grad if t.grad is not None else torch.zeros_like(t)
        have = o.grad.numpy() if o.grad is not None else np.zeros(o.shape)
        np.testing.assert_allclose(have, want.numpy(), rtol=1e-12, atol=1e-12)


def through_a_view(x: Any, w: Any) -> Any:
    base = x * 1.0
    view = base[1:]
    view *= w[1:]
    return (base * base).sum() + view.sum()


def base_written_view_read(x: Any, w: Any) -> Any:
    base = x * 2.0
    view = base[:, 1]
    base *= w
    return (view * view).sum()


def sibling_views(x: Any, w: Any) -> Any:
    base = x * 1.0
    first, second = base[:2], base[1:]
    first *= w[:2]
    second += first[1:] * 3.0
    return (first * second).sum() + (base * w).sum()


def chain_of_views(x: Any, w: Any) -> Any:
    base = x * 1.0
    inner = base.transpose(0, 1)[1:].transpose(0, 1)[1]
    inner *= w[0, 1:]
    inner += 1.0
    return (base * w).sum()


def base_gone(x: Any, w: Any) -> Any:
    def views() -> Any:
        base = x * w
        return base[:2], base[1:]

    first, second = views()
    first *= 2.0
    return (second * second).sum()


def zeros_filled(x: Any, w: Any) -> Any:
    buffer = x.detach() * 0.0  # no history until something with one is written into it
    whole = buffer.view(12)
    for i in range(3):
        buffer[i] = x[i] * w[i]
    whole[3] = (x * x).sum()
    return (whole * whole).sum()


def overwritten_twice(x: Any, w: Any) -> Any:
    base = x * 1.0
    base[0] = w[0]
    base[0] = w[1] * 2.0
    base[:] = base + w
    return (base * base).sum()


def of_a_transposed_result(x: Any, w: Any) -> Any:
    base = x.transpose(0, 1) * 2.0  # dense, but not row-major
    row = base[1]
    row *= w[:, 1]
    return (base * base).sum() + row.sum()


PROGRAMS = [
    through_a_view,
    base_written_view_read,
    sibling_views,
    chain_of_views,
    base_gone,
    zeros_filled,
    overwritten_twice,
    of_a_transposed_result,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_against_pytorch(program: Any) -> None:
    x, tx = pair(3, 4)
    w, tw = pair(3, 4, seed=1)
    same_gradients([x, w], [tx, tw], program(x, w), program(tx, tw))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_to_second_order_on_both_devices(program: Any, device: str) -> None:
    values = np.random.default_rng(2).normal(size=(2, 3, 4))
    inputs = tuple(cr.tensor(v, device=device, requires_grad=True) for v in values)
    assert cr.gradgradcheck(program, inputs, layouts=False)


# Random programs. A step is (which tensor, what to do, numbers); both libraries run the same.

STEPS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(["slice", "select", "transpose", "flat", "scale", "add", "set", "copy"]),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=9,
)


def run(steps: list[tuple[int, str, int, int]], x: Any, w: Any) -> Any:
    held = [x * 1.0]
    for which, what, other, number in steps:
        t = held[which % len(held)]
        rest = held[other % len(held)]
        rows = t.shape[0] if len(t.shape) else 0
        if what == "slice" and rows:
            held.append(t[number % rows :])
        elif what == "select" and rows:
            held.append(t[number % rows])
        elif what == "transpose" and len(t.shape) == 2:
            held.append(t.transpose(0, 1))
        elif what == "flat" and t.is_contiguous():
            held.append(t.view(-1))
        elif what == "scale":
            t *= w.sum() * 0.1 + number
        elif what == "add" and tuple(t.shape) == tuple(rest.shape):
            t += rest * 0.5
        elif what == "set" and rows:
            t[number % rows] = w[0, number] * 2.0
        elif what == "copy":
            held.append(t * 1.5)
    total = (held[0] * held[0]).sum()
    for t in held[1:]:
        total = total + (t * t).sum() * 0.5
    return total


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_random_programs_agree_with_pytorch(steps: list[tuple[int, str, int, int]]) -> None:
    x, tx = pair(3, 4)
    w, tw = pair(3, 4, seed=1)
    try:
        wanted = run(steps, tx, tw)
        torch.autograd.grad(wanted, tx, retain_graph=True)
    except RuntimeError:  # PyTorch refuses: ours may refuse too, and does it in words
        words = ""
        try:
            run(steps, x, w).backward()
        except cr.ChainruleError as refused:
            words = str(refused)
        assert not words or "written in place" in words
        return
    same_gradients([x, w], [tx, tw], run(steps, x, w), wanted)


# What is refused, and what it costs.


def test_a_view_of_a_leaf_is_refused() -> None:
    p = cr.ones(3, requires_grad=True)
    row = p[1:]
    with pytest.raises(cr.errors.GradError, match="or a view of one"):
        row *= 2.0
    assert p.tolist() == [1, 1, 1]


def test_a_view_made_under_no_grad_is_refused() -> None:
    base = cr.ones(3, requires_grad=True) * 1.0
    with cr.no_grad():
        view = base[1:]
    with pytest.raises(cr.errors.GradError, match="made under no_grad"):
        view *= 2.0


def test_a_detached_tensor_has_a_history_of_its_own() -> None:
    x = cr.ones(3, requires_grad=True)
    base = x * 2.0
    apart = base.detach()
    w = cr.full((), 3.0, requires_grad=True)
    apart *= w
    assert not base.grad_fn.name().startswith("view")  # type: ignore[union-attr]
    assert base.tolist() == [6, 6, 6]  # the memory is one
    apart.sum().backward()
    assert w.grad is not None and w.grad.item() == 6.0 and x.grad is None


def test_what_was_saved_before_the_write_is_stale_through_any_alias() -> None:
    x = cr.ones(3, requires_grad=True)
    base = x * 1.0
    kept = (base * base).sum()
    base.detach()[0] = 5.0
    with pytest.raises(cr.errors.StaleTensorError, match=r"base\.detach\(\)\[0\] = 5\.0"):
        kept.backward()


def test_writing_in_a_loop_is_linear_backward() -> None:
    """One buffer for the whole walk: PyTorch copies the gradient at every write."""
    import tracemalloc

    def peak(steps: int) -> int:
        x = cr.ones(steps, requires_grad=True)
        out = cr.zeros(steps, 16)
        for i in range(steps):
            out[i] = x[i] * 2.0
        loss = out.sum()
        tracemalloc.start()
        loss.backward()
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert x.grad is not None and x.grad.tolist() == [32.0] * steps
        return used

    small, large = peak(50), peak(400)
    assert large < 12 * small  # 8 is linear, 64 quadratic
