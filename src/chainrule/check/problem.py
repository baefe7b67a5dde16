"""A function under check: its inputs in any layout, its values, its gradients, its differences.

Built on a `Host`; every number leaves as NumPy. Each call gets fresh leaves in poisoned buffers, so
no run can disturb the next and a write outside an input shows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.check.hosts import Host, host_of
from chainrule.check.layouts import Form, row_major
from chainrule.errors import DTypeError, GradError, InputError, LayoutError

Raw = Any
HALF = ("float16", "bfloat16")


class BackwardError(GradError):
    """The engine, or the function's own backward, raised."""


@dataclass
class Call:
    """Arguments built for one run, and what their buffers held before it."""

    args: list[Any]
    guards: list[tuple[str, Any, Raw]]


def first_line(error: BaseException) -> str:
    """The sentence of an error, with its class."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def title_of(fn: Any) -> str:
    """What to call `fn` in a report."""
    owner = getattr(fn, "__self__", None)
    if getattr(fn, "__name__", "") == "apply" and isinstance(owner, type):
        return owner.__name__
    return str(getattr(fn, "__name__", type(fn).__name__))


def argument_names(fn: Any, count: int) -> list[str]:
    """The parameter names of `fn` where it has them, else x, or x0, x1, …"""
    plain = ["x"] if count == 1 else [f"x{i}" for i in range(count)]
    owner = getattr(fn, "__self__", None)
    source = fn
    if getattr(fn, "__name__", "") == "apply" and isinstance(owner, type):
        source = getattr(owner, "forward", fn)
    try:
        parameters = list(inspect.signature(source).parameters.values())
    except (TypeError, ValueError):
        return plain
    if parameters and parameters[0].name in ("ctx", "context"):
        parameters = parameters[1:]
    for i, parameter in enumerate(parameters[:count]):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY):
            break
        plain[i] = parameter.name
    return plain


class Problem:
    """`fn` at `inputs`, with everything a check asks of it.

    `wanted` lists the inputs that get a gradient, those that require one where None; `dtype` recasts
    the floating inputs.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: Sequence[Any],
        names: Sequence[str] | None = None,
        host: Host | None = None,
        wanted: Sequence[int] | None = None,
        dtype: str | None = None,
    ) -> None:
        self.fn = fn
        self.title = title_of(fn)
        self.dtype = dtype
        self.inputs = tuple(inputs)
        self.host = host or host_of(self.inputs)
        self.names = list(names or argument_names(fn, len(self.inputs)))
        h = self.host
        self.tensors = [i for i, x in enumerate(self.inputs) if h.is_tensor(x)]
        self.dtypes = {i: h.dtype(self.inputs[i]) for i in self.tensors}
        self.floating = [i for i in self.tensors if "float" in self.dtypes[i]]
        if wanted is None:
            self.wanted = [i for i in self.tensors if h.requires_grad(self.inputs[i])]
        else:
            self.wanted = list(wanted)
        for i in self.tensors:
            if "complex" in self.dtypes[i]:
                raise DTypeError(
                    f"input {i} ({self.names[i]}) is {self.dtypes[i]}: complex inputs are out of "
                    "scope, check the real and the imaginary part as two real inputs"
                )
        self.given = {i: _at_start(h.form(self.inputs[i])) for i in self.tensors}
        for i in self.wanted:
            _no_overlap(self.given[i], i, self.names[i])
        self.values = {i: h.values(self.inputs[i]) for i in self.tensors}

    def shape(self, i: int) -> tuple[int, ...]:
        """The shape of input `i`."""
        return self.given[i].shape

    def call(
        self, forms: Mapping[int, Form] | None = None, values: Mapping[int, Raw] | None = None
    ) -> Call:
        """Arguments with the given layouts and values, the user's own where none is given."""
        h, call = self.host, Call(list(self.inputs), [])
        for i in self.tensors:
            form = (forms or {}).get(i, self.given[i])
            dtype = self.dtype if i in self.floating else None
            value = (values or {}).get(i, self.values[i])
            if i in self.wanted and form.expanded:
                kept = tuple(
                    1 if s == 0 else n for n, s in zip(form.shape, form.strides, strict=True)
                )
                narrow = Form(form.name, kept, form.strides, form.offset)
                pick = tuple(slice(0, n) for n in kept)
                buffer = narrow.place(np.ascontiguousarray(value[pick]))
                tensor, whole = h.make(buffer, narrow, self.inputs[i], dtype)
                call.args[i] = h.leaf(tensor).expand(*form.shape)
            else:
                buffer = form.place(value)
                tensor, whole = h.make(buffer, form, self.inputs[i], dtype)
                call.args[i] = h.leaf(tensor) if i in self.wanted else tensor
            call.guards.append((self.names[i], whole, h.values(whole)))
        return call

    def disturbed(self, call: Call) -> str:
        """The name of an input whose memory the run wrote to, or the empty string."""
        for name, whole, before in call.guards:
            if not np.array_equal(
                self.host.values(whole),
                before,
                equal_nan=before.dtype.kind == "f",
            ):
                return name
        return ""

    def outputs(self, call: Call) -> list[Any]:
        """The tensors that `fn` returns."""
        result: Any = self.fn(*call.args)
        many: tuple[Any, ...] = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        return [t for t in many if self.host.is_tensor(t)]

    def vjp(self, outputs: Sequence[Any], call: Call, grads: Mapping[int, Any]) -> list[Raw | None]:
        """The gradient of each wanted input as NumPy, for incoming gradients by output index."""
        found = self.tensors_back(outputs, call, grads)
        for i, g in zip(self.wanted, found, strict=True):
            if g is not None and tuple(g.shape) != self.shape(i):
                raise BackwardError(
                    f"the gradient of {self.names[i]} has shape {tuple(g.shape)}, "
                    f"want {self.shape(i)}"
                )
        return [None if g is None else self.host.values(g) for g in found]

    def tensors_back(
        self, outputs: Sequence[Any], call: Call, grads: Mapping[int, Any]
    ) -> list[Any]:
        """The gradient of each wanted input as the host's tensors, None where nothing flows."""
        try:
            return self.host.grad(
                [outputs[o] for o in grads],
                [call.args[i] for i in self.wanted],
                list(grads.values()),
                False,
            )
        except Exception as error:  # whatever a user's backward raises is a finding
            raise BackwardError(first_line(error)) from error

    def gradient(self, buffer: Raw, form: Form, like: Any) -> Any:
        """An incoming gradient of `form`."""
        return self.host.make(buffer, form, like)[0]

    def evaluate(self, which: Sequence[int], values: Mapping[int, Raw]) -> list[Raw]:
        """The outputs `which` as NumPy, at changed input values."""
        outputs = self.outputs(self.call(values=values))
        return [self.host.values(outputs[o]) for o in which]

    def step(self, i: int, flat: int, h: float) -> tuple[Raw, float]:
        """Input `i` with one element moved by `h`, and the step that its dtype really took."""
        moved = self.values[i].copy()
        before = float(moved.flat[flat])
        after = before + h
        moved.flat[flat] = float(np.float32(after)) if self.dtypes[i] == "float32" else after
        return moved, float(moved.flat[flat]) - before

    def difference(self, which: Sequence[int], i: int, flat: int, h: float) -> list[Raw]:
        """Central differences of the outputs `which` by one element of input `i`."""
        up, high = self.step(i, flat, h)
        down, low = self.step(i, flat, -h)
        above = self.evaluate(which, {i: up})
        below = self.evaluate(which, {i: down})
        with np.errstate(all="ignore"):
            return [(a - b) / (high - low) for a, b in zip(above, below, strict=True)]

    def numeric(self, which: Sequence[int], eps: float) -> dict[tuple[int, int], Raw]:
        """The Jacobian blocks by (output, input), each (outputs, inputs), from differences."""
        blocks: dict[tuple[int, int], Raw] = {}
        for i in self.wanted:
            columns: list[list[Raw]] = [
                [d.reshape(-1) for d in self.difference(which, i, k, eps)]
                for k in range(self.values[i].size)
            ]
            for at, o in enumerate(which):
                if columns:
                    blocks[o, i] = np.stack([c[at] for c in columns], axis=1)
        return blocks


