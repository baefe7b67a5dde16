"""Elementwise programs by tiles: the numbers of plain NumPy, few buffers, refusals in words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from chainrule.backends import parallel, tiled
from chainrule.backends.tiled import compile_program, copying
from chainrule.errors import InputError, ShapeError

C = math.sqrt(2 / math.pi)
GELU = [  # 0.5·x·(1 + tanh(x·(C + 0.044715·C·x²)))
    (np.multiply, (0, 0), 1),
    (np.multiply, (1, C * 0.044715), 2),
    (np.add, (2, C), 3),
    (np.multiply, (3, 0), 4),
    (np.tanh, (4,), 5),
    (np.add, (5, 1.0), 6),
    (np.multiply, (6, 0), 7),
    (np.multiply, (7, 0.5), 8),
]
SIZES = [0, 1, 1000, tiled.TILE - 1, tiled.TILE, tiled.TILE + 1, 5 * tiled.TILE + 3]


@pytest.fixture(autouse=True)
def two_threads():
    before = parallel.get_num_threads()
    parallel.set_num_threads(2)
    yield
    parallel.set_num_threads(before)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gelu_by_tiles_is_pytorchs(size, dtype):
    x = np.random.default_rng(size).standard_normal(size).astype(dtype)
    y = compile_program(GELU, 1, [8])(x)
    want = torch.nn.functional.gelu(torch.from_numpy(x).double(), approximate="tanh").numpy()
    assert y.dtype == dtype
    np.testing.assert_allclose(y, want, rtol=0, atol=1e-6 if dtype == np.float32 else 1e-14)


def test_one_buffer_is_enough_for_a_chain():
    plan = compile_program(GELU, 1, [8]).plan(np.ones(3, np.float32))
    assert plan.buffers == (np.dtype(np.float32),)
    assert "f7(s0, c7_1, out=y0)" in plan.source


@pytest.mark.parametrize("size", SIZES)
def test_several_outputs_and_mixed_dtypes(size):
    x, y = np.random.default_rng(0).standard_normal((2, size))
    program = compile_program(
        [
            (np.greater, (0, 1), 2),
            (copying(np.where), (2, 0, 1), 3),
            (np.subtract, (3, 0), 4),
            (np.negative, (4,), 5),
        ],
        n_inputs=2,
        outputs=[3, 5, 2, 0, 3],
    )
    top, rest, larger, same, again = program(x, y)
    np.testing.assert_array_equal(top, np.maximum(x, y))
    np.testing.assert_array_equal(rest, x - np.maximum(x, y))
    np.testing.assert_array_equal(larger, x > y)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(again, top)
    assert larger.dtype == bool
    assert not np.shares_memory(same, x)
    assert not np.shares_memory(again, top)


def test_a_random_program_equals_its_steps_one_by_one():
    rng = np.random.default_rng(5)
    binary, unary = [np.add, np.subtract, np.multiply, np.maximum], [np.tanh, np.sin, np.abs]
    for _ in range(30):
        steps, n = [], 3
        for target in range(3, 3 + int(rng.integers(1, 20))):
            a, b = (int(i) for i in rng.integers(0, target, 2))
            if rng.random() < 0.5:
                steps.append((binary[rng.integers(4)], (a, b), target))
            elif rng.random() < 0.3:
                steps.append((copying(np.hypot), (a, b), target))
            else:
                steps.append((unary[rng.integers(3)], (a,), target))
            n = target + 1
        outputs = [int(i) for i in rng.integers(0, n, 3)]
        inputs = rng.standard_normal((3, 2 * tiled.TILE + 7))
        values = list(inputs)
        for fn, operands, _ in steps:
            call = fn.fn if isinstance(fn, copying) else fn
            values.append(call(*(values[o] for o in operands)))
        kept = inputs.copy()
        for got, slot in zip(compile_program(steps, 3, outputs)(*inputs), outputs, strict=True):
            np.testing.assert_array_equal(got, values[slot])
        np.testing.assert_array_equal(inputs, kept)


def test_shapes_strides_and_scalars():
    x = np.random.default_rng(1).standard_normal((30, 40))
    program = compile_program([(np.multiply, (0, 1), 2)], 2, [2])
    np.testing.assert_array_equal(program(x, 2.0), x * 2)
    np.testing.assert_array_equal(program(x.T, x.T), x.T**2)
    np.testing.assert_array_equal(program(x[::-1, ::2], 3), x[::-1, ::2] * 3)
    assert program(np.ones((), np.float32), 0.5).shape == ()
    assert program(x.astype(np.float32), 0.1).dtype == np.float32


def test_out_is_written_in_place():
    x = np.ones((50, 2000))
    y = np.zeros_like(x)
    program = compile_program([(np.add, (0, 1.0), 1)], 1, [1])
    assert program(x, out=[y]) is y
    assert (y == 2).all()
    program(x, out=[x])
    assert (x == 2).all()
    with pytest.raises(ShapeError, match="out must be"):
        program(x, out=[np.zeros(3)])
    with pytest.raises(ShapeError, match="contiguous"):
        program(x, out=[np.zeros((2000, 50)).T])


def test_a_program_inside_a_program_keeps_its_own_scratch():
    inner = compile_program([(np.multiply, (0, 0), 1), (np.add, (1, 1.0), 2)], 1, [2])
    steps = [(np.sin, (0,), 1), (copying(inner), (1,), 2), (np.add, (1, 2), 3)]
    x = np.linspace(0, 9, 3 * tiled.TILE + 1)
    s = np.sin(x)
    np.testing.assert_array_equal(compile_program(steps, 1, [3])(x), s + (s * s + 1))


def test_floating_point_warnings_are_not_raised():
    program = compile_program([(np.log, (0,), 1)], 1, [1])
    assert np.isneginf(program(np.zeros(5 * tiled.TILE))).all()
    assert np.isneginf(program(np.zeros(5))).all()


def no_out(x):
    return x + 1


@pytest.mark.parametrize(
    ("steps", "outputs", "message"),
    [
        ([(no_out, (0,), 1)], [1], r"no_out takes no out=.*tiled\.copying"),
        ([(np.add, (0,), 1)], [1], "add has 2 inputs and 1 outputs, the step gives 1"),
        ([(np.modf, (0,), 1)], [1], "modf has 1 inputs and 2 outputs"),
        ([(np.sin, (3,), 1)], [1], "reads slot 3 before it is written"),
        ([(np.sin, (0,), 0)], [0], "writes slot 0 a second time"),
        ([(np.sin, (0,), 1)], [2], "output slot 2 is never written"),
    ],
)
def test_a_wrong_program_is_refused(steps, outputs, message):
    with pytest.raises(InputError, match=message):
        compile_program(steps, 1, outputs)


def test_wrong_inputs_are_refused():
    program = compile_program([(np.add, (0, 1), 2)], 2, [2])
    with pytest.raises(InputError, match="takes 2 inputs, got 1"):
        program(np.ones(3))
    with pytest.raises(ShapeError, match=r"one shape, got \[\(3,\), \(4,\)\]"):
        program(np.ones(3), np.ones(4))
    with pytest.raises(ShapeError, match=r"one shape, got \[\]"):
        program(1.0, 2.0)
