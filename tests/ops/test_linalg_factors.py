"""Systems and factorisations against PyTorch: batches, two derivatives, singular matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.ops.harness import check_half, check_op

import chainrule as cr
from chainrule import linalg
from chainrule.errors import ChainruleError, DTypeError, GradError, InputError, ShapeError

RANDOM = np.random.default_rng(0)
A = RANDOM.standard_normal((2, 3, 3)) + 2 * np.eye(3)
S = np.stack([np.diag([1.0, 2.5, 4.5]), np.diag([3.0, -1.0, 0.5])])
S = S + 0.1 * (lambda x: x + x.swapaxes(-1, -2))(RANDOM.standard_normal((2, 3, 3)))
P = A @ A.swapaxes(-1, -2) + np.eye(3)
TALL, WIDE = RANDOM.standard_normal((2, 5, 3)), RANDOM.standard_normal((2, 3, 5))
Y, V = RANDOM.standard_normal((2, 3, 2)), RANDOM.standard_normal((2, 3))
LAYOUTS = ("contiguous", "transposed", "flipped")  # an expanded matrix would be singular
LOOSE = {"rtol": 1e-7, "atol": 1e-9, "layouts": LAYOUTS}
both = pytest.mark.parametrize("device", ["cpu", "torch"])


def _of(module):
    return linalg if module is cr else torch.linalg


def _even(x):  # symmetric without leaving the tape, so that both triangles move
    return (x + x.mT) * 0.5


SYSTEMS = {
    "solve": ([A, Y], lambda m, a, y: _of(m).solve(a, y)),
    "solve, broadcast": ([A, Y[0]], lambda m, a, y: _of(m).solve(a, y)),
    "solve, one matrix": ([A[0], Y], lambda m, a, y: _of(m).solve(a, y)),
    "solve, vectors": ([A, V], lambda m, a, y: _of(m).solve(a, y)),
    "solve, a vector": ([A[0], V[0]], lambda m, a, y: _of(m).solve(a, y)),
    "solve, right": ([A, Y.swapaxes(1, 2)], lambda m, a, y: _of(m).solve(a, y, left=False)),
    "triangular": ([A, Y], lambda m, a, y: _of(m).solve_triangular(a, y, upper=True)),
    "unitriangular": ([A, Y], lambda m, a, y: _of(m).solve_triangular(
        a, y, upper=False, unitriangular=True)),
    "inv": ([A], lambda m, a: _of(m).inv(a)),
    "inv, one": ([A[0]], lambda m, a: _of(m).inv(a)),
    "det": ([A], lambda m, a: _of(m).det(a)),
    "det, one": ([A[0]], lambda m, a: _of(m).det(a)),
    "slogdet": ([-A], lambda m, a: (
        _of(m).slogdet(a)[0].detach(), _of(m).slogdet(a).logabsdet)),
    "cholesky": ([P], lambda m, a: _of(m).cholesky(_even(a))),
    "cholesky, upper": ([P[0]], lambda m, a: _of(m).cholesky(_even(a), upper=True)),
    "pinv, tall": ([TALL], lambda m, a: _of(m).pinv(a)),
    "pinv, wide": ([WIDE[0]], lambda m, a: _of(m).pinv(a)),
    "power": ([A], lambda m, a: _of(m).matrix_power(a, 5)),
    "power 0": ([A], lambda m, a: _of(m).matrix_power(a, 0) * a),
    "power −2": ([A], lambda m, a: _of(m).matrix_power(a, -2)),
}  # fmt: skip


@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_are_pytorchs(name):
    inputs, run = SYSTEMS[name]
    check_op(run, None, inputs, float32=name != "pinv, tall", **LOOSE)


def _signless(u, s, v):
    """Signs of singular vectors are a library's choice."""
    return u * u, s, v * v


FACTORS = {
    "svd": ([A], lambda m, a: _signless(*_of(m).svd(a, full_matrices=False))),
    "svd, tall": ([TALL], lambda m, a: _signless(*_of(m).svd(a, full_matrices=False))),
    "svd, wide": ([WIDE], lambda m, a: _signless(*_of(m).svd(a, full_matrices=False))),
    "svd, full": ([TALL[0]], lambda m, a: (
        _of(m).svd(a).U[..., :3] ** 2, _of(m).svd(a)[1], _of(m).svd(a).Vh ** 2)),
    "svdvals": ([TALL], lambda m, a: _of(m).svdvals(a)),
    "eigh": ([S], lambda m, a: (_of(m).eigh(_even(a))[0], _of(m).eigh(_even(a))[1] ** 2)),
    "eigh, upper": ([S[0]], lambda m, a: _of(m).eigh(_even(a), "U").eigenvalues),
    "eigvalsh": ([S], lambda m, a: _of(m).eigvalsh(_even(a))),
    "qr": ([A], lambda m, a: tuple(_of(m).qr(a))),
    "qr, tall": ([TALL], lambda m, a: tuple(_of(m).qr(a))),
    "qr, wide": ([WIDE], lambda m, a: tuple(_of(m).qr(a))),
    "qr, wide complete": ([WIDE[0]], lambda m, a: tuple(_of(m).qr(a, "complete"))),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTORS)
def test_factors_are_pytorchs(name):
    inputs, run = FACTORS[name]
    check_op(run, None, inputs, **LOOSE)


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf])
@pytest.mark.parametrize("keepdim", [False, True])
def test_matrix_norms_are_pytorchs(ord, keepdim):
    check_op(lambda m, a: _of(m).matrix_norm(a, ord, keepdim=keepdim), None, [TALL], **LOOSE)
    check_op(
        lambda m, a: _of(m).matrix_norm(a, ord, dim=(2, 0), keepdim=keepdim), None, [TALL],
        second=False, **LOOSE,
    )  # fmt: skip


