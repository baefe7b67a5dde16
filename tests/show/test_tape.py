"""The tape as it is shown: the engine's own order, and bytes that an allocator counts as well."""

from __future__ import annotations

import re
import tracemalloc
from xml.etree import ElementTree

import numpy as np
import pytest

import chainrule as cr
from chainrule import show
from chainrule.errors import GradError, InputError, ShapeError
from chainrule.utils.checkpoint import checkpoint


def example():
    rng = np.random.default_rng(0)
    w = cr.tensor(rng.standard_normal((4, 3)).astype(np.float32)).requires_grad_(True)
    x = cr.tensor(rng.standard_normal((8, 4)).astype(np.float32))
    h = cr.silu(x @ w)
    y = (h * h + h).sum(1)
    return w, (y * y).mean()


def test_a_node_says_formula_line_shape_and_what_it_keeps():
    _, loss = example()
    t = show.tape(loss)
    silu = next(e for e in t.entries if e.name == "silu")
    assert (
        silu.formula
        == f"da0 = {cr.calculus.formula(cr.ops.rules.rule_for('silu', 'T', (True,)).text.results)}"
    )
    assert silu.place.text == "h = cr.silu(x @ w)"
    assert silu.shape == (8, 3)
    assert [(s.what, s.shape, s.dtype, s.nbytes, s.alias) for s in silu.saved] == [
        ("input a0", (8, 3), "float32", 96, None)
    ]
    text = str(t)
    assert "da0 = g*sigmoid(a0)" in text and "test_tape.py" in text
    assert "keeps input a1 (8, 3) float32: the same memory" in text
    assert re.search(r"^7 nodes, 1 leaf; kept for backward: 352 B\. Most: 224 B by", text)
    # x (128) and the product (96) in one line, h (96) and y (32) in theirs.
    assert [bytes for _, bytes in t.lines] == [224, 96, 32]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_is_that_of_the_walk(seed):
    rng = np.random.default_rng(seed)
    made = [cr.ones(3, requires_grad=True), cr.ones(3, requires_grad=True)]
    for _ in range(30):
        a, b, c = (made[i] for i in rng.integers(0, len(made), 3))
        made.append(
            cr.where(cr.tensor([True, False, True]), a * b, c.sin())
            if rng.random() < 0.3
            else a + b
        )
    loss = cr.stack(made[-4:]).sum()
    walked = []
    entries = show.tape(loss).entries
    for e in entries:
        if e.place is not None:
            e.node.register_prehook(lambda g, n=e.number: walked.append(n))
    loss.backward()
    assert len(walked) > 20
    assert walked == [e.number for e in entries if e.place is not None]


def arrays():
    """What NumPy's allocator has out: arrays alone, to the byte."""
    shot = tracemalloc.take_snapshot()
    numpy = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    return sum(s.size for s in shot.filter_traces([numpy]).statistics("filename"))


def mlp(x, w):
    h = (x @ w / 40).exp()
    v = h[1:, ::2]  # a view that is saved keeps all of h alive
    u = cr.nn.functional.layer_norm(v * v.T.T, (16,))
    return (cr.softmax(u.reshape(-1, 16), 1) * cr.relu(u)).exp().logsumexp(1)


def sums_seen_flat(x, w):
    """A view makes the storage of a sum that no rule reads: the tape must not keep it."""
    return (x + w.sum()).view(-1)[::2] * 2


@pytest.mark.parametrize(
    "model",
    [mlp, lambda x, w: checkpoint(mlp, x, w), lambda x, w: (x * 1.5 @ w).sin(), sums_seen_flat],
)
def test_the_bytes_are_those_of_the_allocator(model):
    w = cr.ones(40, 32, dtype=cr.float64, requires_grad=True)
    x = cr.ones(50, 40, dtype=cr.float64, requires_grad=True)
    model(x, w)  # rules are compiled, pools are made
    tracemalloc.start()
    try:
        before = arrays()
        y = model(x, w)
        loss = y.sum()
        del y
        taken = arrays() - before
    finally:
        tracemalloc.stop()
    t = show.tape(loss)
    assert t.kept + loss.detach().numpy().nbytes == taken


def test_packed_and_freed_values_are_said():
    x = cr.ones(5, requires_grad=True)
    y = checkpoint(lambda x: x.exp().sin(), x).sum()
    text = str(show.tape(y))
    assert "output y (packed) (5,) float32" in text and "kept for backward: 0 B" in text
    y.backward()
    assert "what it kept is freed" in str(show.tape(y))


