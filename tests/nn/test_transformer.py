"""CausalSelfAttention and GPT against the same network in PyTorch, and what GPT writes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from tests.nn.test_layers import compare, pair

import chainrule as cr
from chainrule import nn
from chainrule.errors import InputError, ShapeError

RANDOM = np.random.default_rng(0)

both = pytest.mark.parametrize("device", ["cpu", "torch"])


class TorchAttention(torch.nn.Module):
    """`torch.nn.MultiheadAttention` asked to attend to itself and the past."""

    def __init__(self, width, heads, bias=True):
        super().__init__()
        self.whole = torch.nn.MultiheadAttention(width, heads, bias=bias, batch_first=True)

    def forward(self, x):
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.whole(x, x, x, attn_mask=future, need_weights=False)[0]


class TorchBlock(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = torch.nn.LayerNorm(width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width),
            torch.nn.GELU("tanh"),
            torch.nn.Linear(4 * width, width),
        )

    def forward(self, x):
        n = self.norm1(x)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = x + self.attention(n, n, n, attn_mask=future, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class TorchGPT(torch.nn.Module):
    def __init__(self, vocab_size, context, layers, heads, width, tied):
        super().__init__()
        self.tokens = torch.nn.Embedding(vocab_size, width)
        self.positions = torch.nn.Embedding(context, width)
        self.blocks = torch.nn.ModuleList([TorchBlock(width, heads) for _ in range(layers)])
        self.norm = torch.nn.LayerNorm(width)
        if not tied:
            self.head = torch.nn.Linear(width, vocab_size, bias=False)
        self.tied = tied

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return TF.linear(self.norm(x), (self.tokens if self.tied else self.head).weight)


@both
@pytest.mark.parametrize("bias", [True, False])
def test_causal_self_attention_is_pytorchs_multihead_attention(bias, device):
    theirs = TorchAttention(8, 2, bias)
    ours = pair(nn.CausalSelfAttention(8, 2, bias=bias), theirs.whole, device)[0]

    class Ours(nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = ours

        def forward(self, x):
            return self.whole(x)

    compare(Ours(), theirs, RANDOM.standard_normal((3, 5, 8)), device=device)


@both
@pytest.mark.parametrize("tied", [False, True])
def test_gpt_is_the_same_network_as_in_pytorch(tied, device):
    shape = {"vocab_size": 11, "context": 6, "layers": 2, "heads": 2, "width": 8, "tied": tied}
    ours, theirs = pair(nn.GPT(**shape), TorchGPT(**shape), device)
    tokens = RANDOM.integers(0, 11, (3, 5))
    compare(ours, theirs, tokens, device=device)
    targets = RANDOM.integers(0, 11, (3, 5))
    for m in (ours, theirs):
        m.zero_grad()
    a = ours.loss(*(cr.tensor(t, device=device) for t in (tokens, targets)))
    b = TF.cross_entropy(theirs(torch.tensor(tokens)).transpose(1, 2), torch.tensor(targets))
    a.backward()
    b.backward()
    assert a.item() == pytest.approx(b.item(), rel=1e-12)
    named = dict(theirs.named_parameters())
    for name, p in ours.named_parameters():
        np.testing.assert_allclose(
            p.grad.numpy(), named[name].grad.numpy(), rtol=1e-9, atol=1e-12, err_msg=name
        )


def test_gpt_starts_near_the_uniform_guess_and_learns_a_sequence_by_heart():
    cr.manual_seed(0)
    model = nn.GPT(vocab_size=16, context=8, layers=1, heads=2, width=32)
    tokens = cr.tensor(RANDOM.permutation(16)[None, :9])
    x, y = tokens[:, :-1], tokens[:, 1:]
    assert model.loss(x, y).item() == pytest.approx(np.log(16), abs=0.05)
    optimizer = cr.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        model.loss(x, y).backward()
        optimizer.step()
    assert model.loss(x, y).item() < 0.02
    written = model.generate(tokens[:, :2], 7, temperature=0)
    assert written.tolist() == tokens.tolist()


def test_the_initial_weights_are_gpt2s():
    cr.manual_seed(0)
    model = nn.GPT(vocab_size=64, context=32, layers=3, heads=4, width=64)
    named = dict(model.named_parameters())
    spread = {n: p.detach().numpy().std() for n, p in named.items() if p.ndim == 2}
    for name, found in spread.items():
        residual = name.endswith(("out_proj.weight", "mlp.2.weight"))
        wanted = 0.02 / np.sqrt(6) if residual else 0.02
        assert found == pytest.approx(wanted, rel=0.1), name
    for name, p in named.items():
        if p.ndim == 1:
            ones = "norm" in name and name.endswith("weight")
            assert p.tolist() == [1.0 if ones else 0.0] * p.shape[0], name


def test_generate_repeats_with_its_seed_and_keeps_within_the_top_k():
    cr.manual_seed(0)
    model = nn.GPT(vocab_size=10, context=4, layers=1, heads=1, width=8).eval()
    start = cr.tensor([[1, 2], [3, 4]])
    a, b, c = (model.generate(start, 12, generator=cr.Generator(s)) for s in (0, 0, 1))
    assert a.shape == (2, 14), "longer than the context, too"
    assert a.dtype is cr.int64
    assert a[:, :2].tolist() == start.tolist()
    assert a.tolist() == b.tolist() != c.tolist()
    assert model.generate(start, 0).tolist() == start.tolist()
    likeliest = model.generate(start, 6, temperature=0)
    assert model.generate(start, 6, top_k=1).tolist() == likeliest.tolist()
    assert not a.requires_grad


def test_generate_samples_from_the_softmax_at_the_temperature():
    cr.manual_seed(3)
    model = nn.GPT(vocab_size=5, context=2, layers=1, heads=1, width=8).eval()
    with cr.no_grad():
        model.head.weight.copy_(model.head.weight * 50.0)
        logits = model(cr.tensor([[2]])).to(cr.float64)[0, -1].numpy()
    wanted = np.exp(logits / 0.7) / np.exp(logits / 0.7).sum()
    start = cr.tensor(np.full((20_000, 1), 2))
    drawn = model.generate(start, 1, temperature=0.7, generator=cr.Generator(0)).numpy()[:, 1]
    found = np.bincount(drawn, minlength=5) / len(drawn)
    # Five standard deviations of each frequency.
    assert (abs(found - wanted) <= 5 * np.sqrt(wanted * (1 - wanted) / len(drawn)) + 1e-9).all()


def test_dropout_in_gpt_is_random_in_training_only():
    cr.manual_seed(0)
    model = nn.GPT(vocab_size=10, context=4, layers=1, heads=2, width=8, dropout=0.3)
    tokens = cr.tensor([[1, 2, 3, 4]])
    assert model(tokens).tolist() != model(tokens).tolist()
    model.eval()
    assert model(tokens).tolist() == model(tokens).tolist()


def test_gpt_says_what_does_not_fit():
    model = nn.GPT(vocab_size=10, context=4, layers=1, heads=2, width=8)
    with pytest.raises(ShapeError, match="5 tokens are more than the context of 4"):
        model(cr.zeros(1, 5, dtype=cr.int64))
    with pytest.raises(ShapeError, match=r"tokens \(batch, time\), got shape \(3,\)"):
        model(cr.zeros(3, dtype=cr.int64))
    with pytest.raises(InputError, match="width 8 cannot be split into 3 heads"):
        nn.CausalSelfAttention(8, 3)
    with pytest.raises(InputError, match="temperature is at least 0 and top_k at least 1"):
        model.generate(cr.tensor([[1]]), 1, temperature=-1.0)
    with pytest.raises(ShapeError, match=r"got \(1, 0\)"):
        model.generate(cr.zeros(1, 0, dtype=cr.int64), 1)
