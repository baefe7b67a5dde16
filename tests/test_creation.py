"""Making tensors from data and patterns, and random ones, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.ops.harness import DEVICES, check_same

import chainrule as cr
from chainrule import dtypes
from chainrule.errors import DeviceError, DTypeError, InputError, ShapeError

DATA = [
    1, 2.5, True, [], [[], []], [1, 2], [1, 2.5], [True, 2], [True, False], [[1, 2], [3, 4]],
    [(1, 2), (3, 4)], range(3), [1 + 2j], float("nan"), [1e40], [[[1.0]]], -(2**63), 2**63 - 1,
    np.float32(1), np.float64(1), np.int32(1), np.bool_(True), np.zeros((2, 0)), np.arange(3),
    np.arange(3.0, dtype=np.float16), np.array(2.0),
]  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("data", DATA, ids=repr)
def test_tensor_chooses_dtype_and_shape_as_pytorch_does(data, device):
    check_same(cr.tensor(data, device=device), torch.tensor(data), repr(data))


@pytest.mark.parametrize("data", [[1, 2, 3], [0.5, -1.7, 2.9], [True, False]], ids=repr)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_tensor_converts_to_any_dtype_as_pytorch_does(data, dtype):
    if dtype is cr.uint8:
        data = [abs(x) for x in data]
    ours = cr.tensor(data, dtype=dtype)
    check_same(ours, torch.tensor(data, dtype=getattr(torch, dtype.name)), dtype.name)


def test_tensors_within_lists_are_read():
    for device in DEVICES:
        parts = [cr.tensor([1.0, 2.0], device=device), [3.0, cr.tensor(4.0, device=device)]]
        assert cr.tensor(parts).tolist() == [[1, 2], [3, 4]]


def test_tensor_copies_and_drops_history():
    a = np.zeros(2)
    x = cr.tensor(a, requires_grad=True)
    y = cr.tensor(x * 2)
    assert y.is_leaf
    assert not y.requires_grad
    y.fill_(1.0)
    assert (a.tolist(), x.tolist()) == ([0, 0], [0, 0])
    assert str(cr.tensor(cr.zeros(1, device="torch")).device) == "torch"


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ([[1, 2], [3]], ShapeError, "ragged"),
        ([1, [2]], ShapeError, "ragged"),
        ([cr.zeros(2), cr.zeros(3)], ShapeError, "ragged"),
        (None, InputError, "cannot make a tensor of this NoneType"),
        ("abc", InputError, "cannot make a tensor of this str"),
        (["a"], InputError, "cannot make a tensor of this list"),
        ([1, None], InputError, "cannot make a tensor of this list"),
        ({"a": 1}, InputError, "cannot make a tensor of this dict"),
        (2**63, InputError, "out of the range of int64"),
        ([2**70], InputError, "out of the range of int64"),
    ],
)
def test_data_that_makes_no_tensor_is_refused(data, error, message):
    for make in (cr.tensor, cr.as_tensor, cr.Tensor):
        with pytest.raises(error, match=message):
            make(data)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [(), (0,), (3,), (2, 0, 3), (2, 3)])
@pytest.mark.parametrize("dtype", [*dtypes.ALL, None], ids=str)
def test_filled_tensors(size, dtype, device):
    theirs = None if dtype is None else getattr(torch, dtype.name)
    more = {} if dtype is None else {"dtype": dtype}
    for name in ("zeros", "ones", "empty"):
        for args in (size or ((),), (list(size),), (torch.Size(size),)):
            a = getattr(cr, name)(*args, device=device, **more)
            b = getattr(torch, name)(*args, dtype=theirs)
            assert a.is_contiguous()
            check_same(a.zero_(), b.zero_(), name) if name == "empty" else check_same(a, b, name)
    for value in (2, 0.5, True):
        check_same(
            cr.full(size, value, device=device, **more),
            torch.full(size, value, dtype=theirs),
            f"full {value}",
        )
    like = cr.ones(size, device=device, **more)
    for name, args in (("zeros_like", ()), ("ones_like", ()), ("full_like", (3,))):
        a = getattr(cr, name)(like, *args)
        check_same(a, getattr(torch, name)(torch.ones(size, dtype=theirs), *args), name)
        assert str(a.device) == device
        assert getattr(cr, name)(like, *args, dtype=cr.int8).dtype is cr.int8
    assert cr.empty_like(like).shape == size


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "args", [(5,), (0,), (2, 7), (1, 9, 3), (5, 0, -2), (0.5, 3), (0, 1, 0.1), (-3,), (2.5,)]
)
def test_arange(args, device):
    if args == (-3,):
        with pytest.raises(InputError, match="arange from 0 to -3 cannot be walked with step 1"):
            cr.arange(*args)
        return
    check_same(cr.arange(*args, device=device), torch.arange(*args), str(args), 1e-6)
    check_same(
        cr.arange(*args, device=device, dtype=cr.float64),
        torch.arange(*args, dtype=torch.float64),
        str(args),
    )


@pytest.mark.parametrize("args", [(0, 1, 5), (-2, 3, 1), (3, 3, 4), (1, 0, 0), (5, -5, 11)])
def test_linspace(args):
    for device in DEVICES:
        check_same(cr.linspace(*args, device=device), torch.linspace(*args), str(args), 1e-6, 1e-6)
    with pytest.raises(InputError, match="at least 0, got -1"):
        cr.linspace(0, 1, -1)


@pytest.mark.parametrize("args", [(3,), (2, 4), (4, 2), (0,), (3, 0)])
def test_eye(args):
    for device in DEVICES:
        check_same(cr.eye(*args, device=device), torch.eye(*args), str(args))
        a = cr.eye(*args, device=device, dtype=cr.int64)
        check_same(a, torch.eye(*args, dtype=torch.int64), str(args))


def test_every_maker_takes_requires_grad():
    for t in (
        cr.zeros(2, requires_grad=True),
        cr.ones(2, requires_grad=True),
        cr.full((2,), 1.5, requires_grad=True),
        cr.empty(2, requires_grad=True),
        cr.arange(2.0, requires_grad=True),
        cr.linspace(0, 1, 2, requires_grad=True),
        cr.eye(2, requires_grad=True),
        cr.rand(2, requires_grad=True),
        cr.randn(2, requires_grad=True),
        cr.tensor([1.0], requires_grad=True),
    ):
        assert t.requires_grad
        assert t.is_leaf
    with pytest.raises(DTypeError, match="only tensors of floating-point dtype"):
        cr.arange(2, requires_grad=True)


def test_wrong_sizes_steps_and_devices_are_refused():
    with pytest.raises(ShapeError, match=r"must not be negative: \(2, -1\)"):
        cr.zeros(2, -1)
    with pytest.raises(ShapeError, match="must not be negative"):
        cr.randn(-1)
    with pytest.raises(InputError, match="step 0"):
        cr.arange(0, 3, 0)
    with pytest.raises(DeviceError, match="no device 'cuda': the devices are"):
        cr.zeros(2, device="cuda")


# Random numbers.


@pytest.mark.parametrize("draw", [
    lambda **k: cr.rand(3, 4, **k),
    lambda **k: cr.randn(3, 4, **k),
    lambda **k: cr.randint(0, 1000, (3, 4), **k),
    lambda **k: cr.randint(1000, (3, 4), **k),
    lambda **k: cr.randperm(50, **k),
    lambda **k: cr.rand(3, 4, dtype=cr.float64, **k),
    lambda **k: cr.randn(3, 4, dtype=cr.bfloat16, **k),
])  # fmt: skip
def test_the_same_seed_gives_the_same_numbers_on_every_device(draw):
    cr.manual_seed(7)
    one, two = draw(), draw()
    assert one.tolist() != two.tolist()
    cr.manual_seed(7)
    assert draw(device="torch").tolist() == one.tolist()
    state = cr.get_rng_state()
    three = draw()
    assert three.tolist() == two.tolist()
    cr.set_rng_state(state)
    assert draw().tolist() == two.tolist()
    own = cr.Generator().manual_seed(7)
    assert draw(generator=own).tolist() == one.tolist()
    assert draw().tolist() not in (one.tolist(), two.tolist())


def test_the_state_survives_a_file(tmp_path):
    cr.manual_seed(3)
    cr.randn(5)
    cr.save({"rng": cr.get_rng_state()}, tmp_path / "f")
    wanted = cr.randn(5).tolist()
    cr.set_rng_state(cr.load(tmp_path / "f")["rng"])
    assert cr.randn(5).tolist() == wanted


def test_random_numbers_have_the_right_spread():
    cr.manual_seed(0)
    u = cr.rand(100_000).numpy()
    n = cr.randn(100_000).numpy()
    i = cr.randint(-2, 3, (100_000,)).numpy()
    assert 0 <= u.min() < 1e-3
    assert 1 - 1e-3 < u.max() < 1
    assert abs(u.mean() - 0.5) < 0.005
    assert abs(n.mean()) < 0.02
    assert abs(n.std() - 1) < 0.01
    assert np.bincount(i + 2, minlength=5).min() > 19_000
    assert sorted(cr.randperm(9).tolist()) == list(range(9))
    assert cr.rand(3).dtype is cr.float32
    assert cr.randint(5, (2,)).dtype is cr.int64


@pytest.mark.parametrize("dtype", [cr.float16, cr.bfloat16, cr.float32])
def test_uniform_numbers_stay_below_one_in_every_dtype(dtype):
    cr.manual_seed(0)
    u = cr.rand(200_000, dtype=dtype).double()
    assert u.numpy().max() < 1


def test_random_mistakes_are_refused():
    with pytest.raises(InputError, match="seed must not be negative, got -1"):
        cr.manual_seed(-1)
    with pytest.raises(InputError, match="needs low < high, got 3 and 3"):
        cr.randint(3, 3, (2,))
    with pytest.raises(InputError, match="floating point, not int64"):
        cr.randn(2, dtype=cr.int64)
    for bad in (cr.zeros(4, dtype=cr.uint8), cr.tensor(list(b"{}"), dtype=cr.uint8), cr.zeros(3)):
        with pytest.raises(InputError, match="not a state of a Generator"):
            cr.set_rng_state(bad)


@pytest.mark.parametrize("size", [2.5, "3", "12", None, [1.0], np.float64(2.0), [[1]]])
def test_sizes_that_are_no_integers_are_refused(size):
    for make in (cr.zeros, cr.randn, lambda s: cr.full(s, 1), cr.ones(2).view, cr.ones(2).reshape):
        with pytest.raises(DTypeError, match="sizes and dimensions are integers, not"):
            make(size)


def test_tensors_of_one_integer_are_sizes():
    two = cr.tensor(2)
    assert cr.zeros(two).shape == (2,)
    assert cr.zeros(two, 3).shape == cr.zeros(cr.tensor([2, 3])).shape == (2, 3)
    assert cr.zeros(np.array(2)).shape == cr.zeros(np.int8(2)).shape == (2,)
    assert cr.ones(4).view(two, -1).shape == (2, 2)
    with pytest.raises(DTypeError, match="not a float32 tensor"):
        cr.zeros(cr.tensor(2.0))


@pytest.mark.parametrize("value", ["no", 1, None, 0])
def test_requires_grad_is_a_bool(value):
    for make in (cr.zeros, cr.randn):
        with pytest.raises(InputError, match="requires_grad is True or False, not"):
            make(2, requires_grad=value)
    with pytest.raises(InputError, match="requires_grad is True or False"):
        cr.zeros(2).requires_grad_(value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cr.randperm(2.5), "not 2.5"),
        (lambda: cr.linspace(0, 1, 2.5), "not 2.5"),
        (lambda: cr.eye(2.5), "not 2.5"),
        (lambda: cr.randint(0, 5, (2.5,)), "not 2.5"),
        (lambda: cr.arange("3"), "arange counts with numbers, not '3'"),
    ],
)
def test_counts_that_are_no_integers_are_refused(make, message):
    with pytest.raises(DTypeError, match=message):
        make()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (300, cr.uint8),
        (-1, cr.uint8),
        ([1, [2, 200][1]], cr.int8),
        ([0.5, -128.5], cr.int8),
        ([[2**31]], cr.int32),
        (float("nan"), cr.int64),
        ([1.0, float("inf")], cr.int64),
    ],
)
def test_numbers_that_do_not_fit_an_integer_dtype_are_refused(value, dtype):
    with pytest.raises(InputError, match=f"is out of the range of {dtype.name}: "):
        cr.tensor(value, dtype=dtype)
    if not isinstance(value, list):
        for write in (
            lambda: cr.full((2,), value, dtype=dtype),
            lambda: cr.zeros(2, dtype=dtype).fill_(value),
            lambda: cr.zeros(2, dtype=dtype).__setitem__(0, value),
        ):
            with pytest.raises(InputError, match="out of the range"):
                write()


def test_the_ends_of_an_integer_dtype_fit():
    for dtype in (cr.uint8, cr.int8, cr.int16, cr.int32, cr.int64):
        ends = list(dtypes.integer_range(dtype))
        assert cr.tensor(ends, dtype=dtype).tolist() == ends
        t = cr.zeros(2, dtype=dtype)
        t[0], t[1] = ends
        assert t.tolist() == ends
    assert cr.tensor(np.array([300]), dtype=cr.uint8).item() == 44  # arrays convert, as in PyTorch


@pytest.mark.parametrize("kind", [float, int, bool, complex])
def test_pythons_types_are_dtypes_as_in_pytorch(kind):
    wanted = str(torch.tensor([1, 0], dtype=kind).dtype).rpartition(".")[2]
    made = [cr.tensor([1, 0], dtype=kind), cr.zeros(2, dtype=kind), cr.empty(2, dtype=kind)]
    if kind is not complex:
        made += [cr.ones(2).to(kind), cr.ones(2).type(kind), cr.eye(2, dtype=kind)]
    assert {t.dtype.name for t in made} == {wanted}
    assert cr.arange(3, dtype=float).dtype is cr.randn(2, dtype=float).dtype is cr.float64
    assert cr.ones(2).sum(dtype=float).dtype is cr.float64


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [(np.float32, "use cr.float32"), ("int64", "use cr.int64"), (str, "…"), ("f4", "…")],
)
def test_what_is_no_dtype_is_refused(wrong, hint):
    for make in (
        cr.zeros,
        cr.tensor,
        cr.empty,
        cr.randn,
        cr.arange,
        lambda n, dtype: cr.ones(n).sum(dtype=dtype),
    ):
        with pytest.raises(DTypeError, match=f"is no dtype of chainrule: .*{hint}"):
            make(2, dtype=wrong)
