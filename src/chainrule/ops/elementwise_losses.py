"""Losses that compare element by element or row by row: binary cross entropy, Huber, KL, margins.

Each is a value an element, then one of the reductions "mean", "sum", "none". Written out of
differentiable operations, except where an edge (a logarithm at 0) wants a rule of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.autograd.value import Value
from chainrule.dtypes import promote
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, apply, common_backend, namespace, to_dtype
from chainrule.ops.losses import _check_reduction
from chainrule.ops.masking import clamp
from chainrule.ops.norms import norm
from chainrule.ops.reductions import mean as mean_of
from chainrule.ops.reductions import sum as sum_of

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def _pair(name: str, input: Any, target: Any, broadcast: bool = False) -> tuple[Any, Any]:
    """Both in one floating dtype; raises where they do not fit."""
    common_backend((input, target), name)
    if not broadcast and input.shape != target.shape:
        raise ShapeError(
            f"{name}: input {input.shape} and target {target.shape} differ: broadcasting here is "
            "nearly always a mistake; use .expand or .reshape if you mean it"
        )
    dtype = promote(input.dtype, target.dtype)
    if not dtype.is_floating_point:
        raise DTypeError(f"{name} needs floating-point tensors, not {dtype.name}")
    return to_dtype(input, dtype), to_dtype(target, dtype)


def _reduced(value: Any, reduction: str) -> Any:
    if reduction == "none":
        return value
    return sum_of(value) if reduction == "sum" else mean_of(value)


def _in_float32(fn: Any, *tensors: Any) -> Any:
    """`fn` of the tensors, half types computed in float32 and rounded once."""
    dtype = tensors[0].dtype
    if not dtype.is_half:
        return fn(*tensors)
    wide = [to_dtype(t, dtypes.float32) if isinstance(t, Value) else t for t in tensors]
    return to_dtype(fn(*wide), dtype)


# Binary cross entropy.


def _bounded_log(b: Any, log: Any) -> Any:
    """A logarithm no smaller than −100, as PyTorch bounds it."""
    return b.where(log < -100.0, b.full((), -100.0, log), log)


def _bce_forward(b: Any, p: Any, t: Any) -> Any:
    with b.quiet():
        yes, no = _bounded_log(b, b.log(p)), _bounded_log(b, b.log1p(-p))
    return (t - 1.0) * no - t * yes


def _bce_vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    p, t = saved
    gp = gt = None
    if n.parents[0] is not None:
        spread = p * (1.0 - p)  # at 0 and 1 held at 1e-12, PyTorch's
        least = b.full((), 1e-12, p)
        gp = g * (p - t) / b.where(spread < 1e-12, least, spread)
    if n.parents[1] is not None:
        gt = g * (_bounded_log(b, b.log1p(-p)) - _bounded_log(b, b.log(p)))
    return gp, gt


BCE = ArrayRule("binary_cross_entropy", _bce_forward, _bce_vjp, (0, 1))


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """−t log p − (1 − t) log(1 − p) for probabilities p = `input`, the logarithms at least −100.

    From scores use `binary_cross_entropy_with_logits`, which loses no digits. Raises `InputError`
    for numbers outside [0, 1].
    """
    _check_reduction(reduction)
    p, t = _pair("binary_cross_entropy", input, target)
    outside = ((p < 0.0) | (p > 1.0)).any()
    if bool(outside):
        raise InputError(
            "binary_cross_entropy: the input holds probabilities, between 0 and 1; for scores use "
            "binary_cross_entropy_with_logits"
        )
    value = apply(BCE, (p, t))
    if weight is not None:
        value = value * weight
    return _reduced(value, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross entropy of σ(input): (1 − t)·x + log(1 + e⁻ˣ), exact for every x.

    `pos_weight` multiplies the part of the target 1; `weight` the whole; both broadcast.
    """
    _check_reduction(reduction)
    x, t = _pair("binary_cross_entropy_with_logits", input, target)
    b = namespace()

    def loss(x: Any, t: Any, positive: Any) -> Any:
        cost = b.softplus(-x)
        if positive is not None:
            cost = cost * (1.0 + (positive - 1.0) * t)
        return (1.0 - t) * x + cost

    value = _in_float32(loss, x, t, pos_weight)
    if weight is not None:
        value = value * weight
    return _reduced(value, reduction)


# Distances.


def _bent(
    name: str, input: Tensor, target: Tensor, edge: float, slope: float, reduction: str
) -> Any:
    """slope · (d²/2 within ±edge, edge · (|d| − edge/2) outside)."""
    x, t = _pair(name, input, target)
    b = namespace()

    def loss(x: Any, t: Any) -> Any:
        d = x - t
        size = b.abs(d)
        near = size < edge if edge else size < 0.0
        square = b.where(near, d, 0.0)
        return b.where(near, square * square * (0.5 * slope), (size - 0.5 * edge) * (edge * slope))

    return _reduced(_in_float32(loss, x, t), reduction)


def huber_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """d²/2 for |d| < δ, else δ(|d| − δ/2), with d = input − target (Huber 1964)."""
    _check_reduction(reduction)
    if not delta > 0:
        raise InputError(f"huber_loss: delta must be positive, got {delta}")
    return _bent("huber_loss", input, target, float(delta), 1.0, reduction)


