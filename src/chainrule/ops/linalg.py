"""Matrix products: bilinear, so the rule of each side is the product with the other.

Batches broadcast as in NumPy and PyTorch. A stack of rows times one matrix is one large product,
forward and backward, never a loop over the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy import ndarray

from chainrule.autograd.node import Node
from chainrule.autograd.value import Value
from chainrule.errors import DTypeError, ShapeError
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, alike, apply, coerce, common_backend

if TYPE_CHECKING:
    from chainrule._tensor import Tensor


def _swap(b: Any, x: Any) -> Any:
    n = len(x.shape)
    return b.permute(x, (1, 0) if n == 2 else (*range(n - 2), n - 1, n - 2))


def _rows(b: Any, x: Any) -> Any:
    shape = tuple(x.shape)
    if len(shape) == 2:
        return x
    count = 1
    for n in shape[:-1]:
        count *= n
    return b.reshape(x, (count, shape[-1]))


def _matmul_forward(b: Any, x: Any, y: Any) -> Any:
    if len(y.shape) == 2 and len(x.shape) > 2:
        return b.reshape(b.matmul(_rows(b, x), y), (*tuple(x.shape)[:-1], y.shape[1]))
    return b.matmul(x, y)


def _by_need(need: tuple[bool, ...]) -> tuple[int, ...]:
    return (0, 1) if all(need[:2]) else (1,) if need[0] else (0,) if need[1] else ()


def _both(saved: list[Any], n: Node) -> tuple[Any, Any]:
    """The saved operands by place, whichever of them were needed."""
    if len(saved) == 2:
        return saved[0], saved[1]
    return (None, saved[0]) if n.parents[0] is not None else (saved[0] if saved else None, None)


def _matmul_vjp(b: Any, g: Any, saved: list[Any], n: Node) -> tuple[Any, ...]:
    x, y = _both(saved, n)
    gx = gy = None
    if n.parents[0] is not None:
        gx = _matmul_forward(b, g, _swap(b, y))
    if n.parents[1] is not None:
        if len(n.parents[1].shape) == 2 and len(x.shape) > 2:
            gy = b.matmul(_swap(b, _rows(b, x)), _rows(b, g))
        else:
            gy = b.matmul(_swap(b, x), g)
    return gx, gy


MATMUL = ArrayRule("matmul", _matmul_forward, _matmul_vjp, _by_need, broadcasts=True)


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product of the last two dimensions; leading ones broadcast, 1-D is a vector.

    Shapes (…, m, k) and (…, k, n) give (…, m, n). Raises `ShapeError` where k differs and
    `DTypeError` where the dtypes differ, as PyTorch does.
    """
    x: Any = input
    y: Any = other
    if type(x) is type(y) and isinstance(x, Value):
        u, v = x._a, y._a
        if type(u) is type(v) is ndarray and u.dtype is v.dtype and u.ndim > 1 and v.ndim > 1:
            if u.shape[-1] == v.shape[-2]:  # the common case: nothing to convert or to explain
                return apply(MATMUL, (x, y))
    (x, y), _ = coerce((input, other), "matmul")
    if not (isinstance(x, Value) and isinstance(y, Value)):
        raise DTypeError("matmul takes two tensors: to scale by a number use *")
    common_backend((x, y), "matmul")
    a: Any = x
    c: Any = y
    sx, sy = tuple(a._a.shape), tuple(c._a.shape)
    if a.dtype is not c.dtype:
        raise DTypeError(
            f"matmul of {a.dtype.name} and {c.dtype.name}: convert one with .to(dtype)"
        )
    if not sx or not sy:
        raise ShapeError("matmul of a 0-d tensor: use * for numbers")
    if sx[-1] != sy[-2 if len(sy) > 1 else 0]:
        raise ShapeError(
            f"matmul: shapes {sx} and {sy} do not fit: the last size of the first, {sx[-1]}, must "
            f"equal the {'second-last' if len(sy) > 1 else 'only'} size of the second, "
            f"{sy[-2 if len(sy) > 1 else 0]}"
        )
    row, column = len(sx) == 1, len(sy) == 1
    if row:
        a = views.unsqueeze(a, 0)
    if column:
        c = views.unsqueeze(c, 1)
    out = apply(MATMUL, (a, c))
    if column:
        out = views.squeeze(out, -1)
    if row:
        out = views.squeeze(out, -2 if not column else -1)
    return out


def _linear_forward(b: Any, x: Any, w: Any, bias: Any = None) -> Any:
    out = b.matmul(_rows(b, x), _swap(b, w))
    if bias is not None:
        out += bias
    return out if len(x.shape) == 2 else b.reshape(out, (*tuple(x.shape)[:-1], w.shape[0]))


def _linear_vjp(b: Any, g: Any, saved: list[Any], n: Node) -> tuple[Any, ...]:
    x, w = _both(saved, n)
    rows = _rows(b, g)
    gx = gw = None
    if n.parents[0] is not None:
        gx = b.matmul(rows, w)
        if len(g.shape) != 2:
            gx = b.reshape(gx, (*tuple(g.shape)[:-1], w.shape[1]))
    if n.parents[1] is not None:
        gw = b.matmul(_swap(b, rows), _rows(b, x))
    if len(n.parents) == 2:
        return gx, gw
    return gx, gw, (b.sum(rows, (0,), False) if n.parents[2] is not None else None)


LINEAR = ArrayRule("linear", _linear_forward, _linear_vjp, _by_need)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input @ weight.T + bias`: shapes (…, in), (out, in) and (out,) give (…, out)."""
    x: Any = input
    try:
        sx, sw = tuple(x._a.shape), tuple(weight._a.shape)
    except AttributeError:
        culprit: Any = weight if isinstance(input, Value) else input
        raise DTypeError(
            f"linear takes tensors, not {type(culprit).__name__}: wrap it with cr.tensor"
        ) from None
    if len(sw) != 2 or not sx or sx[-1] != sw[1]:
        raise ShapeError(
            f"linear: input {sx} and weight {sw} do not fit: the weight is (out, in) and the "
            "input's last size must be `in`"
        )
    if bias is not None and tuple(bias._a.shape) != (sw[0],):
        raise ShapeError(f"linear: bias {tuple(bias._a.shape)} should be ({sw[0]},)")
    operands = (input, weight) if bias is None else (input, weight, bias)
    if not alike(operands):
        common_backend(operands, "linear")
        names = sorted({o.dtype.name for o in operands})
        if len(names) > 1:
            raise DTypeError(f"linear of {' and '.join(names)}: convert with .to(dtype)")
    return apply(LINEAR, operands)
