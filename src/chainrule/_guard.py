"""What a public function says of an argument that should be a tensor and is none.

The functions themselves read a tensor's fields without asking first; only where that fails is the
argument looked at. Methods and the package's own calls go past this, so that they cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

import numpy as np

from chainrule.autograd.value import Value
from chainrule.errors import DTypeError


def not_a_tensor(name: str, culprit: Any) -> DTypeError:
    """The error for one argument of `name` that is no tensor."""
    kind = type(culprit).__name__
    hint = "" if culprit is None else ": wrap it with cr.tensor"
    return DTypeError(f"{name} takes tensors, not {kind}{hint}")


def _explained(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except AttributeError as missing:
            given = (*args, *kwargs.values())
            # Either the argument itself lacks a field, or it is an array, which lacks but a few.
            at_fault = [x for x in given if x is missing.obj and not isinstance(x, Value)]
            at_fault += [x for x in given if isinstance(x, np.ndarray)]
            if not at_fault:
                raise
            raise not_a_tensor(name, at_fault[0]) from None

    return call


def explain(namespace: dict[str, Any]) -> None:
    """Give the functions of a public namespace a sentence for arguments that are no tensors.

    Those whose operands are coerced, and `linear`, which layers call often, have their own.
    """
    module = namespace["__name__"]
    for name, fn in list(namespace.items()):
        if name.startswith("_") or not isinstance(fn, FunctionType) or name in ("linear", "matmul"):
            continue
        if fn.__module__.startswith("chainrule.ops.") or fn.__module__ == module != "chainrule":
            made = _explained(fn, name)
            made.__module__ = module
            namespace[name] = made
