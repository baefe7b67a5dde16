"""Forward mode through a hand-written `Function`: its `jvp`, or its `backward` transposed."""

from __future__ import annotations

import numpy as np
import pytest

import chainrule as cr
from chainrule import func
from chainrule.errors import ChainruleError

X, V = (cr.tensor(np.random.default_rng(5).standard_normal(4)) for _ in range(2))


class Cube(cr.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        ctx.save_for_backward(x)
        ctx.save_for_forward(x * x)
        return scale * x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * ctx.scale * x * x, None

    @staticmethod
    def jvp(ctx, t, none):
        assert none is None
        (square,) = ctx.saved_tensors
        return 3 * ctx.scale * square * t


class Both(cr.Function):
    """Two outputs, `setup_context`, no jvp: the backward is transposed."""

    @staticmethod
    def forward(x, y):
        return x * y, x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y + h * x.cos(), g * x


class BothForward(Both):
    @staticmethod
    def jvp(ctx, tx, ty):
        x, y = ctx.saved_tensors
        return tx * y + x * ty, tx * x.cos()


def test_jvp_is_called_with_tangents_and_what_was_saved_for_it():
    _, t = func.jvp(lambda x: Cube.apply(x, 2.0), (X,), (V,))
    np.testing.assert_allclose(t.numpy(), 6 * X.numpy() ** 2 * V.numpy())
    (g,) = func.vjp(lambda x: Cube.apply(x, 2.0), X)[1](V)
    np.testing.assert_allclose(g.numpy(), t.numpy())


@pytest.mark.parametrize("kind", [Both, BothForward])
def test_several_outputs_with_and_without_a_jvp(kind):
    _, (a, b) = func.jvp(kind.apply, (X, V), (V, X))
    np.testing.assert_allclose(a.numpy(), (V * V + X * X).numpy())
    np.testing.assert_allclose(b.numpy(), (V * X.cos()).numpy())
    # One input moves: the other's tangent is zeros, not None.
    _, (a, _) = func.jvp(lambda x: kind.apply(x, V * 1), (X,), (V,))
    np.testing.assert_allclose(a.numpy(), (V * V).numpy())


@pytest.mark.parametrize("kind", [Both, BothForward])
def test_they_nest_in_every_order(kind):
    f = lambda x: (kind.apply(x, x * x)[0] * kind.apply(x, x)[1]).sum()  # noqa: E731
    plain = lambda x: (x * x * x * x.sin()).sum()  # noqa: E731
    want = func.hessian(plain)(X).numpy()
    for get in (
        func.hessian,
        lambda f: func.jacrev(func.jacfwd(f)),
        lambda f: func.jacfwd(func.jacfwd(f)),
    ):
        np.testing.assert_allclose(get(f)(X).numpy(), want, atol=1e-12)


def test_a_jvp_of_the_wrong_shape_or_number_is_named():
    class Wrong(Cube):
        @staticmethod
        def jvp(ctx, t, none):
            return t.sum()

    class TooMany(Cube):
        @staticmethod
        def jvp(ctx, t, none):
            return t, t

    with pytest.raises(ChainruleError, match=r"jvp of Wrong.*shape \(\).*output of shape \(4,\)"):
        func.jvp(lambda x: Wrong.apply(x, 1.0), (X,), (V,))
    with pytest.raises(ChainruleError, match="jvp of TooMany returned 2 tangents, expected 1"):
        func.jvp(lambda x: TooMany.apply(x, 1.0), (X,), (V,))


def test_a_write_after_saving_is_noticed_in_forward_mode_too():
    def f(x):
        y = x * 1
        z = y.sin()
        y += 1
        return z * y

    with pytest.raises(ChainruleError, match="written in place"):
        func.jvp(f, (X,), (V,))
