"""`Tensor` itself: how it prints, what it converts to, and how empty and 0-d ones behave."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
import torch
from tests.ops.harness import DEVICES, check_same

import chainrule as cr
from chainrule import _guard, dtypes
from chainrule.errors import DTypeError, GradError, InputError, ShapeError
from chainrule.nn import functional as F

# Printing.


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: cr.tensor([1.0, 2.5]), "tensor([1. , 2.5])"),
        (lambda: cr.tensor([[1, 2], [3, 4]]), "tensor([[1, 2],\n        [3, 4]])"),
        (lambda: cr.tensor(3), "tensor(3)"),
        (lambda: cr.tensor([True, False]), "tensor([ True, False])"),
        (lambda: cr.tensor([]), "tensor([])"),
        (lambda: cr.zeros(2, 0), "tensor([], shape=(2, 0))"),
        (lambda: cr.zeros(1, dtype=cr.float64), "tensor([0.], dtype=chainrule.float64)"),
        (lambda: cr.ones(1).bfloat16(), "tensor([1.], dtype=chainrule.bfloat16)"),
        (lambda: cr.ones(1, device="torch"), "tensor([1.], device='torch')"),
        (lambda: cr.ones(2, device="torch").flip(0), "tensor([1., 1.], device='torch')"),
        (lambda: cr.ones(1, requires_grad=True), "tensor([1.], requires_grad=True)"),
        (lambda: cr.tensor([math.nan, math.inf]), "tensor([nan, inf])"),
    ],
)
def test_repr(made, text):
    assert repr(made()) == text
    assert str(made()) == text
    assert f"{made()}" == text


def test_repr_names_the_operation_and_shortens_what_is_long():
    y = cr.ones(2, requires_grad=True) * 2
    assert repr(y).startswith("tensor([2., 2.], grad_fn=<")
    assert "mul" in repr(y).lower()
    assert "..." in repr(cr.arange(5000))
    assert len(repr(cr.zeros(300, 300))) < 1000


def test_a_format_is_for_one_number():
    assert f"{cr.tensor(2.5):.3f}" == "2.500"
    assert f"{cr.tensor(7):04d}" == "0007"
    with pytest.raises(TypeError, match=r"'.2f' is for one number, this tensor has shape \(2,\)"):
        f"{cr.ones(2):.2f}"


# Python's own conversions.


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_item_and_tolist_give_python_numbers(dtype, device):
    t = cr.tensor([0, 1], device=device).to(dtype)
    kind = (bool, int, float, complex)[dtype.category]
    assert [type(x) for x in t.tolist()] == [kind, kind]
    assert type(t[1].item()) is kind
    assert type(t[1:].item()) is kind
    assert t[1].tolist() == 1
    assert t[1].item() == 1


@pytest.mark.parametrize("device", DEVICES)
def test_one_element_converts_and_several_do_not(device):
    one = cr.tensor([[2.75]], device=device)
    assert (float(one), int(one), bool(one)) == (2.75, 2, True)
    assert not cr.tensor(0, device=device)
    assert [10, 11, 12][cr.tensor(1, device=device)] == 11
    assert list(range(cr.tensor(3, device=device))) == [0, 1, 2]
    two = cr.ones(2, device=device)
    for convert in (float, int, cr.Tensor.item):
        with pytest.raises(ShapeError, match=r"exactly one element, this has shape \(2,\)"):
            convert(two)
    with pytest.raises(ShapeError, match=r"2 elements is ambiguous: use \.any"):
        bool(two)
    with pytest.raises(ShapeError, match="0 elements is ambiguous"):
        bool(cr.zeros(0, device=device))
    with pytest.raises(DTypeError, match="float32 tensor cannot be used as an index"):
        operator.index(one)


@pytest.mark.parametrize("device", DEVICES)
def test_length_and_iteration(device):
    t = cr.tensor([[1, 2], [3, 4], [5, 6]], device=device)
    assert len(t) == 3
    assert [row.tolist() for row in t] == [[1, 2], [3, 4], [5, 6]]
    a, b, c = t
    assert (a[0].item(), b[1].item(), c[0].item()) == (1, 4, 5)
    assert list(cr.zeros(0, 3, device=device)) == []
    assert [x.item() for x in reversed(list(t[0]))] == [2, 1]
    assert 4 in t
    assert 7 not in t
    s = cr.tensor(1.0, device=device)
    with pytest.raises(ShapeError, match="0-d tensor has no length"):
        len(s)
    with pytest.raises(ShapeError, match="0-d tensor cannot be iterated"):
        iter(s)


def test_a_loop_over_rows_carries_gradients():
    x = cr.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    total = cr.tensor(0.0)
    for i, row in enumerate(x):
        total = total + row.sum() * (i + 1)
    total.backward()
    assert x.grad.tolist() == [[1, 1], [2, 2]]


def test_a_tensor_is_a_key_by_identity():
    a, b = cr.ones(2), cr.ones(2)
    assert {a: 1, b: 2}[a] == 1
    assert len({a, b, a}) == 2


def test_there_is_no_data_attribute():
    with pytest.raises(GradError, match=r"there is no \.data: to update a parameter use"):
        cr.ones(2).data  # noqa: B018


# Dtypes and devices.


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("target", dtypes.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("source", dtypes.ALL, ids=lambda d: d.name)
def test_conversions_agree_with_pytorch(source, target, device):
    if source.is_complex and not target.is_complex:
        return  # complex is storage only
    values = [0, 1, 2, 100]
    ours = cr.tensor(values, device=device).to(source)
    theirs = torch.tensor(values).to(getattr(torch, source.name))
    if source.is_floating_point:
        ours, theirs = ours - 0.25, theirs - 0.25
        if target is dtypes.uint8:
            ours, theirs = ours[1:], theirs[1:]
    check_same(ours.to(target), theirs.to(getattr(torch, target.name)), f"{source} to {target}")
    assert ours.to(source) is ours


def test_conversions_by_name_and_by_example():
    t = cr.tensor([0.0, 1.5])
    names = {
        "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64",
        "int": "int32", "bool": "bool", "float": "float32",
    }  # fmt: skip
    for name, dtype in names.items():
        assert getattr(t, name)().dtype is dtypes.BY_NAME[dtype]
    other = cr.zeros(1, dtype=cr.float64, device="torch")
    moved = t.to(other)
    assert (moved.dtype, str(moved.device)) == (cr.float64, "torch")
    assert t.to("torch", cr.int8).dtype is cr.int8
    assert moved.cpu().tolist() == [0, 1.5]
    assert moved.device.type == "torch"
    assert t.type(cr.int64).tolist() == [0, 1]
    with pytest.raises(InputError, match="takes a dtype, a device or a tensor, not 3"):
        t.to(3)


def test_conversions_carry_gradients_between_floats_only():
    x = cr.tensor([1.0, 2.0], requires_grad=True)
    (x.double() * 3).sum().backward()
    assert (x.grad.tolist(), x.grad.dtype) == ([3, 3], cr.float32)
    x.grad = None
    moved = x.to("torch")
    assert (str(moved.device), moved.tolist()) == ("torch", [1, 2])
    (moved * 5).sum().backward()
    assert (x.grad.tolist(), str(x.grad.device)) == ([5, 5], "cpu")
    assert not x.long().requires_grad


def test_facts_about_a_tensor():
    t = cr.zeros(2, 3, 4, dtype=cr.float16)[:, 1:]
    assert (t.shape, t.size(), t.size(-1)) == ((2, 2, 4), (2, 2, 4), 4)
    assert (t.ndim, t.dim(), t.numel(), t.nelement()) == (3, 3, 16, 16)
    assert (t.stride(), t.stride(0), t.storage_offset()) == ((12, 4, 1), 12, 4)
    assert (t.element_size(), t.is_floating_point(), t.is_contiguous()) == (2, True, False)
    assert t.data_ptr() == t.storage().data_ptr() + 4 * 2
    assert t.contiguous().is_contiguous()


# Empty and 0-d tensors.


EMPTY = [(0,), (0, 3), (3, 0), (2, 0, 3)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", EMPTY)
def test_empty_tensors_go_through_everything(shape, device):
    x = cr.zeros(shape, device=device, requires_grad=True)
    t = torch.zeros(shape, requires_grad=True)

    def both(fn, what):
        check_same(fn(x), fn(t), what)

    both(lambda v: v + 1, "add")
    both(lambda v: v * v, "mul")
    both(lambda v: v.sum(), "sum")
    both(lambda v: v.sum(0), "sum 0")
    both(lambda v: v.reshape(-1), "reshape")
    both(lambda v: v.permute(tuple(range(v.ndim))[::-1]), "permute")
    both(lambda v: v[None], "None")
    both(lambda v: v[..., :0], "slice")
    both(lambda v: v.unsqueeze(0).expand(2, *shape), "expand")
    both(lambda v: v.exp(), "exp")
    both(lambda v: v > 0, "compare")
    both(lambda v: v[v > 0], "mask")
    both(lambda v: v.double(), "double")
    both(lambda v: v.clone(), "clone")
    y = (x * 2).sum()
    y.backward()
    assert x.grad.shape == shape
    assert x.detach().tolist() == t.detach().tolist()
    assert x.detach().numpy().shape == shape
    assert repr(x)
    with cr.no_grad():
        x += 1
        x[...] = 3.0
        x[x > 0] = 1.0


@pytest.mark.parametrize("device", DEVICES)
def test_scalars_go_through_everything(device):
    x = cr.tensor(2.0, device=device, requires_grad=True)
    t = torch.tensor(2.0, requires_grad=True)

    def both(fn, what):
        check_same(fn(x), fn(t), what)

    both(lambda v: v + 1, "add")
    both(lambda v: v.sum(), "sum")
    both(lambda v: v.sum(0), "sum 0")
    both(lambda v: v.sum(-1, keepdim=True), "sum -1")
    both(lambda v: v.reshape(1, 1), "reshape")
    both(lambda v: v.reshape(()), "reshape ()")
    both(lambda v: v.unsqueeze(-1), "unsqueeze")
    both(lambda v: v.squeeze(), "squeeze")
    both(lambda v: v.expand(3), "expand")
    both(lambda v: v[None], "None")
    both(lambda v: v[...], "...")
    both(lambda v: v[()], "()")
    both(lambda v: v[v > 0], "mask")
    both(lambda v: v.permute(()), "permute")
    both(lambda v: v.flatten(), "flatten")
    both(lambda v: v.contiguous(), "contiguous")
    (x * x).backward()
    assert x.grad.item() == 4
    with cr.no_grad():
        x += 1
        x[...] = x * 2
        x[x > 0] = 7.0
    assert x.item() == 7
    with pytest.raises(IndexError):
        x[0]


# Writing in place.


@pytest.mark.parametrize("device", DEVICES)
def test_in_place_operators_write_into_the_same_memory(device):
    t = cr.tensor([1.0, 2.0, 4.0], device=device)
    view, address = t[1:], t.data_ptr()
    t += 1
    t *= 2
    t -= 2
    t /= 2
    t **= 2
    assert t.tolist() == [1, 4, 16]
    assert view.tolist() == [4, 16]
    assert t.data_ptr() == address
    view[...] = cr.tensor([[0.0]], device=device)
    assert t.tolist() == [1, 0, 0]
    assert t.copy_(cr.tensor([5, 6, 7], device=device)) is t
    assert t.fill_(3.0).tolist() == [3, 3, 3]
    assert t.zero_().tolist() == [0, 0, 0]
    i = cr.tensor([1, 2], device=device)
    with pytest.raises(DTypeError, match="float32 result cannot be stored in a int64 tensor"):
        i += 0.5
    with pytest.raises(ShapeError, match=r"does not broadcast into shape \(3,\)"):
        t[...] = cr.ones(2, device=device)


def test_a_value_with_extra_sizes_of_one_is_written_and_differentiated():
    v = cr.tensor([[[1.0, 2.0]]], dtype=cr.float64, requires_grad=True)
    for device in DEVICES:
        y = cr.zeros(2, dtype=cr.float64, device=device)
        y[...] = v.to(device)
        (y * y).sum().backward()
        assert v.grad.tolist() == [[[2, 4]]]
        v.grad = None


def test_a_recorded_write_into_a_transposed_tensor():
    x = np.arange(6.0).reshape(2, 3) + 1

    def run(m, **kind):
        t = m.tensor(x, requires_grad=True, **kind)
        s = m.tensor([10.0, 20.0], dtype=m.float64, requires_grad=True, **kind)
        y = t.T * t.T
        assert y.stride() == (1, 3)
        y[1] = s
        y[2, :1] = 0.5
        (y * y).sum().backward()
        return t.grad, s.grad

    wanted = run(torch)
    for device in DEVICES:
        for a, b in zip(run(cr, device=device), wanted, strict=True):
            check_same(a, b, device)


def test_numpy_arrays_are_written_into():
    t = cr.zeros(3, dtype=cr.float64)
    t[1:] = np.array([1.0, 2.0])
    t[[0]] = np.float32(7)
    assert t.tolist() == [7, 1, 2]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cr.nn.Linear(3, 4)(np.zeros((2, 3))), "linear takes tensors, not ndarray"),
        (lambda: cr.nn.Conv1d(1, 1, 1)(np.zeros((1, 1, 3))), "takes tensors, not ndarray"),
        (lambda: cr.nn.LayerNorm(3)(np.zeros((2, 3))), "layer_norm takes tensors, not ndarray"),
        (lambda: F.cross_entropy(np.zeros((2, 3)), cr.tensor([0, 1])), "not ndarray"),
        (lambda: F.cross_entropy(cr.zeros(2, 3), [0, 1]), "cross_entropy takes tensors, not list"),
        (lambda: F.mse_loss(cr.zeros(2), [0, 0]), "mse_loss takes tensors, not list"),
        (lambda: F.mse_loss(cr.zeros(2), None), "mse_loss takes tensors, not NoneType$"),
        (lambda: F.softmax([1.0, 2.0], 0), "softmax takes tensors, not list"),
        (lambda: cr.sum([1, 2]), "sum takes tensors, not list: wrap it with cr.tensor"),
        (lambda: cr.reshape(1.0, (1,)), "reshape takes tensors, not float"),
        (lambda: cr.sort(np.zeros(2)), "sort takes tensors, not ndarray"),
    ],
)
def test_what_is_no_tensor_is_named(call, words):
    with pytest.raises(cr.errors.DTypeError, match=words):
        call()


def test_a_fault_of_our_own_is_not_blamed_on_the_arguments():
    def faulty(x):
        return x.shape.nowhere

    namespace = {"__name__": __name__, "faulty": faulty}
    _guard.explain(namespace)
    with pytest.raises(AttributeError, match="nowhere"):
        namespace["faulty"](cr.ones(2))
    with pytest.raises(DTypeError, match="faulty takes tensors, not list"):
        namespace["faulty"]([1])
