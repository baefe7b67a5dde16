"""Every primitive and every array operation passes gradcheck and gradgradcheck in all layouts.

The judge here is our own `gradcheck` (finite differences in float64); agreement with PyTorch is
the business of `tests/ops`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.calculus.table import TABLE
from chainrule.nn import functional as F
from chainrule.ops.elementwise import operation

# Where a primitive is smooth and its derivatives tame; (-2, 2) elsewhere.
DOMAIN = {
    "reciprocal": (0.5, 2.0), "div": (0.5, 2.0), "pow": (0.5, 2.0), "sqrt": (0.5, 2.0),
    "rsqrt": (0.5, 2.0), "log": (0.5, 2.0), "log2": (0.5, 2.0), "log10": (0.5, 2.0),
    "log1p": (-0.5, 2.0), "acosh": (1.5, 3.0), "atanh": (-0.7, 0.7), "asin": (-0.7, 0.7),
    "acos": (-0.7, 0.7), "tan": (-1.0, 1.0), "squareplus": (0.5, 2.0),
    "squareplus_slope": (0.5, 2.0), "lgamma": (0.5, 2.0), "digamma": (0.5, 2.0),
    "xlogy": (0.5, 2.0), "xlog1py": (-0.5, 2.0), "logit": (0.2, 0.8), "erfinv": (-0.7, 0.7),
    "one_minus_square": (-0.7, 0.7), "remainder": (0.6, 0.9),
    "fmod": (0.6, 0.9), "hypot": (0.5, 2.0), "hypot_slope": (0.5, 2.0), "atan2": (0.5, 2.0),
}  # fmt: skip
SMOOTH = [name for name, row in TABLE.items() if row.differentiable]


def numbers(low: float, high: float, *shape: int, seed: int = 0) -> cr.Tensor:
    values = np.random.default_rng(seed).uniform(low, high, shape)
    values[np.abs(values) < 0.05] = 0.05  # off the kinks at 0
    return cr.tensor(values, requires_grad=True)


@pytest.mark.parametrize("name", SMOOTH)
def test_primitive(name: str) -> None:
    row = TABLE[name]
    low, high = DOMAIN.get(name, (-1.9, 1.9))
    inputs = [numbers(low, high, 2, 3, seed=i) for i in range(row.arity)]
    if name == "where":
        condition = cr.tensor([[True, False, True], [False, True, False]])
        fn: Callable[..., Any] = lambda a, b: cr.where(condition, a, b)  # noqa: E731
        inputs = inputs[1:]
    elif name in ("clamp", "hardtanh"):
        fn = lambda x: operation(name)(x, -0.8, 0.9)  # noqa: E731
        inputs = inputs[:1]
    elif name == "polygamma":  # the order is a whole number
        fn = lambda x: cr.ops.polygamma(1, x)  # noqa: E731
        inputs = [numbers(0.5, 2.0, 2, 3)]
    else:
        fn = getattr(cr.ops, name)
    assert cr.gradcheck(fn, inputs)
    assert cr.gradgradcheck(fn, inputs)


def test_every_primitive_is_an_operation_with_a_signature() -> None:
    source = Path(cr.ops.named.__file__).read_text()
    for name in TABLE:
        if name != "clamp":  # takes min and max by keyword: ops.clamp
            assert f"def {name}(" in source and callable(getattr(cr.ops.named, name)), name


def test_broadcast_operands() -> None:
    a, b = numbers(0.5, 2.0, 3, 1), numbers(0.5, 2.0, 4, seed=1)
    assert cr.gradcheck(lambda x, y: x / y * y + x, (a, b))
    assert cr.gradgradcheck(lambda x, y: x / y * y + x, (a, b))


INDEX = cr.tensor([[0, 2, 1], [1, 1, 0]])
KEY = cr.tensor([1, 0, 1])
OPERATIONS: dict[str, Callable[[cr.Tensor], cr.Tensor]] = {
    "sum": lambda x: x.sum(0),
    "sum keepdim": lambda x: x.sum(1, keepdim=True),
    "mean": lambda x: x.mean(1),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(0, correction=0),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(0),
    "max": lambda x: x.max(1)[0],
    "min": lambda x: x.min(),
    "logsumexp": lambda x: x.logsumexp(1),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(0),
    "cumsum": lambda x: x.cumsum(1),
    "norm": lambda x: x.norm(),
    "norm 3": lambda x: x.norm(3, 1),
    "view": lambda x: x.contiguous().view(3, 2),
    "reshape": lambda x: x.reshape(-1),
    "permute": lambda x: x.permute(1, 0),
    "expand": lambda x: x.unsqueeze(0).expand(2, 2, 3),
    "flip": lambda x: x.flip(1),
    "slice": lambda x: x[:, ::2],
    "negative step": lambda x: x[::-1, 1:],
    "select": lambda x: x[1],
    "unfold": lambda x: x.unfold(1, 2, 1),
    "diagonal": lambda x: x.diagonal(),
    "as_strided": lambda x: x.contiguous().as_strided((2, 2), (2, 1)),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "cat": lambda x: cr.cat([x, x * x], 1),
    "stack": lambda x: cr.stack([x, x.flip(0)]),
    "split": lambda x: x.split(2, 1)[0] * 2.0,
    "pad": lambda x: F.pad(x, (1, 2), value=3.0),
    "rows": lambda x: x[KEY],
    "gather": lambda x: x.gather(1, INDEX),
    "index_select": lambda x: cr.index_select(x, 0, KEY),
    "embedding": lambda x: F.embedding(KEY, x),
    "mask": lambda x: x[cr.tensor([[True, False, True], [False, True, True]])],
    "tril": lambda x: cr.tril(x),
    "triu": lambda x: cr.triu(x, 1),
    "matmul": lambda x: x @ x.T,
    "matmul batched": lambda x: x.expand(2, 2, 3) @ x.T,
    "matmul vector": lambda x: x @ x[0],
    "linear": lambda x: F.linear(x, x, x[:, 0]),
    "layer_norm": lambda x: F.layer_norm(x, (3,), x[0], x[1]),
    "rms_norm": lambda x: F.rms_norm(x, (3,), x[1]),
    "cross_entropy": lambda x: F.cross_entropy(x, KEY[:2], label_smoothing=0.1),
    "cross_entropy ignored": lambda x: F.cross_entropy(x, cr.tensor([2, -100]), reduction="sum"),
    "mse": lambda x: F.mse_loss(x, x.flip(1) * x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None] * 0.5, x[None]),
    "causal attention": lambda x: F.scaled_dot_product_attention(
        x[None], x[None].cos(), x[None].sin(), is_causal=True
    ),
    "half way through a float64": lambda x: x.to(cr.float64) * x,
    "clone": lambda x: x.clone() * x,
    "written in place": lambda x: _written(x),
}


def _written(x: cr.Tensor) -> cr.Tensor:
    y = x * 1.0
    y[0] = x[1] * x[0]
    return y


@pytest.mark.parametrize("name", OPERATIONS)
def test_array_operation(name: str) -> None:
    x = numbers(-1.5, 1.5, 2, 3)
    assert cr.gradcheck(OPERATIONS[name], (x,))
    assert cr.gradgradcheck(OPERATIONS[name], (x,))
