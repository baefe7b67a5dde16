"""Layers, recurrent networks and attention against PyTorch's, with the same weights by key."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule import nn
from chainrule.errors import InputError, ShapeError

RANDOM = np.random.default_rng(0)

both = pytest.mark.parametrize("device", ["cpu", "torch"])


def pair(ours, theirs, device="cpu"):
    """Both modules in float64 with PyTorch's weights."""
    theirs = theirs.double()
    ours = ours.to(device).double()
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    return ours, theirs


def compare(ours, theirs, *inputs, device="cpu"):
    """Outputs, and the gradients of inputs and parameters, within 1e-10."""
    a, b = [], []
    for x in inputs:
        x = np.array(x)
        floats = x.dtype.kind == "f"
        a.append(cr.tensor(x, device=device, requires_grad=floats))
        b.append(torch.tensor(x, requires_grad=floats))
    ya, yb = ours(*a), theirs(*b)
    ya, yb = (y if isinstance(y, tuple) else (y,) for y in (ya, yb))
    la, lb = 0.0, 0.0
    for i, (u, v) in enumerate(zip(ya, yb, strict=True)):
        np.testing.assert_allclose(u.detach().numpy(), v.detach().numpy(), rtol=1e-10, atol=1e-10)
        weight = np.random.default_rng(i).standard_normal(u.shape)
        la = la + (u * cr.tensor(weight, device=device)).sum()
        lb = lb + (v * torch.tensor(weight)).sum()
    la.backward()
    lb.backward()
    pairs = [(u.grad, v.grad) for u, v in zip(a, b, strict=True) if u.requires_grad]
    named = dict(theirs.named_parameters())
    pairs += [(p.grad, named[n].grad) for n, p in ours.named_parameters()]
    assert pairs
    for u, v in pairs:
        np.testing.assert_allclose(u.numpy(), v.numpy(), rtol=1e-10, atol=1e-10)


@both
@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias, device):
    modules = pair(nn.Linear(4, 3, bias), torch.nn.Linear(4, 3, bias), device)
    compare(*modules, RANDOM.standard_normal((2, 5, 4)), device=device)


@both
@pytest.mark.parametrize("padding", [None, 2, -1])
def test_embedding(padding, device):
    modules = pair(nn.Embedding(6, 3, padding), torch.nn.Embedding(6, 3, padding), device)
    compare(*modules, np.array([[0, 2, 2], [5, 5, 5]]), device=device)


@both
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm(bias, device):
    modules = pair(nn.LayerNorm((3, 4), bias=bias), torch.nn.LayerNorm((3, 4), bias=bias), device)
    for m in modules:
        torch.nn.init.normal_(m.weight) if isinstance(m, torch.nn.Module) else None
    modules[0].load_state_dict({k: v.numpy() for k, v in modules[1].state_dict().items()})
    compare(*modules, RANDOM.standard_normal((2, 3, 4)), device=device)


@both
def test_rms_norm(device):
    modules = pair(nn.RMSNorm(4), torch.nn.RMSNorm(4), device)
    compare(*modules, RANDOM.standard_normal((2, 3, 4)), device=device)


ACTIVATIONS = [
    ("ReLU", ()), ("ReLU6", ()), ("SiLU", ()), ("Mish", ()), ("Tanh", ()), ("Sigmoid", ()),
    ("LogSigmoid", ()), ("Identity", ()), ("GELU", ()), ("GELU", ("tanh",)), ("ELU", (0.7,)),
    ("LeakyReLU", (0.2,)), ("Softplus", (2.0,)), ("Softmax", (1,)), ("LogSoftmax", (-1,)),
]  # fmt: skip


@both
@pytest.mark.parametrize(("name", "args"), ACTIVATIONS, ids=str)
def test_activations(name, args, device):
    compare(
        getattr(nn, name)(*args),
        getattr(torch.nn, name)(*args),
        RANDOM.standard_normal((3, 5)) * 4,
        device=device,
    )


def test_squareplus_is_its_formula():
    x = RANDOM.standard_normal(50) * 3
    got = nn.Squareplus(2.5)(cr.tensor(x)).numpy()
    np.testing.assert_allclose(got, (x + np.sqrt(x * x + 2.5)) / 2, rtol=1e-14)


@both
def test_losses_as_modules(device):
    x, t = RANDOM.standard_normal((4, 5)), np.array([0, 4, -100, 2])
    for name, options in (
        ("CrossEntropyLoss", {"label_smoothing": 0.1, "reduction": "sum"}),
        ("CrossEntropyLoss", {"ignore_index": 4}),
        ("NLLLoss", {}),
    ):
        if options.get("ignore_index") == 4:
            t = np.array([0, 4, 1, 2])
        compare(
            getattr(nn, name)(**options), getattr(torch.nn, name)(**options), x, t, device=device
        )
    for name in ("MSELoss", "L1Loss"):
        compare(getattr(nn, name)(), getattr(torch.nn, name)(), x, x[::-1].copy(), device=device)


def test_dropout_acts_in_training_alone():
    layer = nn.Dropout(0.5)
    x = cr.ones(100)
    assert set(layer(x).tolist()) == {0.0, 2.0}
    assert layer.eval()(x) is x
    with pytest.raises(InputError, match="between 0 and 1"):
        nn.Dropout(-0.5)


