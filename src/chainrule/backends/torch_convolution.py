"""Convolution on raw PyTorch tensors: the three maps of `backends.convolution`, by PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from chainrule.backends.convolution import Convolution
from chainrule.layout.windows import Ints

Raw = Any


def _pads(c: Convolution, sign: int = 1) -> list[int]:
    """Both sides' padding, last dimension first, as `torch.nn.functional.pad` counts."""
    pairs = zip(reversed(c.windows.before), reversed(c.windows.after), strict=True)
    return [sign * n for pair in pairs for n in pair]


def _arguments(c: Convolution, ndim: int) -> tuple[Any, ...]:
    w = c.windows
    none = [0] * ndim
    return list(w.stride), none, list(w.dilation), False, none, c.groups


def forward(x: Raw, weight: Raw, bias: Raw | None, c: Convolution) -> Raw:
    """(N, C, …) and (O, C/g, …) to (N, O, …)."""
    x = torch.nn.functional.pad(x, _pads(c))
    return torch.convolution(x, weight, bias, *_arguments(c, weight.ndim - 2))


def _backward(g: Raw, x: Raw, weight: Raw, c: Convolution, wanted: list[bool]) -> Any:
    return torch.ops.aten.convolution_backward(
        g, x, weight, None, *_arguments(c, weight.ndim - 2), wanted
    )


def to_input(g: Raw, weight: Raw, c: Convolution, size: Ints) -> Raw:
    """The transpose in the input: (N, O, …) and the weight to (N, C, *size)."""
    shape = (g.shape[0], weight.shape[1] * c.groups, *c.windows.padded(size))
    like = g.new_empty(shape)
    if c.channels_last:
        like = like.to(memory_format=torch.channels_last)
    found = _backward(g, like, weight, c, [True, False, False])[0]
    return torch.nn.functional.pad(found, _pads(c, -1))


def to_weight(x: Raw, g: Raw, c: Convolution) -> Raw:
    """The transpose in the weight: (N, C, …) and (N, O, …) to (O, C/g, …)."""
    x = torch.nn.functional.pad(x, _pads(c))
    shape = (g.shape[1], x.shape[1] // c.groups, *c.windows.kernel)
    return _backward(g, x, g.new_empty(shape), c, [False, True, False])[1]
