"""Every row of the calculus table, called as an eager operation, against PyTorch.

Value, promotion, first and second derivative, broadcasting, half types, integers and refusals; on
both devices. A row that PyTorch lacks is judged by its definition in PyTorch's own functions.
"""

from __future__ import annotations

import math
import warnings
from itertools import product

import ml_dtypes
import numpy as np
import pytest
import torch
from tests.ops.harness import (
    DEVICES,
    as_torch,
    check_half,
    check_op,
    check_same,
    dtype_name,
    host,
)
from torch.nn import functional as F

import chainrule as cr
from chainrule.calculus.table import TABLE
from chainrule.ops.elementwise import operation

RANDOM = np.random.default_rng(5)
SHAPE = (3, 4)


def _squareplus(x, b=4.0):
    return 0.5 * (x + torch.sqrt(x * x + b))


ORACLES = {
    "hypot_slope": lambda a, b: a / torch.hypot(a, b),
    "one_minus_square": lambda x: 1 - x * x,
    "sech2": lambda x: 1 / torch.cosh(x) ** 2,
    "gaussian": lambda x: torch.exp(-x * x),
    "npdf": lambda x: torch.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "ndtr": torch.special.ndtr,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "squareplus": _squareplus,
    "squareplus_slope": lambda x, b=4.0: 0.5 * (1 + x / torch.sqrt(x * x + b)),
    "elu": lambda x, a=1.0: torch.where(x > 0, x, a * torch.expm1(torch.where(x > 0, 0.0, x))),
    "leaky_relu": lambda x, a=0.01: torch.where(x > 0, x, a * x),
    "hardtanh": lambda x, lo=-1.0, hi=1.0: torch.clamp(
        x, torch.as_tensor(lo, dtype=x.dtype), torch.as_tensor(hi, dtype=x.dtype)
    ),
    "clamp": lambda x, lo, hi: torch.clamp(
        x, torch.as_tensor(lo, dtype=x.dtype), torch.as_tensor(hi, dtype=x.dtype)
    ),
    "where": lambda c, a, b: torch.where(c, a, b),
    "xlog1py": torch.special.xlog1py,
}


def oracle(name):
    """PyTorch's function of this name, or the definition above."""
    for where in (ORACLES, vars(torch), vars(F)):
        if name in where:
            return where[name]
    raise AssertionError(f"no oracle for {name}: add its definition to ORACLES")


# Where a function is defined, and smooth enough for float64 differences: (low, high).
DOMAINS = {
    **dict.fromkeys(["log", "log2", "log10", "sqrt", "rsqrt"], (0.2, 3.0)),
    "log1p": (-0.8, 3.0),
    "acosh": (1.1, 3.0),
    **dict.fromkeys(["atanh", "asin", "acos"], (-0.9, 0.9)),
    "reciprocal": (0.3, 2.0),
    "tan": (-1.2, 1.2),
    "logit": (0.1, 0.9),
    "erfinv": (-0.9, 0.9),
    **dict.fromkeys(["lgamma", "digamma"], (0.3, 6.0)),
}
# PyTorch's trigamma has nine digits; ours answers to mpmath in tests/calculus.
TRIGAMMA = 3e-9
SECOND_DOMAINS = {
    "xlogy": (0.2, 3.0),
    "xlog1py": (-0.5, 3.0),
    "div": (0.5, 2.0),
    "remainder": (0.7, 1.9),
    "fmod": (0.7, 1.9),
}
POSITIVE_FIRST = {"pow"}
PARAMETER = {"squareplus": 2.5, "squareplus_slope": 2.5, "elu": 0.7, "leaky_relu": 0.2}

UNARY = [n for n, row in TABLE.items() if row.arity == 1]
BINARY = [n for n, row in TABLE.items() if row.arity == 2 and n != "polygamma"]


