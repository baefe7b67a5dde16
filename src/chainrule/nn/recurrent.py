"""Elman's recurrent network: h_t = tanh(W_ih x_t + b_ih + W_hh h_{t−1} + b_hh).

Names, shapes and state-dict keys are those of `torch.nn.RNN` and `torch.nn.RNNCell`.
"""

from __future__ import annotations

import math
from typing import Any

from chainrule import dtypes
from chainrule._tensor import Tensor
from chainrule.creation import empty, zeros
from chainrule.dtypes import DType
from chainrule.errors import InputError, ShapeError
from chainrule.nn import functional as F
from chainrule.nn import init
from chainrule.nn.module import Module
from chainrule.nn.parameter import Parameter
from chainrule.ops.joining import stack

_NONLINEARITIES = {"tanh": F.tanh, "relu": F.relu}


def _nonlinearity(name: str) -> Any:
    if name not in _NONLINEARITIES:
        raise InputError(f'nonlinearity is "tanh" or "relu", got {name!r}')
    return _NONLINEARITIES[name]


class _Recurrent(Module):
    """What a cell and a network share: weights uniform in ±1/√hidden_size."""

    def __init__(self, input_size: int, hidden_size: int, nonlinearity: str, bias: bool) -> None:
        super().__init__()
        if input_size < 1 or hidden_size < 1:
            raise InputError(f"sizes are at least 1, got {input_size} and {hidden_size}")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.nonlinearity = nonlinearity
        self.bias = bias
        self._activate = _nonlinearity(nonlinearity)

    def _add(self, suffix: str, width: int, kind: Any) -> None:
        hidden = self.hidden_size
        self.register_parameter(f"weight_ih{suffix}", Parameter(empty(hidden, width, **kind)))
        self.register_parameter(f"weight_hh{suffix}", Parameter(empty(hidden, hidden, **kind)))
        for name in (f"bias_ih{suffix}", f"bias_hh{suffix}"):
            self.register_parameter(name, Parameter(empty(hidden, **kind)) if self.bias else None)

    def reset_parameters(self) -> None:
        """Everything uniform in ±1/√hidden_size."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def extra_repr(self) -> str:
        plain = "" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity!r}"
        return f"{self.input_size}, {self.hidden_size}{plain}"


class RNNCell(_Recurrent):
    """One step: input (batch, input_size) or (input_size,) and hidden state to the next state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, nonlinearity, bias)
        self._add("", input_size, {"device": device, "dtype": dtype or dtypes.float32})
        self.reset_parameters()

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """(…, input_size) and (…, hidden_size), zeros by default, to (…, hidden_size)."""
        if hx is None:
            shape = (*input.shape[:-1], self.hidden_size)
            hx = zeros(shape, dtype=input.dtype, device=str(input.device))
        own = F.linear(input, self.weight_ih, self.bias_ih)
        return self._activate(own + F.linear(hx, self.weight_hh, self.bias_hh))


class RNN(_Recurrent):
    """Layers of Elman networks over a sequence.

    Input (time, batch, input_size), or (batch, time, …) if `batch_first`, or (time, input_size)
    without a batch. Gives the top layer's states for all times, and the last state of every layer
    (num_layers, batch, hidden_size). `dropout` acts between layers.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, nonlinearity, bias)
        if num_layers < 1:
            raise InputError(f"num_layers is at least 1, got {num_layers}")
        self.num_layers = num_layers
        self.batch_first = batch_first
        self.dropout = dropout
        kind = {"device": device, "dtype": dtype or dtypes.float32}
        for layer in range(num_layers):
            self._add(f"_l{layer}", hidden_size if layer else input_size, kind)
        self.reset_parameters()

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The top layer's states and every layer's last one; `hx` has the latter's shape."""
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"RNN takes (time, batch, {self.input_size}) or (time, {self.input_size}), with "
                f"batch_first (batch, time, {self.input_size}); got {input.shape}"
            )
        batched = input.ndim == 3
        x = input.transpose(0, 1) if batched and self.batch_first else input
        if not x.shape[0]:
            raise ShapeError(f"RNN needs at least one time step, got {input.shape}")
        state = (self.num_layers, *x.shape[1:-1], self.hidden_size)
        if hx is not None and hx.shape != state:
            raise ShapeError(f"RNN: the first state has shape {state}, got {hx.shape}")
        last: list[Tensor] = []
        for layer in range(self.num_layers):
            if hx is None:
                h = zeros(state[1:], dtype=x.dtype, device=str(x.device))
            else:
                h = hx[layer]
            if layer:
                x = F.dropout(x, self.dropout, self.training)
            x = self._layer(x, h, layer)
            last.append(x[-1])
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        return x, stack(last, 0)

    def _layer(self, x: Tensor, h: Tensor, layer: int) -> Tensor:
        weights = [
            getattr(self, f"{name}_l{layer}")
            for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        ]
        # All inputs at once: one large product instead of one a step.
        own = F.linear(x, weights[0], weights[1])
        states: list[Tensor] = []
        for step in own.unbind(0):
            h = self._activate(step + F.linear(h, weights[2], weights[3]))
            states.append(h)
        return stack(states, 0)

    def extra_repr(self) -> str:
        more = f", num_layers={self.num_layers}" if self.num_layers != 1 else ""
        return super().extra_repr() + more + (", batch_first=True" if self.batch_first else "")
