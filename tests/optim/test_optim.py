"""Optimisers against torch.optim, step by step, and their state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.errors import CheckpointError, GradError, InputError, StaleTensorError

RANDOM = np.random.default_rng(0)
CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "maximize": True, "momentum": 0.5}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.01, "amsgrad": True}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "betas": (0.7, 0.9), "eps": 1e-4, "weight_decay": 0.3}),
    ("AdamW", {"lr": 0.01, "amsgrad": True, "maximize": True}),
]

both = pytest.mark.parametrize("device", ["cpu", "torch"])
cases = pytest.mark.parametrize(("name", "options"), CASES, ids=str)
SHAPES = ((3, 4), (5,), (), (200, 300))  # the last is larger than a block of the fused kernel


def parameters(device, dtype=np.float64):
    arrays = [RANDOM.standard_normal(s).astype(dtype) for s in SHAPES]
    ours = [cr.tensor(x, device=device, requires_grad=True) for x in arrays]
    return ours, [torch.tensor(x, requires_grad=True) for x in arrays]


def gradients(ours, theirs, step):
    """The same random gradients on both sides; the second parameter sits the first step out."""
    for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
        g = np.asarray(RANDOM.standard_normal(p.shape), dtype=q.detach().numpy().dtype)
        if i == 1 and step == 0:
            p.grad = q.grad = None
            continue
        p.grad = cr.tensor(g, device=str(p.device))
        q.grad = torch.tensor(g)


def assert_close(ours, theirs, tolerance=1e-12):
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            p.detach().numpy(), q.detach().numpy(), rtol=tolerance, atol=tolerance
        )


@both
@cases
def test_every_step_is_pytorchs(name, options, device):
    ours, theirs = parameters(device)
    a = getattr(cr.optim, name)(ours, **options)
    b = getattr(torch.optim, name)(theirs, **options)
    for step in range(6):
        gradients(ours, theirs, step)
        a.step()
        b.step()
        assert_close(ours, theirs)


@cases
def test_float32_steps_are_pytorchs_to_a_few_roundings(name, options):
    ours, theirs = parameters("cpu", np.float32)
    a = getattr(cr.optim, name)(ours, **options)
    b = getattr(torch.optim, name)(theirs, **options)
    for step in range(3):
        gradients(ours, theirs, step)
        a.step()
        b.step()
    assert_close(ours, theirs, 2e-6)


@both
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_half_parameters_move_as_their_float32_twins_rounded(name, device):
    x, g = RANDOM.standard_normal((2, 50)).astype(np.float16)
    half = cr.tensor(x, device=device, requires_grad=True)
    wide = cr.tensor(x.astype(np.float32), device=device, requires_grad=True)
    for p in (half, wide):
        p.grad = cr.tensor(g, device=device).to(p.dtype)
        getattr(cr.optim, name)([p], lr=0.1).step()
    np.testing.assert_array_equal(half.detach().numpy(), wide.detach().numpy().astype(np.float16))


def test_groups_have_options_of_their_own():
    ours, theirs = parameters("cpu")
    groups = [([0, 1], {"lr": 0.5}), ([2, 3], {"weight_decay": 0.2})]

    def build(module, ps):
        return module.AdamW([{"params": [ps[i] for i in ids], **o} for ids, o in groups], lr=0.01)

    a, b = build(cr.optim, ours), build(torch.optim, theirs)
    for step in range(3):
        gradients(ours, theirs, step)
        a.step()
        b.step()
    assert_close(ours, theirs)
    assert [g["lr"] for g in a.param_groups] == [0.5, 0.01]


def test_named_parameters_and_single_tensors_are_taken_as_groups():
    net = cr.nn.Linear(2, 2)
    assert len(cr.optim.SGD(net.named_parameters()).param_groups[0]["params"]) == 2
    optimizer = cr.optim.SGD([{"params": net.weight}])
    optimizer.add_param_group({"params": [net.bias], "lr": 7.0})
    assert [g["lr"] for g in optimizer.param_groups] == [1e-3, 7.0]


@both
@cases
def test_a_state_goes_on_exactly_where_it_stopped(name, options, device):
    ours, theirs = parameters(device)
    build = getattr(cr.optim, name)
    a = build(ours, **options)
    gradients(ours, theirs, 0)
    a.step()
    copies = [cr.tensor(p.detach(), requires_grad=True) for p in ours]
    b = build(copies, lr=123.0)
    b.load_state_dict(a.state_dict())
    assert b.param_groups[0]["lr"] == options["lr"]
    for step in range(1, 4):
        gradients(ours, theirs, step)
        for p, q in zip(ours, copies, strict=True):
            q.grad = p.grad.clone()
        a.step()
        b.step()
    for p, q in zip(ours, copies, strict=True):
        assert p.tolist() == q.tolist()


def test_the_state_dict_has_pytorchs_form():
    ours, theirs = parameters("cpu")
    a, b = cr.optim.AdamW(ours), torch.optim.AdamW(theirs)
    gradients(ours, theirs, 0)
    a.step()
    b.step()
    have, want = a.state_dict(), b.state_dict()
    assert set(have) == set(want)
    assert set(have["state"]) == set(want["state"]) == {0, 2, 3}
    assert set(have["state"][0]) == set(want["state"][0])
    assert have["param_groups"][0]["params"] == want["param_groups"][0]["params"]
    # And PyTorch's own state can be gone on from.
    arrays = {
        i: {k: v if k == "step" else cr.tensor(v.numpy()) for k, v in s.items()}
        for i, s in want["state"].items()
    }
    options = {k: have["param_groups"][0][k] for k in have["param_groups"][0]}
    a.load_state_dict({"state": arrays, "param_groups": [options]})
    gradients(ours, theirs, 1)
    a.step()
    b.step()
    assert_close(ours, theirs)


def test_a_closure_is_run_with_gradients_and_its_loss_returned():
    x = cr.tensor([3.0], requires_grad=True)
    optimizer = cr.optim.SGD([x], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (x * x).sum()
        loss.backward()
        return loss

    with cr.no_grad():
        assert optimizer.step(closure).item() == 9.0
    assert x.item() == pytest.approx(2.4)
    optimizer.zero_grad(set_to_none=False)
    assert x.grad.tolist() == [0.0]
    optimizer.zero_grad()
    assert x.grad is None


@both
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_a_step_between_forward_and_backward_is_noticed(name, device):
    w = cr.tensor([2.0], device=device, requires_grad=True)
    y = (w * w).sum()
    w.grad = cr.ones(1, device=device)
    getattr(cr.optim, name)([w]).step()
    with pytest.raises(StaleTensorError, match=r"test_optim\.py"):
        y.backward()


def test_a_transposed_parameter_is_moved_in_its_own_memory():
    base = cr.tensor(np.zeros((3, 4)))
    p = base.T.requires_grad_()
    p.grad = cr.ones(4, 3, dtype=cr.float64)
    cr.optim.SGD([p], lr=1.0).step()
    assert base.tolist() == [[-1.0] * 4] * 3
    cr.optim.AdamW([p], lr=0.0, weight_decay=0.0).step()
    assert base.tolist() == [[-1.0] * 4] * 3


def test_optimisers_say_what_is_wrong():
    p = cr.zeros(2, requires_grad=True)
    with pytest.raises(InputError, match="not one Tensor"):
        cr.optim.SGD(p)
    with pytest.raises(InputError, match="got no parameters"):
        cr.optim.SGD([])
    with pytest.raises(InputError, match=r"shape \(2,\) is given twice"):
        cr.optim.SGD([p, p])
    with pytest.raises(InputError, match="moves tensors, not int"):
        cr.optim.SGD([1])
    with pytest.raises(GradError, match="moves leaves"):
        cr.optim.SGD([p * 2.0])
    with pytest.raises(InputError, match="AdamW has no option learning_rate"):
        cr.optim.AdamW([{"params": [p], "learning_rate": 1}])
    with pytest.raises(InputError, match=r"SGD: lr must not be negative, got -1"):
        cr.optim.SGD([p], lr=-1)
    with pytest.raises(InputError, match="nesterov needs a momentum"):
        cr.optim.SGD([p], nesterov=True)
    with pytest.raises(InputError, match="betas are at least 0 and below 1"):
        cr.optim.Adam([p], betas=(0.9, 1.0))
    a = cr.optim.AdamW([p])
    with pytest.raises(
        CheckpointError, match=r"groups of \[2\] parameters, this optimiser of \[1\]"
    ):
        a.load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]})
    wrong = {"state": {0: {"exp_avg": cr.zeros(3)}}, "param_groups": [{"params": [0]}]}
    with pytest.raises(CheckpointError, match=r"exp_avg has shape \(3,\), its parameter \(2,\)"):
        a.load_state_dict(wrong)
