"""NumPy, DLPack, PyTorch, copying and pickling: what is shared, what is copied, what is refused."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251 - users pickle what holds tensors; our files never do
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
from tests.ops.harness import DEVICES, SAME_DATA, laid_out

import chainrule as cr
from chainrule import dtypes
from chainrule.errors import DTypeError, GradError, InputError

A = np.arange(6.0).reshape(2, 3)


# NumPy's memory.


@pytest.mark.parametrize(
    "view",
    [A, A.T, A[::-1], A[:, ::-2], A[1:, 1:], A[0], A[:0], A[0, 0:1].reshape(()), A[:, None]],
    ids=str,
)
def test_from_numpy_and_numpy_share_every_layout(view):
    a = np.array(A)
    a = np.lib.stride_tricks.as_strided(a, view.shape, view.strides) if not view.size else view
    before = a.copy()
    t = cr.from_numpy(a)
    assert t.shape == a.shape
    assert t.stride() == tuple(s // 8 for s in a.strides)
    assert t.tolist() == a.tolist()
    assert np.shares_memory(t.numpy(), a) == bool(a.size)
    t += 1
    np.testing.assert_array_equal(a, before + 1)
    t.numpy()[...] = before
    np.testing.assert_array_equal(t.numpy(), before)


def _readonly():
    a = np.arange(3.0)
    a.flags.writeable = False
    return a


UNSHARED = {
    "read-only": (_readonly(), "read-only"),
    "misaligned": (np.zeros(25, np.uint8)[1:].view(np.float64), "misaligned"),
    "byte-swapped": (np.arange(3.0).astype(">f8"), "byte order"),
    "a field of records": (np.zeros(3, [("a", "i2"), ("b", "i1")])["a"], "misaligned|strides"),
}


@pytest.mark.parametrize("name", UNSHARED)
def test_memory_that_cannot_be_shared_says_why_and_is_copied_instead(name):
    array, reason = UNSHARED[name]
    with pytest.raises(InputError, match=rf"({reason}).*cr.tensor\(array\) makes a copy"):
        cr.from_numpy(array)
    for device in DEVICES:
        t = cr.tensor(array, device=device)
        assert t.tolist() == array.tolist()
        t.zero_()
    assert cr.as_tensor(array).tolist() == array.tolist()


def test_as_tensor_shares_where_it_can():
    a = np.arange(3.0)
    cr.as_tensor(a)[0] = 9.0
    assert a[0] == 9
    t = cr.as_tensor(a)
    assert cr.as_tensor(t) is t
    assert cr.as_tensor(a, dtype=cr.float32).dtype is cr.float32
    assert str(cr.as_tensor(a, device="torch").device) == "torch"


@pytest.mark.parametrize("bad", [np.array(["a"]), np.zeros(2, "M8[s]"), np.zeros(2, np.uint32)])
def test_dtypes_without_a_counterpart_are_named(bad):
    for make in (cr.tensor, cr.from_numpy, cr.as_tensor):
        with pytest.raises(InputError, match=r"NumPy's dtype .* has no counterpart here"):
            make(bad)
    with pytest.raises(InputError, match="takes a NumPy array, not list"):
        cr.from_numpy([1.0])


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_every_dtype_goes_to_numpy_and_back(dtype):
    for device in DEVICES:
        t = cr.tensor([0, 1, 2], device=device).to(dtype)
        a = t.numpy()
        assert a.dtype == (ml_dtypes.bfloat16 if dtype is cr.bfloat16 else np.dtype(dtype.name))
        assert cr.from_numpy(np.array(a)).dtype is dtype
        assert t.tolist() == [0, 1, 1 if dtype is cr.bool else 2]


def test_a_tensor_that_requires_grad_is_not_handed_out():
    t = cr.ones(2, requires_grad=True)
    for use in (t.numpy, lambda: np.asarray(t), t.__dlpack__):
        with pytest.raises(GradError, match=r"use \.detach\(\)"):
            use()
    assert np.asarray(t.detach()).tolist() == [1, 1]


def test_asarray_takes_dtype_and_copy():
    t = cr.from_numpy(np.arange(3.0))
    assert np.shares_memory(np.asarray(t), t.numpy())
    assert np.asarray(t, np.float32).dtype == np.float32
    assert not np.shares_memory(np.array(t), t.numpy())


# NumPy's operators and functions.


@pytest.mark.parametrize("device", DEVICES)
def test_an_operator_with_an_array_or_a_numpy_number_gives_a_tensor(device):
    t = cr.tensor(A, device=device, requires_grad=True)
    f = cr.tensor(A, device=device).float()
    for y, wanted in (
        (A * t, A * A),
        (t * A, A * A),
        (A - t, A * 0),
        (A @ t.T, A @ A.T),
        (t**A, A**A),
        (A / (t + 1), A / (A + 1)),
        (np.float32(2) * t, 2 * A),
        (np.float64(2) - t, 2 - A),
        (np.int64(2) * t, 2 * A),
        (np.array(2.0) * t, 2 * A),
    ):
        assert isinstance(y, cr.Tensor)
        assert y.requires_grad
        assert str(y.device) == device
        np.testing.assert_allclose(y.detach().numpy(), wanted)
    assert (np.float64(2) * f).dtype is cr.float32
    assert (np.float32(2) * f).dtype is cr.float32
    for y in (t == A, t > A, np.float32(1) >= t):
        assert y.dtype is cr.bool
    (A * t).sum().backward()
    assert t.grad.tolist() == A.tolist()


UFUNCS = ["negative", "absolute", "rint", "exp", "exp2", "expm1", "log1p", "sqrt", "square", "sign", "floor", "ceil", "trunc", "sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh", "arcsinh", "isnan", "isinf", "isfinite", "logical_not"]  # fmt: skip


@pytest.mark.parametrize("name", UFUNCS)
def test_numpy_functions_of_a_tensor_are_ours(name):
    x = np.linspace(0.1, 2, 5)
    y = getattr(np, name)(cr.tensor(x, requires_grad=True))
    assert isinstance(y, cr.Tensor)
    np.testing.assert_allclose(y.detach().numpy(), getattr(np, name)(x), rtol=1e-12)


@pytest.mark.parametrize("name", ["arctan2", "hypot", "maximum", "minimum", "logaddexp", "power"])
def test_numpy_functions_of_an_array_and_a_tensor_are_ours(name):
    x, y = np.linspace(0.1, 2, 5), np.linspace(1, 3, 5)
    for found in (getattr(np, name)(x, cr.tensor(y)), getattr(np, name)(cr.tensor(x), y)):
        assert isinstance(found, cr.Tensor)
        np.testing.assert_allclose(found.numpy(), getattr(np, name)(x, y), rtol=1e-12)


def test_an_array_takes_a_tensor_in():
    a = A.copy()
    a += cr.tensor(A)
    assert type(a) is np.ndarray
    assert a.tolist() == (2 * A).tolist()
    a[0] = cr.tensor([7.0, 8.0, 9.0])
    assert a[cr.tensor(0)].tolist() == [7, 8, 9]
    with pytest.raises(GradError):
        a += cr.ones(3, requires_grad=True)
    with pytest.raises(TypeError):
        np.sqrt(cr.tensor(A), where=False)
    with pytest.raises(TypeError):
        np.nextafter(cr.tensor(A), 0.0)


def test_what_is_no_operand_is_refused():
    for other in ("a", [1.0], None, torch.ones(3)):
        with pytest.raises(DTypeError, match="takes tensors, NumPy arrays and numbers, not"):
            cr.tensor(A) + other


# DLPack and PyTorch.


def test_dlpack_shares_with_numpy_and_pytorch():
    x = torch.arange(4.0)
    y = cr.from_dlpack(x.view(2, 2).T)
    assert y.stride() == (1, 2)
    y[0, 1] = 9.0
    assert x.tolist() == [0, 1, 9, 3]
    a = A.copy()
    cr.from_dlpack(a)[0, 0] = 5.0
    assert a[0, 0] == 5
    for t in (cr.tensor(A)[:, 1:], cr.tensor(A, device="torch").T):
        z = torch.from_dlpack(t)
        assert z.tolist() == t.tolist()
        assert tuple(z.stride()) == t.stride()
        z[0, 0] = 77.0
        assert t[0, 0].item() == 77
        assert np.from_dlpack(t).tolist() == t.tolist()


def test_dlpack_refuses_in_words():
    for source, reason in (
        (torch.ones(2, requires_grad=True), "require gradient"),
        (torch.ones(2).bfloat16(), "dtype"),
        ([1.0], "a list is not shared"),
        (_readonly(), "read-only"),
    ):
        with pytest.raises(InputError, match=f"from_dlpack: .*{reason}"):
            cr.from_dlpack(source)
    with pytest.raises(InputError, match="DLPack of this bfloat16 tensor"):
        np.from_dlpack(cr.ones(2).bfloat16())


def test_a_negative_stride_does_not_reach_a_library_that_would_end_the_process():
    code = (
        "import chainrule as cr, torch\n"
        "for device in ('cpu', 'torch'):\n"
        "    try: torch.from_dlpack(cr.ones(2, 3, device=device).flip(0))\n"
        "    except ValueError as refused: assert 'no negative strides' in str(refused)\n"
        "    else: raise SystemExit('not refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_from_torch_shares_and_tensor_copies():
    x = torch.arange(4.0, requires_grad=True)
    t = cr.from_torch(x)
    assert (str(t.device), t.requires_grad) == ("torch", False)
    assert t.data_ptr() == x.data_ptr()
    for source in (x, x.detach().bfloat16(), x.detach()[1:], torch.nn.Parameter(torch.ones(2))):
        for device in DEVICES:
            t = cr.tensor(source, device=device)
            assert t.tolist() == source.tolist()
            assert t.dtype.name == str(source.dtype).rpartition(".")[2]
            t.zero_()
    assert x.tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="takes a PyTorch tensor, not list"):
        cr.from_torch([1.0])


# Copies.


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", SAME_DATA)
def test_a_deep_copy_has_values_strides_and_gradient_but_not_the_memory(device, layout):
    t = laid_out(cr, A, layout, device).detach().requires_grad_()
    t.grad = cr.ones(2, 3, dtype=cr.float64, device=device)
    c = copy.deepcopy(t)
    assert c.tolist() == t.tolist()
    assert (c.stride(), c.requires_grad, c.is_leaf) == (t.stride(), True, True)
    assert c.grad.tolist() == t.grad.tolist()
    with cr.no_grad():
        c.zero_()
        c.grad.zero_()
    assert t.tolist() == A.tolist()
    assert t.grad.tolist() == np.ones((2, 3)).tolist()
    with pytest.raises(GradError, match="only leaves can be deep-copied"):
        copy.deepcopy(t * 2)


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_that_share_memory_share_it_in_one_deep_copy(device):
    w = cr.zeros(4, device=device)
    one, tail, same = copy.deepcopy([w, w[2:], w])
    assert one is same
    one.fill_(3.0)
    assert tail.tolist() == [3, 3]
    assert w.tolist() == [0] * 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_pickling_keeps_value_dtype_device_and_requires_grad(dtype, device):
    for t in (cr.tensor([[0, 1, 2]], device=device).to(dtype), cr.zeros(0, 3, device=device)):
        if t.dtype.is_floating_point:
            t.requires_grad_()
        for protocol in (2, pickle.HIGHEST_PROTOCOL):
            back = pickle.loads(pickle.dumps(t, protocol))  # noqa: S301
            assert (back.dtype, back.shape, back.device) == (t.dtype, t.shape, t.device)
            assert back.tolist() == t.tolist()
            assert back.requires_grad == t.requires_grad
            with cr.no_grad():
                back.zero_()
    with pytest.raises(GradError, match="only leaves can be pickled"):
        pickle.dumps(cr.ones(2, requires_grad=True) * 2)
