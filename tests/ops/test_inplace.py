"""Writing in place against PyTorch: what is stored, what gradients it leaves, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.ops.harness import DEVICES, SAME_DATA, as_torch, check_op, check_same, host, laid_out

import chainrule as cr

RANDOM = np.random.default_rng(6)
X = RANDOM.standard_normal((3, 4))
Y = RANDOM.uniform(0.5, 2.0, (3, 4))


def _operators(m, x, y):
    x = x.clone()
    x += y
    x -= 0.5
    x *= y
    x /= 2
    return x


# Each on a copy, so that it is recorded: forward and two derivatives.
RECORDED = {
    "operators": _operators,
    "power": lambda m, x, y: y.clone().__ipow__(2),
    "copy_": lambda m, x, y: (x * 1).copy_(y * 2),
    "copy_ of a row": lambda m, x, y: (x * 1).copy_(y[0]),
    "fill_": lambda m, x, y: (x * y).fill_(3.0) + x,
    "zero_": lambda m, x, y: (x * 1).zero_() + y,
    "add_": lambda m, x, y: x.clone().add_(y).mul_(y),
    "add_ alpha": lambda m, x, y: x.clone().add_(y, alpha=-0.3),
    "sub_ and div_": lambda m, x, y: x.clone().sub_(y, alpha=2).div_(y),
    "functions": lambda m, x, y: y.clone().sqrt_() * y.clone().exp_() + y.clone().log_().neg_(),
    "times itself": lambda m, x, y: y.clone().mul_(y).pow_(3),
    "activations": lambda m, x, y: x.clone().relu_() + x.clone().tanh_() + x.clone().sigmoid_(),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_write_has_pytorchs_derivatives(name):
    check_op(RECORDED[name], None, [X, Y])


def _write(key, value):
    def run(m, x, y):
        out = x * 1
        out[key] = value(y)
        return out * out

    return run


WRITES = [
    ((1,), lambda y: y[0]),
    ((slice(1, None), slice(None, None, 2)), lambda y: y[1:, 1:3]),
    ((slice(None), 2), lambda y: y[:, 0] ** 2),
    ((Ellipsis, 0), lambda y: 5.0),
    ((0, 1), lambda y: y[2, 2]),
    ((slice(None),), lambda y: y[:1]),
]


@pytest.mark.parametrize(("key", "value"), WRITES)
def test_a_recorded_write_through_an_index(key, value):
    check_op(_write(key, value), None, [X, Y])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", SAME_DATA)
def test_a_write_reaches_the_memory_of_every_layout(device, layout):
    x = laid_out(cr, X, layout, device)
    row = x[1]
    wanted = X.copy()
    x[:, 1] = cr.tensor(Y[:, 0], device=device)
    wanted[:, 1] = Y[:, 0]
    x += 1
    wanted += 1
    np.testing.assert_array_equal(host(x), wanted)
    np.testing.assert_array_equal(host(row), wanted[1])


@pytest.mark.parametrize("device", DEVICES)
def test_a_write_keeps_the_dtype(device):
    for dtype, value in [("int32", 2), ("float32", 2), ("float16", 0.3), ("int64", 7)]:
        a = np.arange(6).reshape(2, 3).astype(dtype)
        x, t = cr.tensor(a, device=device), as_torch(a)
        x += value
        t += value
        check_same(x, t, f"{dtype} += {value}", rtol=1e-3)
        x[0] = 1
        t[0] = 1
        check_same(x, t, f"{dtype} written", rtol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_overlapping_source_and_target(device):
    x = cr.tensor(np.arange(6.0), device=device)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    x[:] = x.flip(0)
    assert x.tolist() == [4, 3, 2, 1, 0, 0]


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_under_no_grad_moves_a_parameter(device):
    p = cr.tensor(X, device=device, requires_grad=True)
    (p * p).sum().backward()
    with cr.no_grad():
        p -= 0.1 * p.grad
    np.testing.assert_allclose(host(p), 0.8 * X)
    assert p.is_leaf
    assert p.requires_grad


MESSAGES = [
    (lambda x, p: p.__iadd__(1), cr.errors.GradError, "a leaf that requires grad, or a view of one, cannot be"),
    (lambda x, p: p.__setitem__(0, 1.0), cr.errors.GradError, "a leaf that requires grad"),
    (lambda x, p: x[:1].expand(3, 4).fill_(1), cr.errors.LayoutError, "several elements share an address"),
    (lambda x, p: x.copy_(cr.ones(5)), cr.errors.ShapeError, r"\(5,\) does not broadcast into shape \(3, 4\)"),
    (lambda x, p: x.__setitem__(0, cr.ones(3)), cr.errors.ShapeError, r"\(3,\) does not broadcast into"),
    (lambda x, p: x[0].__iadd__(x), cr.errors.ShapeError, r"the result has shape \(3, 4\)"),
    (lambda x, p: x.long().__itruediv__(2), cr.errors.ChainruleError, "a float32 result cannot be stored in a int64"),
    (lambda x, p: x.__setitem__(5, 1.0), IndexError, "5"),
    (lambda x, p: x.data, cr.errors.GradError, "there is no .data"),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "kind", "words"), MESSAGES)
def test_a_wrong_write_is_refused_in_words(fn, kind, words):
    with pytest.raises(kind, match=words):
        fn(cr.tensor(X), cr.tensor(X, requires_grad=True))


def test_a_write_into_what_backward_needs_names_both_lines():
    x = cr.tensor(X, requires_grad=True)
    y = x.exp()
    y *= 2
    with pytest.raises(cr.errors.StaleTensorError, match="y \\*= 2"):
        y.sum().backward()
    t = torch.tensor(X, requires_grad=True)
    u = t.exp()
    u *= 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        u.sum().backward()


def test_a_tensor_may_change_after_its_own_output_was_saved():
    x = cr.tensor(Y, requires_grad=True)
    y = x.clone().sqrt_().exp_().neg_()  # PyTorch refuses: there exp's saved output is the tensor
    y.sum().backward()
    t = torch.tensor(Y, requires_grad=True)
    (-t.sqrt().exp()).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy())


def test_a_write_by_an_operation_is_recorded_at_the_users_line():
    x = cr.tensor(X, requires_grad=True)
    y = x * 1
    y.mul_(x)
    overwritten = y.grad_fn.next_functions[0][0]
    product = overwritten.next_functions[1][0]
    assert "test_inplace.py" in str(product.place)
