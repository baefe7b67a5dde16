"""Function: the course's listing as written, PyTorch's contract, and where ours is stricter."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import chainrule as cr
import chainrule as torch  # the course's listing must run as it is


class Squareplus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, b=4.0):
        r = torch.sqrt(x * x + b)
        ctx.save_for_backward(x, r)  # keep only what backward needs
        return 0.5 * (x + r)

    @staticmethod
    def backward(ctx, g):  # g = dLoss/dOutput
        x, r = ctx.saved_tensors
        return g * 0.5 * (1 + x / r), None  # one gradient per forward input


def leaf(*values: float) -> cr.Tensor:
    return cr.tensor(list(values), dtype=cr.float64, requires_grad=True)


def test_the_courses_listing() -> None:
    assert torch.autograd.gradcheck(
        Squareplus.apply, torch.randn(8, dtype=torch.double, requires_grad=True)
    )


def test_its_second_derivative_is_refused_with_what_would_be_lost() -> None:
    x = leaf(0.7)
    (g,) = cr.autograd.grad(Squareplus.apply(x).sum(), x, create_graph=True)
    with pytest.raises(cr.ChainruleError) as caught:
        cr.autograd.grad(g.sum(), x)
    message = str(caught.value)
    assert "'r', saved by Squareplus, is neither input nor output" in message
    assert "would lose every term that flows through 'r'" in message
    with pytest.raises(cr.ChainruleError, match="'r', saved by Squareplus"):
        cr.autograd.gradgradcheck(
            Squareplus.apply, cr.randn(3, dtype=cr.double, requires_grad=True)
        )


class Recomputed(cr.Function):
    """The repair: what backward needs is computed from what was saved."""

    @staticmethod
    def forward(ctx: Any, x: cr.Tensor) -> cr.Tensor:
        ctx.save_for_backward(x)
        return 0.5 * (x + cr.sqrt(x * x + 4.0))

    @staticmethod
    def backward(ctx: Any, g: cr.Tensor) -> cr.Tensor:
        (x,) = ctx.saved_tensors
        return g * 0.5 * (1 + x / cr.sqrt(x * x + 4.0))


def test_the_repaired_second_derivative_is_right() -> None:
    x = leaf(0.7)
    (g,) = cr.autograd.grad(Recomputed.apply(x).sum(), x, create_graph=True)
    (h,) = cr.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(h.item(), 2.0 / (0.7**2 + 4.0) ** 1.5, rtol=1e-14)  # 0.210


class Exp(cr.Function):
    """Saves its output, through setup_context."""

    @staticmethod
    def forward(x: cr.Tensor) -> cr.Tensor:
        return cr.exp(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: cr.Tensor) -> cr.Tensor:
        (y,) = ctx.saved_tensors
        return g * y


def test_a_saved_output_is_differentiated_through() -> None:
    x = leaf(0.5)
    g = x
    for _ in range(3):
        (g,) = cr.autograd.grad(Exp.apply(g if g is x else x).sum(), x, create_graph=True)
    assert cr.autograd.gradgradcheck(Exp.apply, cr.randn(3, dtype=cr.double, requires_grad=True))


def test_a_saved_output_that_was_written_to() -> None:
    y = Exp.apply(leaf(1.0))
    with cr.no_grad():
        y *= 2.0
    with pytest.raises(cr.errors.StaleTensorError, match="Exp"):
        y.sum().backward()


def function(backward: Any, **members: Any) -> Any:
    """A Function of two inputs, x · w, with the given backward."""

    class Product(cr.Function):
        @staticmethod
        def forward(ctx: Any, x: cr.Tensor, w: cr.Tensor) -> cr.Tensor:
            ctx.save_for_backward(x, w)
            return x * w

    Product.backward = staticmethod(backward)  # type: ignore[method-assign]
    for name, value in members.items():
        setattr(Product, name, value)
    return Product


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (lambda ctx, g: g, "returned 1 gradients, expected 2"),
        (lambda ctx, g: (g, g, g), "returned 3 gradients, expected 2"),
        (lambda ctx, g: (g.sum(), g), r"shape \(\) for input 0 of shape \(2,\): .*never"),
        (lambda ctx, g: (g[:1], g), r"shape \(1,\) for input 0 of shape \(2,\)"),
        (lambda ctx, g: (1.0, g), "returned float for input 0"),
        (lambda ctx, g: (g.zero_(), g), "may not be written to"),
    ],
)
def test_a_backward_that_breaks_its_contract_is_named(backward: Any, message: str) -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    with pytest.raises(cr.ChainruleError, match=message):
        function(backward).apply(x, w).sum().backward()


def test_trailing_nones_are_accepted_and_none_means_no_gradient() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    product = function(lambda ctx, g: (g * ctx.saved_tensors[1], None, None, None))
    product.apply(x, w).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3.0, 4.0] and w.grad is None


def test_a_gradient_of_another_float_dtype_is_cast() -> None:
    x = cr.ones(2, requires_grad=True)
    w = cr.ones(2)
    function(lambda ctx, g: (g.double(), None)).apply(x, w).sum().backward()
    assert x.grad is not None and x.grad.dtype is cr.float32


def test_needs_input_grad_tells_which_inputs_matter() -> None:
    seen: list[tuple[bool, ...]] = []
    product = function(lambda ctx, g: (seen.append(ctx.needs_input_grad), (g, None))[1])
    product.apply(leaf(1.0), cr.ones(1, dtype=cr.float64)).sum().backward()
    assert seen == [(True, False)]


class MinMax(cr.Function):
    """Two outputs, of which a caller may use one; the third has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: cr.Tensor) -> tuple[cr.Tensor, cr.Tensor, cr.Tensor]:
        doubled, tripled, flags = x * 2.0, x * 3.0, x > 0.0
        ctx.mark_non_differentiable(flags)
        return doubled, tripled, flags

    @staticmethod
    def backward(ctx: Any, g2: cr.Tensor, g3: cr.Tensor, none: Any) -> cr.Tensor:
        return g2 * 2.0 + g3 * 3.0


