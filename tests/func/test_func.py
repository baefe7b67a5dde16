"""`cr.func` against `torch.func`: first and second order, forward, reverse and mixed."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule import func
from chainrule.calculus import TABLE
from chainrule.errors import ChainruleError

# PyTorch's forward mode loads rules that it scripts itself.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
RNG = np.random.default_rng(3)


def normal(*shape):
    return RNG.standard_normal(shape)


def written(m, x):
    y = x * 2
    y[0] = x[1] * x[2]
    z = y.T
    z[1:3] *= 3
    return y.sin()


def chain_of_views(m, x):
    return (
        x.reshape(2, 6)[:, 1:5].permute(1, 0).unsqueeze(0).expand(3, 4, 2).flip(0, 1)[:, ::2] ** 2
    )


# name: (function of a module and arrays, arrays). `m.nn.functional` is each module's own.
CASES = {
    "elementwise": (lambda m, x, y: m.tanh(x * y) / (1 + m.exp(x)), [normal(3, 4), normal(4)]),
    "numbers on both sides": (lambda m, x: 2 - x**3 / 3 + 1 / (x + 9) - 2.0**x, [normal(3)]),
    "matmul": (lambda m, x, y: x @ y, [normal(3, 4), normal(4, 2)]),
    "batched matmul": (lambda m, x, y: (x @ y).sin(), [normal(2, 3, 4), normal(4, 2)]),
    "matmul of a matrix and a batch": (lambda m, x, y: x @ y, [normal(3, 4), normal(2, 4, 2)]),
    "linear": (
        lambda m, x, w, b: m.nn.functional.linear(x, w, b),
        [normal(2, 3), normal(4, 3), normal(4)],
    ),
    "views": (chain_of_views, [normal(3, 4)]),
    "writes": (written, [normal(3, 4)]),
    "sum and mean": (lambda m, x: x.sum(0) * x.mean(1, keepdim=True), [normal(3, 4)]),
    "cumsum and prod": (lambda m, x: x.cumsum(1) * x.prod(), [normal(2, 3)]),
    "norm": (lambda m, x: m.norm(x) + m.norm(x, 3, 1), [normal(2, 3)]),
    "var and std": (lambda m, x: x.var(1) * x.std(), [normal(2, 3)]),
    "logsumexp": (lambda m, x: m.logsumexp(x, 1), [normal(2, 3)]),
    "softmax": (lambda m, x: m.softmax(x, 1) * m.log_softmax(x, 0), [normal(2, 3)]),
    "amax": (lambda m, x: x.amax(1) * x.max(0).values.sum(), [normal(2, 3)]),
    "cat and stack": (lambda m, x, y: m.cat([x, y * y]) * m.stack([x, y]).sum(), [normal(3)] * 2),
    "cat with a constant": (lambda m, x: m.cat([x * x, m.ones(2, dtype=m.float64)]), [normal(3)]),
    "index": (lambda m, x: x[m.tensor([2, 0, 2])] ** 2, [normal(3, 2)]),
    "gather": (lambda m, x: m.gather(x, 1, m.tensor([[1, 1], [0, 2]])) ** 2, [normal(2, 3)]),
    "where and clamp": (
        lambda m, x: m.where(x > 0, x * x, m.clamp(x, -0.5, 0.5)),
        [normal(3, 4)],
    ),
    "pad": (lambda m, x: m.nn.functional.pad(x * x, (1, 2), value=3.0), [normal(2, 2)]),
    "tril": (lambda m, x: m.tril(x) @ m.triu(x), [normal(3, 3)]),
    "layer_norm": (
        lambda m, x, w, b: m.nn.functional.layer_norm(x, (4,), w, b),
        [normal(2, 4), normal(4), normal(4)],
    ),
    "cross_entropy": (
        lambda m, x: m.nn.functional.cross_entropy(x, m.tensor([1, 0, 2])),
        [normal(3, 3)],
    ),
    "attention": (
        lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        [normal(1, 3, 2), normal(1, 3, 2), normal(1, 3, 2)],
    ),
    "embedding": (
        lambda m, w: m.nn.functional.embedding(m.tensor([0, 2, 0]), w) ** 2,
        [normal(3, 2)],
    ),
    "used twice": (lambda m, x: x * x + x, [normal(3)]),
    "unused": (lambda m, x, y: x * 2, [normal(2), normal(2)]),
    "itself": (lambda m, x: x, [normal(2)]),
}
case = pytest.mark.parametrize("name", CASES)
device = pytest.mark.parametrize("device", ["cpu", "torch"])


def both(name, device="cpu"):
    """(our function, our arrays, torch's function, torch's arrays)."""
    fn, arrays = CASES[name]
    ours = [cr.tensor(a, device=device) for a in arrays]
    return (
        functools.partial(_on, fn, cr, device),
        ours,
        functools.partial(fn, torch),
        [torch.tensor(a) for a in arrays],
    )


def _on(fn, m, device, *xs):
    if device == "cpu":
        return fn(m, *xs)
    made = {n: getattr(m, n) for n in ("tensor", "ones")}

    class Here:
        def __getattr__(self, n):
            return functools.partial(made[n], device=device) if n in made else getattr(m, n)

    return fn(Here(), *xs)


def close(got, want, tol=1e-10):
    got, want = got.numpy(), want.detach().numpy()
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


@device
@case
def test_jvp_is_pytorchs(name, device):
    f, xs, g, ts = both(name, device)
    directions = [normal(*t.shape) for t in ts]
    y, t = func.jvp(f, tuple(xs), tuple(cr.tensor(d, device=device) for d in directions))
    want, want_t = torch.func.jvp(g, tuple(ts), tuple(torch.tensor(d) for d in directions))
    close(y, want)
    close(t, want_t)
    assert not y.requires_grad and not t.requires_grad


@case
def test_jacobians_are_pytorchs(name):
    f, xs, g, ts = both(name)
    every = tuple(range(len(xs)))
    want = torch.func.jacrev(g, every)(*ts)
    for ours in (func.jacrev(f, every)(*xs), func.jacfwd(f, every)(*xs)):
        for a, b in zip(ours, want, strict=True):
            close(a, b)


# Forward over reverse is `hessian` itself; the other three ways must agree with it.
ORDERS = {
    "hessian": func.hessian,
    "reverse over forward": lambda f, n: func.jacrev(func.jacfwd(f, n), n),
    "forward over forward": lambda f, n: func.jacfwd(func.jacfwd(f, n), n),
    "reverse over reverse": lambda f, n: func.jacrev(func.jacrev(f, n), n),
}


@pytest.mark.parametrize("order", ORDERS)
@case
def test_second_derivatives_are_pytorchs_in_every_order(name, order):
    f, xs, g, ts = both(name)
    weights = normal(*g(*ts).shape)
    every = tuple(range(len(xs)))
    # Not `torch.func.hessian`: that of layer_norm, by weight and then by input, is not symmetric
    # in PyTorch 2.13, while `torch.autograd`'s is.
    total = lambda *a: (g(*a) * torch.tensor(weights)).sum()  # noqa: E731
    want = torch.autograd.functional.hessian(total, tuple(ts))
    ours = ORDERS[order](lambda *a: (f(*a) * cr.tensor(weights)).sum(), every)(*xs)
    for row, want_row in zip(ours, want, strict=True):
        for a, b in zip(row, want_row, strict=True):
            close(a, b, 1e-9)


@device
@pytest.mark.parametrize("name", sorted(n for n, row in TABLE.items() if row.differentiable))
def test_forward_mode_of_every_primitive_is_the_transpose_of_its_reverse_mode(name, device):
    row = TABLE[name]
    if row.result == "bool":
        pytest.skip("truth values have no derivative")
    f = cr.ops.elementwise.operation(name)
    xs = [cr.tensor(np.abs(normal(5)) * 0.3 + 0.2, device=device) for _ in range(row.arity)]
    if name in ("acosh",):
        xs = [x + 1 for x in xs]
    if name == "where":
        xs[0] = xs[0] > 0.4
    if name == "polygamma":  # the order is a whole number
        xs[0] = cr.tensor([0.0, 1.0, 1.0, 2.0, 3.0], dtype=cr.float64, device=device)
    places = tuple(range(1 if name in ("where", "polygamma") else 0, row.arity))
    vs = [cr.tensor(normal(5), device=device) for _ in places]
    u = cr.tensor(normal(5), device=device)

    def of(*chosen):
        return f(*xs[: places[0]], *chosen)

    _, t = func.jvp(of, tuple(xs[i] for i in places), tuple(vs))
    _, back = func.vjp(of, *(xs[i] for i in places))
    grads = back(u)
    left = (u * t).sum().item()
    right = sum((g * v).sum().item() for g, v in zip(grads, vs, strict=True))
    assert left == pytest.approx(right, rel=1e-12, abs=1e-14)


@case
def test_jvp_agrees_with_finite_differences(name):
    f, xs, _, ts = both(name)
    directions = [cr.tensor(normal(*t.shape)) for t in ts]
    _, t = func.jvp(f, tuple(xs), tuple(directions))
    h = 1e-6
    ahead = f(*[x + h * d for x, d in zip(xs, directions, strict=True)])
    behind = f(*[x - h * d for x, d in zip(xs, directions, strict=True)])
    np.testing.assert_allclose(
        t.numpy(), ((ahead - behind) / (2 * h)).numpy(), atol=2e-7, rtol=1e-5
    )


def test_half_types_keep_their_dtype_and_compute_in_float32():
    x = cr.tensor([0.5, 1.5, 3.0], dtype=cr.bfloat16)
    y, t = func.jvp(lambda x: (x.tanh() * x).softmax(0), (x,), (cr.ones_like(x),))
    assert y.dtype is t.dtype is cr.bfloat16
    a = torch.tensor([0.5, 1.5, 3.0], dtype=torch.bfloat16)
    want = torch.func.jvp(lambda x: (x.tanh() * x).softmax(0), (a,), (torch.ones_like(a),))[1]
    np.testing.assert_allclose(t.float().numpy(), want.float().numpy(), atol=0.02)


# Composition ------------------------------------------------------------------------------------


def test_levels_do_not_mix():
    one = cr.tensor(1.0)
    # d/dx (x · d/dy (x + y)) = 1; a mixed-up level would say 2.
    assert func.grad(lambda x: x * func.grad(lambda y: x + y)(one))(one).item() == 1.0
    inner = lambda x: func.jvp(lambda y: x * y, (one,), (one,))[1]  # noqa: E731
    assert func.jvp(lambda x: x * inner(x), (cr.tensor(3.0),), (one,))[1].item() == 6.0


def test_three_levels_of_grad():
    x = cr.tensor(0.7, dtype=cr.float64)
    third = func.grad(func.grad(func.grad(lambda x: x.sin())))(x)
    assert third.item() == pytest.approx(-np.cos(0.7), rel=1e-14)


@pytest.mark.parametrize("outside", [False, True])
def test_what_requires_grad_outside_stays_differentiable(outside):
    def run(m, f):
        x = m.tensor([1.0, 2.0], dtype=m.float64, requires_grad=outside)
        w = m.tensor([3.0, 4.0], dtype=m.float64, requires_grad=True)
        g = f.grad(lambda x: (w * x * x).sum())(x)
        g.sum().backward()
        return g, w.grad, x.grad

    ours, theirs = run(cr, func), run(torch, torch.func)
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            close(a.detach(), b)


def test_nothing_is_left_on_the_tape_or_in_grad():
    x = cr.tensor([1.0, 2.0], requires_grad=False)
    g, y = func.grad_and_value(lambda x: (x * x).sum())(x)
    assert not g.requires_grad and not y.requires_grad
    with cr.no_grad():
        w = cr.tensor([1.0, 2.0], requires_grad=True)
        g = func.grad(lambda w: (w * w).sum())(w)
    assert g.tolist() == [2.0, 4.0] and not g.requires_grad and w.grad is None


def test_the_mode_inside_the_function_counts():
    def f(x):
        with cr.no_grad():
            c = x * x
        return x * c - x

    x = cr.tensor(3.0)
    assert func.grad(f)(x).item() == 8.0
    assert func.jvp(f, (x,), (cr.tensor(1.0),))[1].item() == 8.0


def test_history_that_a_backward_used_up_outside_does_not_disturb():
    w = cr.tensor([2.0], requires_grad=True)
    c = (w * w).exp()
    c.sum().backward()
    x = cr.tensor([3.0])
    assert func.grad(lambda x: (x * c.detach() + x).sum())(x).item() == pytest.approx(
        np.exp(4) + 1, rel=1e-6
    )
    with cr.no_grad():
        kept = func.grad(lambda x: (x * c).sum())(x)
    assert kept.item() == pytest.approx(np.exp(4), rel=1e-6)


def test_a_used_up_part_that_is_needed_is_refused():
    x = cr.tensor([2.0], requires_grad=True)
    y = x.exp()
    y.sum().backward()
    with pytest.raises(ChainruleError, match=r"'exp' .* a second time"):
        cr.autograd.grad((y * 3).sum(), x)
    (g,) = cr.autograd.grad((y * 3).sum(), y)  # what lies before `y` is not asked
    assert g.item() == 3.0


def test_an_output_that_does_not_depend_on_the_input():
    x = cr.tensor([1.0, 2.0])
    assert func.grad(lambda x: cr.tensor(5.0))(x).tolist() == [0.0, 0.0]
    assert func.jvp(lambda x: cr.ones(3), (x,), (x,))[1].tolist() == [0.0] * 3
    with pytest.raises(ChainruleError, match="output 0 does not depend"):
        func.jvp(lambda x: cr.ones(3), (x,), (x,), strict=True)


def test_linearize_runs_the_function_once():
    runs = []

    def f(x):
        runs.append(1)
        return x.sin() * x

    x = cr.tensor([0.3, 0.5], dtype=cr.float64)
    _, push = func.linearize(f, x)
    for v in ([1.0, 0.0], [0.0, 2.0]):
        v = cr.tensor(v, dtype=cr.float64)
        np.testing.assert_allclose(push(v).numpy(), func.jvp(f, (x,), (v,))[1].numpy())
    assert len(runs) == 3  # one, and one for each jvp that it is compared with


def test_vjp_may_be_asked_again():
    x = cr.tensor([0.3, 0.5], dtype=cr.float64)
    _, back = func.vjp(lambda x: (x.sin(), {"b": x * x}), x)
    for scale in (1.0, 2.0):
        g = cr.full((2,), scale, dtype=cr.float64)
        (gx,) = back((g, {"b": g}))
        np.testing.assert_allclose(gx.numpy(), scale * (np.cos(x.numpy()) + 2 * x.numpy()))


def test_hvp_is_the_hessian_times_the_vector():
    x, v = (cr.tensor(normal(3)) for _ in range(2))
    f = lambda x: (x.exp() * x).sum() * x.prod()  # noqa: E731
    (got,) = func.hvp(f, (x,), (v,))
    np.testing.assert_allclose(got.numpy(), func.hessian(f)(x).numpy() @ v.numpy(), rtol=1e-12)


def test_twenty_thousand_operations_in_a_row():
    def f(x):
        for _ in range(20_000):
            x = x * 1.0001
        return x

    x = cr.tensor(1.0, dtype=cr.float64)
    assert func.jvp(f, (x,), (x,))[1].item() == pytest.approx(1.0001**20_000, rel=1e-10)


# Forms of call ----------------------------------------------------------------------------------


def test_argnums_aux_and_nests_are_pytorchs():
    def run(m, f):
        x, y = m.tensor([1.0, 2.0]), m.tensor([3.0, 4.0])
        yield f.grad(lambda x, y: (x * y).sum(), argnums=1)(x, y)
        yield from f.grad(lambda x, y: (x * y).sum(), argnums=(0, -1))(x, y)
        g, (value, aux) = f.grad_and_value(lambda x: ((x * y).sum(), x * 2), has_aux=True)(x)
        yield from (g, value, aux)
        yield f.grad(lambda p, k: (p["a"] * p["b"][0] * k).sum())({"a": x, "b": [y]}, k=2.0)["a"]
        out, t, aux = f.jvp(lambda x: (x.sum(), x * 2), (x,), (y,), has_aux=True)
        yield from (out, t, aux)
        yield f.jacrev(lambda p: {"s": p["a"] * y}, argnums=0)({"a": x})["s"]["a"]
        yield f.jacfwd(lambda x, y: (x * y, x), argnums=(0, 1))(x, y)[1][1]
        yield f.hessian(lambda x, y: (x * y).sum(), argnums=(0, 1))(x, y)[0][1]

    for a, b in zip(run(cr, func), run(torch, torch.func), strict=True):
        close(a, b, 1e-6)


def test_value_and_grad_puts_the_value_first():
    value, g = func.value_and_grad(lambda x: (x * x).sum())(cr.tensor([3.0]))
    assert (value.item(), g.item()) == (9.0, 6.0)


x2, x3 = cr.tensor([1.0, 2.0]), cr.tensor([1.0, 2.0, 3.0])
REFUSED = {
    "no scalar": (lambda: func.grad(lambda x: x)(x2), r"0-d tensor, not shape \(2,\)"),
    "argnums": (lambda: func.grad(lambda x: x.sum(), argnums=2)(x2), "argnums has 2.*with 1"),
    "same argnums": (lambda: func.grad(lambda x: x.sum(), argnums=(0, 0))(x2), "different"),
    "integers": (lambda: func.grad(lambda x: x.sum())(cr.tensor([1])), "dtype int64"),
    "no tensor": (lambda: func.grad(lambda x: x)(2.0), "not float"),
    "no output": (lambda: func.vjp(lambda x: 3.0, x2), "must return tensors, not float"),
    "aux": (lambda: func.grad(lambda x: x.sum(), has_aux=True)(x2), r"pair \(output, aux\)"),
    "tangent shape": (lambda: func.jvp(cr.sin, (x2,), (x3,)), r"shape \(3,\), the input \(2,\)"),
    "no tuple": (lambda: func.jvp(cr.sin, x2, x2), "primals as a tuple"),
    "tangents": (lambda: func.jvp(cr.sin, (x2,), (x2, x2)), "takes 1 tensors"),
    "cotangent": (lambda: func.vjp(cr.sin, x2)[1](x3), r"shape \(3,\), the output \(2,\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name):
    call, words = REFUSED[name]
    with pytest.raises(ChainruleError, match=words):
        call()
