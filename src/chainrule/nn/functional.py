"""Everything a layer computes, as functions under PyTorch's names.

`import chainrule.nn.functional as F`. What each computes is stated in `chainrule.ops`; here are
the names, keywords and the random generator.
"""

from __future__ import annotations

from chainrule import _guard, ops, random
from chainrule._tensor import Tensor
from chainrule.errors import InputError
from chainrule.ops import attention as _attention
from chainrule.ops import neural as _neural
from chainrule.ops.channels import batch_norm as batch_norm
from chainrule.ops.channels import group_norm as group_norm
from chainrule.ops.channels import instance_norm as instance_norm
from chainrule.ops.composed import celu as celu
from chainrule.ops.composed import hardshrink as hardshrink
from chainrule.ops.composed import hardsigmoid as hardsigmoid
from chainrule.ops.composed import hardswish as hardswish
from chainrule.ops.composed import selu as selu
from chainrule.ops.composed import softshrink as softshrink
from chainrule.ops.composed import tanhshrink as tanhshrink
from chainrule.ops.composed import threshold as threshold
from chainrule.ops.convolution import conv1d as conv1d
from chainrule.ops.convolution import conv2d as conv2d
from chainrule.ops.convolution import conv3d as conv3d
from chainrule.ops.convolution import conv_transpose1d as conv_transpose1d
from chainrule.ops.convolution import conv_transpose2d as conv_transpose2d
from chainrule.ops.convolution import conv_transpose3d as conv_transpose3d
from chainrule.ops.elementwise_losses import binary_cross_entropy as binary_cross_entropy
from chainrule.ops.elementwise_losses import (
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
)
from chainrule.ops.elementwise_losses import cosine_embedding_loss as cosine_embedding_loss
from chainrule.ops.elementwise_losses import cosine_similarity as cosine_similarity
from chainrule.ops.elementwise_losses import hinge_embedding_loss as hinge_embedding_loss
from chainrule.ops.elementwise_losses import huber_loss as huber_loss
from chainrule.ops.elementwise_losses import kl_div as kl_div
from chainrule.ops.elementwise_losses import margin_ranking_loss as margin_ranking_loss
from chainrule.ops.elementwise_losses import normalize as normalize
from chainrule.ops.elementwise_losses import pairwise_distance as pairwise_distance
from chainrule.ops.elementwise_losses import poisson_nll_loss as poisson_nll_loss
from chainrule.ops.elementwise_losses import smooth_l1_loss as smooth_l1_loss
from chainrule.ops.elementwise_losses import soft_margin_loss as soft_margin_loss
from chainrule.ops.elementwise_losses import triplet_margin_loss as triplet_margin_loss
from chainrule.ops.gathering import embedding as embedding
from chainrule.ops.gathering import one_hot as one_hot
from chainrule.ops.joining import pad as pad
from chainrule.ops.linalg import linear as linear
from chainrule.ops.losses import (
    cross_entropy as cross_entropy,
)
from chainrule.ops.losses import (
    l1_loss as l1_loss,
)
from chainrule.ops.losses import (
    mse_loss as mse_loss,
)
from chainrule.ops.losses import (
    nll_loss as nll_loss,
)
from chainrule.ops.named import (
    logsigmoid as logsigmoid,
)
from chainrule.ops.named import (
    mish as mish,
)
from chainrule.ops.named import (
    relu as relu,
)
from chainrule.ops.named import (
    relu6 as relu6,
)
from chainrule.ops.named import (
    sigmoid as sigmoid,
)
from chainrule.ops.named import (
    silu as silu,
)
from chainrule.ops.named import (
    softsign as softsign,
)
from chainrule.ops.named import (
    squareplus as squareplus,
)
from chainrule.ops.named import (
    tanh as tanh,
)
from chainrule.ops.neural import layer_norm as layer_norm
from chainrule.ops.neural import rms_norm as rms_norm
from chainrule.ops.normalise import log_softmax as log_softmax
from chainrule.ops.normalise import softmax as softmax
from chainrule.ops.pooling import avg_pool1d as avg_pool1d
from chainrule.ops.pooling import avg_pool2d as avg_pool2d
from chainrule.ops.pooling import avg_pool3d as avg_pool3d
from chainrule.ops.pooling import max_pool1d as max_pool1d
from chainrule.ops.pooling import max_pool2d as max_pool2d
from chainrule.ops.pooling import max_pool3d as max_pool3d
from chainrule.ops.resampling import adaptive_avg_pool1d as adaptive_avg_pool1d
from chainrule.ops.resampling import adaptive_avg_pool2d as adaptive_avg_pool2d
from chainrule.ops.resampling import adaptive_avg_pool3d as adaptive_avg_pool3d
from chainrule.ops.resampling import interpolate as interpolate
from chainrule.random import Generator


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x·Φ(x), or with `approximate="tanh"` its usual approximation (Hendrycks & Gimpel 2016)."""
    if approximate == "none":
        return ops.gelu(input)
    if approximate == "tanh":
        return ops.gelu_tanh(input)
    raise InputError(f'gelu: approximate is "none" or "tanh", got {approximate!r}')


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x above 0, else α(eˣ − 1) (Clevert et al. 2015)."""
    return ops.elu(input, alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x above 0, else `negative_slope` · x."""
    return ops.leaky_relu(input, negative_slope)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x held between two numbers; the gradient is 0 at and beyond them."""
    if min_val > max_val:
        raise InputError(f"hardtanh: min_val {min_val} is above max_val {max_val}")
    return ops.hardtanh(input, min_val, max_val)


def softplus(input: Tensor, beta: float = 1.0, threshold: float | None = None) -> Tensor:
    """log(1 + exp(βx))/β, exact everywhere: it needs no `threshold`.

    Where one is given, the result is x for βx above it, as PyTorch has it (there 20 by default).
    """
    if beta == 1.0 and threshold is None:
        return ops.softplus(input)
    scaled = input * beta
    if threshold is None:
        return ops.softplus(scaled) / beta
    linear = scaled > threshold
    return ops.where(linear, input, ops.softplus(ops.where(linear, 0.0, scaled)) / beta)


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, *, generator: Generator | None = None
) -> Tensor:
    """Zero each element with probability `p` and divide the others by 1 − p; identity in eval.

    Draws from `generator`, or the default one that `cr.manual_seed` seeds.
    """
    if not 0 <= p <= 1:
        raise InputError(f"the dropout probability is between 0 and 1, got {p}")
    if not training:
        return input
    return _neural.dropout(input, p, generator or random.default_generator)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """softmax(scale · query keyᵀ + mask) value; see `chainrule.ops.attention`.

    As in PyTorch dropout is applied whenever `dropout_p` > 0: pass 0.0 in evaluation.
    """
    return _attention.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale,
        enable_gqa,
        generator=generator or random.default_generator,
    )


_guard.explain(globals())
