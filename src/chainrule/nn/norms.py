"""Normalisation by channel as layers: batch norm with its running averages, group, instance norm.

State-dict keys are PyTorch's: weight, bias, running_mean, running_var, num_batches_tracked.
"""

from __future__ import annotations

from chainrule import dtypes
from chainrule._tensor import Tensor
from chainrule.autograd import no_grad
from chainrule.creation import ones, zeros
from chainrule.dtypes import DType
from chainrule.errors import InputError, ShapeError
from chainrule.nn import functional as F
from chainrule.nn import init
from chainrule.nn.module import Module
from chainrule.nn.parameter import Parameter


class _ChannelNorm(Module):
    """Weight and bias a channel, and running averages where they are tracked."""

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    _dims: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        kind = dtype or dtypes.float32
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, made, wanted in (("weight", ones, affine), ("bias", zeros, affine and bias)):
            value = Parameter(made(num_features, dtype=kind, device=device)) if wanted else None
            self.register_parameter(name, value)
        tracked = track_running_stats
        size = num_features
        self.register_buffer(
            "running_mean", zeros(size, dtype=kind, device=device) if tracked else None
        )
        self.register_buffer(
            "running_var", ones(size, dtype=kind, device=device) if tracked else None
        )
        count = zeros((), dtype=dtypes.int64, device=device) if tracked else None
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batch seen."""
        if self.running_mean is not None and self.running_var is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            with no_grad():
                assert self.num_batches_tracked is not None
                self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Weight ones, bias zeros, no batch seen."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check(self, input: Tensor) -> None:
        if input.ndim not in self._dims:
            wanted = " or ".join(map(str, self._dims))
            raise ShapeError(
                f"{type(self).__name__} takes an input of {wanted} dimensions, got {input.shape}"
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_ChannelNorm):
    def forward(self, input: Tensor) -> Tensor:
        """(N, C, …) to the same, normalised by the batch in training, else by what is tracked."""
        self._check(input)
        factor = self.momentum or 0.0
        if self.training and self.num_batches_tracked is not None:
            with no_grad():
                self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the plain average of all batches seen
                factor = 1.0 / float(self.num_batches_tracked.item())
        by_batch = self.training or self.running_mean is None
        mean, var = self.running_mean, self.running_var
        if self.training and not self.track_running_stats:
            mean = var = None
        return F.batch_norm(input, mean, var, self.weight, self.bias, by_batch, factor, self.eps)


class BatchNorm1d(_BatchNorm):
    """Batch norm of (N, C) or (N, C, L) (Ioffe & Szegedy 2015)."""

    _dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of (N, C, H, W) (Ioffe & Szegedy 2015)."""

    _dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch norm of (N, C, D, H, W) (Ioffe & Szegedy 2015)."""

    _dims = (5,)


class _InstanceNorm(_ChannelNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, …) or (C, …) to the same, each channel of each image by itself."""
        self._check(input)
        single = input.ndim == self._dims[0]
        x = input.unsqueeze(0) if single else input
        y = F.instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum or 0.0,
            self.eps,
        )
        return y.squeeze(0) if single else y


class InstanceNorm1d(_InstanceNorm):
    """Instance norm of (N, C, L) or (C, L) (Ulyanov et al. 2016)."""

    _dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance norm of (N, C, H, W) or (C, H, W) (Ulyanov et al. 2016)."""

    _dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance norm of (N, C, D, H, W) or (C, D, H, W) (Ulyanov et al. 2016)."""

    _dims = (4, 5)


class GroupNorm(Module):
    """`functional.group_norm` with a weight and a bias a channel (Wu & He 2018)."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise InputError(
                f"GroupNorm: num_groups={num_groups} must be positive and divide {num_channels} "
                "channels"
            )
        kind = dtype or dtypes.float32
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, made, wanted in (("weight", ones, affine), ("bias", zeros, affine and bias)):
            value = Parameter(made(num_channels, dtype=kind, device=device)) if wanted else None
            self.register_parameter(name, value)

    def reset_parameters(self) -> None:
        """Weight ones, bias zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, …) to the same."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
