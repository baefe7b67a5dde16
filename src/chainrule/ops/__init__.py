"""Array operations and their rules, one family a file.

This namespace is also what a rule runs on when it is recorded for a second derivative: it offers
the functions of the backend protocol (see `chainrule.backends`) on tensors.
"""

# pyright: reportUnusedImport=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chainrule.autograd.value import backend_for, new_value
from chainrule.dtypes import DType
from chainrule.ops import forward
from chainrule.ops._apply import to_dtype
from chainrule.ops.extrema import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    count_nonzero,
    max,
    min,
)
from chainrule.ops.family import zeroed
from chainrule.ops.gathering import gather, scatter_add
from chainrule.ops.indexing import index_add, index_get
from chainrule.ops.joining import cat, concat, pad, stack
from chainrule.ops.linalg import linear, matmul
from chainrule.ops.masking import tril, triu
from chainrule.ops.named import *
from chainrule.ops.normalise import log_softmax, logsumexp, softmax
from chainrule.ops.norms import norm
from chainrule.ops.reductions import mean, sum
from chainrule.ops.rules import source
from chainrule.ops.scans import cumsum, prod
from chainrule.ops.spread import std, std_mean, var, var_mean
from chainrule.ops.views import (
    alias,
    chunk,
    clone,
    contiguous,
    detach,
    expand,
    flatten,
    flip,
    permute,
    reshape,
    scatter_region,
    split,
    squeeze,
    transpose,
    unbind,
    unsqueeze,
)
from chainrule.ops.views import (
    region_of as region,
)


def cast(x: Any, dtype: DType) -> Any:
    """`x` in another dtype, differentiable between floating dtypes."""
    return to_dtype(x, dtype)


def dtype_of(x: Any) -> DType:
    """The dtype of a tensor."""
    return x.dtype


def asarray(x: Any) -> Any:
    """A tensor as it is."""
    return x


def copy(x: Any) -> Any:
    """A contiguous copy."""
    return clone(x)


def zeros(shape: Sequence[int], like: Any) -> Any:
    """Zeros of the dtype and device of `like`."""
    return full(shape, 0.0, like)


def full(shape: Sequence[int], value: float, like: Any) -> Any:
    """`value` everywhere, in the dtype and device of `like`."""
    raw = like._a
    return new_value(type(like), backend_for(raw).full(tuple(shape), value, raw))