def test_several_outputs_and_the_unused_one_is_zeros() -> None:
    x = leaf(1.0, -1.0)
    doubled, tripled, flags = MinMax.apply(x)
    assert not flags.requires_grad and flags.tolist() == [True, False]
    doubled.sum().backward(retain_graph=True)
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]
    x.grad = None
    (doubled.sum() + (tripled * tripled).sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [2.0 + 18.0, 2.0 - 18.0]


def test_materialize_grads_off_hands_over_none() -> None:
    seen: list[Any] = []

    class Pair(cr.Function):
        @staticmethod
        def forward(ctx: Any, x: cr.Tensor) -> tuple[cr.Tensor, cr.Tensor]:
            ctx.set_materialize_grads(False)
            return x * 1.0, x * 1.0

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            seen.append((a is None, b is None))
            return b

    x = leaf(1.0)
    Pair.apply(x)[1].sum().backward()
    assert seen == [(True, False)] and x.grad is not None and x.grad.tolist() == [1.0]


def test_an_input_returned_as_it_is() -> None:
    class Identity(cr.Function):
        @staticmethod
        def forward(ctx: Any, x: cr.Tensor) -> cr.Tensor:
            return x

        @staticmethod
        def backward(ctx: Any, g: cr.Tensor) -> cr.Tensor:
            return g * 7.0

    x = leaf(1.0)
    y = Identity.apply(x)
    assert y is not x and y.data_ptr() == x.data_ptr() and x.is_leaf
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [7.0]


def test_mark_dirty_rewrites_the_inputs_history() -> None:
    class Double(cr.Function):
        @staticmethod
        def forward(ctx: Any, x: cr.Tensor) -> cr.Tensor:
            x *= 2.0
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: cr.Tensor) -> cr.Tensor:
            return g * 2.0

    x = leaf(1.0)
    h = x * 3.0
    out = Double.apply(h)
    assert out is h and h.tolist() == [6.0]
    h.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [6.0]


def test_an_output_stored_on_ctx_is_refused_and_saving_it_does_not_leak() -> None:
    class Leaky(cr.Function):
        @staticmethod
        def forward(ctx: Any, x: cr.Tensor) -> cr.Tensor:
            ctx.y = x * 2.0
            return ctx.y

    with pytest.raises(cr.ChainruleError, match="stored an output on ctx"):
        Leaky.apply(leaf(1.0))
    gc.disable()
    try:
        y = Exp.apply(leaf(1.0))
        assert y.grad_fn is not None
        ctx = weakref.ref(y.grad_fn.attrs)
        del y
        assert ctx() is None
    finally:
        gc.enable()


def test_once_differentiable_refuses_the_second_time() -> None:
    class Once(cr.Function):
        @staticmethod
        def forward(ctx: Any, x: cr.Tensor) -> cr.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @cr.autograd.once_differentiable
        def backward(ctx: Any, g: cr.Tensor) -> cr.Tensor:
            (x,) = ctx.saved_tensors
            return g * x * 2.0

    x = leaf(3.0)
    (g,) = cr.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
    assert g.tolist() == [6.0]
    with pytest.raises(cr.ChainruleError, match="once_differentiable"):
        cr.autograd.grad(g.sum(), x)


def test_saving_something_else_is_refused() -> None:
    class Wrong(cr.Function):
        @staticmethod
        def forward(ctx: Any, x: cr.Tensor) -> cr.Tensor:
            ctx.save_for_backward(3.0)
            return x * 1.0

    with pytest.raises(cr.ChainruleError, match="takes tensors, not float"):
        Wrong.apply(leaf(1.0))


def test_the_incoming_gradient_may_have_any_strides() -> None:
    """What backward receives after sum() has stride 0, after .T a transposed one."""
    seen: list[tuple[int, ...]] = []

    class Watch(cr.Function):
        @staticmethod
        def forward(ctx: Any, x: cr.Tensor) -> cr.Tensor:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: cr.Tensor) -> cr.Tensor:
            seen.append(g.stride())
            return g

    x = cr.ones(2, 3, requires_grad=True)
    Watch.apply(x).sum().backward()
    (Watch.apply(x).T * cr.ones(3, 2)).sum().backward()
    assert seen == [(0, 0), (1, 2)]
