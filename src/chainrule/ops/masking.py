"""What a condition or a bound lets through: masked_fill, masked_select, nonzero, tril, clamp.

Relies on the primitives `where`, `clamp`, `maximum` and `minimum` for values and derivatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule import dtypes
from chainrule.autograd.node import Node
from chainrule.autograd.value import Value, backend_for, new_value, raw_of
from chainrule.dtypes import check_fits
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import views
from chainrule.ops._apply import ArrayRule, apply, common_backend, to_dtype
from chainrule.ops.elementwise import operation
from chainrule.ops.indexing import get_item
from chainrule.ops.inplace import in_place
from chainrule.ops.named import maximum, minimum, where

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

    Bound = Any  # a tensor, a number or None


def _mask(mask: Any, name: str) -> Any:
    if not isinstance(mask, Value) or backend_for(mask._a).dtype_of(mask._a) is not dtypes.bool:
        kind = mask.dtype.name if hasattr(mask, "dtype") else type(mask).__name__  # pyright: ignore
        raise DTypeError(f"{name}: the mask must be a bool tensor, not {kind}")
    return mask


def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value` (a number or a 0-d tensor) where `mask` holds, else `input`; both broadcast."""
    _mask(mask, "masked_fill")
    dtype = input.dtype
    if isinstance(value, Value):
        if value._a.shape:
            raise ShapeError(
                f"masked_fill takes a number or a 0-d tensor, not shape {tuple(value._a.shape)}"
            )
        value = to_dtype(value, dtype)
    elif dtype.category < 2 and isinstance(value, float) and not value.is_integer():
        raise DTypeError(f"masked_fill: {value} has no place in a {dtype.name} tensor")
    else:
        raw = raw_of(input)
        check_fits(value, dtype, "masked_fill")
        number = int(value) if dtype.category < 2 else value
        value = new_value(type(input), backend_for(raw).full((), number, raw))
    return where(mask, value, input)


masked_fill_ = in_place(masked_fill)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements of `input` where `mask` holds, 1-D in row-major order; both broadcast."""
    _mask(mask, "masked_select")
    common_backend((input, mask), "masked_select")
    a, c = tuple(input._a.shape), tuple(mask._a.shape)
    try:
        shape = np.broadcast_shapes(a, c)
    except ValueError:
        raise ShapeError(f"masked_select: input {a} and mask {c} do not broadcast") from None
    picked = get_item(views.expand(input, shape), views.expand(mask, shape))
    return picked if shape else views.reshape(picked, (-1,))


def nonzero(input: Tensor, as_tuple: bool = False) -> Any:
    """Where `input` is not zero: (count, ndim) int64, or with `as_tuple` one tensor a dimension."""
    raw = raw_of(input)
    b = backend_for(raw)
    scalar = not raw.shape
    places = b.nonzero(b.reshape(raw, (1,)) if scalar else raw)
    kind = type(input)
    if as_tuple:
        return tuple(new_value(kind, p) for p in places)
    columns = [b.reshape(p, (-1, 1)) for p in places]
    joined = b.concat(columns, 1)
    return new_value(kind, joined[:, :0] if scalar else joined)


# Triangles.


def _tril_forward(b: Any, x: Any, k: int) -> Any:
    return b.tril(x, k)


def _tril_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    return (b.tril(g, n.attrs[0]),)


def _triu_forward(b: Any, x: Any, k: int) -> Any:
    return b.triu(x, k)


def _triu_vjp(b: Any, g: Any, saved: Any, n: Node) -> tuple[Any, ...]:
    return (b.triu(g, n.attrs[0]),)


TRIL = ArrayRule("tril", _tril_forward, _tril_vjp, half=False)
TRIU = ArrayRule("triu", _triu_forward, _triu_vjp, half=False)


def _matrix(input: Any, name: str) -> Any:
    if len(input._a.shape) < 2:
        raise ShapeError(f"{name} takes at least 2 dimensions, this has {len(input._a.shape)}")
    return input


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of the last two dimensions, up to `diagonal`; zeros above."""
    return apply(TRIL, (_matrix(input, "tril"),), (diagonal,))


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of the last two dimensions, from `diagonal` on; zeros below."""
    return apply(TRIU, (_matrix(input, "triu"),), (diagonal,))


# Bounds.


def clamp(input: Tensor, min: Bound = None, max: Bound = None) -> Tensor:
    """`input` held between `min` and `max`: numbers or tensors that broadcast, or None.

    The gradient passes at a bound; where `min` > `max` the result is `max`.
    """
    if min is None and max is None:
        raise InputError("clamp needs min, max or both")
    if not isinstance(input, Value):
        raise DTypeError(f"clamp holds a tensor, not {type(input).__name__}: use cr.tensor")
    exact = input.dtype.category < 2 or not all(
        m is None or isinstance(m, (bool, int, float)) or m.dtype.category == 2 for m in (min, max)
    )
    if exact:  # integers: no gradient, and no infinity to stand for a missing bound
        out = input if min is None else maximum(input, min)
        return out if max is None else minimum(out, max)
    low = float("-inf") if min is None else min
    return operation("clamp")(input, low, float("inf") if max is None else max)


clamp_ = in_place(clamp)
