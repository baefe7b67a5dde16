"""Right functions pass in every layout, to second order: PyTorch's own as the oracle of rightness."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import chainrule as cr
from chainrule.check import examine, examine_twice, gradcheck, gradgradcheck


def randn(*shape, seed=0, host=torch):
    values = np.random.default_rng(seed).standard_normal(shape)
    return host.tensor(values, dtype=host.float64).requires_grad_()


def positive(*shape):
    return (randn(*shape).detach().abs() + 0.5).requires_grad_()


INDEX = torch.tensor([[0, 2, 2], [1, 0, 3]])
WEIGHT = torch.randn(3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

FUNCTIONS = {
    "add": (torch.add, (randn(3, 4), randn(4, seed=1))),
    "mul": (torch.mul, (randn(3, 4), randn(3, 1, seed=1))),
    "div": (torch.div, (randn(3, 4), positive(4))),
    "pow": (torch.pow, (positive(3, 2), randn(3, 2, seed=1))),
    "exp": (torch.exp, randn(3, 4)),
    "log": (torch.log, positive(3, 4)),
    "tanh": (torch.tanh, randn(3, 4)),
    "sigmoid": (torch.sigmoid, randn(2, 3, 4)),
    "erf": (torch.erf, randn(5)),
    "softplus": (F.softplus, randn(3, 4)),
    "gelu": (F.gelu, randn(3, 4)),
    "silu": (F.silu, randn(3, 4)),
    "relu": (F.relu, randn(3, 4)),
    "abs": (torch.abs, randn(3, 4)),
    "maximum": (torch.maximum, (randn(3, 4), randn(3, 4, seed=1))),
    "clamp": (lambda x: x.clamp(-0.5, 0.7), randn(3, 4)),
    "atan2": (torch.atan2, (randn(3), randn(3, seed=1))),
    "where": (lambda x: torch.where(x > 0, x * x, -x), randn(3, 4)),
    "sum": (torch.sum, randn(3, 4)),
    "sum over a dimension": (lambda x: x.sum(1, keepdim=True), randn(3, 4)),
    "mean": (lambda x: x.mean((0, 2)), randn(2, 3, 2)),
    "var": (lambda x: x.var(1), randn(3, 4)),
    "prod": (lambda x: x.prod(1), randn(3, 3)),
    "amax": (lambda x: x.amax(1), randn(3, 4)),
    "max with index": (lambda x: x.max(1), randn(3, 4)),
    "sort": (lambda x: x.sort(1)[0], randn(3, 4)),
    "cumsum": (lambda x: x.cumsum(1), randn(3, 4)),
    "logsumexp": (lambda x: x.logsumexp(1), randn(3, 4)),
    "softmax": (lambda x: x.softmax(-1), randn(3, 4)),
    "log_softmax": (lambda x: x.log_softmax(-1), randn(3, 4)),
    "norm": (lambda x: x.norm(), randn(3, 4)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (randn(3, 4), randn(4), randn(4))),
    "matmul": (torch.matmul, (randn(3, 4), randn(4, 2, seed=1))),
    "batched matmul": (torch.matmul, (randn(2, 3, 4), randn(4, 2, seed=1))),
    "einsum": (lambda a, b: torch.einsum("bik,bkj->bij", a, b), (randn(2, 2, 3), randn(2, 3, 2))),
    "conv2d": (lambda x: F.conv2d(x, WEIGHT[:, None]), randn(1, 1, 4, 4)),
    "inverse": (torch.linalg.inv, (torch.eye(3, dtype=torch.float64) * 4).requires_grad_()),
    "transpose": (lambda x: x.transpose(0, 1), randn(3, 4)),
    "expand": (lambda x: x.expand(3, 2, 4), randn(2, 4)),
    "flip": (lambda x: x.flip(0), randn(3, 4)),
    "view": (lambda x: x.view(-1), randn(3, 4)),
    "slice": (lambda x: x[1:, ::2], randn(3, 4)),
    "cat": (lambda a, b: torch.cat([a, b], 1), (randn(2, 3), randn(2, 2, seed=1))),
    "unbind": (lambda x: x.unbind(0), randn(3, 4)),
    "gather": (lambda x, i: x.gather(1, i), (randn(2, 4), INDEX)),
    "index": (lambda x, i: x[i], (randn(4, 2), INDEX)),
    "scatter_add": (
        lambda x, i: torch.zeros(2, 4).double().scatter_add(1, i, x),
        (randn(2, 3), INDEX),
    ),
    "embedding": (lambda i, w: F.embedding(i, w), (INDEX, randn(4, 2))),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i), (randn(3, 4), INDEX[0])),
    "attention": (
        F.scaled_dot_product_attention,
        (randn(1, 1, 3, 2), randn(1, 1, 3, 2, seed=1), randn(1, 1, 3, 2, seed=2)),
    ),
    "scalar in, scalar out": (lambda x: x * x, randn()),
    "empty": (lambda x: x * 2, randn(0, 3)),
    "in place on a copy": (lambda x: x.clone().mul_(x), randn(3, 4)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_right_torch_function_passes_in_every_layout(name):
    fn, inputs = FUNCTIONS[name]
    report = examine(fn, inputs)
    assert report, str(report)
    assert gradcheck(fn, inputs, fast_mode=True)


TWICE = ["mul", "div", "exp", "tanh", "gelu", "softmax", "layer_norm", "matmul", "gather", "norm"]


@pytest.mark.parametrize("name", TWICE)
def test_a_right_torch_function_passes_to_second_order(name):
    fn, inputs = FUNCTIONS[name]
    report = examine_twice(fn, inputs)
    assert report, str(report)


def test_what_a_function_refuses_is_said_and_does_not_fail():
    report = examine(lambda x: x.view(-1), randn(3, 4))
    refused = [row for row in report.rows if row.status == "refused"]
    assert "input x stride (1, 3)" in [row.label for row in refused]
    assert all("view size is not compatible" in row.detail for row in refused)
    assert gradcheck(lambda x: x.view(-1), randn(3, 4))


OWN = {
    "mul": (lambda x, y: x * y, ((3, 4), (3, 1))),
    "div": (lambda x, y: x / (y * y + 1), ((3, 4), (4,))),
    "exp": (lambda x: x.exp(), ((3, 4),)),
    "sum": (lambda x: x.sum(), ((3, 4),)),
    "sum over a dimension": (lambda x: x.sum(1), ((3, 4),)),
    "matmul": (lambda x, y: x @ y, ((3, 4), (4, 2))),
    "transpose": (lambda x: x.transpose(0, 1), ((3, 4),)),
    "expand": (lambda x: x.expand(3, 2, 4), ((2, 4),)),
    "flip": (lambda x: x.flip(0), ((3, 4),)),
    "reversed": (lambda x: x[:, ::-1], ((3, 4),)),
    "slice": (lambda x: x[1:, ::2] * 2, ((3, 4),)),
}


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("name", OWN)
def test_our_own_operations_pass_in_every_layout_to_second_order(name, device):
    fn, shapes = OWN[name]
    rng = np.random.default_rng(3)
    inputs = [cr.tensor(rng.standard_normal(s), device=device).requires_grad_() for s in shapes]
    assert gradcheck(fn, inputs)
    assert gradgradcheck(fn, inputs)


def test_the_user_s_own_strides_are_kept_for_the_row_as_given():
    seen = []

    def fn(x):
        seen.append(x.stride())
        return x * x

    x = torch.randn(4, 3, dtype=torch.float64).t().requires_grad_()
    assert gradcheck(fn, x, layouts=False)
    assert set(seen) == {(1, 3)}


def test_a_leaf_with_a_gap_and_an_input_that_wants_no_gradient():
    x = torch.randn(3, 8, dtype=torch.float64)[:, ::2].requires_grad_()
    scale = torch.randn(4, dtype=torch.float64)
    assert gradcheck(lambda x, s, power: (x * s) ** power, (x, scale, 2))


def test_a_choice_among_equal_elements_is_skipped_not_failed():
    def largest(x):  # which of several equal elements it takes depends on the strides
        ties = (x == x.max()).nonzero()[:, 0]
        return x[ties[0] if x.stride(0) else ties[-1]]

    fate = {row.label: row for row in examine(largest, randn(4)).rows}
    assert fate["input x stride (0,)"].status == "skip"
    assert fate["input x stride (0,)"].detail == "the function has no derivative at equal elements"
    assert gradcheck(largest, randn(4))
