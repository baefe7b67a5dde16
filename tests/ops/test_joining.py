"""Joining, padding and repeating against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.harness import DEVICES, SAME_DATA, check_half, check_op, check_same

import chainrule as cr
from chainrule.errors import DeviceError, DTypeError, InputError, ShapeError
from chainrule.nn import functional as F

torch = pytest.importorskip("torch")

RANDOM = np.random.default_rng(0)
A, B, C = (RANDOM.standard_normal((2, 3, 4)) for _ in range(3))


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_cat_and_stack(dim):
    check_op(lambda m, *xs: m.cat(xs, dim), None, [A, B, C])
    check_op(lambda m, *xs: m.stack(xs, dim=dim), None, [A, B], layouts=SAME_DATA)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat_of_different_lengths_and_of_parts_that_need_no_gradient(dim):
    pieces = [
        RANDOM.standard_normal([n if d == dim % 3 else 2 for d in range(3)]) for n in (1, 0, 3)
    ]
    check_op(lambda m, *xs: m.cat(list(xs), dim), None, pieces)
    check_op(lambda m, x, y: m.cat([x, y.detach(), x], dim), None, [A, B], layouts=False)


def test_stack_of_scalars_and_of_one():
    check_op(lambda m, *xs: m.stack(xs), None, [A[0, 0, 0], B[0, 0, 0]])
    check_op(lambda m, x: m.stack([x], -1), None, [A])
    check_op(lambda m, x: m.cat([x]), None, [A])


def test_dtypes_promote_and_empty_vectors_fit_anything():
    check_op(lambda m, x, y: m.cat([x, y]), None, [A, np.arange(24).reshape(2, 3, 4)])
    check_op(lambda m, x, y: m.stack([x, y]), None, [A, A > 0], layouts=False)
    check_op(
        lambda m, x: m.cat([x, x.float()], 1),
        None,
        [A],
        layouts=False,
        float32=False,
        rtol=1e-6,
        atol=1e-6,
    )
    check_op(lambda m, x, e: m.cat([e, x, e], 1), None, [A, np.zeros(0)], layouts=False)
    check_op(lambda m, e: m.cat([e, e]), None, [np.zeros(0)])
    check_half(lambda m, x, y: m.cat([x, y], 1), None, [A, B])


def test_a_join_is_a_copy():
    x = cr.zeros(2)
    cr.cat([x]).fill_(1.0)
    cr.stack([x]).fill_(1.0)
    x.repeat(1).fill_(1.0)
    x.roll(0, 0).fill_(1.0)
    F.pad(x, (0, 0)).fill_(1.0)
    assert x.tolist() == [0, 0]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 2)])
def test_hstack_and_vstack(shape):
    x, y = RANDOM.standard_normal(shape), RANDOM.standard_normal(shape)
    check_op(lambda m, *xs: m.hstack(xs), None, [x, y], layouts=SAME_DATA)
    check_op(lambda m, *xs: m.vstack(xs), None, [x, y], layouts=SAME_DATA)


def test_splits_come_together_again():
    for device in DEVICES:
        x = cr.tensor(A, device=device)
        assert cr.cat(x.split([1, 3], 2), 2).tolist() == A.tolist()
        assert cr.cat(x.chunk(2, 1), 1).tolist() == A.tolist()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cr.cat([]), InputError, "cat needs at least one tensor"),
        (lambda: cr.stack([]), InputError, "stack needs at least one tensor"),
        (lambda: cr.cat(cr.zeros(2)), InputError, "a list of tensors, not one tensor"),
        (lambda: cr.cat([cr.zeros(2), 1.0]), DTypeError, "element 1 is no tensor but a float"),
        (lambda: cr.cat([cr.tensor(1.0)]), ShapeError, "0-d tensors: use stack"),
        (
            lambda: cr.cat([cr.zeros(2, 3), cr.zeros(2, 3), cr.zeros(3, 3)], 1),
            ShapeError,
            r"cat along dimension 1: tensor 2 has shape \(3, 3\), the first \(2, 3\)",
        ),
        (lambda: cr.cat([cr.zeros(2, 3), cr.zeros(2)]), ShapeError, "tensor 1 has shape"),
        (lambda: cr.cat([cr.zeros(2, 3)], 2), IndexError, "dimension 2 is out of range"),
        (lambda: cr.stack([cr.zeros(2), cr.zeros(3)]), ShapeError, r"tensor 1 has shape \(3,\)"),
        (lambda: cr.cat([cr.zeros(2), cr.zeros(2, device="torch")]), DeviceError, "device"),
    ],
)
def test_what_does_not_join_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


PADS = [(1, 2), (0, 0), (-1, 1), (1, -2), (2, 0, 0, 1), (-1, -1, -1, -1), (1, 1, -1, 2, 0, 3),
        (-4, 0), (-2, -2), (0, 0, 0, 0, 1, 0), ()]  # fmt: skip


@pytest.mark.parametrize("pad", PADS)
@pytest.mark.parametrize("value", [None, -1.5])
def test_pad(pad, value):
    def theirs(x):
        return torch.nn.functional.pad(x, pad, "constant", value)

    try:
        theirs(torch.tensor(A))
    except RuntimeError:  # PyTorch refuses results without elements
        whole = np.pad(A, [(0, 0)] * 2 + [(max(0, p),) * 2 for p in pad[:1]])
        assert F.pad(cr.tensor(A), pad, value=value).shape == (2, 3, 0), whole.shape
        return
    check_op(lambda m, x: F.pad(x, pad, value=value), theirs, [A])


def test_pad_of_half_integer_and_empty_tensors():
    check_half(lambda m, x: (F if m is cr else torch.nn.functional).pad(x, (1, -1)), None, [A])
    i = np.arange(6).reshape(2, 3)
    check_op(lambda m, x: F.pad(x, (1, 1)), lambda x: torch.nn.functional.pad(x, (1, 1)), [i])
    e = np.zeros((2, 0))
    check_op(lambda m, x: F.pad(x, (1, 1)), lambda x: torch.nn.functional.pad(x, (1, 1)), [e])


@pytest.mark.parametrize(
    ("pad", "error", "message"),
    [
        ((1,), InputError, "two numbers a dimension"),
        ((0,) * 8, InputError, "at most 6"),
        ((-3, -2), ShapeError, r"\(-3, -2\) crops more than dimension 2 of size 4 has"),
        ((-6, 4), ShapeError, r"\(-6, 4\) crops more"),
    ],
)
def test_pad_refuses_what_makes_no_sense(pad, error, message):
    with pytest.raises(error, match=message):
        F.pad(cr.tensor(A), pad)
    with pytest.raises(InputError, match="'constant', not 'reflect'"):
        F.pad(cr.tensor(A), (1, 1), "reflect")


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 1, 3), (0, 2, 1), (2, 1, 1, 2), (3, 1, 2, 1, 2)])
def test_repeat(sizes):
    check_op(lambda m, x: x.repeat(*sizes), None, [A])
    check_op(lambda m, x: x.repeat(sizes), None, [A], second=False)


def test_tile_and_its_edges():
    check_op(lambda m, x: m.tile(x, (2,)), None, [A])
    check_op(lambda m, x: x.tile((2, 1, 3, 1)), None, [A])
    check_op(lambda m, x: m.tile(x, ()), None, [A], second=False)
    check_op(lambda m, x: x.repeat(2, 3), None, [A[0, 0, 0]])
    with pytest.raises(ShapeError, match="2 sizes for 3 dimensions"):
        cr.tensor(A).repeat(2, 2)
    with pytest.raises(InputError, match="must not be negative"):
        cr.zeros(2).repeat(-1)


@pytest.mark.parametrize(
    ("shifts", "dims"), [(1, 0), (-1, 2), (7, 1), (0, 1), ((1, 2), (0, -1)), (3, None)]
)
def test_roll(shifts, dims):
    check_op(lambda m, x: m.roll(x, shifts, dims), None, [A], layouts=SAME_DATA)
    check_same(cr.roll(cr.zeros(0, 2), 1, 0), torch.zeros(0, 2).roll(1, 0), "empty")
    with pytest.raises(InputError, match="2 shifts for 1 dims"):
        cr.roll(cr.zeros(2), (1, 2), 0)
