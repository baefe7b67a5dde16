"""The likely cause of a failure, deduced by experiments on the function, never guessed.

Each function states a hypothesis, predicts what the numbers would be if it held, and names the cause
only when they are. An empty string means that no hypothesis held.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from chainrule.check.layouts import Form, contiguous, row_major
from chainrule.check.problem import BackwardError, Problem
from chainrule.check.report import number

Raw = Any


def same(a: Raw, b: Raw) -> bool:
    """Whether two results agree far better than any bug would leave them."""
    if a.shape != b.shape:
        return False
    scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0))
    return bool(np.allclose(a, b, rtol=1e-3, atol=1e-4 * scale + 1e-9, equal_nan=True))


def _finite(buffer: Raw) -> Raw:
    """The poison replaced by numbers that leave a trace of where they were read."""
    marks = 100.0 + np.arange(buffer.size) * 0.37
    return np.where(np.isnan(buffer), marks, buffer)


def not_finite(problem: Problem) -> str:
    """That the function, or else its backward, gives NaN or inf at the inputs as they are."""
    values = [problem.host.values(t) for t in problem.outputs(problem.call())]
    odd = [float(v[~np.isfinite(v)].flat[0]) for v in values if not np.isfinite(v).all()]
    if odd:
        return (
            f"the function itself gives {odd[0]} here, so no gradient can be right: move the inputs"
        )
    return "the backward gives numbers that are not finite, in a contiguous layout too"


def _hides(found: list[Raw], right: list[Raw]) -> bool:
    """Whether `found` is what a contiguous run gives, NaN or inf included: layouts explain nothing."""
    return not all(np.isfinite(r).all() for r in right) and same_all(found, right)


def _traced(found: Raw, guess: Raw) -> bool:
    """Whether `guess` explains `found`: NaN there is poison that was read, and proves nothing."""
    filled = np.where(np.isnan(found), guess, found) if found.shape == guess.shape else found
    return bool(np.isfinite(found).any()) and same(filled, guess)


def gradient_layout(problem: Problem, output: int, form: Form, values: Raw) -> str:
    """Why an incoming gradient of `form` gives another result than a contiguous one."""
    buffer = _finite(form.place(values))

    def backward(flat: Raw, layout: Form) -> list[Raw]:
        call = problem.call()
        outputs = problem.outputs(call)
        g = problem.gradient(flat, layout, outputs[output])
        found = problem.vjp(outputs, call, {output: g})
        return [np.zeros(()) if f is None else f for f in found]

    plain = contiguous(form.shape)
    try:
        got = backward(buffer, form)
        if _hides(got, backward(plain.place(values), plain)):
            return not_finite(problem)
        for use_offset in (True, False):
            seen = form.misread(buffer, use_offset)
            if same_all(backward(plain.place(seen), plain), got):
                if form.strides == row_major(form.shape):
                    return "the backward ignores the gradient's storage offset"
                return "the backward assumes a contiguous gradient" + (
                    "" if use_offset or not form.offset else " and ignores its storage offset"
                )
    except BackwardError as error:
        return f"the backward raised {error}"
    return "the result depends on the strides of the gradient"


def same_all(first: list[Raw], second: list[Raw]) -> bool:
    """Whether two lists of results agree."""
    return all(same(a, b) for a, b in zip(first, second, strict=True))


def input_layout(
    problem: Problem, i: int, form: Form, values: Raw, which: list[int], forward_differs: bool
) -> str:
    """Why input `i` in `form` gives another result than a contiguous one."""
    name = problem.names[i]
    if values.dtype.kind != "f":
        return f"the result depends on the strides of {name}"
    buffer = _finite(form.place(values))
    window = form.window(buffer).copy()
    seen = form.misread(buffer)
    here, plain = {i: form}, {i: contiguous(form.shape)}
    try:
        call, other = problem.call(here, {i: window}), problem.call(plain, {i: seen})
        got, guess = problem.outputs(call), problem.outputs(other)
        read = problem.host.values
        if forward_differs:
            # NaN marks the poison in `call`, finite marks stand for it in `other`
            pairs = [(read(got[o]), read(guess[o])) for o in which]
            right = problem.outputs(problem.call(plain, {i: values}))
            if _hides([a for a, _ in pairs], [read(right[o]) for o in which]):
                return not_finite(problem)
            if pairs and all(_traced(a, b) for a, b in pairs):
                return f"the forward assumes that {name} is contiguous"
            for o, (a, _) in zip(which, pairs, strict=True):
                flat = read(right[o])
                if flat.shape == form.shape and same(a, _refill(form, flat)):
                    return f"the output is filled flat although it has the strides of {name}"
            return f"the forward depends on the strides of {name}"
        if i not in problem.wanted:
            return f"the backward depends on the strides of {name}"
        at = problem.wanted.index(i)
        want_call = problem.call(plain, {i: values})
        want_out = problem.outputs(want_call)
        ones = {o: problem.gradient(*_ramp(want_out[o]), want_out[o]) for o in which}
        found = problem.vjp(got, call, ones)[at]
        want = problem.vjp(want_out, want_call, ones)[at]
        misled = problem.vjp(guess, other, ones)[at]
    except Exception:  # an experiment that cannot run proves nothing
        return f"the result depends on the strides of {name}"
    if found is None or want is None:
        return f"no gradient comes back for {name} in this layout"
    if _hides([found], [want]):
        return not_finite(problem)
    if misled is not None and _traced(found, misled):
        return f"the backward assumes that {name} is contiguous"
    for rearranged in (form.misread(form.place(want)), _refill(form, want)):
        if _traced(found, rearranged):
            return f"the gradient is written in the memory order of {name}"
    return f"the backward depends on the strides of {name}"


def _ramp(output: Any) -> tuple[Raw, Form]:
    """A contiguous incoming gradient with no two elements alike."""
    form = contiguous(tuple(output.shape))
    return form.place(1.0 + 0.1 * np.arange(prod(form.shape)).reshape(form.shape)), form


def _refill(form: Form, want: Raw) -> Raw:
    """What a dense buffer with the strides of `form` shows when it is filled flat."""
    buffer = np.full(form.length, np.nan)
    buffer[form.offset : form.offset + want.size] = want.reshape(-1)
    return form.window(buffer).copy()


def jacobian(
    problem: Problem, output: int, i: int, got: dict[Any, Raw], want: dict[Any, Raw]
) -> str:
    """Why the Jacobian block of `output` by input `i` is wrong with a plain incoming gradient."""
    a, n = got[output, i], want[output, i]
    name, shape = problem.names[i], problem.shape(i)
    if not np.isfinite(n).all():
        (base,) = problem.evaluate([output], {})
        if not np.isfinite(base).all():
            return not_finite(problem)
        return "the function is not finite within one step of this point: move the inputs"
    if not np.isfinite(a).all():
        return "the backward gives numbers that are not finite"
    if not a.any():
        return f"the backward returns zero for {name}, which the output depends on"
    if ignores_gradient(problem, output, i):
        return "the backward does not multiply by the incoming gradient"
    factor = _factor(a, n)
    if factor is not None:
        return _named_factor(factor, a.shape[0], a.shape[1])
    if n.shape[0] == n.shape[1] and same(a, n.T):
        return "the backward applies the Jacobian where its transpose belongs"
    for j in problem.wanted:
        other = want.get((output, j))
        if j != i and other is not None and other.shape == n.shape and same(a, other):
            return f"this is the gradient of {problem.names[j]}: the two are swapped"
    if len(shape) >= 2 and shape[-1] == shape[-2] and shape[-1] > 1:
        blocks = a.reshape(-1, *shape).swapaxes(-1, -2).reshape(a.shape)
        if same(blocks, n):
            return f"the gradient of {name} comes back transposed"
    scale = float(np.abs(n).max())
    absent = (np.abs(a) <= 1e-9 * scale) & (np.abs(n) > 1e-6 * scale)
    if absent.any() and same(np.where(absent, n, a), n):
        share = f"{int(absent.sum())} of {int((np.abs(n) > 1e-6 * scale).sum())}"
        return (
            f"{share} contributions are missing and the rest are right: something is not "
            "accumulated (a repeated index, a branch or a broadcast dimension)"
        )
    return ""


def _factor(a: Raw, n: Raw) -> float | None:
    """The constant by which `a` exceeds `n`, where there is one."""
    at = np.unravel_index(int(np.argmax(np.abs(n))), n.shape)
    if n[at] == 0:
        return None
    factor = float(a[at] / n[at])
    return factor if abs(factor - 1) > 1e-3 and same(a, factor * n) else None


def _named_factor(factor: float, rows: int, columns: int) -> str:
    if abs(factor + 1) < 1e-3:
        return "the sign is flipped"
    if abs(factor - 2) < 2e-3:
        return "twice the derivative: a factor 2 too many, or a contribution counted twice"
    if abs(factor - 0.5) < 1e-3:
        return "half the derivative: a factor 2 is missing, or one of two contributions"
    for size, what in ((rows, "outputs"), (columns, "inputs")):
        if size > 1 and abs(factor * size - 1) < 1e-3:
            return f"1/{size} of the derivative, and there are {size} {what}: a mean for a sum"
        if size > 1 and abs(factor / size - 1) < 1e-3:
            return f"{size} times the derivative, and there are {size} {what}: a sum for a mean"
    return f"every element is {number(float(f'{factor:.3g}'))} times the derivative"


def ignores_gradient(problem: Problem, output: int, i: int) -> bool:
    """Whether doubling the incoming gradient changes nothing."""
    call = problem.call()
    outputs = problem.outputs(call)
    form = contiguous(tuple(outputs[output].shape))
    at = problem.wanted.index(i)
    found: list[Raw] = []
    for scale in (1.0, 2.0):
        g = problem.gradient(form.place(np.full(form.shape, scale)), form, outputs[output])
        one = problem.vjp(outputs, call, {output: g})[at]
        if one is None or not one.any():
            return False
        found.append(one)
    return bool(np.array_equal(found[0], found[1]))


def one_sided(problem: Problem, output: int, i: int, flat: int, h: float) -> tuple[Raw, Raw]:
    """The forward and the backward difference by one element of input `i`."""
    (middle,) = problem.evaluate([output], {})
    (up, high), (down, low) = problem.step(i, flat, h), problem.step(i, flat, -h)
    (above,) = problem.evaluate([output], {i: up})
    (below,) = problem.evaluate([output], {i: down})
    return (above - middle) / high, (below - middle) / low
