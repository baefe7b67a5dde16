"""Sums, means, spreads, extrema, norms, softmax and scans against PyTorch, edges included."""

from __future__ import annotations

import warnings
from math import inf, nan

import ml_dtypes
import numpy as np
import pytest
import torch
from tests.ops.harness import DEVICES, SAME_DATA, check_half, check_op, check_same, laid_out

import chainrule as cr

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((3, 4, 5))
TIES = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -1.0, 5.0]])
EDGES = np.array([[-inf, -inf, -inf], [1.0, -inf, 2.0], [0.5, 0.25, 1.0]])

DIMS = [None, 0, -1, (0, 2), (1,)]
EACH_DIM = [0, 1, -1]

# Reductions over any dims: name, further arguments.
ANY_DIMS = [
    ("sum", {}),
    ("mean", {}),
    ("var", {}),
    ("var", {"correction": 0}),
    ("std", {"correction": 2}),
    ("amax", {}),
    ("amin", {}),
    ("logsumexp", {}),
]


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize(("name", "more"), ANY_DIMS)
def test_reduction_is_pytorchs_over_any_dims(name, more, dim):
    all_dims = (0, 1, 2) if dim is None and name == "logsumexp" else dim  # PyTorch needs a dim

    def ours(m, x):
        return getattr(m, name)(x, dim=dim, **more)

    def theirs(x):
        return getattr(torch, name)(x, dim=all_dims, **more)

    if dim is None and name in ("amax", "amin"):
        theirs = getattr(torch, name)
    # An expanded input has deviation 0, where PyTorch's second derivative of std is NaN, ours 0.
    check_op(ours, theirs, [X], layouts=SAME_DATA if name == "std" else True)
    check_op(
        lambda m, x: getattr(m, name)(x, dim=dim, keepdim=True, **more),
        lambda x: getattr(torch, name)(
            x, dim=(0, 1, 2) if dim is None else dim, keepdim=True, **more
        ),
        [X],
        layouts=["transposed"],
        second=False,
    )


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dim", EACH_DIM)
def test_max_along_a_dim_gives_values_and_indices(name, dim):
    for keepdim in (False, True):
        check_op(lambda m, x, k=keepdim: getattr(m, name)(x, dim, k), None, [X])
    found = getattr(cr.tensor(X), name)(dim)
    assert found.values.shape == found.indices.shape
    assert found.indices.dtype is cr.int64


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin"])
def test_ties_share_the_gradient_evenly(name):
    check_op(lambda m, x: getattr(m, name)(x), None, [TIES])
    x = cr.tensor([1.0, 3.0, 3.0], requires_grad=True)
    cr.max(x).backward()
    assert x.grad.tolist() == [0.0, 0.5, 0.5]


def test_a_tie_along_a_dim_goes_to_the_index():
    check_op(lambda m, x: m.max(x, 1), None, [TIES])
    x = cr.tensor([1.0, 3.0, 3.0], requires_grad=True)
    x.max(0).values.backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0]


def test_two_tensors_make_maximum_and_minimum():
    y = RANDOM.standard_normal((4, 5))
    check_op(lambda m, a, b: m.max(a, b), None, [X, y])
    check_op(lambda m, a, b: m.min(a, b), None, [X, y])


def test_ties_are_counted_beyond_what_a_half_type_holds():
    for name in ("float16", "bfloat16"):
        x = cr.ones(5000, dtype=getattr(cr, name), requires_grad=True)
        cr.amax(x).backward()
        wanted = torch.tensor(1 / 5000).to(getattr(torch, name)).item()
        assert x.grad[0].item() == wanted
        assert x.grad[4999].item() == wanted


@pytest.mark.parametrize("name", ["amax", "amin", "max", "min"])
@pytest.mark.parametrize("dim", [None, 1])
def test_nan_wins_and_its_gradient_is_pytorchs(name, dim):
    x = np.array([[1.0, nan, 3.0], [2.0, 2.0, 0.0]])

    def apply(m, t):
        return getattr(m, name)(t) if dim is None else getattr(m, name)(t, dim)

    check_op(apply, None, [x], second=False, layouts=["contiguous", "flipped"], float32=False)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dim", [None, *EACH_DIM])
def test_arg_extremum(name, dim):
    for keepdim in (False, True):
        check_op(lambda m, x, k=keepdim: getattr(m, name)(x, dim, k), None, [X])
        check_op(
            lambda m, x, k=keepdim: getattr(m, name)(x, dim, k),
            None,
            [RANDOM.integers(0, 9, (3, 4, 5))],
        )
    where = getattr(cr.tensor([2.0, nan, 1.0, nan]), name)()
    assert where.item() == 1