@pytest.mark.parametrize(
    "args", [(), (3,), (None, 1), (1, (0, 1)), ("nuc", (2, 0)), (math.inf, 0), (None, (0, 2))]
)
def test_norms_are_pytorchs(args):
    x = TALL if args != (3,) else V[0]
    check_op(lambda m, a: _of(m).norm(a, *args), None, [x], **LOOSE)
    check_op(lambda m, a: _of(m).vector_norm(a, 3, 0), None, [x], **LOOSE)


@pytest.mark.parametrize("rank", [2, 1, 0])
def test_the_determinant_of_a_singular_matrix_has_derivatives(rank):
    """Of rank n − 1 the gradient is not 0, of rank n − 2 the second derivative is not."""
    u, s, v = np.linalg.svd(A[0])
    s[rank:] = 0.0
    x = np.stack([(u * s) @ v, A[1]])
    x[0][np.abs(x[0]) < 1e-15] = 0.0
    x[0, :, 2] = x[0, :, 1] if rank == 2 else x[0, :, 2]

    def by_hand(x):  # the rule of Sarrus, which PyTorch differentiates as a polynomial
        c = torch.linalg.cross(x[..., 1, :], x[..., 2, :], dim=-1)
        return (x[..., 0, :] * c).sum(-1)

    check_op(
        lambda m, a: linalg.det(a), by_hand, [x], layouts=("contiguous", "transposed"),
        rtol=1e-7, atol=1e-9, float32=False,
    )  # fmt: skip


@both
def test_what_has_no_inverse_says_which(device):
    x = cr.tensor(np.stack([np.eye(3), np.ones((3, 3)), np.eye(3)]), device=device)
    with pytest.raises(linalg.LinAlgError, match="inv: the 3×3 matrix 1 of the batch is singular"):
        linalg.inv(x)
    with pytest.raises(np.linalg.LinAlgError, match="solve: the 3×3 matrix is singular"):
        linalg.solve(x[1], cr.ones(3, dtype=cr.float64, device=device))
    with pytest.raises(ChainruleError, match="matrix 1 of the batch is not positive-definite"):
        linalg.cholesky(x)
    flat = x.requires_grad_()
    sign, size = linalg.slogdet(flat)
    assert sign.tolist() == [1.0, 0.0, 1.0]
    assert size.tolist() == [0.0, -math.inf, 0.0]
    with pytest.raises(RuntimeError, match="is singular"):
        size.sum().backward()


@both
def test_equal_singular_values_have_a_sum_to_differentiate(device):
    """The nuclear norm of the identity has gradient I, though its vectors have none."""
    x = cr.eye(3, dtype=cr.float64, device=device).requires_grad_()
    linalg.matrix_norm(x, "nuc").backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.eye(3), atol=1e-15)
    linalg.eigvalsh(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.eye(3), atol=1e-15)


@both
def test_least_squares_and_rank(device):
    x = TALL.copy()
    x[1, :, 2] = x[1, :, 0] + x[1, :, 1]
    y = RANDOM.standard_normal((2, 5, 2))
    found = linalg.lstsq(cr.tensor(x, device=device), cr.tensor(y, device=device))
    for i in range(2):
        wanted = np.linalg.lstsq(x[i], y[i], rcond=None)[0]
        np.testing.assert_allclose(found.numpy()[i], wanted, rtol=1e-9, atol=1e-11)
    assert linalg.matrix_rank(cr.tensor(x, device=device)).tolist() == [3, 2]


@both
def test_empty_batches_and_empty_matrices(device):
    for shape in ((0, 3, 3), (2, 0, 0)):
        x = cr.zeros(*shape, device=device)
        assert linalg.det(x).tolist() == torch.linalg.det(torch.zeros(shape)).tolist()
        assert linalg.inv(x).shape == shape
        assert linalg.svd(x).U.shape == shape


def test_half_types_are_computed_in_float32():
    check_half(lambda m, a, y: _of(m).solve(a, y), None, [A, Y], roundings=8)


def test_linalg_says_what_does_not_fit():
    x = cr.ones(2, 3)
    with pytest.raises(ShapeError, match=r"inv takes square matrices, got shape \(2, 3\)"):
        linalg.inv(x)
    with pytest.raises(ShapeError, match=r"det takes matrices \(…, m, n\), got shape \(2,\)"):
        linalg.det(x[:, 0])
    with pytest.raises(ShapeError, match=r"do not fit: 3 and 2"):
        linalg.solve(cr.eye(3), x)
    with pytest.raises(DTypeError, match="float32 and float64"):
        linalg.solve(cr.eye(3), cr.eye(3, dtype=cr.float64))
    with pytest.raises(DTypeError, match="floating-point matrices, not int64"):
        linalg.svd(x.long())
    with pytest.raises(InputError, match='mode is "reduced"'):
        linalg.qr(x, "full")
    with pytest.raises(InputError, match='UPLO is "L" or "U"'):
        linalg.eigh(cr.eye(3), "X")
    with pytest.raises(InputError, match='ord is "fro"'):
        linalg.matrix_norm(x, 3)
    with pytest.raises(GradError, match="complete Q of a 3×2 matrix is not determined"):
        linalg.qr(x.T.detach().requires_grad_(), "complete").Q.sum().backward()
