"""Named products and einsum against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.ops.harness import SAME_DATA, check_half, check_op, check_same

import chainrule as cr
from chainrule.errors import DTypeError, InputError, ShapeError

RANDOM = np.random.default_rng(3)
FEW = ("contiguous", "transposed", "flipped")


def numbers(*shape):
    return RANDOM.standard_normal(shape)


PRODUCTS = {  # name: shapes
    "dot": ((5,), (5,)),
    "mv": ((3, 4), (4,)),
    "mm": ((3, 4), (4, 2)),
    "bmm": ((2, 3, 4), (2, 4, 5)),
    "outer": ((3,), (4,)),
    "inner": ((2, 3, 4), (5, 4)),
    "kron": ((2, 3), (2, 1, 2)),
    "tensordot": ((2, 3, 4), (3, 4, 5)),
    "addmm": ((4,), (3, 2), (2, 4)),
    "addmv": ((1,), (3, 2), (2,)),
    "addr": ((3, 4), (3,), (4,)),
    "baddbmm": ((2, 1, 5), (2, 3, 4), (2, 4, 5)),
    "addbmm": ((3, 5), (2, 3, 4), (2, 4, 5)),
    "cdist": ((2, 3, 4), (5, 4)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name):
    inputs = [numbers(*shape) for shape in PRODUCTS[name]]
    layouts = SAME_DATA if name == "cdist" else FEW

    def theirs(*t):  # PyTorch's kron refuses transposed operands; cdist has no second derivative
        if name == "cdist":
            return torch.linalg.vector_norm(t[0][..., :, None, :] - t[1], 2, -1)
        return getattr(torch, name)(*[x.contiguous() for x in t])

    check_op(lambda m, *t: getattr(m, name)(*t), theirs, inputs, layouts=layouts)


@pytest.mark.parametrize("name", ["addmm", "addmv", "addr", "baddbmm", "addbmm"])
def test_a_scaled_product_is_added_to_a_scaled_tensor(name):
    inputs = [numbers(*shape) for shape in PRODUCTS[name]]
    for beta, alpha in ((0.5, -2.0), (0, 3.0), (2, 1)):
        check_op(
            lambda m, *t, k={"beta": beta, "alpha": alpha}: getattr(m, name)(*t, **k),
            None, inputs, layouts=["contiguous", "sliced"],
        )  # fmt: skip
    whole = [np.arange(x.size).reshape(x.shape) for x in inputs]
    check_op(lambda m, *t: getattr(m, name)(*t, beta=2, alpha=3), None, whole, layouts=False)
    lost = cr.full(inputs[0].shape, float("nan"), dtype=cr.float64)
    kept = getattr(cr, name)(lost, *[cr.tensor(x) for x in inputs[1:]], beta=0)
    assert not cr.isnan(kept).any()


def test_a_product_is_added_in_place():
    x, a, b = numbers(3, 4), numbers(3, 2), numbers(2, 4)
    check_op(lambda m, t, u, v: (t * 1).addmm_(u, v, beta=0.5), None, [x, a, b], layouts=FEW)
    with pytest.raises(ShapeError, match="in-place"):
        cr.zeros(4).addmm_(cr.ones(3, 2), cr.ones(2, 4))


@pytest.mark.parametrize("dims", [0, 1, ([0, 2], [2, 0]), ([-1], [0])])
def test_tensordot_of_chosen_dimensions(dims):
    x = numbers(3, 2, 3)
    check_op(lambda m, a, b: m.tensordot(a, b, dims), None, [x, numbers(3, 4, 3)], layouts=FEW)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, float("inf")])
def test_distances(p):
    # PyTorch has no second derivative of cdist but for p = 2.
    check_op(
        lambda m, a, b: m.cdist(a, b, p), None, [numbers(4, 3), numbers(2, 3)],
        layouts=SAME_DATA, second=False,
    )  # fmt: skip


def test_the_distance_of_equal_points_has_gradient_0():
    x = cr.ones(2, 3, requires_grad=True)
    cr.cdist(x, x.detach()).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((2, 3, 4), (2, 3, 4)), ((4, 3), (1, 3))])
def test_cross(shapes):
    dim = -2 if len(shapes[0]) == 3 else -1
    inputs = [numbers(*s) for s in shapes]
    check_op(lambda m, a, b: m.cross(a, b, dim=dim), None, inputs, layouts=FEW)


EQUATIONS = [
    ("i,i->", (4,), (4,)),
    ("i,j->ij", (3,), (4,)),
    ("i,j", (3,), (4,)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ij->j", (3, 4)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iji->j", (3, 4, 3)),
    ("iiijj->ji", (2, 2, 2, 3, 3)),
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    (" ij , kj -> k i ", (3, 4), (5, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bij,bkj->kbi", (2, 3, 4), (2, 5, 4)),
    ("ij,ij->ij", (3, 4), (3, 4)),
    ("ij,ij->i", (3, 4), (3, 4)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    ("...ij,jk->ik...", (2, 3, 4), (4, 5)),
    ("i...->...", (2, 3)),
    ("i...,j...", (2, 3), (4, 3)),
    ("ij,j->ij", (3, 4), (1,)),
    ("ij,jk->ik", (3, 1), (4, 5)),
    ("Ba,aB->a", (3, 4), (4, 3)),
    ("bn,anm,bm->ba", (2, 3), (5, 3, 4), (2, 4)),
    ("ij,jk,kl,lm->im", (2, 3), (3, 4), (4, 2), (2, 3)),
    ("ab,cd,ef->acebdf", (1, 2), (2, 1), (2, 2)),
    ("ijk,ikl,m->mjl", (2, 3, 4), (2, 4, 2), (2,)),
    ("i,ij,j->", (3,), (3, 4), (4,)),
    (",i->i", (), (3,)),
]


@pytest.mark.parametrize(("equation", "shapes"), [(e, s) for e, *s in EQUATIONS])
def test_einsum(equation, shapes):
    inputs = [numbers(*shape) for shape in shapes]
    check_op(lambda m, *t: m.einsum(equation, *t), None, inputs, layouts=FEW)


def test_einsum_of_lists_of_numbers_halves_and_whole_numbers():
    a, b = numbers(3, 4), numbers(4, 5)
    check_op(lambda m, x, y: m.einsum(x, [0, 30], y, [30, 2], [2, 0]), None, [a, b], layouts=FEW)
    check_op(lambda m, x, y: m.einsum(x, [..., 1], y, [1, 2]), None, [a, b], layouts=FEW)
    check_op(lambda m, x: m.einsum("ij->j", [x]), None, [a], layouts=FEW)
    whole = [np.arange(12).reshape(3, 4), np.arange(20).reshape(4, 5)]
    check_op(lambda m, x, y: m.einsum("ij,jk->k", x, y), None, whole, layouts=FEW)
    check_half(lambda m, x, y: m.einsum("ij,jk->ik", x, y), None, [a, b])


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk->ik", ((2, 3),), "names 2 operands, got 1"),
        ("ij->ij", ((2,),), "operand 0 has 1 dimensions"),
        ("ij,jk", ((2, 3), (4, 5)), "subscript 'j' has size 4 in operand 1, 3 before"),
        ("ii->i", ((2, 3),), "sizes 2 and 3 for the one subscript 'i'"),
        ("ij->k", ((2, 3),), "no operand has the result's subscript 'k'"),
        ("ij->ii", ((2, 3),), "names 'i' twice"),
        ("i1->i", ((2, 3),), "'1' is no subscript"),
        ("i..j->i", ((2, 3),), "is no subscript"),
    ],
)
def test_einsum_says_what_does_not_fit(equation, shapes, message):
    with pytest.raises((ShapeError, InputError), match=message):
        cr.einsum(equation, *[cr.ones(*s) for s in shapes])


def test_refusals():
    v, m = cr.ones(3), cr.ones(2, 3)
    with pytest.raises(ShapeError, match="dot: operand 0 must have 1 dimension"):
        cr.dot(m, v)
    with pytest.raises(ShapeError, match="2 and 3 matrices"):
        cr.bmm(cr.ones(2, 1, 1), cr.ones(3, 1, 1))
    with pytest.raises(ShapeError, match="dimension 1 of shape"):
        cr.tensordot(m, m, ([1], [0]))
    with pytest.raises(InputError, match="between 0 and the smaller rank"):
        cr.tensordot(m, m, 3)
    with pytest.raises(DTypeError, match="cdist needs floating-point"):
        cr.cdist(cr.ones(2, 3, dtype=cr.int64), m)
    with pytest.raises(InputError, match="p is -1"):
        cr.cdist(m, m, -1)
    with pytest.raises(ShapeError, match="no dimension of shape"):
        cr.cross(cr.ones(2), cr.ones(2))
    with pytest.raises(DTypeError, match="cannot be added"):
        cr.addmm(cr.ones(2, dtype=cr.float64), m, m.T)
    whole = cr.ones(2, 2, dtype=cr.int64)
    with pytest.raises(DTypeError, match="have no place in int64"):
        cr.addmm(whole, whole, whole, alpha=0.5)
    check_same(cr.inner(cr.tensor(2.0), v), torch.full((3,), 2.0), "0-d operands multiply")
