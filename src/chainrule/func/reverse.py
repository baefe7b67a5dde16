"""Reverse mode as functions of functions: `grad`, `grad_and_value`, `value_and_grad`, `vjp`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from chainrule import _tree
from chainrule.autograd.value import Value
from chainrule.errors import GradError, ShapeError
from chainrule.func._trace import Argnums, Trace, chosen, replaced


def grad(fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of a function that returns one number, by the arguments at `argnums`.

    The result has the form of the argument (a tensor, or a nest of tuples, lists and dicts), or is
    a tuple of them for a tuple of `argnums`; with `has_aux`, `fn` returns (number, aux) and the
    result is (gradient, aux). Raises `GradError` where the output is not a 0-d tensor.
    """

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        grads, _, aux = _of_scalar("grad", fn, argnums, has_aux, args, kwargs)
        return (grads, aux) if has_aux else grads

    return wrapped


def grad_and_value(
    fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """As `grad`, with the value: (gradient, value), or (gradient, (value, aux))."""

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        grads, value, aux = _of_scalar("grad_and_value", fn, argnums, has_aux, args, kwargs)
        return (grads, (value, aux)) if has_aux else (grads, value)

    return wrapped


def value_and_grad(
    fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """As `grad_and_value` with the value first: (value, gradient), or ((value, aux), gradient)."""

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        grads, value, aux = _of_scalar("value_and_grad", fn, argnums, has_aux, args, kwargs)
        return ((value, aux) if has_aux else value), grads

    return wrapped


def _of_scalar(
    who: str,
    fn: Callable[..., Any],
    argnums: Argnums,
    has_aux: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, Any, Any]:
    places = chosen(argnums, args, who)
    trace = Trace(who, tuple(args[i] for i in places))
    trace.run(fn, replaced(args, places, trace.own_tree()), has_aux, **kwargs)
    value = trace.result
    if not isinstance(value, Value) or value._a.shape:
        what = (
            f"shape {tuple(value._a.shape)}" if isinstance(value, Value) else type(value).__name__
        )
        raise GradError(
            f"{who}: the function must return one number as a 0-d tensor, not {what}; sum it, or "
            "use vjp or jacrev"
        )
    grads = _tree.filled(
        trace.tree, trace.pull([None if value.node is None else _one(value)], trace.wanted())
    )
    grads = grads[0] if isinstance(argnums, int) else grads
    return grads, trace.let_go(value), trace.let_go(trace.aux)


def _one(value: Any) -> Any:
    from chainrule.creation import ones_like

    return ones_like(value)


def vjp(fn: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The output of `fn(*primals)`, and the function that turns its gradient into the primals'.

    Returns (output, vjp_fn) or (output, vjp_fn, aux). `vjp_fn` may be called again; it takes one
    tensor an output, of its shape (`ShapeError`), and returns a tuple with one entry a primal.
    """
    trace = Trace("vjp", primals)
    trace.run(fn, trace.own_tree(), has_aux)

    def vjp_fn(*cotangents: Any) -> tuple[Any, ...]:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        directions = directions_like(trace.outputs, given, "vjp_fn", "output")
        found = trace.pull(directions, trace.wanted(*directions))
        return _tree.filled(trace.tree, found)

    output = trace.let_go(trace.result)
    return (output, vjp_fn, trace.let_go(trace.aux)) if has_aux else (output, vjp_fn)


def directions_like(points: list[Any], given: Any, who: str, what: str) -> list[Any]:
    """One tensor a point, of the same shapes and dtypes; raises where they differ."""
    directions = _tree.leaves(given)
    if len(directions) != len(points):
        raise GradError(f"{who} takes {len(points)} tensors, one per {what}, not {len(directions)}")
    for i, (x, v) in enumerate(zip(points, directions, strict=True)):
        if not isinstance(v, Value):
            raise GradError(f"{who} takes tensors, not {type(v).__name__} (place {i})")
        if tuple(v._a.shape) != tuple(x._a.shape):
            raise ShapeError(
                f"{who}: tensor {i} has shape {tuple(v._a.shape)}, the {what} {tuple(x._a.shape)}"
            )
    return [
        v if v.dtype is x.dtype else v.to(x.dtype) for x, v in zip(points, directions, strict=True)
    ]
