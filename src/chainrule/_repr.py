"""How a tensor prints: its values in PyTorch's form, then what a reader would ask next."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule import dtypes
from chainrule.autograd.value import backend_for, raw_of

_QUIET = (dtypes.float32, dtypes.int64, dtypes.bool)  # what literals give: not worth a word


def tensor_repr(t: Any) -> str:
    """The text of `repr(tensor)`."""
    values = backend_for(t._a).to_numpy(raw_of(t))
    if values.dtype.name == "bfloat16":
        values = values.astype(np.float32)
    body = np.array2string(
        values, separator=", ", precision=4, threshold=1000, prefix="tensor(", suppress_small=False
    )
    notes: list[str] = []
    if t.numel() == 0 and t.ndim != 1:
        notes.append(f"shape={t.shape}")
    if t.dtype not in _QUIET:
        notes.append(f"dtype={t.dtype}")
    if t.device != "cpu":
        notes.append(f"device={str(t.device)!r}")
    if t.grad_fn is not None:
        notes.append(f"grad_fn=<{t.grad_fn.name()}>")
    elif t.requires_grad:
        notes.append("requires_grad=True")
    return f"tensor({', '.join([body, *notes])})"
