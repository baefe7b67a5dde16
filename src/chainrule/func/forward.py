"""Forward mode as functions of functions: `jvp` and `linearize`.

The function is recorded once; tangents are then pushed along its tape, from inputs to outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chainrule import _tree
from chainrule.autograd import forward
from chainrule.autograd.state import set_grad_enabled
from chainrule.errors import GradError, InputError
from chainrule.func._trace import Trace
from chainrule.func.reverse import directions_like


class Linear:
    """A recorded function at one point, as the linear map of tangents that it is there."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.ends = [y.node for y in trace.outputs]
        self.starts = [x.node for x in trace.inputs]
        present = [n for n in self.ends if n is not None]
        self.nodes = forward.order(present, set(self.starts))

    def __call__(self, tangents: list[Any], strict: bool = False) -> list[Any]:
        """The outputs' tangents, zeros where none arrives (or `GradError` where `strict`)."""
        given = dict(zip(self.starts, tangents, strict=True))
        present = [n for n in self.ends if n is not None]
        with set_grad_enabled(self.trace.wanted(*tangents)):
            found = iter(forward.push(self.nodes, present, given))
            results: list[Any] = []
            for i, (y, n) in enumerate(zip(self.trace.outputs, self.ends, strict=True)):
                t = next(found) if n is not None else None
                if t is None and strict:
                    raise GradError(f"jvp: output {i} does not depend on the inputs (strict=True)")
                t = forward.zeros(tuple(y._a.shape), y) if t is None else t
                results.append(t if t.dtype is y.dtype else t.to(y.dtype))
        return results


def jvp(
    fn: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """The output of `fn(*primals)` and its derivative in the direction `tangents`.

    Returns (output, tangent) or (output, tangent, aux). `primals` and `tangents` are tuples of
    tensors, or of nests of them, of equal shapes (`ShapeError`). `strict` raises where an output
    does not depend on the primals; otherwise its tangent is zeros.
    """
    for name, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, (tuple, list)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"jvp takes {name} as a tuple, not {type(value).__name__}")
    trace = Trace("jvp", tuple(primals))
    directions = directions_like(trace.inputs, tangents, "jvp", "input")
    trace.run(fn, trace.own_tree(), has_aux)
    found = _tree.filled(trace.result, Linear(trace)(directions, strict))
    output = trace.let_go(trace.result)
    return (output, found, trace.let_go(trace.aux)) if has_aux else (output, found)


def linearize(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The output of `fn(*primals)`, and its derivative there as a function of tangents.

    `jvp_fn(*tangents)` may be called again and again: the function itself is not run anew.
    """
    trace = Trace("linearize", primals)
    trace.run(fn, trace.own_tree(), has_aux=False)
    linear = Linear(trace)

    def jvp_fn(*tangents: Any) -> Any:
        directions = directions_like(trace.inputs, tangents, "jvp_fn", "input")
        return _tree.filled(trace.result, linear(directions))

    return trace.let_go(trace.result), jvp_fn
