"""Convolutions as layers: the weights, PyTorch's initial values, and a call of `functional`.

One class holds what all share; the classes by dimension state their function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from chainrule import dtypes
from chainrule._tensor import Tensor
from chainrule.creation import empty
from chainrule.dtypes import DType
from chainrule.errors import InputError
from chainrule.layout.windows import per_dim
from chainrule.nn import functional as F
from chainrule.nn import init
from chainrule.nn.module import Module
from chainrule.nn.parameter import Parameter

Sizes = int | Sequence[int]


class _Conv(Module):
    """Weight, bias and options of a convolution or its transpose."""

    weight: Tensor
    bias: Tensor | None

    def _set_up(
        self,
        n: int,
        transposed: bool,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        dilation: Sizes,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: str | None,
        dtype: DType | None,
    ) -> None:
        name = type(self).__name__
        if padding_mode != "zeros":
            raise InputError(f"{name} pads with zeros; for {padding_mode!r} use F.pad before it")
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise InputError(
                f"{name}: groups={groups} must be positive and divide {in_channels} input and "
                f"{out_channels} output channels"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = per_dim(kernel_size, n, name, "kernel_size")
        self.stride = per_dim(stride, n, name, "stride")
        self.dilation = per_dim(dilation, n, name, "dilation")
        self.groups = groups
        shape = (out_channels, in_channels // groups)
        if transposed:
            shape = (in_channels, out_channels // groups)
        kind = dtype or dtypes.float32
        self.weight = Parameter(empty(*shape, *self.kernel_size, dtype=kind, device=device))
        made = Parameter(empty(out_channels, dtype=kind, device=device)) if bias else None
        self.register_parameter("bias", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight and bias uniform in ±1/√fan_in."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan, _ = init.fans(self.weight)
            bound = 1 / math.sqrt(fan) if fan else 0.0
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        n = len(self.kernel_size)
        padding: Any = getattr(self, "padding", 0)
        if padding not in (0, (0,) * n):
            parts.append(f"padding={padding}")
        if self.dilation != (1,) * n:
            parts.append(f"dilation={self.dilation}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        return ", ".join(parts)


class _ConvN(_Conv):
    """A convolution: `_n` dimensions by `_function`."""

    _n: int
    _function: Callable[..., Tensor]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        n = self._n
        self._set_up(
            n, False, in_channels, out_channels, kernel_size, stride, dilation, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise InputError(f'padding is numbers, "same" or "valid", got {padding!r}')
            self.padding: Any = padding
        else:
            self.padding = per_dim(padding, n, type(self).__name__, "padding", 0)

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, …) or (C, …) to (N, O, …) or (O, …)."""
        return type(self)._function(
            input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class Conv1d(_ConvN):
    """`functional.conv1d` with a weight (O, C/groups, k) and a bias (O,)."""

    _n, _function = 1, staticmethod(F.conv1d)


class Conv2d(_ConvN):
    """`functional.conv2d` with a weight (O, C/groups, kh, kw) and a bias (O,)."""

    _n, _function = 2, staticmethod(F.conv2d)


class Conv3d(_ConvN):
    """`functional.conv3d` with a weight (O, C/groups, kd, kh, kw) and a bias (O,)."""

    _n, _function = 3, staticmethod(F.conv3d)


class _ConvTransposeN(_Conv):
    """A transposed convolution: `_n` dimensions by `_function`."""

    _n: int
    _function: Callable[..., Tensor]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        n, name = self._n, type(self).__name__
        self._set_up(
            n, True, in_channels, out_channels, kernel_size, stride, dilation, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip
        self.padding = per_dim(padding, n, name, "padding", 0)
        self.output_padding = per_dim(output_padding, n, name, "output_padding", 0)

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, …) or (C, …) to (N, O, …) or (O, …)."""
        return type(self)._function(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.groups,
            self.dilation,
        )


class ConvTranspose1d(_ConvTransposeN):
    """`functional.conv_transpose1d` with a weight (C, O/groups, k) and a bias (O,)."""

    _n, _function = 1, staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTransposeN):
    """`functional.conv_transpose2d` with a weight (C, O/groups, kh, kw) and a bias (O,)."""

    _n, _function = 2, staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTransposeN):
    """`functional.conv_transpose3d` with a weight (C, O/groups, kd, kh, kw) and a bias (O,)."""

    _n, _function = 3, staticmethod(F.conv_transpose3d)
