"""Runs a chain of elementwise steps tile by tile, so that intermediates stay in the cache.

It relies on ufuncs writing into `out`, on `scratch` for the few buffers that are alive at once,
and on `parallel` for large arrays. A program is compiled once per combination of dtypes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from chainrule.backends import parallel
from chainrule.backends.scratch import scratch
from chainrule.errors import InputError, ShapeError

Raw = Any
Operand: TypeAlias = int | float  # an int is a slot, a float a constant
Step: TypeAlias = tuple[Callable[..., Any], Sequence[Operand], int]

TILE = 64 * 1024  # elements: six cheap steps over 1 M take 5.4, 3.7, 3.0, 2.6 ms at 8, 16, 32, 64 k
_PARALLEL_SIZE = 2 * TILE  # with tanh in it, a second thread takes a quarter off from here on


class copying:  # noqa: N801, used as a function
    """Adapts a function without `out=`: its result is copied into the tile's buffer."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def __call__(self, *args: Any, out: Raw) -> None:
        np.copyto(out, self.fn(*args))


class _Plan(NamedTuple):
    """A program for given input dtypes: printed Python that runs one tile."""

    run: Callable[..., None]  # (input tiles, scratch tiles, output tiles)
    buffers: tuple[Any, ...]  # a dtype for every scratch buffer
    outputs: tuple[Any, ...]  # a dtype for every output
    source: str


def _accepts_out(fn: Callable[..., Any]) -> bool:
    if isinstance(fn, (np.ufunc, copying)):
        return True
    try:
        return "out" in inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False


def _check(steps: Sequence[Step], n_inputs: int, outputs: Sequence[int]) -> None:
    defined = set(range(n_inputs))
    for number, (fn, operands, target) in enumerate(steps):
        name = getattr(fn, "__name__", repr(fn))
        if not _accepts_out(fn):
            raise InputError(
                f"step {number}: {name} takes no out=, so it would make a fresh array a tile; "
                "give a ufunc, a function with an out= parameter, or tiled.copying(fn)"
            )
        if isinstance(fn, np.ufunc) and (fn.nout != 1 or fn.nin != len(operands)):
            raise InputError(
                f"step {number}: {name} has {fn.nin} inputs and {fn.nout} outputs, "
                f"the step gives {len(operands)} and 1"
            )
        for operand in operands:
            if isinstance(operand, int) and operand not in defined:
                raise InputError(f"step {number}: {name} reads slot {operand} before it is written")
        if target in defined:
            raise InputError(f"step {number}: {name} writes slot {target} a second time")
        defined.add(target)
    for slot in outputs:
        if slot not in defined:
            raise InputError(f"output slot {slot} is never written")


def _result_dtype(fn: Callable[..., Any], args: list[Any]) -> Any:
    """The dtype that a step gives, asked of the function itself on empty arrays."""
    if isinstance(fn, (np.ufunc, copying)):
        call = fn.fn if isinstance(fn, copying) else fn
        return np.asarray(call(*args)).dtype
    # A function that only fills `out` cannot be asked: it computes in its inputs' dtype.
    return np.result_type(*[a for a in args if isinstance(a, np.ndarray)])


def _constants(fn: Callable[..., Any], args: list[Any], dtype: Any) -> list[Any]:
    """The step's floats as 0-d arrays of its dtype: NumPy converts a Python float in 3 µs a call.

    Only where that changes nothing: a ufunc whose arrays all have the result's floating dtype.
    """
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    if isinstance(fn, np.ufunc) and dtype.kind == "f" and all(a.dtype == dtype for a in arrays):
        return [a if isinstance(a, np.ndarray) else np.asarray(a, dtype) for a in args]
    return args


def _plan(
    steps: Sequence[Step], n_inputs: int, outputs: Sequence[int], samples: list[Any]
) -> _Plan:
    """Give every slot a buffer, reusing those whose value is no longer read, and print the tile."""
    last_read: dict[int, int] = {}
    for number, (_, operands, _) in enumerate(steps):
        last_read.update((o, number) for o in operands if isinstance(o, int))
    value: dict[int, Any] = dict(enumerate(samples))  # slot → an empty array of its dtype
    place = {slot: f"x{slot}" for slot in range(n_inputs)}
    free: list[int] = []
    buffers: list[Any] = []
    holder: dict[int, int] = {}  # slot → scratch buffer
    names: dict[str, Any] = {}
    lines: list[str] = []
    direct = {slot: i for i, slot in reversed(list(enumerate(outputs))) if slot >= n_inputs}
    for number, (fn, operands, target) in enumerate(steps):
        args = [value[o] if isinstance(o, int) else o for o in operands]
        dtype = _result_dtype(fn, args)
        value[target] = np.empty(0, dtype)
        ending = [
            o for o in {o for o in operands if isinstance(o, int)}
            if o in holder and last_read[o] == number
        ]  # fmt: skip
        # A ufunc may write over an input of its own; another function might write before it reads.
        if isinstance(fn, np.ufunc):
            free.extend(holder[o] for o in ending)
        if target in direct:
            place[target] = f"y{direct[target]}"
        else:
            buffer = next((b for b in free if buffers[b] == dtype), None)
            if buffer is None:
                buffer = len(buffers)
                buffers.append(dtype)
            else:
                free.remove(buffer)
            holder[target] = buffer
            place[target] = f"s{buffer}"
        if not isinstance(fn, np.ufunc):
            free.extend(holder[o] for o in ending)
        if target not in last_read and target in holder:
            free.append(holder[target])
        names[f"f{number}"] = fn
        constants = _constants(fn, args, dtype)
        printed: list[str] = []
        for position, operand in enumerate(operands):
            if isinstance(operand, int):
                printed.append(place[operand])
            else:
                names[f"c{number}_{position}"] = constants[position]
                printed.append(f"c{number}_{position}")
        printed.append(f"out={place[target]}")
        lines.append(f"    f{number}({', '.join(printed)})")
    for i, slot in enumerate(outputs):
        if place[slot] != f"y{i}":  # an input handed out, or one slot handed out twice
            names["copyto"] = np.copyto
            lines.append(f"    copyto(y{i}, {place[slot]})")
    parameters = [f"x{i}" for i in range(n_inputs)]
    parameters += [f"s{i}" for i in range(len(buffers))]
    parameters += [f"y{i}" for i in range(len(outputs))]
    source = f"def run({', '.join(parameters)}):\n" + "\n".join(lines or ["    pass"]) + "\n"
    exec(source, names)
    dtypes = tuple(value[slot].dtype for slot in outputs)
    return _Plan(names["run"], tuple(buffers), dtypes, source)


