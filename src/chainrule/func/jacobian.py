"""Whole derivatives: Jacobians by rows and by columns, Hessians, and a Hessian times a vector.

A Jacobian is built one row (`jacrev`) or one column (`jacfwd`) at a time over one recorded run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from chainrule import _tree, ops
from chainrule.autograd.forward import zeros
from chainrule.autograd.state import no_grad
from chainrule.func._trace import Argnums, Trace, chosen, replaced
from chainrule.func.forward import Linear, jvp
from chainrule.func.reverse import grad


def jacrev(
    fn: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The Jacobian of `fn`, one walk back an element of the output: for many inputs, few outputs.

    Of shape output.shape + input.shape, in the nest of the outputs and, inside, of the inputs.
    `chunk_size` is taken for PyTorch's sake: rows are always computed one by one.
    """

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        places = chosen(argnums, args, "jacrev")
        trace = Trace("jacrev", tuple(args[i] for i in places))
        trace.run(fn, replaced(args, places, trace.own_tree()), has_aux, **kwargs)
        recorded = trace.wanted()
        blocks: list[Any] = []
        for k, y in enumerate(trace.outputs):
            rows: list[list[Any]] = []
            for e in units(y):
                seeds: list[Any] = [None] * len(trace.outputs)
                seeds[k] = e
                rows.append(trace.pull(seeds, recorded))
            blocks.append(
                [_block([row[i] for row in rows], 0, y, x) for i, x in enumerate(trace.inputs)]
            )
        return _assembled(trace, blocks, argnums, has_aux)

    return wrapped


def jacfwd(
    fn: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable[..., Any]:
    """The Jacobian of `fn`, one push forward an element of the input: for few inputs, many outputs.

    Shapes as for `jacrev`. `fn` runs once, so that its random numbers are the same for every
    column; `randomness` is taken for PyTorch's sake.
    """

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        places = chosen(argnums, args, "jacfwd")
        trace = Trace("jacfwd", tuple(args[i] for i in places))
        trace.run(fn, replaced(args, places, trace.own_tree()), has_aux, **kwargs)
        push = Linear(trace)
        blocks: list[list[Any]] = [[] for _ in trace.outputs]
        for i, x in enumerate(trace.inputs):
            columns: list[list[Any]] = []
            for e in units(x):
                directions = [zeros(tuple(z._a.shape), z) for z in trace.inputs]
                directions[i] = e
                columns.append(push(directions))
            for k, y in enumerate(trace.outputs):
                blocks[k].append(_block([c[k] for c in columns], -1, y, x))
        return _assembled(trace, blocks, argnums, has_aux)

    return wrapped


def hessian(fn: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """The second derivatives of `fn`: `jacfwd` of `jacrev`, as in PyTorch."""
    return jacfwd(jacrev(fn, argnums), argnums)


def hvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of a number-valued `fn` times `tangents`, without the Hessian.

    Forward over reverse: `jvp` of `grad`. A tuple with one entry a primal.
    """
    by_all = grad(fn, argnums=tuple(range(len(primals))))
    return jvp(by_all, tuple(primals), tuple(tangents))[1]


def units(like: Any) -> Any:
    """The unit vectors of the space of `like`, one at a time, in its shape."""
    shape = tuple(like._a.shape)
    for k in range(prod(shape)):
        with no_grad():
            flat = zeros((prod(shape),), like)
            flat[k] = 1.0
        yield ops.reshape(flat, shape)


def _block(parts: list[Any], dim: int, y: Any, x: Any) -> Any:
    shape = (*tuple(y._a.shape), *tuple(x._a.shape))
    return ops.reshape(ops.stack(parts, dim), shape) if parts else zeros(shape, x)


def _assembled(trace: Trace, blocks: list[list[Any]], argnums: Argnums, has_aux: bool) -> Any:
    """The blocks in the nest of the outputs and, inside, of the inputs."""

    def row(found: list[Any]) -> Any:
        nested = _tree.filled(trace.tree, found)
        return nested[0] if isinstance(argnums, int) else nested

    whole = _tree.filled(trace.result, [row(found) for found in blocks])
    return (whole, trace.let_go(trace.aux)) if has_aux else whole