@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2), ()])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32"])
def test_any_and_all(name, dim, dtype):
    x = RANDOM.integers(0, 2, (3, 4, 5)).astype(dtype)
    for keepdim in (False, True):
        if dim is None:
            check_op(lambda m, t: getattr(m, name)(t), None, [x], second=False, float32=False)
        else:
            check_op(
                lambda m, t, k=keepdim: getattr(m, name)(t, dim, k),
                None,
                [x],
                second=False,
                float32=False,
            )
    assert cr.any(cr.tensor([0.0, nan])).item() is True


@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("p", [2, 1, inf, -inf, 0, 3, 1.5, 0.5, -1, "fro"])
def test_norm_of_every_order(p, dim):
    check_op(lambda m, x: m.norm(x, p, dim), None, [X], second=p != 0)


@pytest.mark.parametrize("p", [2, 1, inf, -inf, 0, 3, 1.5, 0.5, -1])
def test_norm_of_zeros_has_gradient_zero(p):
    check_op(
        lambda m, x: m.norm(x, p, 1),
        None,
        [np.array([[0.0, 0.0], [0.0, 3.0], [4.0, -3.0]])],
        second=False,
    )
    for device in DEVICES:
        x = cr.zeros(3, device=device, requires_grad=True)
        if p != 0:
            x.norm(p).backward()
            assert x.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize("dim", EACH_DIM)
def test_softmax_family(name, dim):
    check_op(lambda m, x: getattr(m, name)(x, dim), None, [X])
    check_op(lambda m, x: getattr(m, name)(x, dim), None, [50 * X], rtol=1e-9)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_family_of_large_arrays(name, dim):
    x = RANDOM.standard_normal((64, 96))  # large enough for the blocked kernels
    check_op(lambda m, x: getattr(m, name)(x, dim), None, [x])


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize(
    "rows", [EDGES, np.tile(EDGES, (800, 1)), np.array([[inf, 1.0], [nan, 1.0]])]
)
def test_softmax_family_at_infinities_is_pytorchs_and_silent(name, rows):
    check_op(
        lambda m, x: getattr(m, name)(x, 1),
        None,
        [rows],
        second=False,
        layouts=["contiguous", "sliced"],
        float32=False,
    )


def test_softmax_with_masked_entries_has_finite_second_derivatives():
    x = np.array([[1.0, -inf, 2.0], [0.5, 0.25, 1.0]])
    for name in ("softmax", "logsumexp"):
        check_op(
            lambda m, t, n=name: getattr(m, n)(t, 1),
            None,
            [x],
            layouts=["contiguous"],
            float32=False,
        )


@pytest.mark.parametrize("dim", EACH_DIM)
def test_running_sum(dim):
    check_op(lambda m, x: m.cumsum(x, dim), None, [X])


@pytest.mark.parametrize("dim", [None, *EACH_DIM])
def test_product(dim):
    one = [] if dim is None else [dim]
    check_op(
        lambda m, x: m.prod(x, *one), None, [X], layouts=["contiguous", "transposed", "flipped"]
    )


@pytest.mark.parametrize("zeros", [1, 2, 3])
def test_product_with_zeros_has_the_right_derivatives(zeros):
    x = RANDOM.standard_normal(7)
    x[:zeros] = 0.0
    check_op(lambda m, t: m.prod(t), None, [x])


def test_product_over_several_dims():
    check_op(
        lambda m, x: m.prod(x, (0, 2)), lambda x: x.permute(1, 0, 2).reshape(4, 15).prod(1), [X]
    )


@pytest.mark.parametrize("name", ["var_mean", "std_mean"])
def test_spread_and_mean_together(name):
    check_op(lambda m, x: getattr(m, name)(x, 1, keepdim=True), None, [X])


def test_spread_in_pytorchs_older_spellings():
    x, t = cr.tensor(X), torch.tensor(X)
    check_same(x.var(1, False), t.var(1, False), "var(dim, unbiased)")
    check_same(x.var(False), t.var(False), "var(unbiased)")
    check_same(x.std(unbiased=False), t.std(unbiased=False), "std(unbiased=)")