def smooth_l1_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """d²/2β for |d| < β, else |d| − β/2: `huber_loss` over β; with β = 0 `l1_loss`."""
    _check_reduction(reduction)
    if beta < 0:
        raise InputError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    if beta == 0:
        from chainrule.ops.losses import l1_loss

        return l1_loss(input, target, reduction=reduction)
    return _bent("smooth_l1_loss", input, target, float(beta), 1.0 / beta, reduction)


def kl_div(
    input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """t · (log t − input), where `input` holds log-probabilities and `target` probabilities t.

    With `log_target` the target holds logarithms too. The divergence itself is the sum over the
    elements of a row: reduction "batchmean" divides that sum by the number of rows.
    """
    if reduction != "batchmean":
        _check_reduction(reduction)
    x, t = _pair("kl_div", input, target)
    b = namespace()

    def loss(x: Any, t: Any) -> Any:
        if log_target:
            return b.exp(t) * (t - x)
        some = t > 0.0
        return t * b.log(b.where(some, t, 1.0)) - t * x

    value = _in_float32(loss, x, t)
    if reduction == "batchmean":
        return sum_of(value) / float(x.shape[0] if x.shape else 1)
    return _reduced(value, reduction)


def soft_margin_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """log(1 + exp(−t · input)) for targets ±1."""
    _check_reduction(reduction)
    x, t = _pair("soft_margin_loss", input, target)
    value = _in_float32(lambda x, t: namespace().softplus(-(t * x)), x, t)
    return _reduced(value, reduction)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, *, reduction: str = "mean"
) -> Tensor:
    """`input` where the target is 1, max(0, margin − input) where it is −1."""
    _check_reduction(reduction)
    x, t = _pair("hinge_embedding_loss", input, target, broadcast=True)
    b = namespace()
    near = b.where(b.eq(t, 1.0), 0.0, b.relu(margin - x))
    far = b.where(b.eq(t, -1.0), 0.0, x)
    return _reduced(near + far, reduction)


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    *,
    reduction: str = "mean",
) -> Tensor:
    """max(0, −t · (input1 − input2) + margin) for targets ±1: 1 wants the first larger."""
    _check_reduction(reduction)
    common_backend((input1, input2, target), "margin_ranking_loss")
    cost = -(target * (input1 - input2)) + margin
    # Of a cost that is exactly 0 the gradient passes, as PyTorch's clamp lets it.
    return _reduced(clamp(cost, 0.0), reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    *,
    reduction: str = "mean",
) -> Tensor:
    """exp(x) − t·x, or with `log_input` False x − t·log(x + eps); `full` adds Stirling's log t!."""
    _check_reduction(reduction)
    x, t = _pair("poisson_nll_loss", input, target, broadcast=True)
    b = namespace()

    def loss(x: Any, t: Any) -> Any:
        value = b.exp(x) - t * x if log_input else x - t * b.log(x + eps)
        if full:
            large = t > 1.0
            safe = b.where(large, t, 1.0)
            stirling = t * b.log(safe) - t + b.log(safe * (2.0 * math.pi)) * 0.5
            value = value + b.where(large, stirling, 0.0)
        return value

    return _reduced(_in_float32(loss, x, t), reduction)


# Rows.


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """⟨x1, x2⟩/(max(‖x1‖, ε)·max(‖x2‖, ε)) along `dim`; the shapes broadcast."""
    x, y = _pair("cosine_similarity", x1, x2, broadcast=True)
    b = namespace()

    def similarity(x: Any, y: Any) -> Any:
        x, y = _broadcast(x, y)
        return sum_of(_unit(b, x, dim, eps) * _unit(b, y, dim, eps), dim)

    return _in_float32(similarity, x, y)


def _broadcast(x: Any, y: Any) -> tuple[Any, Any]:
    shape = (views.detach(x) + views.detach(y)).shape if x.shape != y.shape else x.shape
    return views.expand(x, shape), views.expand(y, shape)


def _unit(b: Any, x: Any, dim: int, eps: float) -> Any:
    size: Any = norm(x, 2.0, dim, True)
    return x / b.where(size > eps, size, eps)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x / max(‖x‖ₚ, ε) along `dim`."""
    b = namespace()

    def scaled(x: Any) -> Any:
        size: Any = norm(x, p, dim, True)
        return x / b.where(size < eps, eps, size)

    return _in_float32(scaled, input)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """‖x1 − x2 + ε‖ₚ along the last dimension; the shapes broadcast."""
    x, y = _pair("pairwise_distance", x1, x2, broadcast=True)
    return _in_float32(lambda x, y: norm(x - y + eps, p, -1, keepdim), x, y)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    *,
    reduction: str = "mean",
) -> Tensor:
    """1 − cos where the target is 1, max(0, cos − margin) where it is −1; rows (N, D) or (D,)."""
    _check_reduction(reduction)
    b = namespace()
    along = cosine_similarity(input1, input2, -1, 0.0)
    value = b.where(
        b.eq(target, 1), 1.0 - along, b.where(b.eq(target, -1), b.relu(along - margin), 0.0)
    )
    return _reduced(value, reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) − d(anchor, negative) + margin), d the p-norm of rows.

    With `swap` the negative's distance to the positive counts where it is smaller.
    """
    _check_reduction(reduction)
    b = namespace()
    near: Any = pairwise_distance(anchor, positive, p, eps)
    far: Any = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = b.minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduced(clamp(near - far + margin, 0.0), reduction)
