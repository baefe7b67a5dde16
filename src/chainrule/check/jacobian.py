"""The inputs as given: is the function steady, and does its backward agree with differences?

Each function adds rows to a `Judge`'s report; the Jacobian found here is what the layout sweep uses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.check import causes
from chainrule.check.judge import Judge, index_of, worst
from chainrule.check.layouts import contiguous
from chainrule.check.problem import Call, first_line
from chainrule.check.report import FAIL, OK, Mismatch, element, number
from chainrule.errors import InputError

Raw = Any


def _largest(x: Raw) -> float:
    """The largest magnitude; what is NaN in both of two runs differs by nothing."""
    return float(np.max(np.abs(np.where(np.isnan(x), 0.0, x)), initial=0.0))


def steady(judge: Judge) -> bool:
    """Whether two runs agree and leave the inputs alone; also notes the outputs."""
    p, host = judge.problem, judge.host
    call = p.call()
    outputs = p.outputs(call)
    touched = p.disturbed(call)
    if touched:
        judge.add("forward", FAIL, f"the function writes into its input {touched}")
        return False
    for o, t in enumerate(outputs):
        if host.requires_grad(t):
            judge.which.append(o)
            judge.shapes[o] = tuple(t.shape)
            judge.operations[o] = host.operation(t)
            judge.base[o] = host.values(t)
    for o, again in zip(judge.which, p.evaluate(judge.which, {}), strict=True):
        with np.errstate(all="ignore"):
            spread = _largest(judge.base[o] - again)
        if spread > judge.nondet_tol:
            judge.add(
                "forward",
                FAIL,
                f"two runs at the same inputs differ by {number(spread)} in {judge.output(o)}: the "
                "function is random or keeps state, so seed it inside",
            )
            return False
    return True


def not_on_tape(judge: Judge, constant: bool) -> None:
    """No output wants a gradient: a row where one should, an `InputError` where none can.

    With `constant`, outputs that depend on nothing are right: a first gradient may be one.
    """
    p, host = judge.problem, judge.host
    result: Any = p.fn(*p.call().args)
    many: tuple[Any, ...] = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    tensors = [t for t in many if host.is_tensor(t)]
    if not tensors:
        kinds = ", ".join(dict.fromkeys(type(t).__name__ for t in many)) or "nothing"
        raise InputError(
            f"{p.title} returns {kinds} and no {host.name} tensor, so there is no gradient to "
            "check: return the tensor that depends on the inputs"
        )
    outputs = [o for o, t in enumerate(tensors) if "float" in host.dtype(t)]
    for (o, i), block in p.numeric(outputs, judge.eps).items():
        if _largest(block) > judge.atol:
            judge.add(
                "as given",
                FAIL,
                f"output {o} depends on {p.names[i]} but is cut off from the tape, so no gradient "
                "can flow back",
            )
            return
    if not (constant and outputs):
        kinds = ", ".join(dict.fromkeys(host.dtype(t) for t in tensors))
        raise InputError(
            f"no output of {p.title} ({kinds}) can be differentiated, since none depends on the "
            "inputs through the tape: there is no gradient to check"
        )
    judge.add("as given", OK, "constant, and so are the differences")


def whole(judge: Judge) -> bool:
    """The whole Jacobian against central differences, element by element."""
    p = judge.problem
    numeric = p.numeric(judge.which, judge.eps)
    absent = _analytic(judge)
    for (o, i), got in judge.analytic.items():
        want = numeric[o, i]
        bad = judge.bad(got, want)
        if not bad.any():
            continue
        if (o, i) in absent and np.isfinite(want).all():
            cause = f"no gradient (None) comes back for {p.names[i]}"
        else:
            cause = causes.jacobian(p, o, i, judge.analytic, numeric)
        j, k = worst(bad, got, want)
        at = Mismatch(
            i, judge.differential(i), index_of(k, p.shape(i)), float(got[j, k]), float(want[j, k])
        )
        judge.wrong[o, i] = cause or "the derivative is wrong"
        judge.blame(at, o, _one_hot(judge.shapes[o], j), "as given")
        place = element(judge.output(o), index_of(j, judge.shapes[o]))
        judge.add("as given", FAIL, f"{at} for {place}", cause, at)
    if not judge.wrong:
        judge.add("as given", OK)
    return not judge.wrong


def _one_hot(shape: tuple[int, ...], j: int) -> Raw:
    one = np.zeros(shape)
    one.reshape(-1)[j] = 1.0
    return one


def _analytic(judge: Judge) -> set[tuple[int, int]]:
    """Fill `judge.analytic`, one backward an output element; returns the blocks without any."""
    p = judge.problem
    call = p.call()
    outputs = p.outputs(call)
    absent: set[tuple[int, int]] = set()
    for o in judge.which:
        form = contiguous(judge.shapes[o])
        rows: list[list[Raw | None]] = []
        for j in range(judge.base[o].size):
            g = p.gradient(form.place(_one_hot(form.shape, j)), form, outputs[o])
            rows.append(p.vjp(outputs, call, {o: g}))
        for at, i in enumerate(p.wanted):
            if not rows or not p.values[i].size:
                continue
            blank = np.zeros(p.shape(i))
            found = [row[at] for row in rows]
            if all(f is None for f in found):
                absent.add((o, i))
            judge.analytic[o, i] = np.stack(
                [(blank if f is None else f).reshape(-1) for f in found]
            )
    _inputs_kept(judge, call)
    return absent


def _inputs_kept(judge: Judge, call: Call) -> None:
    touched = judge.problem.disturbed(call)
    if touched:
        judge.add("backward", FAIL, f"the backward writes into the input {touched}")


def projected(judge: Judge) -> bool:
    """One random projection of each Jacobian block; the whole Jacobian where that fails."""
    p = judge.problem
    call = p.call()
    outputs = p.outputs(call)
    for o in judge.which:
        v = _unit(judge.rng, judge.shapes[o])
        form = contiguous(judge.shapes[o])
        found = p.vjp(outputs, call, {o: p.gradient(form.place(v), form, outputs[o])})
        for at, i in enumerate(p.wanted):
            if not v.size or not p.values[i].size:
                continue
            u = _unit(judge.rng, p.shape(i))
            (above,) = p.evaluate([o], {i: p.values[i] + judge.eps * u})
            (below,) = p.evaluate([o], {i: p.values[i] - judge.eps * u})
            want = float(np.sum(v * (above - below))) / (2 * judge.eps)
            back = found[at]
            got = 0.0 if back is None else float(np.sum(back * u))
            slack = judge.atol * max(1.0, float(np.abs(u).sum() * np.abs(v).sum()))
            if abs(got - want) <= slack + judge.rtol * abs(want):
                continue
            if whole(judge):
                judge.report.rows.pop()
                judge.add(
                    "as given",
                    FAIL,
                    f"a random projection gives {number(got)}, want {number(want)}, though every "
                    "element alone is within tolerance",
                )
            return False
    _inputs_kept(judge, call)
    judge.add("as given", OK, "one random projection")
    return True


def _unit(rng: np.random.Generator, shape: tuple[int, ...]) -> Raw:
    v = np.asarray(rng.standard_normal(shape))
    return v / max(float(np.sqrt(np.sum(v * v))), 1e-300)


def reentrant(judge: Judge) -> None:
    """Three runs of one backward agree, and it leaves its incoming gradient alone."""
    p, host = judge.problem, judge.host
    call = p.call()
    outputs = p.outputs(call)
    grads, _ = judge.gradients(outputs)
    memory = dict(judge.memory)
    before = {o: host.values(whole) for o, whole in memory.items()}
    runs = [p.vjp(outputs, call, grads) for _ in range(3)]
    for o, whole in memory.items():
        if not np.array_equal(host.values(whole), before[o], equal_nan=True):
            judge.add(
                "backward",
                FAIL,
                "the backward writes into its incoming gradient, which other nodes may share",
            )
            return
    for at, i in enumerate(p.wanted):
        seen = [np.zeros(()) if (one := run[at]) is None else one for run in runs]
        with np.errstate(all="ignore"):
            spread = max(_largest(seen[0] - s) for s in seen[1:])
        if spread > judge.nondet_tol:
            judge.add(
                "backward",
                FAIL,
                f"not reentrant: {judge.differential(i)} differs by {number(spread)} between runs "
                f"of the same backward, more than nondet_tol={judge.nondet_tol:g}",
                "it is random, adds in varying order, or changes what it saved",
            )
            return


def dtypes(judge: Judge) -> None:
    """Each gradient has its input's dtype."""
    p = judge.problem
    call = p.call()
    outputs = p.outputs(call)
    grads, _ = judge.gradients(outputs)
    for i, g in zip(p.wanted, p.tensors_back(outputs, call, grads), strict=True):
        if g is not None and judge.host.dtype(g) != p.dtypes[i]:
            judge.add(
                "dtypes",
                FAIL,
                f"{judge.differential(i)} is {judge.host.dtype(g)}, want {p.dtypes[i]}",
            )


def undefined(judge: Judge) -> None:
    """A gradient that never arrives counts as zero."""
    p, host = judge.problem, judge.host
    call = p.call()
    outputs = p.outputs(call)
    grads, _ = judge.gradients(outputs)
    hidden = [host.undefined(outputs[o]) for o in judge.which]
    inputs = [call.args[i] for i in p.wanted]
    try:
        found = host.grad(hidden, inputs, list(grads.values()), False)
    except Exception as error:  # a user's backward may raise anything on None
        judge.add("grad undefined", FAIL, f"raised {first_line(error)}")
        return
    for i, g in zip(p.wanted, found, strict=True):
        if g is not None and np.any(host.values(g) != 0):
            judge.add("grad undefined", FAIL, f"{judge.differential(i)} is not zero")
            return
    judge.add("grad undefined", OK)