@pytest.mark.parametrize("correction", [0, 1, 3])
@pytest.mark.parametrize("values", [[2.0], [2.0, 3.0], [2.0, 2.0]])
def test_spread_without_degrees_of_freedom_is_pytorchs(values, correction):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "var\\(\\): degrees of freedom|std\\(\\): degrees")
        for name in ("var", "std"):
            check_op(
                lambda m, x, n=name: getattr(m, n)(x, correction=correction),
                None,
                [np.array(values)],
                layouts=False,
                second=False,
                float32=False,
            )


# No elements, one element, no dimension.

EMPTY = [
    lambda m, x: m.sum(x),
    lambda m, x: m.sum(x, 0),
    lambda m, x: m.sum(x, 1),
    lambda m, x: m.mean(x),
    lambda m, x: m.mean(x, 0),
    lambda m, x: m.prod(x),
    lambda m, x: m.prod(x, 0),
    lambda m, x: m.norm(x),
    lambda m, x: m.norm(x, 1, 0),
    lambda m, x: m.amax(x, 1),
    lambda m, x: m.max(x, 1),
    lambda m, x: m.argmax(x, 1),
    lambda m, x: m.logsumexp(x, 0),
    lambda m, x: m.logsumexp(x, 1),
    lambda m, x: m.softmax(x, 0),
    lambda m, x: m.log_softmax(x, 1),
    lambda m, x: m.cumsum(x, 0),
    lambda m, x: m.any(x),
    lambda m, x: m.all(x, 0),
]


@pytest.mark.parametrize("fn", EMPTY)
def test_reductions_of_no_elements(fn):
    check_op(fn, None, [np.zeros((0, 3))], layouts=["contiguous", "transposed"], float32=False)


@pytest.mark.parametrize("name", ["var", "std"])
def test_spread_of_no_elements_is_nan(name):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(var|std)\\(\\): degrees of freedom")
        check_op(
            lambda m, x: getattr(m, name)(x),
            None,
            [np.zeros((0, 3))],
            layouts=False,
            second=False,
            float32=False,
        )


SCALAR = [
    *("sum", "mean", "amax", "max", "prod", "norm"),
    *(
        (n, 0)
        for n in ("sum", "mean", "amax", "prod", "max", "min", "argmax", "logsumexp", "softmax")
    ),
    *((n, -1) for n in ("log_softmax", "cumsum")),
]


@pytest.mark.parametrize("what", SCALAR)
def test_reductions_of_a_0d_tensor(what):
    name, dims = (what, ()) if isinstance(what, str) else (what[0], what[1:])
    check_op(lambda m, x: getattr(m, name)(x, *dims), None, [np.array(1.5)])


@pytest.mark.parametrize("name", ["sum", "amax", "prod", "cumsum"])
@pytest.mark.parametrize("device", DEVICES)
def test_reducing_a_0d_tensor_gives_memory_of_its_own(name, device):
    x = cr.tensor(1.5, device=device)
    y = getattr(x, name)(0)
    y.fill_(9.0)
    assert x.item() == 1.5


MESSAGES = [
    (
        lambda x: cr.amax(cr.zeros(0)),
        cr.errors.ShapeError,
        "amax of no elements: dimension 0 .* check numel",
    ),
    (
        lambda x: cr.amax(cr.zeros(0, 3)),
        cr.errors.ShapeError,
        r"pass a dim that is not empty \(1\)",
    ),
    (lambda x: cr.argmax(cr.zeros(0)), cr.errors.ShapeError, "argmax of no elements"),
    (lambda x: cr.max(cr.zeros(0, 3), 0), cr.errors.ShapeError, "max of no elements"),
    (lambda x: cr.norm(cr.zeros(0), inf), cr.errors.ShapeError, "norm with p = inf of no elements"),
    (lambda x: x.sum((0, 0)), cr.errors.ShapeError, "names a dimension twice"),
    (lambda x: x.sum(5), IndexError, "5"),
    (lambda x: x.softmax(3), IndexError, "3"),
    (
        lambda x: x.long().mean(),
        cr.errors.DTypeError,
        "mean needs a floating-point tensor, this is int64",
    ),
    (lambda x: x.long().var(), cr.errors.DTypeError, "var needs a floating-point tensor"),
    (lambda x: x.long().norm(), cr.errors.DTypeError, "norm needs a floating-point tensor"),
    (lambda x: x.long().softmax(0), cr.errors.DTypeError, "softmax needs a floating-point tensor"),
    (lambda x: x.softmax(), TypeError, "softmax needs the dimension to normalise over"),
    (lambda x: x.cumsum(), TypeError, "cumsum needs the dimension to run along"),
    (lambda x: x.norm("nuc"), cr.errors.InputError, "norm p='nuc' is not known"),
    (
        lambda x: x.var(0, True, correction=2),
        cr.errors.InputError,
        "correction or unbiased, not both",
    ),
]


