"""Matrix products of every rank, and the linear layer, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.harness import DEVICES, check_half, check_op
from torch.nn import functional as F

import chainrule as cr

RANDOM = np.random.default_rng(4)

SHAPES = [
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((1, 3, 4), (2, 4, 5)),
    ((2, 6, 3, 4), (1, 1, 4, 5)),
    ((2, 6, 3, 4), (4,)),
    ((1, 4), (4, 1)),
]


@pytest.mark.parametrize("shapes", SHAPES)
def test_matmul_of_every_rank(shapes):
    inputs = [RANDOM.standard_normal(s) for s in shapes]
    check_op(lambda m, x, y: m.matmul(x, y), None, inputs)


@pytest.mark.parametrize("shapes", [((0, 4), (4, 5)), ((3, 0), (0, 5)), ((2, 0, 4), (4, 5))])
def test_matmul_of_no_elements(shapes):
    inputs = [RANDOM.standard_normal(s) for s in shapes]
    check_op(
        lambda m, x, y: x @ y, None, inputs, layouts=["contiguous", "transposed"], float32=False
    )


def test_a_matrix_times_itself():
    check_op(lambda m, x: x @ x, None, [RANDOM.standard_normal((4, 4))])
    check_op(lambda m, x: x.T @ x, None, [RANDOM.standard_normal((3, 4))])


def test_a_stack_of_rows_in_any_layout_times_one_matrix():
    x, w = RANDOM.standard_normal((2, 3, 4)), RANDOM.standard_normal((5, 4))
    check_op(lambda m, a, b: a.permute(1, 0, 2) @ b.T, None, [x, w])


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(lead, bias):
    inputs = [RANDOM.standard_normal((*lead, 4)), RANDOM.standard_normal((5, 4))]
    inputs += [RANDOM.standard_normal(5)] if bias else []
    check_op(lambda m, *t: cr.linear(*t), F.linear, inputs, float32=lead != (0,))


def test_integers_multiply_as_integers():
    x, y = RANDOM.integers(-5, 5, (3, 4)), RANDOM.integers(-5, 5, (4, 2))
    check_op(lambda m, a, b: a @ b, None, [x, y], float32=False)


def test_halves_accumulate_in_float32():
    x, y = RANDOM.standard_normal((3, 200)), RANDOM.standard_normal((200, 2))
    check_half(lambda m, a, b: a @ b, None, [x, y])
    w = RANDOM.standard_normal((2, 200))
    check_half(lambda m, a, b: cr.linear(a, b), F.linear, [x, w])


def test_arrays_take_part_from_either_side():
    x = RANDOM.standard_normal((3, 4))
    y = cr.tensor(RANDOM.standard_normal((4, 2)))
    for product in (x @ y, cr.tensor(x) @ y.numpy()):
        assert isinstance(product, cr.Tensor)
        np.testing.assert_allclose(product.numpy(), x @ y.numpy())


A = np.ones((2, 3))
MESSAGES = [
    (lambda t: t(A) @ t(A), cr.errors.ShapeError, r"the last size of the first, 3, must equal the second-last size of the second, 2"),
    (lambda t: t(A) @ t(np.ones(2)), cr.errors.ShapeError, "must equal the only size of the second, 2"),
    (lambda t: t(A) @ t(np.ones(3, np.float32)), cr.errors.DTypeError, "matmul of float64 and float32: convert"),
    (lambda t: t(A) @ t(np.array(2.0)), cr.errors.ShapeError, "0-d tensor: use"),
    (lambda t: cr.matmul(t(A), 2.0), cr.errors.DTypeError, "to scale by a number use"),
    (lambda t: cr.linear(t(A), t(A.T)), cr.errors.ShapeError, r"the weight is \(out, in\)"),
    (lambda t: cr.linear(t(A), t(A), t(np.ones(3))), cr.errors.ShapeError, r"bias \(3,\) should be \(2,\)"),
    (lambda t: cr.linear(t(A), t(A.astype(np.float32))), cr.errors.DTypeError, "float32 and float64"),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "kind", "words"), MESSAGES)
@pytest.mark.parametrize("device", DEVICES)
def test_what_does_not_fit_is_refused_in_words(fn, kind, words, device):
    with pytest.raises(kind, match=words):
        fn(lambda a: cr.tensor(a, device=device))


def test_devices_do_not_mix():
    with pytest.raises(cr.errors.DeviceError, match="on device 'cpu', another on 'torch'"):
        cr.tensor(A) @ cr.tensor(A.T.copy(), device="torch")
