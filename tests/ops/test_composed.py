"""Elementwise compositions against PyTorch: values, gradients, edges, whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.ops.harness import DEVICES, as_torch, check_half, check_op, check_same
from torch.nn import functional as TF

import chainrule as cr
from chainrule.errors import DTypeError, InputError
from chainrule.nn import functional as F

RANDOM = np.random.default_rng(2)
X, Y, Z = (2.5 * RANDOM.standard_normal((3, 4)) for _ in range(3))
FEW = ("contiguous", "transposed", "flipped")
INF = float("inf")

ACTIVATIONS = {  # name: (further arguments, points of interest)
    "selu": ((), [0.0, -0.0]),
    "celu": ((0.5,), [0.0]),  # PyTorch rounds its constants to float32
    "hardsigmoid": ((), [-3.0, 3.0]),
    "hardswish": ((), [-3.0, 3.0]),
    "tanhshrink": ((), [0.0]),
    "softshrink": ((0.4,), [0.4, -0.4]),
    "hardshrink": ((0.4,), [0.4, -0.4]),
    "threshold": ((0.5, -2.0), [0.5]),
    "softsign": ((), [0.0]),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    args, points = ACTIVATIONS[name]
    ours, theirs = getattr(F, name), getattr(TF, name)
    if name == "hardsigmoid":  # PyTorch's gradient is a float32 sixth
        theirs = lambda x: TF.relu6(x + 3) / 6  # noqa: E731
    check_op(lambda m, x: ours(x, *args), lambda x: theirs(x, *args), [X])
    check_half(lambda m, x: ours(x, *args), lambda x: theirs(x, *args), [X], roundings=3)
    check_op(lambda m, x: ours(x, *args), lambda x: theirs(x, *args),
             [np.array(points)], second=False, layouts=False)  # fmt: skip
    lost = cr.tensor([float("nan"), 1.0])
    assert cr.isnan(ours(lost, *args)).tolist() == [True, False]


UNARY = ["deg2rad", "rad2deg", "frac", "sgn", "signbit", "isposinf", "isneginf"]


@pytest.mark.parametrize("name", UNARY)
def test_of_one_tensor(name):
    check_op(lambda m, x: getattr(m, name)(x), None, [X])
    edges = np.array([0.0, -0.0, INF, -INF, 1.0])
    if name != "frac":
        check_op(lambda m, x: getattr(m, name)(x).detach(), None, [edges], layouts=False)
        whole = np.array([3, -2, 0])
        check_op(lambda m, x: getattr(m, name)(x), None, [whole], layouts=False)


@pytest.mark.parametrize("eps", [None, 1e-6, 0.2])
def test_logit(eps):
    x = np.array([[0.01, 0.3, 0.5], [0.2, 0.8, 0.99]])
    check_op(lambda m, t: m.logit(t, eps), None, [x])


def test_nan_to_num():
    x = np.array([1.0, np.nan, INF, -INF])
    check_op(lambda m, t: m.nan_to_num(t, 2.5, posinf=7.0, neginf=-3.0), None, [x])
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        ours = cr.nan_to_num(cr.tensor(x, dtype=getattr(cr, dtype)))
        check_same(ours, torch.nan_to_num(torch.tensor(x, dtype=getattr(torch, dtype))), dtype)
    check_op(lambda m, t: m.nan_to_num(t), None, [np.arange(3)])


def test_of_several():
    check_op(lambda m, x, y, z: m.addcmul(x, y, z, value=-2), None, [X, Y, Z])
    check_op(lambda m, x, y, z: m.addcdiv(x, y, z, value=0.5), None, [X, Y, np.abs(Z) + 1])
    check_op(lambda m, x, y, z: m.addcmul(x, y, z), None, [X, Y[0], Z[:, :1]])
    check_op(lambda m, x, y, z: (x * 1).addcmul_(y, z), None, [X, Y, Z], layouts=FEW)
    check_op(lambda m, x, y: m.logaddexp2(x, y), None, [X, Y])
    check_op(lambda m, x, y: (x * 1).lerp_(y, 0.25), None, [X, Y], layouts=FEW)
    steps = np.array([-1.5, 0.0, -0.0, 2.0])
    check_op(lambda m, x, v: m.heaviside(x.detach(), v.detach()), None, [steps, np.array([0.5])])
    truth = [np.array([0.0, 1.0, np.nan, 0.0]), np.array([0.0, 2.0, 0.0, -3.0])]
    check_op(lambda m, x, y: m.logical_xor(x, y), None, truth)
    for k in (0, 2, -1):
        check_op(lambda m, x, k=k: m.round(x, decimals=k), None, [10 * X])
    check_op(lambda m, x: m.clamp_min(x, 0.5), None, [X], layouts=FEW)
    check_op(lambda m, x: m.clamp_max(x, 0.5), None, [X], layouts=FEW)


A, B = np.array([7, -7, 7, -7, 0, 100]), np.array([2, 2, -2, -2, 5, -7])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["int64", "int8", "float64", "float32", "float16"])
def test_whole_division(dtype, device):
    a, b = A.astype(dtype), B.astype(dtype)
    x, y = cr.tensor(a, device=device), cr.tensor(b, device=device)
    check_same(cr.floor_divide(x, y), torch.floor_divide(as_torch(a), as_torch(b)), "floor_divide")
    check_same(x // 3, as_torch(a) // 3, "//")
    check_same(100 // (y + 1), 100 // (as_torch(b) + 1), "reflected //")
    for mode in ("floor", "trunc", None):
        wanted = torch.div(as_torch(a), as_torch(b), rounding_mode=mode)
        check_same(cr.div(x, y, rounding_mode=mode), wanted, f"div {mode}", rtol=1e-6)
    if not dtype.startswith("float"):
        with pytest.raises(ZeroDivisionError, match="division by zero"):
            x // cr.zeros(6, dtype=cr.int64, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_shifts(dtype, device):
    a, b = np.abs(A).astype(dtype), np.array([0, 1, 2, 3, 4, 5]).astype(dtype)
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        ours = getattr(cr, name)(cr.tensor(a, device=device), cr.tensor(b, device=device))
        check_same(ours, getattr(torch, name)(as_torch(a), as_torch(b)), name)


def test_refusals():
    with pytest.raises(InputError, match="rounding_mode"):
        cr.div(cr.ones(1), 2, rounding_mode="up")
    with pytest.raises(DTypeError, match="hardswish needs a floating-point tensor, not int64"):
        F.hardswish(cr.tensor([1]))
    with pytest.raises(InputError, match="alpha is 0"):
        F.celu(cr.ones(1), 0.0)
    with pytest.raises(InputError, match="lambd is -1"):
        F.softshrink(cr.ones(1), -1)
    with pytest.raises(DTypeError, match="for integers, not float32"):
        cr.bitwise_left_shift(cr.ones(1), 1)
