"""Scatter and its kin, and what rearranges, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.ops.harness import DEVICES, SAME_DATA, check_half, check_op, check_same

import chainrule as cr
from chainrule.errors import DTypeError, IndexRangeError, InputError, ShapeError
from chainrule.ops import scattering

RANDOM = np.random.default_rng(11)
X, Y = RANDOM.standard_normal((3, 4)), RANDOM.standard_normal((3, 4))
FEW = ("contiguous", "transposed", "flipped")
# No place twice along either dimension.
ONCE = {0: np.array([[2, 0, 1, 1], [0, 2, 2, 0]]), 1: np.array([[3, 1], [0, 2], [2, 0]])}
TWICE = {0: np.array([[2, 0, 1, 1], [2, 0, 2, 1]]), 1: np.array([[3, 3, 3], [0, 2, 0], [1, 1, 1]])}


@pytest.mark.parametrize("dim", [0, 1])
def test_scatter(dim):
    index = ONCE[dim]
    check_op(
        lambda m, x, y, i: m.scatter(x, dim, i, _part(y, i)), None, [X, Y, index], layouts=SAME_DATA
    )
    check_op(lambda m, x, i: m.scatter(x, dim, i, 2.5), None, [X, index], layouts=SAME_DATA)
    check_op(
        lambda m, x, y, i: (x * 1).scatter_(dim, i, _part(y, i)), None, [X, Y, index], layouts=FEW
    )
    whole = [np.arange(12).reshape(3, 4), np.arange(12, 24).reshape(3, 4), index]
    check_op(lambda m, x, y, i: m.scatter(x, dim, i, _part(y, i)), None, whole, layouts=FEW)
    check_op(
        lambda m, x, y, i: m.scatter(x, dim, i, y, reduce="add"),
        lambda x, y, i: x.scatter_add(dim, i, y), whole, layouts=FEW,
    )  # fmt: skip
    twice = [*whole[:2], TWICE[dim]]
    check_op(
        lambda m, x, y, i: m.scatter(x, dim, i, y, reduce="multiply"),
        lambda x, y, i: x.scatter_reduce(dim, i, y, "prod"), twice, layouts=FEW,
    )  # fmt: skip
    check_half(lambda m, x, y: m.scatter(x, dim, _index(m, x, index), _part(y, index)), None,
               [X, Y])  # fmt: skip


def _part(src, index):
    """What is used of a source: PyTorch has no gradient where it is larger than the index."""
    return src[: index.shape[0], : index.shape[1]] if isinstance(src, torch.Tensor) else src


def _index(m, like, index):
    return torch.tensor(index) if m is torch else cr.tensor(index, device=like.device)


@pytest.mark.parametrize("device", DEVICES)
def test_of_repeated_places_the_last_stays_and_has_the_gradient(device):
    x = cr.zeros(3, device=device, requires_grad=True)
    y = cr.tensor([1.0, 2.0, 3.0, 4.0], device=device, requires_grad=True)
    out = cr.scatter(x, 0, cr.tensor([1, 0, 1, 1], device=device), y)
    assert out.tolist() == [2.0, 4.0, 0.0]
    out.backward(cr.tensor([10.0, 20.0, 30.0], device=device))
    assert x.grad.tolist() == [0.0, 0.0, 30.0] and y.grad.tolist() == [0.0, 10.0, 0.0, 20.0]


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin", "prod"])
@pytest.mark.parametrize("dim", [0, 1])
def test_scatter_reduce(reduce, dim, include_self):
    def run(m, x, y, i):
        return m.scatter_reduce(x, dim, i, _part(y, i), reduce, include_self=include_self)

    # PyTorch has no second derivative of the product.
    second = reduce != "prod"
    check_op(run, None, [X, Y, TWICE[dim]], layouts=SAME_DATA, second=second)
    check_op(run, None, [X, Y, ONCE[dim]], layouts=FEW, second=second)
    whole = [RANDOM.integers(-9, 9, (3, 4)), RANDOM.integers(-9, 9, (3, 4)), TWICE[dim]]
    check_op(run, None, whole, layouts=FEW)
    nothing = [X, Y, np.zeros((0, 4), np.int64)]
    check_op(run, None, nothing, layouts=False, second=False)
    check_op(
        lambda m, x, y, i: (x * 1).scatter_reduce_(dim, i, _part(y, i), reduce, include_self=include_self),
        None, [X, Y, TWICE[dim]], layouts=FEW, second=second,
    )  # fmt: skip


def test_equal_extremes_share_the_gradient():
    x, y = np.array([1.0, 5.0, 2.0]), np.array([1.0, 1.0, 0.0, 3.0, 3.0])
    check_op(lambda m, x, y, i: m.scatter_reduce(x, 0, i, y, "amax"), None,
             [x, y, np.array([0, 0, 0, 2, 2])], layouts=SAME_DATA)  # fmt: skip


def test_the_product_of_zeros_has_every_gradient():
    x, y = np.array([2.0, 0.0, 3.0]), np.array([4.0, 0.0, 5.0, 0.0, 0.0, 7.0])
    index = np.array([0, 0, 1, 2, 2, 0])
    for include_self in (True, False):

        def run(x, y, keep=include_self):
            i = cr.tensor(index, device=x.device)
            return cr.scatter_reduce(x, 0, i, y, "prod", include_self=keep)

        def plain(m, x, y, keep=include_self):
            parts = []
            for place in range(3):
                own = x[place : place + 1] if keep or place not in index else x[:0]
                parts.append(m.cat([own, y[_index(m, y, np.flatnonzero(index == place))]]).prod())
            return m.stack(parts)

        check_op(lambda m, x, y: run(x, y), lambda x, y: plain(torch, x, y), [x, y], layouts=FEW)


@pytest.mark.parametrize("reduce", ["mean", "amax", "amin", "prod"])
@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
def test_index_reduce(reduce):
    check_op(
        lambda m, x, y, i: m.index_reduce(x, 0, i, y, reduce, include_self=True), None,
        [X, RANDOM.standard_normal((4, 4)), np.array([2, 0, 2, 2])], layouts=FEW,
        second=reduce != "prod",
    )  # fmt: skip


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_slices_at_places(dim):
    size = X.shape[dim]
    once, twice = np.array([size - 1, 0]), np.array([size - 1, 0, 0])
    shape = [3, 4]
    shape[dim] = 2
    source = RANDOM.standard_normal(shape)
    more = RANDOM.standard_normal([3 if d == dim % 2 else n for d, n in enumerate(shape)])
    check_op(lambda m, x, y, i: m.index_add(x, dim, i, y, alpha=2), None, [X, more, twice],
             layouts=SAME_DATA)  # fmt: skip
    check_op(lambda m, x, y, i: m.index_copy(x, dim, i, y), None, [X, source, once],
             layouts=SAME_DATA)  # fmt: skip
    check_op(lambda m, x, i: m.index_fill(x, dim, i, 1.5), None, [X, once], layouts=SAME_DATA)
    check_op(lambda m, x, v, i: m.index_fill(x, dim, i, v), None, [X, np.array(2.0), once],
             layouts=FEW)  # fmt: skip
    check_op(lambda m, x, y, i: (x * 1).index_add_(dim, i, y), None, [X, source, once], layouts=FEW)
    check_op(
        lambda m, x, y, i: (x * 1).index_copy_(dim, i, y), None, [X, source, once], layouts=FEW
    )
    check_op(lambda m, x, i: (x * 1).index_fill_(dim, i, -1), None, [X, once], layouts=FEW)


def test_take_put_and_masked_scatter():
    index = np.array([[0, -1], [5, 11]])
    source = RANDOM.standard_normal((2, 2))
    check_op(lambda m, x, i: m.take(x, i), None, [X, index], layouts=SAME_DATA)
    once = np.array([[0, -1], [5, 7]])
    check_op(lambda m, x, y, i: m.put(x, i, y), lambda x, y, i: x.put(i, y), [X, source, once],
             layouts=SAME_DATA)  # fmt: skip
    check_op(
        lambda m, x, y, i: m.put(x, i, y, accumulate=True),
        lambda x, y, i: x.put(i, y, accumulate=True),
        [X, source, index], layouts=SAME_DATA,
    )  # fmt: skip
    check_op(lambda m, x, y, i: (x * 1).put_(i, y), None, [X, source, once], layouts=FEW)
    mask = RANDOM.uniform(size=(3, 4)) < 0.5
    check_op(lambda m, x, y, k: m.masked_scatter(x, k, y), None, [X, Y, mask], layouts=FEW)
    check_op(lambda m, x, y, k: m.masked_scatter(x, k, y), None, [X[:1], Y, mask], layouts=FEW)
    check_op(lambda m, x, y, k: (x * 1).masked_scatter_(k, y), None, [X, Y, mask[:1]], layouts=FEW)


def test_a_copy_with_a_view_replaced():
    check_op(lambda m, x, y: m.select_scatter(x, y, 1, -1), None, [X, Y[:, 0]], layouts=SAME_DATA)
    check_op(lambda m, x, y: m.slice_scatter(x, y, 1, 0, 4, 2), None, [X, Y[:, :2]],
             layouts=SAME_DATA)  # fmt: skip
    check_op(lambda m, x, y: m.diagonal_scatter(x, y, 1), None, [X, Y[:, 1]], layouts=SAME_DATA)
    check_op(lambda m, x, y: m.slice_scatter(x.detach(), y, 0), None, [X, Y], layouts=FEW)


# Rearranging.

REARRANGED = {
    "diag of a vector": lambda m, x: m.diag(x[0], 1),
    "diag of a matrix": lambda m, x: m.diag(x, -1),
    "diagflat": lambda m, x: m.diagflat(x, -2),
    "diag_embed": lambda m, x: m.diag_embed(x, 1, 0, -1),
    "trace": lambda m, x: m.trace(x),
    "block_diag": lambda m, x: m.block_diag(x, x[0], x[0, 0]),
    "atleast": lambda m, x: [*m.atleast_1d(x[0, 0], x), *m.atleast_2d(x[0], x), m.atleast_3d(x)],
    "column_stack": lambda m, x: m.column_stack([x, x[:, 0]]),
    "dstack": lambda m, x: m.dstack([x, x]),
    "tensor_split": lambda m, x: m.tensor_split(x, 3, 1),
    "tensor_split at places": lambda m, x: m.tensor_split(x, (1, -1, 9), 1),
    "hsplit": lambda m, x: m.hsplit(x, 2),
    "vsplit": lambda m, x: m.vsplit(x, [1]),
    "dsplit": lambda m, x: m.dsplit(x.reshape(1, 3, 4), 4),
    "fliplr": lambda m, x: m.fliplr(x),
    "flipud": lambda m, x: m.flipud(x),
    **{f"rot90 {k}": lambda m, x, k=k: m.rot90(x, k) for k in range(-1, 4)},
    "rot90 otherwise": lambda m, x: m.rot90(x.reshape(3, 2, 2), 1, (2, 0)),
    "meshgrid": lambda m, x: m.meshgrid(x[0], x[:, 1], x[0, 0], indexing="ij"),
    "meshgrid xy": lambda m, x: m.meshgrid(x[0], x[:, 1], indexing="xy"),
    "cartesian_prod": lambda m, x: m.cartesian_prod(x[0], x[:, 1]),
    "repeat_interleave": lambda m, x: m.repeat_interleave(x, 2, 1),
    "repeat_interleave flat": lambda m, x: m.repeat_interleave(x, 3),
    "repeat_interleave each": lambda m, x: m.repeat_interleave(x, _index(m, x, [2, 0, 1]), 0),
    "vander": lambda m, x: m.vander(x[0], 3),
    "vander increasing": lambda m, x: m.vander(x[0], increasing=True),
}


@pytest.mark.parametrize("name", REARRANGED)
def test_rearranged(name):
    theirs = None
    if name.startswith("vander"):
        powers = range(4) if "increasing" in name else range(2, -1, -1)
        theirs = lambda x: torch.stack([x[0] ** n for n in powers], -1)  # noqa: E731
    check_op(REARRANGED[name], theirs, [X], layouts=FEW)


def test_rearranged_whole_numbers():
    n = np.arange(9).reshape(3, 3)
    for f in (lambda m, x: m.trace(x), lambda m, x: m.diag(x), lambda m, x: m.diagflat(x)):
        check_op(f, None, [n], layouts=FEW)
    check_op(lambda m, x: m.repeat_interleave(x), None, [np.array([2, 0, 3])], layouts=FEW)


def test_refusals():
    x, i = cr.ones(2, 3), cr.tensor([[0, 1]])
    with pytest.raises(IndexRangeError, match="index 5"):
        cr.scatter(x, 0, cr.tensor([[5]]), 1.0)
    with pytest.raises(InputError, match="needs src or value"):
        cr.scatter(x, 0, i)
    with pytest.raises(DTypeError, match="scatter of float64 into float32"):
        cr.scatter(x, 0, i, x.double())
    with pytest.raises(ShapeError, match="the index has size 2 in dimension 1, the source only 1"):
        cr.scatter(x, 0, i, x[:, :1])
    with pytest.raises(InputError, match="reduce is one of"):
        cr.scatter_reduce(x, 0, i, x, "median")
    with pytest.raises(ShapeError, match=r"want \(1, 3\)"):
        cr.index_add(x, 0, cr.tensor([0]), cr.ones(3, 1))
    with pytest.raises(ShapeError, match="1-D index"):
        cr.index_copy(x, 0, i, x)
    with pytest.raises(ShapeError, match="0-d tensor, not"):
        cr.index_fill(x, 0, i[0], cr.ones(2))
    with pytest.raises(IndexRangeError, match="index 6"):
        cr.take(x, cr.tensor([6]))
    with pytest.raises(ShapeError, match="1 elements for 2 places"):
        cr.put(x, i, cr.ones(1))
    with pytest.raises(ShapeError, match="6 places, the source has 2"):
        cr.masked_scatter(x, x > 0, cr.ones(2))
    with pytest.raises(ShapeError, match="its place"):
        cr.select_scatter(x, cr.ones(2), 0, 0)
    with pytest.raises(ShapeError, match="vector or a matrix"):
        cr.diag(cr.ones(1, 1, 1))
    with pytest.raises(ShapeError, match="do not make 2 equal parts"):
        cr.hsplit(x, 2)
    with pytest.raises(InputError, match="one dimension: give two"):
        cr.rot90(x, 1, (0, 0))
    with pytest.raises(InputError, match="must not be negative"):
        cr.repeat_interleave(x, -1)
    with pytest.raises(ShapeError, match="repeats of shape"):
        cr.repeat_interleave(x, cr.tensor([1, 2, 3]), 0)
    check_same(cr.diag(cr.ones(1)), torch.ones(1, 1), "one")


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("reduce", ["prod", "amax", "amin"])
def test_a_flipped_sign_in_the_rule_is_seen(reduce, which, monkeypatch):
    rule = getattr(scattering, f"SEGMENT_{reduce.upper()}")
    right = rule.vjp

    def mutant(*args):
        grads = list(right(*args))
        grads[which] = -grads[which]
        return tuple(grads)

    monkeypatch.setattr(rule, "vjp", mutant)
    index = TWICE[0]
    with pytest.raises(AssertionError, match="gradient"):
        check_op(
            lambda m, x, y, i: m.scatter_reduce(x, 0, i, _part(y, i), reduce), None,
            [X, Y, index], layouts=False, second=False,
        )  # fmt: skip
