"""Order, running results, searching and counting against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.ops.harness import DEVICES, SAME_DATA, check_half, check_op, check_same

import chainrule as cr
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import running, sorting

RANDOM = np.random.default_rng(7)
X = RANDOM.permutation(60).reshape(3, 4, 5) / 7.0 - 4  # all different
TIES = RANDOM.integers(0, 3, (3, 7)).astype(np.float64)
WITH_NAN = np.where(RANDOM.uniform(size=(4, 6)) < 0.2, np.nan, RANDOM.standard_normal((4, 6)))
FEW = ("contiguous", "transposed", "flipped")


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("descending", [False, True])
def test_sort(dim, descending):
    check_op(lambda m, x: m.sort(x, dim=dim, descending=descending), None, [X], layouts=SAME_DATA)
    for x in (TIES, WITH_NAN):
        d = min(dim, 1)
        check_op(
            lambda m, t, d=d: m.sort(t, dim=d, descending=descending, stable=True), None, [x],
            layouts=SAME_DATA, float32=x is TIES,
        )  # fmt: skip
        check_op(
            lambda m, t, d=d: m.argsort(t, d, descending, stable=True),
            lambda t, d=d: torch.argsort(t, dim=d, descending=descending, stable=True), [x],
            layouts=FEW, float32=False,
        )  # fmt: skip
    check_op(lambda m, t: m.sort(t, stable=True, dim=0, descending=descending), None,
             [TIES.astype(np.int32)], layouts=FEW)  # fmt: skip
    check_op(lambda m, x: m.sort(x, descending=descending).values, None, [np.array(2.5)])


def test_sort_of_bools_halves_and_nothing():
    check_op(lambda m, x: m.sort(x, stable=True), None, [TIES > 0], layouts=FEW)
    check_op(lambda m, x: m.sort(x, 0), None, [np.zeros((0, 3))], layouts=False)
    check_half(lambda m, x: m.sort(x, 1).values, None, [X])
    check_op(lambda m, x: m.msort(x), None, [X], layouts=FEW)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("k", "dim"), [(2, -1), (3, 0), (1, 1), (5, 2), (0, 1)])
def test_topk(k, dim, largest):
    check_op(lambda m, x: m.topk(x, k, dim, largest), None, [X], layouts=SAME_DATA)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(("k", "dim"), [(2, -1), (3, 0), (4, 1)])
def test_kthvalue(k, dim, keepdim):
    check_op(lambda m, x: m.kthvalue(x, k, dim, keepdim), None, [X], layouts=SAME_DATA)


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_median(name):
    check_op(lambda m, x: getattr(m, name)(x), None, [X])
    check_op(lambda m, x: getattr(m, name)(x), None, [TIES])
    check_op(lambda m, x: getattr(m, name)(x), None, [WITH_NAN], layouts=FEW, second=False)
    for dim in (0, 1, -1):
        check_op(lambda m, x, d=dim: getattr(m, name)(x, d, True), None, [X], layouts=SAME_DATA)
        check_op(lambda m, x, d=dim: getattr(m, name)(x, d)[0], None, [WITH_NAN],
                 layouts=SAME_DATA, float32=False)  # fmt: skip
    check_op(lambda m, x: getattr(m, name)(x, 0), None, [np.array(3.0)])
    check_op(lambda m, x: getattr(m, name)(x), None, [TIES.astype(np.int64)], layouts=FEW)


@pytest.mark.parametrize("dim", [0, 1])
def test_mode(dim):
    check_op(lambda m, x: m.mode(x, dim), None, [TIES], layouts=SAME_DATA)
    check_op(lambda m, x: m.mode(x, dim, True).values, None, [TIES.astype(np.int64)], layouts=FEW)
    check_op(lambda m, x: m.mode(x, 0), None, [np.array(3.0)])


# Running results.


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_cumprod(dim):
    check_op(lambda m, x: m.cumprod(x, dim), None, [X + 4.5], layouts=FEW)
    zeros = X.copy()
    zeros[1, 2, :3] = 0
    zeros[0, :, 4] = 0
    zeros[:, 0, 1] = 0
    check_op(lambda m, x: m.cumprod(x, dim), None, [zeros], layouts=FEW)


@pytest.mark.parametrize("name", ["cumprod", "logcumsumexp"])
def test_running_results_of_edges(name):
    for x in (np.array(1.5), np.zeros((2, 0)), np.zeros((0, 2)), np.ones((3, 1))):
        check_op(lambda m, t: getattr(m, name)(t, -1), None, [x])
    check_half(lambda m, x: getattr(m, name)(x, 1), None, [RANDOM.uniform(0.5, 1.5, (2, 5))])
    if name == "cumprod":
        check_op(lambda m, t: m.cumprod(t, 0), None, [np.arange(5, dtype=np.int32)])
        check_op(lambda m, t: m.cumprod(t, 0, dtype=m.float64), None, [np.arange(1, 5)])


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_logcumsumexp(dim):
    check_op(lambda m, x: m.logcumsumexp(x, dim), None, [X])
    check_op(lambda m, x: m.logcumsumexp(x, dim), None, [300 * X], layouts=FEW)


def test_logcumsumexp_of_infinities_has_the_gradient_of_what_counts():
    x = cr.tensor([float("-inf"), float("-inf"), 1.0, 2.0], requires_grad=True)
    y = cr.logcumsumexp(x, 0)
    y[2:].sum().backward()
    e = np.exp(1.0) / (np.exp(1.0) + np.exp(2.0))
    np.testing.assert_allclose(x.grad.numpy(), [0, 0, 1 + e, 1 - e], rtol=1e-6)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dim", [0, 1])
def test_running_extremes(name, dim):
    for x in (X, TIES, WITH_NAN):
        check_op(lambda m, t: getattr(m, name)(t, dim), None, [x], layouts=SAME_DATA,
                 float32=x is not WITH_NAN)  # fmt: skip
    check_op(lambda m, t: getattr(m, name)(t, dim), None, [TIES.astype(np.int8)], layouts=FEW)
    check_op(lambda m, t: getattr(m, name)(t, 0), None, [np.array(1.0)])
    check_op(lambda m, t: getattr(m, name)(t, dim).values, None, [TIES > 1], layouts=FEW)


def test_diff():
    check_op(lambda m, x: m.diff(x), None, [X])
    check_op(lambda m, x, a, b: m.diff(x, 2, 1, a, b), None, [X, X[:, :2], X[:, 1:2]], layouts=FEW)
    check_op(lambda m, x: m.diff(x, 0), None, [X], layouts=FEW)
    check_op(lambda m, x: m.diff(x, 9), None, [X], layouts=FEW)
    check_op(lambda m, x: m.diff(x), None, [TIES > 1], layouts=FEW)


# Searching and counting: no gradients.


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.filterwarnings("ignore:torch.searchsorted:UserWarning")
def test_searchsorted_and_bucketize(right):
    edges = np.array([-1.0, 0.0, 0.0, 1.0, 2.0])
    rows = np.sort(RANDOM.standard_normal((3, 2, 4)))
    x = np.concatenate([RANDOM.standard_normal(7), [0.0, 2.0, -1.0, np.nan, np.inf]])
    check_op(lambda m, a, v: m.searchsorted(a, v, right=right), None, [edges, x],
             layouts=SAME_DATA, float32=False)  # fmt: skip
    check_op(lambda m, a, v: m.searchsorted(a, v, right=right, out_int32=True), None,
             [rows, RANDOM.standard_normal((3, 2, 5))], layouts=SAME_DATA)  # fmt: skip
    check_op(lambda m, a: m.searchsorted(a, 0.5, right=right), None, [edges])
    check_op(lambda m, v, a: m.bucketize(v, a, right=right), None, [x[:10].reshape(2, 5), edges],
             layouts=SAME_DATA)  # fmt: skip
    order = np.array([4, 1, 0, 2, 3])
    check_op(
        lambda m, a, v, s: m.searchsorted(a, v, right=right, sorter=s), None,
        [edges[np.argsort(order)], x[:7], order], layouts=FEW,
    )  # fmt: skip


def test_counts():
    n = RANDOM.integers(0, 6, 20)
    check_op(lambda m, x: m.bincount(x), None, [n], layouts=SAME_DATA)
    check_op(lambda m, x: m.bincount(x, minlength=9), None, [n.astype(np.uint8)], layouts=False)
    weights = RANDOM.standard_normal(20)
    check_op(lambda m, x, w: m.bincount(x, w.detach()), None, [n, weights], layouts=SAME_DATA)
    check_op(lambda m, x: m.bincount(x), None, [n[:0]], layouts=False)
    for args in ((5,), (4, -1, 1), (3, 0, 2)):
        check_op(
            lambda m, x, a=args: m.histc(x.detach(), *a),
            None,
            [X],
            layouts=SAME_DATA,
            float32=False,
        )


@pytest.mark.parametrize("device", DEVICES)
def test_unique(device):
    for x in (TIES, TIES.astype(np.int16), TIES > 1):
        for dim in (None, 0, 1):
            ours = cr.unique(cr.tensor(x, device=device), True, True, True, dim)
            theirs = torch.unique(torch.tensor(x), True, True, True, dim)
            for a, b in zip(ours, theirs, strict=True):
                check_same(a, b, f"unique along {dim}")
            ours = cr.unique_consecutive(cr.tensor(x, device=device), True, True, dim)
            theirs = torch.unique_consecutive(torch.tensor(x), True, True, dim)
            for a, b in zip(ours, theirs, strict=True):
                check_same(a, b, f"unique_consecutive along {dim}")
    check_same(cr.unique(cr.tensor([2.0, 1.0, 2.0], device=device)), torch.tensor([1.0, 2.0]), "")


@pytest.mark.parametrize("invert", [False, True])
def test_isin(invert):
    check_op(lambda m, x, y: m.isin(x, y, invert=invert), None, [TIES, np.array([0.0, 2.0])],
             layouts=SAME_DATA)  # fmt: skip
    check_op(lambda m, x: m.isin(x, 1, invert=invert), None, [TIES], layouts=FEW)
    check_op(lambda m, x, y: m.isin(x, y, invert=invert), None, [TIES, np.zeros(0)], layouts=False)


def test_refusals():
    x = cr.ones(2, 3)
    with pytest.raises(InputError, match="k is 4, dimension 1 has 3"):
        cr.topk(x, 4)
    with pytest.raises(InputError, match="k is 0, dimension 0 has 2"):
        cr.kthvalue(x, 0, 0)
    with pytest.raises(ShapeError, match="median of no elements"):
        cr.median(cr.ones(2, 0), 1)
    with pytest.raises(ShapeError, match="integers have no NaN"):
        cr.median(cr.ones(0, dtype=cr.int64))
    assert cr.isnan(cr.median(cr.ones(0)))
    with pytest.raises(DTypeError, match="complex numbers have no order"):
        cr.sort(cr.tensor([1j]))
    with pytest.raises(ShapeError, match="agree in all but the last size"):
        cr.searchsorted(x, cr.ones(3, 3))
    with pytest.raises(InputError, match="contradicts"):
        cr.searchsorted(x, x, right=True, side="left")
    with pytest.raises(DTypeError, match="the sequence is float32, the values float64"):
        cr.searchsorted(x, x.double())
    with pytest.raises(InputError, match="counts from 0: there is -1"):
        cr.bincount(cr.tensor([1, -1]))
    with pytest.raises(DTypeError, match="bincount counts integers"):
        cr.bincount(cr.ones(2))
    with pytest.raises(InputError, match="bins is 0"):
        cr.histc(x, 0)
    with pytest.raises(InputError, match="not finite"):
        cr.histc(cr.tensor([1.0, float("inf")]))


@pytest.mark.parametrize("name", ["cumprod", "logcumsumexp", "median"])
def test_a_flipped_sign_in_the_rule_is_seen(name, monkeypatch):
    rule = {
        "cumprod": running.CUMPROD, "logcumsumexp": running.LOGCUMSUMEXP, "median": sorting.MEDIAN,
    }[name]  # fmt: skip
    right = rule.vjp
    monkeypatch.setattr(rule, "vjp", lambda *args: tuple(-g for g in right(*args)))
    args = () if name == "median" else (1,)
    with pytest.raises(AssertionError, match="gradient"):
        check_op(lambda m, x: getattr(m, name)(x, *args), None, [X], layouts=False)