def operand(name, place=0, shape=SHAPE):
    """Random numbers of the domain of operand `place` of a row."""
    if place == 1 and name in PARAMETER:
        return RANDOM.uniform(0.5, 3.0, shape)
    if place == 1 and name in SECOND_DOMAINS:
        return RANDOM.uniform(*SECOND_DOMAINS[name], shape)
    if place == 0 and name in POSITIVE_FIRST:
        return RANDOM.uniform(0.2, 2.0, shape)
    if place == 0 and name in DOMAINS:
        return RANDOM.uniform(*DOMAINS[name], shape)
    return 1.5 * RANDOM.standard_normal(shape)


def test_every_row_has_an_oracle_and_is_in_a_sweep():
    for name, row in TABLE.items():
        assert callable(oracle(name))
        assert row.arity in (1, 2) or name in ("where", "clamp", "hardtanh", "lerp")


@pytest.mark.parametrize("name", UNARY)
def test_unary_row(name):
    op = operation(name)
    rtol = TRIGAMMA if name in ("lgamma", "digamma") else 1e-10
    check_op(lambda m, x: op(x), oracle(name), [operand(name)], rtol=rtol)


@pytest.mark.parametrize("name", BINARY)
def test_binary_row(name):
    op = operation(name)
    check_op(lambda m, x, y: op(x, y), oracle(name), [operand(name), operand(name, 1)])


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", [((3, 1), (1, 4)), ((4,), (3, 4)), ((2, 3, 1), ()), ((), (2,))])
def test_binary_row_broadcasts_and_sums_the_gradient_back(name, shapes):
    op = operation(name)
    inputs = [operand(name, i, shape) for i, shape in enumerate(shapes)]
    check_op(lambda m, x, y: op(x, y), oracle(name), inputs, layouts=["contiguous", "flipped"])


# PyTorch takes a number on the left, or at all, in some functions only: it is given a tensor.
@pytest.mark.parametrize("name", BINARY)
def test_binary_row_with_a_number_on_either_side(name):
    op, theirs = operation(name), oracle(name)
    right = PARAMETER.get(name, 1.25)
    x, y = operand(name), operand(name, 1)

    def number(value, like):
        return torch.tensor(value, dtype=like.dtype)

    layouts = ["contiguous", "transposed"]
    check_op(lambda m, t: op(t, right), lambda t: theirs(t, number(right, t)), [x], layouts=layouts)
    if name not in PARAMETER:  # nobody differentiates by the slope of a single number
        check_op(
            lambda m, t: op(0.75, t), lambda t: theirs(number(0.75, t), t), [y], layouts=layouts
        )


def test_operators_with_a_number_on_either_side():
    x = RANDOM.uniform(0.5, 2.0, SHAPE)
    for fn in (
        lambda t: 2 - t,
        lambda t: 2.5 / t,
        lambda t: 2.0**t,
        lambda t: t**3,
        lambda t: t**0.5,
        lambda t: t**2,
        lambda t: t**-1,
        lambda t: 3 + t * 2 - 1,
        lambda t: -t,
        lambda t: abs(t - 1),
        lambda t: t % 0.4,
    ):
        check_op(lambda m, t, f=fn: f(t), fn, [x], layouts=["contiguous", "sliced"])


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 0.5, -1.0, -0.5, 2.5])
def test_power_at_zero_is_pytorchs(exponent):
    x = np.array([0.0, 1.0, 4.0])
    with warnings.catch_warnings():  # NumPy says that 0⁻¹ is infinite; PyTorch does not
        warnings.filterwarnings("ignore", "divide by zero", RuntimeWarning)
        check_op(
            lambda m, t: t**exponent,
            None,
            [x],
            second=exponent in (0.0, 1.0, 2.0, 3.0),
            layouts=False,
        )


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_polygamma(n):
    x = RANDOM.uniform(0.3, 9.0, SHAPE)
    rtol = TRIGAMMA if n < 2 else 1e-10
    check_op(lambda m, t: m.polygamma(n, t), None, [x], rtol=rtol)
    check_half(lambda m, t: m.polygamma(n, t), None, [x], roundings=1)
    if n < 2:  # PyTorch has no reflection beyond
        check_op(lambda m, t: m.polygamma(n, t), None, [0.4 - x], second=False, layouts=False,
                 devices=["cpu"], rtol=1e-7, float32=False)  # fmt: skip


