"""What a failing check shows beside its rows: one element in full, and its answer to the step size.

A wrong derivative keeps its error at every step; noise and curvature come and go with the step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.check import causes
from chainrule.check.judge import Judge
from chainrule.check.report import number

Raw = Any
STEPS = tuple(10.0**-k for k in range(2, 10))


def explain(judge: Judge) -> None:
    """Append the evidence for the first failing gradient element, if there is one."""
    if judge.culprit is None:
        return
    at, o, v, label = judge.culprit
    p = judge.problem
    flat = int(np.ravel_multi_index(at.index, p.shape(at.input))) if at.index else 0
    with np.errstate(all="ignore"):
        values = [float(np.sum(p.difference([o], at.input, flat, h)[0] * v)) for h in STEPS]
        numeric = float(np.sum(p.difference([o], at.input, flat, judge.eps)[0] * v))
    errors = [abs(value - at.got) for value in values]
    gap = abs(at.got - numeric)
    relative = number(gap / abs(numeric)) if numeric else "infinite"
    judge.report.evidence += [
        "",
        f"row        {label}",
        f"operation  {judge.operations[o]}",
        f"element    {list(at.index)} of input {at.input} ({p.names[at.input]})",
        f"analytic   {at.got!r}",
        f"numeric    {numeric!r}",
        f"error      {number(gap)} absolute, {relative} relative",
        "step h     " + "  ".join(f"{h:<7.0e}" for h in STEPS).rstrip(),
        "error      " + "  ".join(f"{e:<7.2g}" for e in errors).rstrip(),
        "           " + _reading(judge, values, errors, flat),
    ]


def _reading(judge: Judge, values: list[float], errors: list[float], flat: int) -> str:
    """What the error does as the step shrinks, in one sentence."""
    assert judge.culprit is not None
    at, o, v, _ = judge.culprit
    if not np.isfinite(values).any():
        return "no difference is finite, whatever the step: the function itself is not finite here"
    if not np.isfinite(at.got):
        return "the analytic value is not finite, whatever the step: a bug, not noise"
    right, left = causes.one_sided(judge.problem, o, at.input, flat, 1e-4)
    above, below = float(np.sum(right * v)), float(np.sum(left * v))
    gap = abs(above - below)
    if gap > 0.05 * (abs(above) + abs(below)) and gap > 10 * judge.atol:
        return (
            f"the slope is {number(above)} on one side and {number(below)} on the other: the "
            "function has a kink here, move the input away from it"
        )
    best = int(np.argmin(errors))
    if errors[best] <= judge.atol + judge.rtol * abs(values[best]):
        return (
            f"the two agree at h = {STEPS[best]:.0e}: noise of the step, not a bug; "
            f"pass eps={STEPS[best]:.0e}"
        )
    middle = errors[1:5]
    if max(middle) <= 1.2 * min(middle):
        return "the error stays the same whatever the step: a bug, not noise"
    return "the error follows the step and never vanishes: the function is rough or imprecise here"
