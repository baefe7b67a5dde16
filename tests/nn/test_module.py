"""Module: what is registered, named, saved, loaded, moved and hooked."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule import nn
from chainrule.errors import CheckpointError, InputError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.act = nn.Tanh()
        self.last = nn.Linear(4, 2, bias=False)
        self.gain = nn.Parameter(cr.ones(2))
        self.register_buffer("seen", cr.zeros(1))
        self.register_buffer("scratch", cr.zeros(1), persistent=False)

    def forward(self, x):
        return self.last(self.act(self.first(x))) * self.gain


class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.act = torch.nn.Tanh()
        self.last = torch.nn.Linear(4, 2, bias=False)
        self.gain = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)


# Parameters.


def test_a_parameter_is_a_tensor_with_a_mark():
    data = cr.ones(3)
    p = nn.Parameter(data)
    assert type(p) is cr.Tensor
    assert isinstance(p, nn.Parameter)
    assert not isinstance(data, nn.Parameter)
    assert not isinstance(p * 2.0, nn.Parameter)
    assert p.requires_grad
    assert p.is_leaf
    assert p.data_ptr() == data.data_ptr(), "as in PyTorch it is the same memory"
    assert not nn.Parameter(data, requires_grad=False).requires_grad
    with pytest.raises(InputError, match="takes a tensor, not list"):
        nn.Parameter([1.0])


def test_names_and_order_are_pytorchs():
    ours, theirs = Net(), TorchNet()
    for what in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        assert [n for n, _ in getattr(ours, what)()] == [n for n, _ in getattr(theirs, what)()]
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [p.shape for p in ours.parameters()] == [tuple(p.shape) for p in theirs.parameters()]


def test_repr_is_pytorchs():
    assert repr(Net()) == repr(TorchNet()).replace("TorchNet", "Net")
    ours = nn.Sequential(nn.Embedding(5, 3), nn.LayerNorm(3), nn.GELU("tanh"), nn.Dropout(0.1))
    theirs = torch.nn.Sequential(
        torch.nn.Embedding(5, 3),
        torch.nn.LayerNorm(3),
        torch.nn.GELU("tanh"),
        torch.nn.Dropout(0.1),
    )
    wanted = repr(theirs).replace(", inplace=False", "")  # nothing of ours works in place
    have = repr(ours)
    if "bias=" not in wanted.splitlines()[2]:  # said by some versions only
        have = have.replace("elementwise_affine=True, bias=True", "elementwise_affine=True")
    assert have == wanted


def test_a_shared_parameter_is_listed_once_and_saved_under_both_names():
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    assert [n for n, _ in net.named_parameters()] == ["0.weight"]
    assert list(net.state_dict()) == ["0.weight", "1.weight"]


def test_assignment_registers_and_refuses_what_would_go_unnoticed():
    net = Net()
    net.gain = None
    assert "gain" not in dict(net.named_parameters())
    net.gain = nn.Parameter(cr.zeros(2))
    with pytest.raises(InputError, match="cannot assign a Tensor to 'gain'"):
        net.gain = cr.zeros(2)
    with pytest.raises(InputError, match="cannot assign a float to 'first'"):
        net.first = 1.0
    net.seen = cr.ones(1)
    assert net.state_dict()["seen"].tolist() == [1.0]
    del net.first
    with pytest.raises(AttributeError, match="Net has no attribute 'first'"):
        net.first  # noqa: B018
    with pytest.raises(InputError, match="has an attribute 'forward' already"):
        net.register_buffer("forward", cr.zeros(1))
    with pytest.raises(InputError, match="not empty and has no dot"):
        net.add_module("a.b", nn.Identity())

    class Hasty(nn.Module):
        def __init__(self):
            self.part = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"after super\(\).__init__\(\) has been called"):
        Hasty()
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        nn.Module()(1)


# State.


def test_a_state_dict_shares_memory_and_loads_into_another():
    one, two = Net(), Net()
    state = one.state_dict()
    assert not state["gain"].requires_grad
    result = two.load_state_dict(state)
    assert result == ([], [])
    for name, t in two.state_dict().items():
        np.testing.assert_array_equal(t.numpy(), state[name].numpy())
    with cr.no_grad():
        state["gain"].fill_(7.0)
    assert one.gain.tolist() == [7.0, 7.0]
    assert two.gain.tolist() == [1.0, 1.0]


def test_a_torch_models_arrays_load_by_the_same_keys():
    theirs = TorchNet()
    ours = Net()
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    np.testing.assert_array_equal(ours.first.weight.detach(), theirs.first.weight.detach().numpy())


def test_loading_names_every_key_that_does_not_fit_and_writes_nothing():
    net = Net()
    state = dict(net.state_dict())
    state["first.weight"] = cr.zeros(4, 5)
    state["last.weight"] = cr.ones(2, 4)
    del state["gain"]
    state["other"] = cr.zeros(1)
    before = net.last.weight.tolist()
    with pytest.raises(CheckpointError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    assert "does not fit Net" in text
    assert "first.weight: (4, 5) given, (4, 3) here" in text
    assert "missing keys: gain" in text
    assert "unexpected keys: other" in text
    assert net.last.weight.tolist() == before
    state["first.weight"] = cr.zeros(4, 3)
    missing, unexpected = net.load_state_dict(state, strict=False)
    assert (missing, unexpected) == (["gain"], ["other"])
    assert net.last.weight.tolist() == [[1.0] * 4] * 2
    with pytest.raises(CheckpointError, match="'gain' in the state is a int, not a tensor"):
        net.load_state_dict({**net.state_dict(), "gain": 3})


def test_loading_converts_dtype_and_device_and_is_noticed_by_the_tape():
    net = nn.Linear(2, 2).to("torch")
    y = net(cr.ones(1, 2, device="torch", requires_grad=True))
    net.load_state_dict({"weight": np.eye(2), "bias": np.zeros(2)})
    assert net.weight.dtype is cr.float32
    assert str(net.weight.device) == "torch"
    with pytest.raises(RuntimeError, match="written in place"):
        y.sum().backward()


# The whole at once.


def test_moving_keeps_identity_so_that_an_optimiser_still_holds_the_parameters():
    net = Net()
    x = cr.ones(5, 3)
    net(x).sum().backward()
    kept = net.first.weight
    net.double()
    assert net.first.weight is kept
    assert isinstance(kept, nn.Parameter)
    assert kept.dtype is kept.grad.dtype is cr.float64
    assert net.seen.dtype is cr.float64
    assert {t.dtype for t in net.state_dict().values()} == {cr.float64}
    net(x.double()).sum().backward()
    net.to("torch", cr.float32)
    assert str(kept.device) == "torch"
    assert kept.stride() == (3, 1)
    net(x.to("torch")).sum().backward()
    assert str(kept.grad.device) == "torch"
    with pytest.raises(InputError, match="floating-point dtype, not int64"):
        net.to(cr.int64)


def test_train_eval_apply_freeze_and_zero_grad():
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.5)))
    assert all(m.training for m in net.modules())
    net.eval()
    assert not any(m.training for m in net.modules())
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Dropout", "Sequential", "Sequential"]
    net(cr.ones(1, 2)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net[0].bias.grad.tolist() == [0.0, 0.0]
    net.zero_grad()
    assert net[0].bias.grad is None
    net.requires_grad_(False)
    assert not net(cr.ones(1, 2)).requires_grad


def test_a_deep_copy_shares_nothing():
    net = Net()
    other = copy.deepcopy(net)
    with cr.no_grad():
        other.gain.fill_(5.0)
    assert net.gain.tolist() == [1.0, 1.0]
    assert isinstance(other.gain, nn.Parameter)
    assert [n for n, _ in other.named_parameters()] == [n for n, _ in net.named_parameters()]


def test_hooks_see_and_may_replace_and_can_be_removed():
    net = nn.Linear(2, 1, bias=False)
    with cr.no_grad():
        net.weight.fill_(1.0)
    before = net.register_forward_pre_hook(lambda m, args: (args[0] * 2.0,))
    after = net.register_forward_hook(lambda m, args, out: out + args[0].sum())
    assert net(cr.ones(1, 2)).tolist() == [[8.0]]
    before.remove()
    assert net(cr.ones(1, 2)).tolist() == [[4.0]]
    after.remove()
    assert net(cr.ones(1, 2)).tolist() == [[2.0]]


# Containers.


def test_containers_are_lists_and_dicts_of_modules():
    parts = [nn.Linear(1, 1) for _ in range(3)]
    listed = nn.ModuleList(parts[:2]).append(parts[2])
    assert len(listed) == 3
    assert list(listed) == parts
    assert listed[-1] is parts[2]
    assert len(listed[1:]) == 2
    listed[0] = nn.Identity()
    assert len(list(listed.parameters())) == 4
    named = nn.ModuleDict({"a": parts[0]})
    named["b"] = parts[1]
    assert list(named) == ["a", "b"]
    assert "a" in named
    assert named["b"] is parts[1]
    del named["a"]
    assert list(named.keys()) == ["b"]
    chain = nn.Sequential({"in": parts[0], "out": parts[1]})
    assert list(chain.state_dict()) == ["in.weight", "in.bias", "out.weight", "out.bias"]
    assert chain[:1](cr.zeros(1, 1)).tolist() == parts[0](cr.zeros(1, 1)).tolist()
    with pytest.raises(InputError, match="holds modules, not function"):
        nn.Sequential(lambda x: x)
    assert listed.get_submodule("1") is parts[1]
    with pytest.raises(AttributeError, match="no module '9'"):
        listed.get_submodule("9")