@pytest.mark.parametrize(("fn", "kind", "words"), MESSAGES)
def test_what_cannot_be_reduced_is_refused_in_words(fn, kind, words):
    with pytest.raises(kind, match=words):
        fn(cr.tensor(X))


# Dtypes.

INTEGERS = ["bool", "uint8", "int8", "int16", "int32", "int64"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "name", ["sum", "prod", "amax", "amin", "max", "min", "cumsum", "logsumexp"]
)
def test_integer_results_have_pytorchs_dtype(name, dtype):
    x = RANDOM.integers(0, 2 if dtype == "bool" else 5, (3, 4)).astype(dtype)
    check_op(lambda m, t: getattr(m, name)(t, 0), None, [x], second=False, rtol=1e-6)


def test_a_dtype_may_be_given():
    x = RANDOM.standard_normal((3, 4)).astype(np.float32)
    for name, dims in [
        ("sum", ()),
        ("mean", ()),
        ("softmax", (0,)),
        ("cumsum", (0,)),
        ("prod", ()),
    ]:
        check_op(
            lambda m, t, n=name, d=dims: getattr(m, n)(t, *d, dtype=m.float64),
            None,
            [x],
            second=False,
            float32=False,
            rtol=1e-6,
        )
    assert cr.tensor([1, 2]).mean(dtype=cr.float32).item() == 1.5


def test_numpys_names_for_dims():
    x = cr.tensor(X)
    assert x.sum(axis=0, keepdims=True).shape == (1, 4, 5)
    for name in ("mean", "var", "std", "amax", "argmin", "logsumexp", "norm", "prod", "any"):
        assert getattr(x, name)(axis=1, keepdims=True).shape == (3, 1, 5)
    assert x.max(axis=1, keepdims=True).values.shape == (3, 1, 5)
    assert x.softmax(axis=1).shape == x.cumsum(axis=1).shape == (3, 4, 5)


HALVES = [
    lambda m, x: m.sum(x, 0),
    lambda m, x: m.mean(x, 1),
    lambda m, x: m.var(x, 1),
    lambda m, x: m.std(x),
    lambda m, x: m.norm(x, 2, 1),
    lambda m, x: m.norm(x, 3),
    lambda m, x: m.logsumexp(x, 1),
    lambda m, x: m.softmax(x, 1),
    lambda m, x: m.log_softmax(x, 0),
    lambda m, x: m.cumsum(x, 1),
    lambda m, x: m.amax(x, 1),
    lambda m, x: m.prod(x, 1),
]


@pytest.mark.parametrize("fn", HALVES)
def test_halves_are_computed_in_float32_and_rounded_once(fn):
    check_half(fn, None, [X])


@pytest.mark.parametrize("native", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("device", DEVICES)
def test_half_sums_do_not_stall(native, device):
    ones = cr.tensor(np.ones((60_000, 2), native), device=device)
    for x in (ones[:, 0], ones):
        wanted = torch.tensor(60_000.0).to(
            torch.bfloat16 if native is not np.float16 else torch.float16
        )
        assert x.sum(0).reshape(-1)[0].item() == wanted.item()
    many = cr.tensor(np.ones(70_000, native), device=device)
    assert many.mean().item() == 1.0
    assert cr.cumsum(ones, 0)[-1, 0].item() == wanted.item()


def test_overflow_and_infinities_make_no_warning():
    big = cr.tensor([1e30, 1e30])
    assert big.norm().item() == inf
    assert cr.tensor([inf, 1.0]).var().isnan().item()
    assert cr.tensor(np.full(70_000, 1, np.float16)).sum().item() == inf


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "flipped", "expanded"])
def test_a_large_variance_is_the_same_in_every_layout(layout):
    x = RANDOM.standard_normal((64, 96)) + 1e4
    made = laid_out(cr, x, layout)
    reference = torch.tensor(made.numpy().copy()).var(1)
    np.testing.assert_allclose(made.var(1).numpy(), reference.numpy(), rtol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dim", [0, 1])
def test_equal_numbers_have_no_spread_though_their_mean_is_rounded(device, dim):
    assert (0.1 + 0.1 + 0.1) / 3 != 0.1
    x = cr.tensor(np.full((3, 3), 0.1), device=device, requires_grad=True)
    y = x.std(dim)
    assert y.tolist() == [0.0, 0.0, 0.0]
    y.sum().backward()
    assert not x.grad.numpy().any()