def _at_start(form: Form) -> Form:
    """The same strides with the smallest offset that keeps every element inside."""
    back = sum((n - 1) * -min(s, 0) for n, s in zip(form.shape, form.strides, strict=True) if n)
    return Form("as given", form.shape, form.strides, back)


def _no_overlap(form: Form, i: int, name: str) -> None:
    reached = form.window(np.arange(form.length))
    if np.unique(reached).size < reached.size:
        raise LayoutError(
            f"input {i} ({name}) has shape {form.shape} and strides {form.strides}, so several "
            "elements share memory and cannot be moved one by one: pass it `.contiguous()`, the "
            f"check itself tries stride 0 (contiguous strides would be {row_major(form.shape)})"
        )


def require_inputs(problem: Problem) -> None:
    """Raise unless some input wants a gradient and all that do can be differenced."""
    if not problem.wanted:
        raise InputError(
            "no input requires a gradient, so there is nothing to check: pass at least one tensor "
            "with requires_grad=True"
        )
    for i in problem.wanted:
        if problem.dtypes[i] in HALF:
            raise DTypeError(
                f"input {i} ({problem.names[i]}) is {problem.dtypes[i]}, too coarse for finite "
                "differences: give float64, or judge the function against a float64 reference "
                "with check.against(fn, reference, *inputs) (--against on the command line)"
            )
