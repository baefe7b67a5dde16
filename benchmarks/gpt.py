"""One training step of a small GPT: ours against PyTorch eager with the same network and weights.

4 layers of width 128, 4 heads, 256 tokens, batch 16×128, float32: loss, backward, AdamW. Two
threads on both sides; PyTorch's AdamW is the fused one, its fastest here. Needs torch. Run:
`python benchmarks/gpt.py`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import chainrule as cr
from chainrule.bench.subject import Subject, main

VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH, BATCH = 256, 128, 4, 4, 128, 16
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.1}


class TorchAttention(nn.Module):
    """Causal self-attention with the parameters of `torch.nn.MultiheadAttention`."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.empty(3 * WIDTH, WIDTH))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * WIDTH))
        self.out_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, time, width = x.shape
        packed = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias)
        split = packed.view(batch, time, 3, HEADS, width // HEADS)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(mixed.transpose(1, 2).reshape(batch, time, width))


class TorchBlock(nn.Module):
    """A pre-norm block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = TorchAttention()
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU("tanh"), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TorchGPT(nn.Module):
    """The network of `chainrule.nn.GPT`, written in PyTorch; its state dict has the same keys."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList([TorchBlock() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def loss(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


class Training:
    """A model, its optimiser and one batch."""

    def __init__(self, library, model, optimizer, tokens) -> None:
        self.model, self.optimizer = model, optimizer
        self.tokens = library.tensor(tokens[:, :-1].copy())
        self.targets = library.tensor(tokens[:, 1:].copy())

    def step(self):
        self.optimizer.zero_grad()
        loss = self.model.loss(self.tokens, self.targets)
        loss.backward()
        self.optimizer.step()
        return float(loss.item())


def both_sides() -> dict[str, Training]:
    """The same weights and tokens on both sides."""
    cr.manual_seed(0)
    model = cr.nn.GPT(VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH)
    twin = TorchGPT()
    weights = {k: torch.tensor(v.detach().numpy()) for k, v in model.state_dict().items()}
    twin.load_state_dict(weights)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCABULARY, (BATCH, CONTEXT + 1))
    return {
        "chainrule": Training(cr, model, cr.optim.AdamW(model.parameters(), **ADAMW), tokens),
        "torch": Training(
            torch, twin, torch.optim.AdamW(twin.parameters(), fused=True, **ADAMW), tokens
        ),
    }


def measure(subject: Subject) -> None:
    """A step, after both sides have made the same five."""
    subject.use_threads(2)
    sides = both_sides()
    losses = [[side.step() for _ in range(5)] for side in sides.values()]
    np.testing.assert_allclose(*losses, rtol=1e-4)
    steps = {name: side.step for name, side in sides.items()}
    subject.compare("GPT 4x128, batch 16x128", "step", steps, rounds=11)


if __name__ == "__main__":
    main(measure, __file__)