def test_digamma_at_its_poles():
    x = np.array([0.0, -0.0, -1.0, -7.0])
    check_op(lambda m, t: m.digamma(t).detach(), None, [x])


def test_sinc_of_whole_numbers_is_exact():
    assert cr.sinc(cr.tensor([0, 1, -2, 300])).tolist() == [1.0, 0.0, 0.0, 0.0]  # PyTorch: -2.8e-8


def test_lerp():
    x, y, w = (RANDOM.standard_normal(SHAPE) for _ in range(3))
    check_op(lambda m, a, b, t: m.lerp(a, b, t), None, [x, y, w])
    check_op(lambda m, a, b: m.lerp(a, b, 0.7), None, [x, y])


@pytest.mark.parametrize("name", ["where", "clamp", "hardtanh"])
def test_rows_of_three_operands(name):
    x, y, z = (RANDOM.standard_normal(SHAPE) for _ in range(3))
    op = operation(name)
    if name == "where":
        c = RANDOM.integers(0, 2, SHAPE).astype(bool)
        check_op(lambda m, a, b, d: op(a, b, d), oracle(name), [c, x, y])
        check_op(lambda m, a, b, d: op(a, b, d), oracle(name), [c[:, :1], x, y[0]])
        check_op(lambda m, a, b: op(a, b, 0.5), lambda a, b: torch.where(a, b, 0.5), [c, x])
    else:
        low, high = -np.abs(y) - 0.1, np.abs(z) + 0.1
        check_op(lambda m, a, b, d: op(a, b, d), oracle(name), [x, low, high])
        check_op(lambda m, a: op(a, -0.5, 0.8), lambda a: oracle(name)(a, -0.5, 0.8), [x])


# Edges that PyTorch shares: value and gradient there.

SHARED_EDGES = [
    ("relu", [0.0, -0.0, 1.0]),
    ("relu6", [0.0, 6.0, 7.0]),
    ("abs", [0.0, -2.0]),
    ("sign", [0.0, -3.0]),
    ("sqrt", [0.0, 4.0]),
    ("log", [0.0, 1.0]),
    ("reciprocal", [0.0, 2.0]),
    ("floor", [1.0, -0.5]),
    ("round", [0.5, 1.5, -2.5]),
    ("sigmoid", [-800.0, 800.0]),
    ("softplus", [-800.0, 800.0]),
    ("logsigmoid", [-800.0, 800.0]),
    ("exp", [-800.0, 0.0]),
    ("tanh", [40.0, -40.0]),
    ("lgamma", [0.0, -1.0, -2.5, float("inf")]),
    ("logit", [0.0, 1.0]),
    ("erfinv", [1.0, -1.0, 2.0, 0.0]),
    ("softsign", [0.0, 1e300]),
    ("sinc", [0.0, 1.0, 2.0]),
]


@pytest.mark.parametrize(("name", "values"), SHARED_EDGES)
def test_edges_are_pytorchs(name, values):
    op = operation(name)
    with warnings.catch_warnings():  # NumPy says that 1/0 is infinite; PyTorch does not
        warnings.filterwarnings("ignore", "divide by zero", RuntimeWarning)
        check_op(
            lambda m, x: op(x),
            oracle(name),
            [np.array(values)],
            second=False,
            layouts=False,
            float32=False,
        )


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_ties_of_two_tensors_share_half_each(name):
    x, y = np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, 3.0])
    op = operation(name)
    check_op(lambda m, a, b: op(a, b), oracle(name), [x, y], layouts=False)


def test_the_branch_not_taken_has_gradient_zero():
    x = cr.tensor([0.0, 2.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "divide by zero", RuntimeWarning)
        y = cr.maximum(x, 1.0)
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0]


# Promotion.