class Program:
    """A compiled chain of elementwise steps; call it with arrays of one shape."""

    def __init__(self, steps: Sequence[Step], n_inputs: int, outputs: Sequence[int]) -> None:
        _check(steps, n_inputs, outputs)
        self.steps = tuple(steps)
        self.n_inputs = n_inputs
        self.outputs = tuple(outputs)
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def plan(self, *inputs: Any) -> _Plan:
        """How these inputs' dtypes would be run: the printed tile and its buffers."""
        key = tuple(x.dtype if isinstance(x, np.ndarray) else type(x) for x in inputs)
        plan = self._plans.get(key)
        if plan is None:
            samples = [np.empty(0, x.dtype) if isinstance(x, np.ndarray) else x for x in inputs]
            with np.errstate(all="ignore"):
                plan = _plan(self.steps, self.n_inputs, self.outputs, samples)
            self._plans[key] = plan
        return plan

    def __call__(self, *inputs: Any, out: Sequence[Raw] | None = None) -> Any:
        """The output array, or a tuple of them when the program has several.

        `inputs` are arrays of one shape or Python scalars, at least one array; a non-contiguous
        array is copied first. `out` gives contiguous arrays to write to, one an output.
        """
        if len(inputs) != self.n_inputs:
            raise InputError(f"the program takes {self.n_inputs} inputs, got {len(inputs)}")
        shapes = {x.shape for x in inputs if isinstance(x, np.ndarray)}
        if len(shapes) != 1:
            raise ShapeError(f"a tiled program needs arrays of one shape, got {sorted(shapes)}")
        shape: tuple[int, ...] = shapes.pop()
        plan = self.plan(*inputs)
        if out is None:
            out = [np.empty(shape, dtype) for dtype in plan.outputs]
        else:
            _check_out(out, shape, plan)
        flat = [x.reshape(-1) if isinstance(x, np.ndarray) else x for x in inputs]
        _execute(plan, flat, [y.reshape(-1) for y in out], math.prod(shape))
        return out[0] if len(out) == 1 else tuple(out)


def _check_out(out: Sequence[Raw], shape: tuple[int, ...], plan: _Plan) -> None:
    given = [(y.shape, y.dtype) for y in out]
    if given != [(shape, dtype) for dtype in plan.outputs]:
        raise ShapeError(f"out must be {shape} of {list(plan.outputs)}, got {given}")
    if not all(y.flags.c_contiguous and y.flags.writeable for y in out):
        raise ShapeError("out must be contiguous and writable")


def _execute(plan: _Plan, flat: list[Any], out: list[Raw], size: int) -> None:
    def tile(index: int) -> None:
        start, stop = index * TILE, min(size, (index + 1) * TILE)
        plan.run(
            *[x[start:stop] if isinstance(x, np.ndarray) else x for x in flat],
            *[scratch(f"tiled{i}", (stop - start,), dtype) for i, dtype in enumerate(plan.buffers)],
            *[y[start:stop] for y in out],
        )

    with np.errstate(all="ignore"):
        # One tile takes fresh buffers: small ones come from the allocator's own cache, and a
        # program that is a step of another, so works on its tiles, leaves its scratch alone.
        if size <= TILE:
            return plan.run(*flat, *[np.empty(size, dtype) for dtype in plan.buffers], *out)
        threads = None if size >= _PARALLEL_SIZE else 1
        return parallel.parallel_for(tile, -(-size // TILE), threads=threads)


def compile_program(steps: Sequence[Step], n_inputs: int, outputs: Sequence[int]) -> Program:
    """A callable that runs elementwise `steps` over cache-size tiles.

    A step is (function, operands, target slot). Slots 0 … n_inputs − 1 are the inputs, every
    other slot is written by exactly one step; an int operand is a slot, a float a constant. A
    function is a ufunc, takes `out=`, or is wrapped in `copying`. Raises `InputError` otherwise.

    >>> square_plus_one = compile_program(
    ...     [(np.multiply, (0, 0), 1), (np.add, (1, 1.0), 2)], n_inputs=1, outputs=[2]
    ... )
    >>> square_plus_one(np.arange(3.0))
    array([1., 2., 5.])
    """
    return Program(steps, n_inputs, outputs)
