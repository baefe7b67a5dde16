"""Layers without parameters that change shapes: pooling, upsampling, flattening.

Each keeps the options of a function of `functional`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chainrule._tensor import Tensor
from chainrule.nn import functional as F
from chainrule.nn.module import Module

Sizes = int | Sequence[int]


class _Max(Module):
    _function: Callable[..., Any]

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        """(N, C, …) or (C, …) to the largest elements, and their indices if asked for."""
        return type(self)._function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_Max):
    """`functional.max_pool1d` with its options kept."""

    _function = staticmethod(F.max_pool1d)


class MaxPool2d(_Max):
    """`functional.max_pool2d` with its options kept."""

    _function = staticmethod(F.max_pool2d)


class MaxPool3d(_Max):
    """`functional.max_pool3d` with its options kept."""

    _function = staticmethod(F.max_pool3d)


class AvgPool1d(Module):
    """`functional.avg_pool1d` with its options kept."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def _options(self) -> tuple[Sizes, Sizes, Sizes, bool, bool]:
        return self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, …) or (C, …) to the means."""
        return F.avg_pool1d(input, *self._options())

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(AvgPool1d):
    """`functional.avg_pool2d` with its options kept."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, H, W) or (C, H, W) to the means."""
        return F.avg_pool2d(input, *self._options(), self.divisor_override)


class AvgPool3d(AvgPool2d):
    """`functional.avg_pool3d` with its options kept."""

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, D, H, W) or (C, D, H, W) to the means."""
        return F.avg_pool3d(input, *self._options(), self.divisor_override)


class _Adaptive(Module):
    _function: Callable[..., Tensor]

    def __init__(self, output_size: int | Sequence[int | None]) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, …) or (C, …) to means of `output_size`."""
        return type(self)._function(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_Adaptive):
    """`functional.adaptive_avg_pool1d` with its size kept."""

    _function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_Adaptive):
    """`functional.adaptive_avg_pool2d` with its size kept."""

    _function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_Adaptive):
    """`functional.adaptive_avg_pool3d` with its size kept."""

    _function = staticmethod(F.adaptive_avg_pool3d)


class Upsample(Module):
    """`functional.interpolate` with its options kept."""

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, …) to the same at another size."""
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        what = "size" if self.scale_factor is None else "scale_factor"
        return f"{what}={getattr(self, what)}, mode={self.mode!r}"


class Flatten(Module):
    """The dimensions from `start_dim` to `end_dim` as one; by default all but the batch."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """(N, a, b, …) to (N, a·b·…): a view where the layout allows."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Dimension `dim` split into `unflattened_size`."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """A view with one dimension taken apart."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