def test_functions_name_what_they_saved():
    class Cube(cr.Function):
        @staticmethod
        def forward(ctx, x):
            square = x * x
            ctx.save_for_backward(x, square)
            return square * x

    x = cr.ones(5, requires_grad=True)
    text = str(show.tape(Cube.apply(x)))
    assert "keeps input 'x' (5,) float32: the memory of leaf 1" in text
    assert "keeps intermediate 'square' (5,) float32: 20 B" in text


def test_other_device():
    x = cr.ones(5, device="torch", requires_grad=True)
    t = show.tape((x.exp() * x.flip(0)).sum())
    assert t.kept == 20 and t.leaves == 20
    assert len(show.walk((x * x).sum())) == 3


# walk --------------------------------------------------------------------------------------------


def test_steps_hold_the_gradients_that_backward_computes():
    w, loss = example()
    steps = show.walk(loss)
    assert w.grad is None
    h = next(e.node for e in show.tape(loss).entries if e.name == "silu")
    seen = []
    h.register_prehook(lambda g: seen.append(g[0].numpy().copy()))
    loss.backward()  # the tape is still there
    silu = next(s for s in steps if s.name == "silu")
    np.testing.assert_array_equal(silu.incoming.tensor.numpy(), seen[0])
    assert silu.incoming.norm == pytest.approx(np.linalg.norm(seen[0]), rel=1e-6)
    leaf = next(s for s in steps if s.name == "leaf")
    np.testing.assert_array_equal(leaf.incoming.tensor.numpy(), w.grad.numpy())
    matmul = next(s for s in steps if s.name == "matmul")
    assert [(to, g.shape) for to, g in matmul.outgoing] == [(f"{leaf.number} leaf", (4, 3))]
    assert "every gradient finite" in str(steps)


def test_watching_leaves_no_hooks():
    _, loss = example()
    show.walk(loss)
    assert all(e.node.hooks is None for e in show.tape(loss).entries)


def test_the_first_gradient_that_is_not_finite_is_named():
    x = cr.tensor([0.0, 4.0], requires_grad=True)
    y = cr.sqrt(x)
    loss = (y * 2).sum()
    steps = show.walk(loss)
    bad = steps.first_nonfinite
    assert bad.name == "sqrt" and bad.outgoing[0][1].nonfinite == 1
    assert "not finite comes out of 2 'sqrt' at" in " ".join(str(steps).split())
    assert "y = cr.sqrt(x)" in str(steps)
    assert "1 of 2 not finite" in str(steps)
    assert bad.outgoing[0][1].norm == pytest.approx(0.5)  # of what is finite


def test_norms_neither_overflow_nor_vanish():
    x = cr.tensor([3.0, 4.0], requires_grad=True)
    large = show.walk((x / 10).sum(), cr.tensor(1e31)).steps[-1].incoming
    assert large.norm == pytest.approx(2**0.5 * 1e30, rel=1e-6)
    y = cr.tensor([1.0, 1.0], requires_grad=True)
    tiny = cr.tensor([3e-30, 4e-30])
    assert show.walk((y * tiny).sum()).steps[-1].incoming.norm == pytest.approx(5e-30, rel=1e-6)


def test_refusals():
    x = cr.ones(3, requires_grad=True)
    with pytest.raises(InputError, match="this has none"):
        show.tape(cr.ones(3))
    with pytest.raises(InputError, match="no history"):
        show.walk(3.0)
    with pytest.raises(GradError, match=r"shape \(3,\) needs the incoming gradient"):
        show.walk(x * 2)
    with pytest.raises(ShapeError, match=r"shape \(2,\), the tensor \(3,\)"):
        show.walk(x * 2, cr.ones(2))
    with pytest.raises(InputError, match="too narrow"):
        show.tape(x * 2, width=20)
    assert show.walk(x * 2, cr.tensor([1.0, 2.0, 3.0]))[-1].incoming.tensor.tolist() == [2, 4, 6]


@pytest.mark.parametrize("what", [show.tape, show.walk])
def test_text_keeps_to_the_width_and_the_svg_is_well_formed(what):
    _, loss = example()
    for width in (60, 96):
        assert max(map(len, str(what(loss, width=width)).splitlines())) <= width
    picture = what(loss)
    root = ElementTree.fromstring(picture.svg())
    width, height = (float(n) for n in root.get("viewBox").split()[2:])
    words = "".join(root.itertext())
    for e in show.tape(loss).entries:
        assert e.name in words
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        assert float(text.get("y")) < height
        assert float(text.get("x")) + 0.602 * 11.5 * len(text.text or "") <= width