NAMES = ["bool", "uint8", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
NUMBERS = [True, 2, 2.5]


def of(dtype, shape):
    native = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return np.ones(shape, native) if dtype == "bool" else np.full(shape, 2, native)


@pytest.mark.parametrize("name", ["add", "mul", "div", "maximum", "lt", "eq", "remainder", "pow"])
@pytest.mark.parametrize("device", DEVICES)
def test_promotion_is_pytorchs_for_every_pair_and_rank(name, device):
    ours, theirs = operation(name), getattr(torch, name)
    known = [n for n in NAMES + FLOATS if not (n == "bool" and name in ("remainder", "pow"))]
    for one, two in product(known, known):
        for shapes in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
            a, b = of(one, shapes[0]), of(two, shapes[1])
            wanted = theirs(as_torch(a), as_torch(b))
            found = ours(cr.tensor(a, device=device), cr.tensor(b, device=device))
            what = f"{name} of {one}{shapes[0]} and {two}{shapes[1]}"
            check_same(found, wanted, what, rtol=1e-2)
            if name not in ("div", "lt", "eq"):
                lattice = torch.result_type(as_torch(a), as_torch(b))
                assert dtype_name(found) == str(lattice)[6:], what


@pytest.mark.parametrize(
    "op", [lambda x, n: x + n, lambda x, n: n * x, lambda x, n: x / n, lambda x, n: x < n]
)
@pytest.mark.parametrize("device", DEVICES)
def test_promotion_with_python_numbers_is_pytorchs(op, device):
    for dtype, number, shape in product(NAMES + FLOATS, NUMBERS, [(2,), ()]):
        a = of(dtype, shape)
        check_same(
            op(cr.tensor(a, device=device), number),
            op(as_torch(a), number),
            f"{dtype}{shape} with {number!r}",
            rtol=1e-2,
        )


def test_numpys_scalars_count_as_python_numbers():
    x = cr.ones(2)
    assert (x * np.float64(2.5)).dtype is cr.float32
    assert (x * np.int64(2)).dtype is cr.float32
    assert (np.float32(2) * x).dtype is cr.float32
    assert isinstance(np.ones(2, np.float32) * x, cr.Tensor)


# Integers.


@pytest.mark.parametrize(
    "name", [n for n in UNARY if TABLE[n].result == "float" and n not in (*ORACLES, "sinc")]
)
@pytest.mark.parametrize("dtype", ["int8", "int64", "bool"])
def test_integers_become_float32_where_the_result_is_real(name, dtype):
    if name in ("logsigmoid", "softplus", "silu", "mish", "gelu", "softsign"):
        x = np.ones(3, dtype)  # PyTorch has no integer form: judge by float32
        wanted = oracle(name)(torch.ones(3))
    else:
        x = np.ones(3, dtype)
        with warnings.catch_warnings():
            wanted = oracle(name)(as_torch(x))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "divide by zero", RuntimeWarning)
        check_same(operation(name)(cr.tensor(x)), wanted, f"{name} of {dtype}", rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["neg", "abs", "sign", "square", "floor", "ceil", "trunc", "round", "relu"]
)
@pytest.mark.parametrize("device", DEVICES)
def test_integers_stay_integers_where_they_can(name, device):
    x = np.array([-3, 0, 2], np.int32)
    check_same(operation(name)(cr.tensor(x, device=device)), oracle(name)(as_torch(x)), name)


@pytest.mark.parametrize("device", DEVICES)
def test_integer_arithmetic_is_pytorchs(device):
    a, b = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    for name in ("add", "sub", "mul", "div", "remainder", "fmod", "maximum"):
        found = operation(name)(cr.tensor(a, device=device), cr.tensor(b, device=device))
        check_same(found, getattr(torch, name)(as_torch(a), as_torch(b)), name, rtol=1e-6)
    small = np.array([200, 100], np.uint8)  # wraps round
    check_same(cr.tensor(small, device=device) + 100, as_torch(small) + 100, "uint8 + 100")


# Half types: computed in float32, rounded once.


@pytest.mark.parametrize("name", [n for n in UNARY if TABLE[n].differentiable])
def test_half_types_of_unary_rows(name):
    op = operation(name)
    check_half(lambda m, x: op(x), oracle(name), [operand(name)], roundings=1)


