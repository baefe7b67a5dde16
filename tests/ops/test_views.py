"""Views against PyTorch: value, strides, and two derivatives, from every layout of the input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.ops.harness import DEVICES, SAME_DATA, check_op, host

import chainrule as cr

RANDOM = np.random.default_rng(2)
X = RANDOM.standard_normal((2, 3, 4))

# From any layout, with PyTorch's strides.
VIEWS = {
    "permute": lambda m, x: x.permute(2, 0, 1),
    "permute negative": lambda m, x: m.permute(x, (-1, 0, 1)),
    "transpose": lambda m, x: x.transpose(0, -1),
    "T of a matrix": lambda m, x: x[0].T,
    "mT": lambda m, x: x.mT,
    "t": lambda m, x: x[1].t(),
    "movedim": lambda m, x: m.movedim(x, (0, 2), (1, 0)),
    "expand": lambda m, x: x[:, :1].expand(2, 5, 4),
    "expand leading": lambda m, x: x.expand(3, -1, 3, 4),
    "broadcast_to": lambda m, x: m.broadcast_to(x[0], (2, 3, 4)),
    "squeeze": lambda m, x: x[:, :1].squeeze(1),
    "squeeze all": lambda m, x: x[:1, :, :1].squeeze(),
    "unsqueeze": lambda m, x: x.unsqueeze(-2),
    "select": lambda m, x: x.select(1, -1),
    "narrow": lambda m, x: x.narrow(2, 1, 2),
    "unfold": lambda m, x: x.unfold(2, 2, 1),
    "unfold apart": lambda m, x: x.unfold(1, 2, 1),
    "diagonal": lambda m, x: m.diagonal(x, 1, 1, 2),
    "split": lambda m, x: m.split(x, 2, 2),
    "split sizes": lambda m, x: x.split([1, 3], -1),
    "chunk": lambda m, x: m.chunk(x, 3, 2),
    "unbind": lambda m, x: m.unbind(x, 1),
    "integer": lambda m, x: x[1],
    "negative integer": lambda m, x: x[:, -1],
    "slice": lambda m, x: x[:, 1:, ::2],
    "ellipsis": lambda m, x: x[..., 1],
    "none": lambda m, x: x[:, None, 1],
    "0-d": lambda m, x: x[1, 2, 3],
    "detached": lambda m, x: x.detach(),
    "unflatten": lambda m, x: m.unflatten(x, 2, (2, -1)),
}

# From a layout that allows it.
CONTIGUOUS_VIEWS = {
    "view": lambda m, x: x.view(6, 4),
    "view infers": lambda m, x: x.view(-1),
    "view_as": lambda m, x: x.view_as(m.zeros(4, 6)),
    "reshape": lambda m, x: x.reshape(3, 8),
    "flatten": lambda m, x: m.flatten(x, 1),
    "as_strided": lambda m, x: m.as_strided(x, (2, 3), (1, 2), 3),
    "as_strided overlapping": lambda m, x: m.as_strided(x, (3, 3), (1, 1), 0),
}

# Copies where they must be: only values and derivatives are compared.
OTHERS = {
    "reshape": lambda m, x: x.reshape(4, 6),
    "flatten": lambda m, x: x.flatten(),
    "flip": lambda m, x: m.flip(x, (0, 2)),
    "flip of a slice": lambda m, x: x[:, 1:].flip(1),
    "clone": lambda m, x: x.clone(),
    "contiguous": lambda m, x: x.contiguous(),
    "chain": lambda m, x: x.permute(2, 1, 0)[1:, :2].reshape(2, -1).T,
    "two views meet": lambda m, x: x[0] * x[1] + x[:, 0].sum(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_has_pytorchs_strides_and_derivatives(name):
    check_op(VIEWS[name], None, [X], view=True)


@pytest.mark.parametrize("name", CONTIGUOUS_VIEWS)
def test_a_view_of_contiguous_memory(name):
    check_op(CONTIGUOUS_VIEWS[name], None, [X], view=True, layouts=["contiguous"])


@pytest.mark.parametrize("name", OTHERS)
def test_what_may_copy_agrees_in_value_and_derivatives(name):
    check_op(OTHERS[name], None, [X])


@pytest.mark.parametrize("device", DEVICES)
def test_negative_steps_are_views(device):
    x = cr.tensor(X, device=device, requires_grad=True)
    y = x[:, ::-1, ::-2]
    np.testing.assert_array_equal(host(y), X[:, ::-1, ::-2])
    assert y.stride() == (12, -4, -2)
    (3 * y).sum().backward()
    wanted = np.zeros_like(X)
    wanted[:, ::-1, ::-2] = 3
    np.testing.assert_array_equal(x.grad.numpy(), wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", SAME_DATA)
def test_views_share_memory(device, layout):
    from tests.ops.harness import laid_out

    x = laid_out(cr, X, layout, device)
    for view in (x[1:], x.permute(2, 0, 1), x.flip(0), x.unsqueeze(0), x[:, 0]):
        before = host(view).copy()
        with cr.no_grad():
            x += 1
        np.testing.assert_allclose(host(view), before + 1)


def test_reshape_copies_only_where_it_must():
    x = cr.tensor(X)
    assert x.reshape(6, 4).data_ptr() == x.data_ptr()
    assert x.reshape(6, 4, copy=True).data_ptr() != x.data_ptr()
    assert x.mT.reshape(-1).data_ptr() != x.data_ptr()
    with pytest.raises(cr.errors.LayoutError, match="merge"):
        x.mT.reshape(-1, copy=False)
    assert x.contiguous() is x
    assert x.mT.contiguous().is_contiguous()


MESSAGES = [
    (
        lambda x: x.mT.view(-1),
        cr.errors.LayoutError,
        r"strides \(12, 1, 4\) .* dimensions 1 and 2 do not merge",
    ),
    (lambda x: x.view(5, 5), cr.errors.ShapeError, "24"),
    (lambda x: x[2], IndexError, "2"),
    (lambda x: x.select(3, 0), IndexError, "3"),
    (lambda x: x.as_strided((5, 6), (6, 1), 0), cr.errors.LayoutError, "24"),
    (lambda x: x.expand(3, 3, 4), cr.errors.ChainruleError, "expand"),
    (lambda x: x.t(), cr.errors.ShapeError, "at most 2 dimensions, this has 3"),
    (lambda x: x.flatten(2, 1), cr.errors.InputError, "start_dim 2 is after end_dim 1"),
    (lambda x: x.movedim((0, 0), (1, 2)), cr.errors.InputError, "distinct dims"),
    (lambda x: x.chunk(0), cr.errors.InputError, "at least 1 chunk, got 0"),
    (lambda x: x.permute(0, 0, 1), cr.errors.ChainruleError, "permute"),
]


@pytest.mark.parametrize(("fn", "kind", "words"), MESSAGES)
@pytest.mark.parametrize("device", DEVICES)
def test_an_impossible_view_is_refused_in_words(fn, kind, words, device):
    with pytest.raises(kind, match=words):
        fn(cr.tensor(X, device=device))


def test_a_self_overlapping_view_sums_its_gradient():
    x = np.arange(6.0)
    check_op(lambda m, t: m.as_strided(t, (4, 3), (1, 1)) ** 2, None, [x], layouts=["contiguous"])
    check_op(lambda m, t: t.unfold(0, 3, 2) ** 2, None, [x])


def test_views_of_integers_and_bools():
    for array in (np.arange(24).reshape(2, 3, 4), RANDOM.integers(0, 2, (2, 3, 4)).astype(bool)):
        check_op(lambda m, x: x.permute(2, 0, 1)[1:], None, [array], view=True, float32=False)
        assert torch.equal(torch.tensor(array.T.copy()), torch.tensor(cr.tensor(array).T.numpy()))


@pytest.mark.parametrize("wrong", [0.5, "a", [0.5], None])
def test_dimensions_that_are_no_integers_are_refused(wrong):
    x = cr.ones(2, 2)
    calls = [x.permute, lambda d: x.transpose(0, d), x.unsqueeze, lambda d: x.narrow(0, 0, d)]
    if wrong is not None:
        calls += [x.sum, x.squeeze, x.amax, x.softmax, x.flip, x.mean]
    if not isinstance(wrong, list):
        calls += [lambda d: x.select(0, d), lambda d: x.split(d, 0), x.chunk, x.unbind]
    for call in calls:
        with pytest.raises(cr.ChainruleError, match="integer"):
            call(wrong)


def test_a_dimension_may_be_a_tensor_of_one_integer():
    x = cr.tensor(X)
    one = cr.tensor(1)
    assert x.sum(one).shape == (2, 4)
    assert x.permute(one, 0, 2).shape == (3, 2, 4)


def test_unsqueeze_says_where_a_new_dimension_may_go():
    with pytest.raises(IndexError, match=r"unsqueeze at 3 .* shape \(2,\): .* -2 to 1"):
        cr.ones(2).unsqueeze(3)
