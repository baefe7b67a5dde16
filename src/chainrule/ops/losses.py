"""Losses, one node each: cross_entropy, nll_loss, mse_loss, l1_loss.

Cross entropy runs on the fused kernel of the NumPy backend, elsewhere on the plain form below,
which is also what its second derivative is taken of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chainrule.autograd.node import Node
from chainrule.autograd.value import Value, raw_of
from chainrule.backends import fused
from chainrule.dtypes import int64, promote
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, alike, apply, common_backend, namespace, to_dtype

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

_REDUCTIONS = ("mean", "sum", "none")


def _check_reduction(reduction: str) -> None:
    if reduction not in _REDUCTIONS:
        raise InputError(f'reduction is "mean", "sum" or "none"; got {reduction!r}')


# Classes.


def still(x: Any) -> Any:
    """`x` without history: a shift that a result does not depend on."""
    detach: Any = views.detach
    return detach(x) if isinstance(x, Value) else x


def _count(alive: Any) -> int:
    return int((raw_of(alive) if isinstance(alive, Value) else alive).sum())


def log_sum_exp(b: Any, x: Any, dim: int) -> Any:
    """Log Σ exp(x) along `dim`, kept as size 1; −inf where every element is."""
    top = still(b.amax(x, (dim,), True))
    top = b.where(top == -math.inf, b.zeros((), top), top)
    return b.log(b.sum(b.exp(x - top), (dim,), True)) + top


def _cross_entropy_plain(
    b: Any, x: Any, target: Any, ignore: int, smoothing: float, reduction: str
) -> tuple[Any, Any]:
    n, classes = tuple(x.shape)
    alive = target != ignore
    picked = b.reshape(b.gather(x, 1, b.reshape(_safe(b, target, alive), (n, 1))), (n,))
    lse = b.reshape(log_sum_exp(b, x, 1), (n,))
    value = (lse - picked) * (1.0 - smoothing)
    if smoothing:
        value = value + (lse - b.sum(x, (1,), False) / float(classes)) * smoothing
    value = b.where(alive, value, b.zeros((), x))
    if reduction == "none":
        return value, lse
    total = b.sum(value, (0,), False)
    if reduction == "mean":
        count = _count(alive)
        total = total / float(count) if count else total * math.nan
    return total, lse


def _safe(b: Any, target: Any, alive: Any) -> Any:
    """Class 0 in place of ignored targets, which may be no class at all."""
    return b.cast(b.where(alive, target, b.zeros((), target)), int64)


def _cross_entropy_forward(b: Any, x: Any, target: Any, *attrs: Any) -> Any:
    ignore, smoothing, reduction = attrs
    if b.fused is None:
        fused._check_targets(b.to_numpy(x), b.to_numpy(target), ignore, reduction)
        loss, lse = _cross_entropy_plain(b, x, target, *attrs)
    else:
        loss, lse = b.fused.cross_entropy_forward(
            x, target, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction
        )
    return loss, (lse,)


def _cross_entropy_vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    x, target, lse = saved
    ignore, smoothing, reduction = n.attrs
    if b.fused is not None:
        return b.fused.cross_entropy_backward(
            g,
            x,
            target,
            lse,
            ignore_index=ignore,
            label_smoothing=smoothing,
            reduction=reduction,
        ), None
    rows, classes = tuple(x.shape)
    column = (rows, 1)
    alive = target != ignore
    share = b.where(alive, g, b.zeros((), g))
    if reduction == "mean":
        share = share / float(max(1, _count(alive)))
    hot = b.full(column, 1.0 - smoothing, x)
    wanted = b.scatter_add((rows, classes), 1, b.reshape(_safe(b, target, alive), column), hot)
    part = b.exp(x - b.reshape(lse, column)) - wanted
    if smoothing:
        part = part - smoothing / classes
    # Selected, not multiplied by 0: an ignored row may hold NaN.
    part = part * b.reshape(share, column)
    return b.where(b.reshape(alive, column), part, b.zeros((), x)), None


def _cross_entropy_again(x: Any, target: Any, *attrs: Any) -> Any:
    return _cross_entropy_plain(namespace(), x, target, *attrs)[0]


CROSS_ENTROPY = ArrayRule(
    "cross_entropy",
    _cross_entropy_forward,
    _cross_entropy_vjp,
    (0, 1),
    composite=_cross_entropy_again,
)


def _by_rows(name: str, x: Any, target: Any) -> tuple[Any, Any]:
    """Scores as (rows, classes) and targets as (rows,); raises where they do not fit."""
    common_backend((x, target), name)
    shape, wanted = tuple(x._a.shape), tuple(target._a.shape)
    if not x.dtype.is_floating_point:
        raise DTypeError(f"{name} needs floating-point scores, not {x.dtype.name}")
    if target.dtype.category != 1:
        raise DTypeError(
            f"{name}: targets are class numbers, so integers; got {target.dtype.name} of shape "
            f"{wanted}"
        )
    classes_at = 0 if len(shape) == 1 else 1
    if not shape or shape[:classes_at] + shape[classes_at + 1 :] != wanted:
        raise ShapeError(
            f"{name}: scores of shape {shape} are (N, C), (C,) or (N, C, d1, …), and targets "
            f"then (N,), () or (N, d1, …); got targets of shape {wanted}"
        )
    if len(shape) == 1:
        x = views.unsqueeze(x, 0)
    elif len(shape) > 2:
        x = views.movedim(x, 1, -1)
        x = views.reshape(x, (math.prod(wanted), shape[1]))
    return x, target if len(wanted) == 1 else views.reshape(target, (math.prod(wanted),))


def cross_entropy(
    input: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """−Σ q log softmax(input), q = (1 − ε)·onehot(target) + ε/C with ε = `label_smoothing`.

    `input` (N, C), (C,) or (N, C, d1, …) holds scores, `target` (N,), () or (N, d1, …) integers.
    Targets equal to `ignore_index` take no part; the mean is over the others, NaN if there are
    none. Raises `IndexRangeError` for a target that is no class.
    """
    _check_reduction(reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise InputError(f"label_smoothing is between 0 and 1, got {label_smoothing}")
    x, rows = _by_rows("cross_entropy", input, target)
    loss = apply(CROSS_ENTROPY, (x, rows), (int(ignore_index), float(label_smoothing), reduction))
    if reduction == "none" and target.ndim != 1:
        loss = views.reshape(loss, target.shape)
    return loss


def nll_loss(
    input: Tensor, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """−input[target]: `input` holds log-probabilities; shapes and meaning of `cross_entropy`."""
    _check_reduction(reduction)
    x, rows = _by_rows("nll_loss", input, target)
    b = namespace()
    host = common_backend((rows,), "nll_loss")
    fused._check_targets(
        host.to_numpy(raw_of(x)), host.to_numpy(raw_of(rows)), ignore_index, reduction
    )
    alive = rows != ignore_index
    index = b.reshape(_safe(b, rows, alive), (rows.shape[0], 1))
    value = b.where(alive, -b.reshape(b.gather(x, 1, index), rows.shape), b.zeros((), x))
    if reduction == "none":
        return views.reshape(value, target.shape)
    total = b.sum(value)
    if reduction == "mean":
        count = _count(alive)
        total = total / float(count) if count else total * math.nan
    return total


# Distances.


def _distance(name: str, cost: Any, slope: Any) -> ArrayRule:
    """The rule of Σ cost(x − t), reduced; `slope` is cost's derivative."""

    def forward(b: Any, x: Any, t: Any, reduction: str) -> Any:
        with b.quiet():
            value = cost(b, x - t)
            if reduction == "none":
                return value
            total = b.sum(value, tuple(range(len(value.shape))), False)
            # Of no element the mean is NaN, as 0/0.
            return total * _per_element(value.shape) if reduction == "mean" else total

    def vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
        x, t = saved
        (reduction,) = n.attrs
        if reduction == "mean":
            g = g * _per_element(x.shape)
        d = slope(b, x - t) * g
        return (
            None if n.parents[0] is None else d,
            None if n.parents[1] is None else -d,
        )

    return ArrayRule(name, forward, vjp, (0, 1))


