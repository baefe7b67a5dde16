"""Convolution in 1, 2 and 3 dimensions, and its transpose: one bilinear map, three rules.

The gradient in the input is the transposed convolution, that in the weight a correlation; each is
the derivative of the others, so that all orders follow. What they compute is in
`backends.convolution`; a channels_last input keeps its layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chainrule.autograd.node import Node
from chainrule.autograd.value import Value
from chainrule.backends.convolution import Convolution
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.layout.windows import Ints, Windows, per_dim
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, apply, common_backend, run_on
from chainrule.ops.joining import pad as padded
from chainrule.ops.named import add

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

Sizes = int | Sequence[int]


def _other_side(need: tuple[bool, ...]) -> tuple[int, ...]:
    """What is saved: each of the first two where the other one wants a gradient."""
    return tuple([i for i in (0, 1) if need[1 - i]])


def _operands(saved: Sequence[Any], n: Node) -> tuple[Any, Any]:
    rest = list(saved)
    x = rest.pop(0) if n.parents[1] is not None else None
    return x, rest.pop(0) if n.parents[0] is not None else None


def _conv_forward(b: Any, x: Any, weight: Any, *rest: Any) -> Any:
    return b.convolution.forward(x, weight, rest[0] if len(rest) == 2 else None, rest[-1])


def _conv_vjp(b: Any, g: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    x, weight = _operands(saved, n)
    (c,) = n.attrs
    gx = gw = None
    if n.parents[0] is not None:
        gx = run_on(b, TO_INPUT, (g, weight), (c, tuple(n.parents[0].shape)[2:]))
    if n.parents[1] is not None:
        gw = run_on(b, TO_WEIGHT, (x, g), (c,))
    if len(n.parents) == 2:
        return gx, gw
    others = (0, *range(2, len(g.shape)))
    return gx, gw, None if n.parents[2] is None else b.sum(g, others, False)


def _to_input_forward(b: Any, g: Any, weight: Any, c: Convolution, size: Ints) -> Any:
    return b.convolution.to_input(g, weight, c, size)


def _to_input_vjp(b: Any, h: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    g, weight = _operands(saved, n)
    c = n.attrs[0]
    return (
        None if n.parents[0] is None else run_on(b, CONV, (h, weight), (c,)),
        None if n.parents[1] is None else run_on(b, TO_WEIGHT, (h, g), (c,)),
    )


def _to_weight_forward(b: Any, x: Any, g: Any, c: Convolution) -> Any:
    return b.convolution.to_weight(x, g, c)


def _to_weight_vjp(b: Any, h: Any, saved: Sequence[Any], n: Node) -> tuple[Any, ...]:
    x, g = _operands(saved, n)
    (c,) = n.attrs
    gx = gg = None
    if n.parents[0] is not None:
        gx = run_on(b, TO_INPUT, (g, h), (c, tuple(n.parents[0].shape)[2:]))
    if n.parents[1] is not None:
        gg = run_on(b, CONV, (x, h), (c,))
    return gx, gg


CONV = ArrayRule("convolution", _conv_forward, _conv_vjp, _other_side)
TO_INPUT = ArrayRule("transposed convolution", _to_input_forward, _to_input_vjp, _other_side)
TO_WEIGHT = ArrayRule("convolution's weight", _to_weight_forward, _to_weight_vjp, _other_side)


def _checked(name: str, n: int, tensors: Sequence[Any], transposed: bool, groups: int) -> bool:
    """Raise where dtypes, devices or shapes do not fit; whether the input has no batch."""
    common_backend(tensors, name)
    x, weight, *bias = tensors
    sx, sw = tuple(x._a.shape), tuple(weight._a.shape)
    names = {t.dtype.name for t in tensors}
    if len(names) > 1:
        raise DTypeError(f"{name} of {' and '.join(sorted(names))}: convert with .to(dtype)")
    if not x.dtype.is_floating_point:
        raise DTypeError(f"{name} needs floating-point tensors, not {x.dtype.name}")
    if len(sw) != n + 2 or len(sx) not in (n + 1, n + 2):
        raise ShapeError(
            f"{name}: the weight has {n + 2} dimensions and the input {n + 1} or {n + 2}; got "
            f"shapes {sw} and {sx}"
        )
    if 0 in sw:
        raise ShapeError(f"{name}: the weight, of shape {sw}, has no elements")
    if groups < 1 or sw[0] % groups:
        raise InputError(
            f"{name}: groups={groups} must be positive and divide the weight's first size, {sw[0]}"
        )
    channels = sx[-n - 1]
    wanted = sw[0] if transposed else sw[1] * groups
    if channels != wanted:
        raise ShapeError(
            f"{name}: input {sx} has {channels} channels, the weight {sw} with groups={groups} "
            f"wants {wanted}"
        )
    out = sw[1] * groups if transposed else sw[0]
    if bias and tuple(bias[0]._a.shape) != (out,):
        raise ShapeError(f"{name}: bias {tuple(bias[0]._a.shape)} should be ({out},)")
    return len(sx) == n + 1


def _sides(name: str, padding: Sizes | str, kernel: Ints, stride: Ints, dilation: Ints) -> Any:
    """The padding before and after each dimension."""
    n = len(kernel)
    if padding == "valid":
        padding = 0
    if padding == "same":
        if max(stride) > 1:
            raise InputError(f'{name}: padding="same" needs stride 1, got {stride}')
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        before = tuple([t // 2 for t in total])  # PyTorch puts an odd one after
        return before, tuple([t - b for t, b in zip(total, before, strict=True)])
    if isinstance(padding, str):
        raise InputError(f'{name}: padding is numbers, "same" or "valid", got {padding!r}')
    both = per_dim(padding, n, name, "padding", 0)
    return both, both


def _conv(
    n: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
) -> Tensor:
    name = f"conv{n}d"
    tensors: list[Any] = [input, weight, *([] if bias is None else [bias])]
    single = _checked(name, n, tensors, False, groups)
    kernel = tuple(weight._a.shape)[2:]
    by, apart = per_dim(stride, n, name, "stride"), per_dim(dilation, n, name, "dilation")
    before, after = _sides(name, padding, kernel, by, apart)
    windows = Windows(kernel, by, before, after, apart)
    windows.outputs(tuple(input._a.shape)[-n:], name)
    x: Any = views.unsqueeze(input, 0) if single else input
    c = Convolution(windows, groups, n == 2 and keeps_channels_last(x))
    out = apply(CONV, (x, *tensors[1:]), (c,))
    return views.squeeze(out, 0) if single else out


def keeps_channels_last(x: Value) -> bool:
    """Whether the layout is channels_last and nothing else."""
    layout = x.layout
    return layout.is_channels_last and not layout.is_contiguous


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Correlation of (N, C, L) or (C, L) with (O, C/groups, k), plus `bias` (O,), to (N, O, L′).

    L′ = ⌊(L + 2·padding − dilation·(k − 1) − 1)/stride⌋ + 1; `padding` may be "same" or "valid".
    Raises `ShapeError` or `DTypeError` where the tensors do not fit.
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Correlation of (N, C, H, W) or (C, H, W) with (O, C/groups, kh, kw), plus `bias` (O,).

    Sizes as in `conv1d`; a channels_last input gives a channels_last result of the same numbers.
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Correlation of (N, C, D, H, W) or (C, D, H, W) with (O, C/groups, kd, kh, kw), plus `bias`."""
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(
    n: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    groups: int,
    dilation: Sizes,
) -> Tensor:
    name = f"conv_transpose{n}d"
    tensors: list[Any] = [input, weight, *([] if bias is None else [bias])]
    single = _checked(name, n, tensors, True, groups)
    kernel = tuple(weight._a.shape)[2:]
    by, apart = per_dim(stride, n, name, "stride"), per_dim(dilation, n, name, "dilation")
    pad = per_dim(padding, n, name, "padding", 0)
    extra = per_dim(output_padding, n, name, "output_padding", 0)
    for e, s, d in zip(extra, by, apart, strict=True):
        if e >= max(s, d):
            raise InputError(
                f"{name}: output_padding {extra} must be smaller than stride {by} or dilation "
                f"{apart}"
            )
    # An output padding of a stride or more has room for windows beyond the input: they see zeros.
    wide: Any = input
    beyond = [e // s for e, s in zip(extra, by, strict=True)]
    if any(beyond):
        wide = padded(wide, [k for e in reversed(beyond) for k in (0, e)])
        extra = tuple([e % s for e, s in zip(extra, by, strict=True)])
    windows = Windows(kernel, by, pad, pad, apart)
    size = tuple(
        [
            (length - 1) * s - 2 * p + r + e + 1
            for length, s, p, r, e in zip(
                tuple(wide._a.shape)[-n:], by, pad, windows.reach, extra, strict=True
            )
        ]
    )
    if min(size) < 1:
        raise ShapeError(f"{name}: padding {pad} leaves nothing of the output: its size is {size}")
    x: Any = views.unsqueeze(wide, 0) if single else wide
    c = Convolution(windows, groups, n == 2 and keeps_channels_last(x))
    out = apply(TO_INPUT, (x, weight), (c, size))
    if bias is not None:
        out = add(out, views.reshape(bias, (-1, *[1] * n)))
    return views.squeeze(out, 0) if single else out


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """The transpose of `conv1d`: (N, C, L) and (C, O/groups, k), plus `bias` (O,), to (N, O, L′).

    L′ = (L − 1)·stride − 2·padding + dilation·(k − 1) + output_padding + 1.
    """
    return _conv_transpose(
        1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """The transpose of `conv2d`, sizes as in `conv_transpose1d`."""
    return _conv_transpose(
        2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """The transpose of `conv3d`, sizes as in `conv_transpose1d`."""
    return _conv_transpose(
        3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )
