"""The examples run, and what they print is what they claim: their figures, asserted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from examples import annotated_attention, mlp_by_hand, tiled_attention_numpy, why_reverse_mode
from examples import backprop_through_time as through_time

import chainrule as cr

mlp, tiled, why = mlp_by_hand, tiled_attention_numpy, why_reverse_mode
ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_example_runs_as_a_script_without_a_warning(name):
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    # Strict for NumPy and us; PyTorch's own import may warn of what it likes.
    command = [sys.executable, "-W", "error::RuntimeWarning", str(ROOT / "examples" / name)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Warning" not in done.stderr


# mlp_by_hand -------------------------------------------------------------------------------------


def test_the_mlp_by_hand_agrees_with_finite_differences_to_2e_9():
    for seed in range(3):
        assert mlp.difference_from_finite_differences(*mlp.data(seed)) < 2e-9


def test_the_mlp_by_hand_has_pytorchs_gradients():
    x, target, w1, w2 = mlp.data()
    loss, kept = mlp.loss_by_hand(x, target, w1, w2)
    t1, t2 = torch.tensor(w1, requires_grad=True), torch.tensor(w2, requires_grad=True)
    hidden = torch.tensor(x) @ t1
    want = ((0.5 * (hidden + (hidden**2 + 4.0).sqrt()) @ t2 - torch.tensor(target)) ** 2).mean()
    want.backward()
    assert loss == pytest.approx(want.item(), rel=1e-14)
    for ours, theirs in zip(mlp.gradients_by_hand(x, w2, kept), (t1.grad, t2.grad), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("activation", [cr.squareplus, mlp.Squareplus.apply])
def test_the_mlp_by_hand_agrees_with_the_tape(activation):
    x, target, w1, w2 = mlp.data()
    hand = mlp.gradients_by_hand(x, w2, mlp.loss_by_hand(x, target, w1, w2)[1])
    tape = mlp.gradients_by_tape(x, target, w1, w2, activation)
    assert mlp.largest_difference(tape, hand) < 1e-14


def test_the_mlps_function_passes_both_gradchecks():
    points = cr.randn(8, dtype=cr.float64, requires_grad=True)
    assert cr.gradcheck(mlp.Squareplus.apply, (points,))
    assert cr.gradgradcheck(mlp.Squareplus.apply, (points,))


# tiled_attention_numpy ---------------------------------------------------------------------------


def test_tiled_attention_matches_the_naive_form_to_rounding():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((64, 32)) for _ in range(3))
    out, lse = tiled.tiled_attention(q, k, v, 16)
    assert np.abs(out - tiled.naive_attention(q, k, v)).max() < 1e-14
    want = torch.logsumexp(torch.tensor(q @ k.T / np.sqrt(32)), 1).numpy()
    np.testing.assert_allclose(lse[:, 0], want, rtol=1e-14)


# backprop_through_time ---------------------------------------------------------------------------


def test_the_unrolled_network_the_tape_and_rnn_agree():
    x, target = through_time.inputs(1.0)
    params = through_time.weights(1.0)
    loss, hand, norms = through_time.by_hand(x, target, params)
    for way in (through_time.by_tape, through_time.by_module):
        found = way(x, target, params)
        assert found[0] == pytest.approx(loss, rel=1e-14)
        for ours, want in zip(found[1], hand, strict=True):
            np.testing.assert_allclose(ours, want, rtol=0, atol=1e-13)
    np.testing.assert_allclose(through_time.by_tape(x, target, params)[2], norms, rtol=1e-12)


def test_the_unrolled_network_has_pytorchs_gradients():
    x, target = through_time.inputs(1.0)
    params = through_time.weights(0.9)
    rnn = torch.nn.RNN(through_time.INPUTS, through_time.HIDDEN, dtype=torch.float64)
    named = zip(through_time.NAMES, params, strict=True)
    rnn.load_state_dict({name: torch.tensor(p) for name, p in named})
    error = rnn(torch.tensor(x))[0][-1] - torch.tensor(target)
    (0.5 * (error * error).sum()).backward()
    hand = through_time.by_hand(x, target, params)[1]
    for name, ours in zip(through_time.NAMES, hand, strict=True):
        np.testing.assert_allclose(ours, getattr(rnn, name).grad.numpy(), rtol=0, atol=1e-13)


def test_with_tiny_inputs_a_step_back_multiplies_the_gradient_by_the_radius():
    x, target = through_time.inputs(1e-9)
    for radius in (0.5, 1.0, 1.5):
        params = through_time.weights(radius)
        assert max(abs(np.linalg.eigvals(params[1]))) == pytest.approx(radius)
        norms = through_time.by_hand(x, target, params)[2]
        assert through_time.factor_a_step(norms) == pytest.approx(radius, rel=1e-6)


def test_with_usual_inputs_tanh_takes_more_away():
    x, target = through_time.inputs(1.0)
    for radius in (0.5, 1.0, 1.5):
        norms = through_time.by_hand(x, target, through_time.weights(radius))[2]
        assert through_time.factor_a_step(norms) < 0.8 * radius


# why_reverse_mode --------------------------------------------------------------------------------


def test_a_gradient_in_reverse_costs_the_same_small_multiple_for_every_size():
    ratios = [why.costs(n)["reverse"] for n in why.SIZES]
    assert max(ratios) < 4
    assert max(ratios) == pytest.approx(min(ratios), rel=1e-9)


def test_forward_mode_and_finite_differences_cost_a_multiple_an_input():
    for n in why.SIZES:
        cost = why.costs(n)
        assert cost["differences"] == pytest.approx(2 * n)
        assert 2 * n < cost["forward"] < 4 * n


def test_the_cost_of_all_forward_passes_is_what_one_pass_says():
    x = np.random.default_rng(0).standard_normal(100)
    once = why.operations_of(lambda: why.f(why.Counted(x), why.OnCounted))
    assert why.operations_of(lambda: why.forward_mode(x)) / once == why.costs(100)["forward"]
    whole = why.operations_of(lambda: why.finite_differences(x)) / once
    assert whole == why.costs(100)["differences"]


def test_the_count_of_the_walk_is_what_its_printed_rules_do():
    # By hand, an element: tanh 2, the two products 2 each, neg 1, exp 1, and 3 sums where the four
    # uses of x meet; the function itself 7.
    x = np.zeros(50)
    assert why.operations_of_reverse_mode(x) == 50 * (7 + 2 + 2 + 2 + 1 + 1 + 3)


def test_the_three_ways_give_one_gradient():
    x = np.random.default_rng(0).standard_normal(50)
    want = torch.tensor(x, requires_grad=True)
    why.f(want, torch).backward()
    np.testing.assert_allclose(why.reverse_mode(x), want.grad.numpy(), rtol=1e-13)
    np.testing.assert_allclose(why.forward_mode(x), want.grad.numpy(), rtol=1e-13)
    np.testing.assert_allclose(why.finite_differences(x), want.grad.numpy(), atol=1e-7)


# annotated_attention -----------------------------------------------------------------------------


def test_the_written_out_layer_is_the_modules_and_pytorchs():
    x, made = annotated_attention.parameters()
    ours = annotated_attention.written_out(x, made)
    for other in (annotated_attention.by_module, annotated_attention.by_pytorch):
        value, gradient = annotated_attention.apart(ours, other(x, made))
        assert value < 1e-13
        assert gradient < 1e-12


def test_splitting_heads_moves_no_number_and_joining_them_does():
    seen = {}

    def watch(name, t):
        seen[name] = t
        return t

    annotated_attention.written_out(*annotated_attention.parameters(), watch)
    assert seen["query"].storage() is seen["packed"].storage()
    assert seen["joined"].storage() is not seen["mixed"].storage()


def test_no_position_sees_what_comes_after_it():
    shares = []

    def watch(name, t):
        if name == "shares":
            shares.append(t.detach().numpy())
        return t

    annotated_attention.written_out(*annotated_attention.parameters(), watch)
    assert not np.triu(shares[0], 1).any()
    np.testing.assert_allclose(shares[0].sum(-1), 1.0, rtol=1e-14)