def _per_element(shape: Sequence[int]) -> float:
    size = math.prod(shape)
    return 1.0 / size if size else math.nan


MSE_LOSS = _distance("mse_loss", lambda b, d: d * d, lambda b, d: d * 2.0)
L1_LOSS = _distance("l1_loss", lambda b, d: b.abs(d), lambda b, d: b.sign(d))


def _distance_of(rule: ArrayRule, input: Tensor, target: Tensor, reduction: str) -> Tensor:
    _check_reduction(reduction)
    if alike((input, target)) and input._a.shape == target._a.shape:
        return apply(rule, (input, target), (reduction,))
    common_backend((input, target), rule.name)
    if input.shape != target.shape:
        raise ShapeError(
            f"{rule.name}: input {input.shape} and target {target.shape} differ: broadcasting "
            "here is nearly always a mistake; use .expand or .reshape if you mean it"
        )
    dtype = promote(input.dtype, target.dtype)
    if not dtype.is_floating_point:
        raise DTypeError(f"{rule.name} needs floating-point tensors, not {dtype.name}")
    return apply(rule, (to_dtype(input, dtype), to_dtype(target, dtype)), (reduction,))


def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """(input − target)², reduced; the shapes must be equal (PyTorch broadcasts with a warning)."""
    return _distance_of(MSE_LOSS, input, target, reduction)


def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """|input − target|, reduced, with slope 0 at 0; the shapes must be equal."""
    return _distance_of(L1_LOSS, input, target, reduction)