@pytest.mark.parametrize("name", [n for n in BINARY if TABLE[n].differentiable])
def test_half_types_of_binary_rows(name):
    op = operation(name)
    x, y = operand(name), operand(name, 1)
    check_half(lambda m, a, b: op(a, b), oracle(name), [x, y], roundings=1)


def test_half_types_mixed_with_float32_become_float32():
    for half in (cr.float16, cr.bfloat16):
        x = cr.ones(2, dtype=half, requires_grad=True)
        y = x * cr.ones(2)
        assert y.dtype is cr.float32
        y.sum().backward()
        assert x.grad.dtype is half


# Refusals.

TWO = np.ones((2, 3))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["add", "maximum", "pow", "lt", "atan2"])
def test_shapes_that_do_not_broadcast_are_named(name, device):
    with pytest.raises(cr.errors.ShapeError, match=r"shapes \(2, 3\) and \(2,\) do not broadcast"):
        operation(name)(cr.tensor(TWO, device=device), cr.tensor(np.ones(2), device=device))


def test_tensors_of_two_devices_are_refused():
    for name in ("add", "maximum", "lt", "where"):
        args = [cr.tensor(TWO), cr.tensor(TWO, device="torch")]
        if name == "where":
            args.insert(0, cr.tensor(TWO > 0))
        with pytest.raises(cr.errors.DeviceError, match="on device 'cpu', another on 'torch'"):
            operation(name)(*args)


def test_what_is_no_number_is_refused():
    x = cr.tensor(TWO)
    with pytest.raises(cr.errors.DTypeError, match="add takes tensors, NumPy arrays and numbers"):
        x + "a"
    with pytest.raises(cr.errors.DTypeError, match="complex dtypes are storage only"):
        cr.exp(cr.tensor(np.ones(2, np.complex64)))
    with pytest.raises(cr.errors.DTypeError, match="where needs a bool condition, not float64"):
        cr.where(x, x, x)
    with pytest.raises(cr.errors.DTypeError, match="needs at least one tensor"):
        cr.add(1.0, 2.0)


def test_results_of_comparisons_have_no_gradient():
    x = cr.tensor(TWO, requires_grad=True)
    assert not (x > 0).requires_grad
    assert host(x > 0).all()


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_integers_over_zero_are_refused_as_pytorch_refuses_them(device):
    x = cr.tensor([5, 6], device=device)
    zero = cr.tensor([1, 0], device=device)
    for wrong in (
        lambda: x % 0,
        lambda: x % zero,
        lambda: 5 % zero,
        lambda: cr.fmod(x, zero),
        lambda: x // 0,
        lambda: x // zero,
    ):
        with pytest.raises(cr.errors.InputError, match="division by zero"):
            wrong()
        with pytest.raises(ZeroDivisionError):
            wrong()


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x + 200,
        lambda x: -129 * x,
        lambda x: x + 2**70,
        lambda x: x & 300,
        lambda x: cr.where(x == 0, x, 300),
        lambda x: x.masked_fill(x == 0, 300),
        lambda x: x.index_fill(0, cr.tensor([0], device=str(x.device)), 300),
        lambda x: x.add_(300),
    ],
)
def test_numbers_beyond_an_integer_dtype_are_refused(wrong, device):
    with pytest.raises(cr.errors.InputError, match="out of the range of int8: -128 to 127"):
        wrong(cr.zeros(3, dtype=cr.int8, device=device))


def test_a_number_beyond_every_float_is_refused():
    for x in (cr.ones(2), cr.ones(2, dtype=cr.float64)):
        for wrong in (lambda x: x + 10**400, lambda x: 10**400 - x):
            with pytest.raises(cr.errors.InputError, match="too large"):
                wrong(x)


def test_a_float_result_is_not_stored_in_an_integer_tensor():
    with pytest.raises(cr.errors.DTypeError, match="a float32 result cannot be stored in a int64"):
        cr.zeros(3, dtype=cr.int64).add_(1.5)
