"""Edge gradients: what the table states, against PyTorch where it follows PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from chainrule.backends.numpy_special import NUMPY
from chainrule.calculus import TABLE, const, evaluate, var, vjp

INF, NAN = math.inf, math.nan
F = torch.nn.functional

# row, PyTorch's function, points, orders of derivative that follow PyTorch
CASES = [
    ("maximum", torch.maximum, [(3, 3), (NAN, 1), (1, NAN), (2, 1)], 2),
    ("minimum", torch.minimum, [(3, 3), (NAN, 1), (1, NAN), (2, 1)], 2),
    ("relu", torch.relu, [(0,), (NAN,), (-0.0,)], 2),
    ("relu6", F.relu6, [(0,), (6,), (3,)], 2),
    ("abs", torch.abs, [(0,), (-0.0,)], 2),
    ("sqrt", torch.sqrt, [(0,)], 2),
    ("rsqrt", torch.rsqrt, [(0,)], 2),
    ("reciprocal", torch.reciprocal, [(0,)], 1),
    ("log", torch.log, [(0,)], 2),
    ("log1p", torch.log1p, [(-1,)], 2),
    ("asin", torch.asin, [(1,), (-1,)], 2),
    ("acos", torch.acos, [(1,), (-1,)], 2),
    ("acosh", torch.acosh, [(1,)], 2),
    ("atanh", torch.atanh, [(1,), (-1,)], 2),
    ("elu", lambda x, a: F.elu(x), [(0, 1), (-1, 1), (1, 1)], 1),
    ("leaky_relu", lambda x, s: F.leaky_relu(x), [(0, 0.01), (-1, 0.01)], 1),
    ("hardtanh", lambda x, lo, hi: F.hardtanh(x), [(-1, -1, 1), (1, -1, 1), (0, -1, 1)], 1),
    (
        "clamp", torch.clamp,
        [(-1, -1, 1), (1, -1, 1), (2, -1, 1), (-3, -1, 1), (0, 2, 1), (5, 2, 1), (1, 1, 1),
         (-1, 2, -2), (NAN, -1, 1)], 2,
    ),
    ("atan2", torch.atan2, [(0, 0), (0, -1), (1, 0), (-0.0, -1)], 1),
    ("remainder", torch.remainder, [(5, 3), (-5, 3), (6, 3), (5, -3), (5, INF)], 2),
    ("fmod", torch.fmod, [(5, 3), (-5, 3), (6, 3), (5, -3), (-5.5, -3), (5, INF)], 2),
    ("logaddexp", torch.logaddexp, [(0, 0), (-INF, 0), (0, -INF), (INF, INF)], 1),
    ("pow", torch.pow,
     [(0, 0), (0, 1), (0, 2), (0, 3), (0, 0.5), (0, -1), (-2, 3), (2, 0), (-2, 0.5), (-2, 0)], 1),
    ("sigmoid", torch.sigmoid, [(INF,), (-INF,), (-800,), (800,), (NAN,)], 1),
    ("softplus", F.softplus, [(INF,), (-INF,), (-800,)], 1),
    ("logsigmoid", F.logsigmoid, [(-800,), (800,), (0,)], 1),
    ("tanh", torch.tanh, [(INF,), (-INF,), (-0.0,)], 2),
    ("erf", torch.erf, [(INF,), (-INF,), (-0.0,)], 1),
    ("gelu", F.gelu, [(-INF,), (INF,)], 0),
    ("silu", F.silu, [(-INF,), (INF,)], 0),
]  # fmt: skip


def ours(name, point, orders):
    """Value, first and second derivatives (by each argument, then by the same one again)."""
    xs = [var(f"x{i}") for i in range(len(point))]
    e = TABLE[name](*xs)
    wanted = [e]
    for x in xs if orders > 0 else []:
        (d,) = vjp([e], [const(1.0)], [x])
        wanted += [d]
        if orders > 1:
            wanted += vjp([d], [const(1.0)], [x])
    env = {f"x{i}": np.float64(p) for i, p in enumerate(point)}
    with np.errstate(all="ignore"):
        return [float(v) for v in evaluate(wanted, env, NUMPY)]


def theirs(f, point, orders):
    xs = [torch.tensor(float(p), dtype=torch.float64, requires_grad=True) for p in point]
    y = f(*xs)
    wanted = [y]
    for x in xs if orders > 0 else []:
        (d,) = torch.autograd.grad(y, x, create_graph=True, allow_unused=True)
        wanted += [torch.zeros(()) if d is None else d]
        if orders > 1:
            twice = (
                torch.autograd.grad(d, x, retain_graph=True, allow_unused=True)[0]
                if d is not None and d.requires_grad
                else None
            )
            wanted += [torch.zeros(()) if twice is None else twice]
    return [v.item() for v in wanted]


def cases():
    for name, f, points, orders in CASES:
        for point in points:
            yield pytest.param(name, f, point, orders, id=f"{name}{point}")


@pytest.mark.parametrize(("name", "f", "point", "orders"), list(cases()))
def test_edges_follow_pytorch(name, f, point, orders):
    if name in ("elu", "leaky_relu", "hardtanh") and orders:
        # PyTorch takes the parameters as numbers: compare the gradient by x alone.
        assert ours(name, point, 1)[:2] == pytest.approx(theirs(f, point, 1)[:2], nan_ok=True)
        return
    got, want = ours(name, point, orders), theirs(f, point, orders)
    assert got == pytest.approx(want, rel=1e-14, nan_ok=True)


def test_where_ours_is_better_than_pytorchs():
    assert ours("hypot", (0, 0), 2) == [0.0] * 5  # PyTorch: NaN
    assert ours("pow", (0, 0), 2) == [1.0, 0.0, 0.0, 0.0, 0.0]  # second derivatives NaN
    assert ours("atan2", (0, 0), 2) == [0.0] * 5  # second derivatives NaN
    assert math.isnan(ours("sign", (NAN,), 0)[0])  # 0: the NaN is lost


def test_a_constant_exponent_has_pytorchs_derivatives_at_0():
    x = var("x")
    for exponent, want in ((0, (1, 0, 0)), (1, (0, 1, 0)), (2, (0, 0, 2)), (3, (0, 0, 0))):
        e = x ** float(exponent)
        (d,) = vjp([e], [const(1.0)], [x])
        (dd,) = vjp([d], [const(1.0)], [x])
        got = evaluate([e, d, dd], {"x": np.float64(0.0)}, NUMPY)
        assert tuple(float(v) for v in got) == want
