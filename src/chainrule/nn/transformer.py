"""CausalSelfAttention and GPT: a decoder-only transformer with pre-norm blocks.

Relies on `functional.scaled_dot_product_attention`. CausalSelfAttention's state-dict keys and
layout are those of `torch.nn.MultiheadAttention`, so that weights go either way.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from chainrule import creation, dtypes, random
from chainrule._tensor import Tensor
from chainrule.autograd import no_grad
from chainrule.creation import empty
from chainrule.dtypes import DType
from chainrule.errors import InputError, ShapeError
from chainrule.nn import functional as F
from chainrule.nn import init
from chainrule.nn.activations import GELU
from chainrule.nn.containers import ModuleList, Sequential
from chainrule.nn.layers import Dropout, Embedding, LayerNorm, Linear
from chainrule.nn.module import Module
from chainrule.nn.parameter import Parameter
from chainrule.random import Generator


class CausalSelfAttention(Module):
    """Each position attends to itself and those before it: (batch, time, width) to the same.

    `width` is split into `heads`; in_proj_weight (3·width, width) makes query, key and value.
    """

    in_proj_weight: Tensor
    in_proj_bias: Tensor | None

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise InputError(f"width {width} cannot be split into {heads} heads of one size")
        self.width = width
        self.heads = heads
        self.dropout = dropout
        kind: Any = {"dtype": dtype or dtypes.float32, "device": device}
        self.in_proj_weight = Parameter(empty(3 * width, width, **kind))
        made = Parameter(empty(3 * width, **kind)) if bias else None
        self.register_parameter("in_proj_bias", made)
        self.out_proj = Linear(width, width, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As `torch.nn.MultiheadAttention`: Xavier for the inputs, biases zero."""
        init.xavier_uniform_(self.in_proj_weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def forward(self, input: Tensor) -> Tensor:
        """(batch, time, width) to the same."""
        batch, time, width = input.shape
        packed = F.linear(input, self.in_proj_weight, self.in_proj_bias)
        split = packed.view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        drop = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)
        return self.out_proj(mixed.transpose(1, 2).reshape(batch, time, width))

    def extra_repr(self) -> str:
        return f"width={self.width}, heads={self.heads}, dropout={self.dropout}"


class Block(Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), the mlp 4 times as wide with GELU (tanh)."""

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float = 0.0,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        kind: Any = {"device": device, "dtype": dtype}
        self.norm1 = LayerNorm(width, **kind)
        self.attention = CausalSelfAttention(width, heads, dropout, **kind)
        self.norm2 = LayerNorm(width, **kind)
        self.mlp = Sequential(
            Linear(width, 4 * width, **kind), GELU("tanh"), Linear(4 * width, width, **kind)
        )
        self.drop = Dropout(dropout)

    def forward(self, input: Tensor) -> Tensor:
        """(batch, time, width) to the same."""
        x = input + self.drop(self.attention(self.norm1(input)))
        return x + self.drop(self.mlp(self.norm2(x)))


class GPT(Module):
    """A decoder-only transformer: learnt positions, pre-norm blocks, a final norm and a head.

    Weights start as GPT-2's (Radford et al. 2019): normal with σ = `init_std`, the projections into
    the residual stream with σ/√(2·layers), biases zero. GPT-2's 0.02 suits widths near 1,000; a
    narrow model learns faster from 1/√width. `tied` uses the token embedding as head.
    """

    def __init__(
        self,
        vocab_size: int,
        context: int,
        layers: int,
        heads: int,
        width: int,
        dropout: float = 0.0,
        tied: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
        init_std: float = 0.02,
    ) -> None:
        super().__init__()
        self.vocab_size, self.context, self.init_std = vocab_size, context, init_std
        kind: Any = {"device": device, "dtype": dtype}
        self.tokens = Embedding(vocab_size, width, **kind)
        self.positions = Embedding(context, width, **kind)
        self.drop = Dropout(dropout)
        self.blocks = ModuleList([Block(width, heads, dropout, **kind) for _ in range(layers)])
        self.norm = LayerNorm(width, **kind)
        self.head = None if tied else Linear(width, vocab_size, bias=False, **kind)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """GPT-2's initial values, see the class."""
        for name, p in self.named_parameters():
            if p.ndim == 1:
                init.constant_(p, 1.0 if ".norm" in f".{name}" and name.endswith("weight") else 0.0)
            else:
                into_residual = name.endswith(("out_proj.weight", "mlp.2.weight"))
                scale = math.sqrt(2 * len(self.blocks)) if into_residual else 1.0
                init.normal_(p, 0.0, self.init_std / scale)

    def forward(self, tokens: Tensor) -> Tensor:
        """Integers (batch, time), time at most `context`, to logits (batch, time, vocab_size)."""
        if tokens.ndim != 2:
            raise ShapeError(f"GPT takes tokens (batch, time), got shape {tokens.shape}")
        time = tokens.shape[1]
        if time > self.context:
            raise ShapeError(
                f"{time} tokens are more than the context of {self.context}: pass the last ones"
            )
        x = self.drop(self.tokens(tokens) + self.positions.weight[:time])
        for block in self.blocks:
            x = block(x)
        weight = self.tokens.weight if self.head is None else self.head.weight
        return F.linear(self.norm(x), weight)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy in nats of predicting `targets` (batch, time) from `tokens`."""
        logits = self(tokens)
        return F.cross_entropy(logits.view(-1, self.vocab_size), targets.reshape(-1))

    def generate(
        self,
        tokens: Tensor,
        count: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        """`tokens` (batch, time) followed by `count` sampled ones, int64.

        `temperature` 0 takes the likeliest; `top_k` samples among the k likeliest. Draws from
        `generator`, or the default one. Switch to `eval()` first to leave dropout out.
        """
        if temperature < 0 or (top_k is not None and top_k < 1):
            raise InputError(
                f"temperature is at least 0 and top_k at least 1, got {temperature} and {top_k}"
            )
        if tokens.ndim != 2 or not tokens.shape[1]:
            raise ShapeError(f"generate continues tokens (batch, time ≥ 1), got {tokens.shape}")
        source = (generator or random.default_generator).numpy
        device = str(tokens.device)
        text = np.array(tokens.detach().to("cpu").numpy(), np.int64)
        with no_grad():
            for _ in range(count):
                seen = creation.tensor(text[:, -self.context :], device=device)
                logits = self(seen)[:, -1].to(dtypes.float64).to("cpu").numpy()
                text = np.concatenate([text, _sample(logits, temperature, top_k, source)], 1)
        return creation.tensor(text, device=device)


def _sample(logits: Any, temperature: float, top_k: int | None, source: Any) -> Any:
    """One token a row, as a column, by inverting the cumulative distribution."""
    if temperature == 0:
        return logits.argmax(1, keepdims=True)
    if top_k is not None and top_k < logits.shape[1]:
        least = np.partition(logits, -top_k, 1)[:, -top_k, None]
        logits = np.where(logits < least, -np.inf, logits)
    powers = np.exp((logits - logits.max(1, keepdims=True)) / temperature)
    steps = np.cumsum(powers, 1)
    drawn = source.random((len(logits), 1)) * steps[:, -1:]
    return (steps <= drawn).sum(1, keepdims=True)