# Recurrent networks.

RNNS = [
    {}, {"num_layers": 2}, {"nonlinearity": "relu"}, {"bias": False}, {"batch_first": True},
    {"num_layers": 3, "batch_first": True, "bias": False},
]  # fmt: skip


@both
@pytest.mark.parametrize("options", RNNS, ids=str)
def test_rnn(options, device):
    modules = pair(nn.RNN(4, 3, **options), torch.nn.RNN(4, 3, **options), device)
    layers = options.get("num_layers", 1)
    compare(*modules, RANDOM.standard_normal((5, 2, 4)), device=device)
    batch = 5 if options.get("batch_first") else 2
    first = RANDOM.standard_normal((layers, batch, 3))
    modules[0].zero_grad()
    modules[1].zero_grad()
    compare(*modules, RANDOM.standard_normal((5, 2, 4)), first, device=device)


def test_rnn_without_a_batch():
    compare(*pair(nn.RNN(4, 3, 2), torch.nn.RNN(4, 3, 2)), RANDOM.standard_normal((5, 4)))


@both
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_rnn_cell(nonlinearity, device):
    modules = pair(
        nn.RNNCell(4, 3, nonlinearity=nonlinearity),
        torch.nn.RNNCell(4, 3, nonlinearity=nonlinearity),
        device,
    )
    compare(*modules, *(RANDOM.standard_normal((2, n)) for n in (4, 3)), device=device)
    modules[0].zero_grad()
    modules[1].zero_grad()
    compare(*modules, RANDOM.standard_normal(4), device=device)


def test_rnn_says_what_does_not_fit():
    net = nn.RNN(4, 3)
    with pytest.raises(ShapeError, match=r"got \(5, 2, 3\)"):
        net(cr.zeros(5, 2, 3))
    with pytest.raises(ShapeError, match="at least one time step"):
        net(cr.zeros(0, 2, 4))
    with pytest.raises(ShapeError, match=r"the first state has shape \(1, 2, 3\), got \(2, 3\)"):
        net(cr.zeros(5, 2, 4), cr.zeros(2, 3))
    with pytest.raises(InputError, match='nonlinearity is "tanh" or "relu"'):
        nn.RNN(4, 3, nonlinearity="sin")


# Initial values.


def _within(values, bound):
    values = np.abs(values.detach().numpy())
    assert values.max() <= bound
    assert values.max() > 0.9 * bound


def test_initial_values_have_pytorchs_distributions():
    cr.manual_seed(0)
    layer = nn.Linear(50, 40)
    _within(layer.weight, 1 / math.sqrt(50))
    _within(layer.bias, 1 / math.sqrt(50))
    for p in nn.RNN(30, 25, 2).parameters():
        _within(p, 1 / math.sqrt(25))
    table = nn.Embedding(200, 50, padding_idx=3).weight.detach().numpy()
    assert not table[3].any()
    # 10,000 draws: the deviation of the standard deviation is 0.0071.
    assert abs(np.delete(table, 3, 0).std() - 1) < 0.035
    attention = nn.CausalSelfAttention(32, 4)
    _within(attention.in_proj_weight, math.sqrt(6 / (32 + 96)))
    assert not attention.in_proj_bias.detach().numpy().any()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("kaiming_uniform_", {"a": 0.3}),
        ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "relu"}),
        ("xavier_uniform_", {"gain": 2.0}),
    ],
)
def test_uniform_bounds_are_pytorchs(name, options):
    ours, theirs = cr.zeros(200, 30, 2), torch.zeros(200, 30, 2)
    getattr(nn.init, name)(ours, **options)
    getattr(torch.nn.init, name)(theirs, **options)
    assert abs(ours).max().item() == pytest.approx(theirs.abs().max().item(), rel=2e-3)


@pytest.mark.parametrize("name", ["kaiming_normal_", "xavier_normal_"])
def test_normal_deviations_are_pytorchs(name):
    ours, theirs = cr.zeros(300, 200), torch.zeros(300, 200)
    getattr(nn.init, name)(ours, generator=cr.Generator(0))
    getattr(torch.nn.init, name)(theirs, generator=torch.Generator().manual_seed(0))
    assert ours.numpy().std() == pytest.approx(theirs.numpy().std(), rel=0.02)


def test_initial_values_repeat_with_the_seed():
    made = []
    for seed in (1, 1, 2):
        cr.manual_seed(seed)
        made.append(nn.Linear(3, 3).weight.tolist())
    assert made[0] == made[1] != made[2]


def test_gains_are_pytorchs_and_unknown_ones_are_refused():
    for name, param in (("tanh", None), ("relu", None), ("leaky_relu", 0.2), ("linear", None)):
        wanted = torch.nn.init.calculate_gain(name, param)
        assert nn.init.calculate_gain(name, param) == pytest.approx(wanted)
    with pytest.raises(InputError, match="no gain is known for the non-linearity 'sine'"):
        nn.init.calculate_gain("sine")
    with pytest.raises(ShapeError, match=r"at least 2 dimensions, got \(3,\)"):
        nn.init.xavier_uniform_(cr.zeros(3))
