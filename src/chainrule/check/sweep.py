"""The layout rows of a gradient check: every incoming gradient and every input, laid out anew.

Each row is one run in poisoned memory; `Judge.compare` says what is right and `causes` why it is not.
A function that refuses an input layout in words is within its rights; a backward is not, since its
caller does not choose the gradient's layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from chainrule.check import causes
from chainrule.check.judge import Judge, mismatch
from chainrule.check.layouts import Form, contiguous, forms, transposed
from chainrule.check.problem import BackwardError, first_line
from chainrule.check.report import FAIL, OK, REFUSED, SKIP

Raw = Any


def gradient_layouts(judge: Judge) -> None:
    """Every layout of every output's incoming gradient."""
    for o in judge.which:
        v = judge.cotangent(judge.shapes[o])
        name = f"grad {o} " if len(judge.which) > 1 else "grad "
        for form in forms(judge.shapes[o], negative=judge.host.negative, expand=True):
            held = np.ones(form.shape) if form.name == "expanded" else form.settle(v)
            _gradient_layout(judge, o, form, held, name + form.label())


def _gradient_layout(judge: Judge, o: int, form: Form, held: Raw, label: str) -> None:
    p = judge.problem
    call = p.call()
    outputs = p.outputs(call)
    g = p.gradient(form.place(held), form, outputs[o])
    try:
        found = p.vjp(outputs, call, {o: g})
    except BackwardError as error:
        judge.add_raised(label, error, "the backward refuses this layout")
        return
    at = judge.compare({o: held}, found)
    if at is not None:
        cause = causes.gradient_layout(p, o, form, held)
        judge.blame(at, o, held, label)
        judge.add(label, FAIL, str(at), cause, at)
    else:
        _fine(judge, label, [o])


def _fine(judge: Judge, label: str, outputs: list[int]) -> None:
    """The row of a layout that gives what the plain one gives, right or wrong."""
    if any(o in outputs for o, _ in judge.wrong):
        judge.add(label, FAIL, "wrong in the same way as given")
    else:
        judge.add(label, OK)


def input_layouts(judge: Judge) -> None:
    """Every layout of every tensor among the inputs."""
    p = judge.problem
    for i in p.tensors:
        for form in forms(p.shape(i), negative=judge.host.negative, expand=i in p.wanted):
            if form.name != "contiguous" or form.strides != p.given[i].strides:
                _input_layout(judge, i, form)


def _input_layout(judge: Judge, i: int, form: Form) -> None:
    p, host = judge.problem, judge.host
    changed = {i: form.settle(p.values[i])} if form.expanded else {}
    values = changed.get(i, p.values[i])
    label = f"input {p.names[i]} {form.label()}"
    try:
        call = p.call({i: form}, changed)
        outputs = p.outputs(call)
    except Exception as error:
        judge.add(label, REFUSED, first_line(error))
        return
    base = judge.base
    if form.expanded:
        flat = p.outputs(p.call({i: contiguous(form.shape)}, changed))
        base = {o: host.values(flat[o]) for o in judge.which}
        if not all(np.isfinite(b).all() for b in base.values()):
            judge.add(label, SKIP, "the function is not finite at equal elements")
            return
    for o, want in base.items():
        got = host.values(outputs[o])
        if got.shape != want.shape:
            judge.add(label, FAIL, f"{judge.output(o)} has shape {got.shape}, want {want.shape}")
            return
        bad = judge.bad(got, want)
        if bad.any() and not (form.expanded and _kinked(judge, i, values)):
            at = mismatch(-1, judge.output(o), bad, got, want)
            cause = causes.input_layout(p, i, form, values, judge.which, True)
            judge.add(label, FAIL, str(at), cause, at)
            return
    grads, held = judge.gradients(outputs)
    try:
        found = p.vjp(outputs, call, grads)
        at = judge.compare(held, found, changed)
    except BackwardError as error:
        judge.add_raised(label, error, "the backward refuses this layout")
        return
    touched = p.disturbed(call)
    if at is not None and form.expanded and _kinked(judge, i, values):
        judge.add(label, SKIP, "the function has no derivative at equal elements")
    elif at is not None:
        cause = causes.input_layout(p, i, form, values, judge.which, False)
        judge.add(label, FAIL, str(at), cause, at)
    elif touched:
        judge.add(label, FAIL, f"memory in or around the input {touched} was written to")
    else:
        _fine(judge, label, judge.which)


def _kinked(judge: Judge, i: int, values: Raw) -> bool:
    """Whether forward and backward differences by some element disagree at `values`."""
    p, eps = judge.problem, judge.eps
    base = p.evaluate(judge.which, {i: values})
    for k in range(values.size):
        up, down = values.copy(), values.copy()
        up.flat[k] += eps
        down.flat[k] -= eps
        above, below = p.evaluate(judge.which, {i: up}), p.evaluate(judge.which, {i: down})
        for a, m, b in zip(above, base, below, strict=True):
            right, left = (a - m) / eps, (m - b) / eps
            if np.any(~(np.abs(right - left) <= 1e-2 * (1 + np.abs(right)))):
                return True
    return False


def together(judge: Judge) -> None:
    """All outputs at once, and all inputs and gradients transposed."""
    p = judge.problem
    if len(judge.which) > 1:
        _together(judge, "all gradients at once", {}, False)
    wide = {
        i: transposed(p.shape(i))
        for i in p.tensors
        if sum(n > 1 for n in p.shape(i)) >= 2 and p.values[i].size
    }
    if wide:
        _together(judge, "all transposed", wide, True)


def _together(judge: Judge, label: str, layout: Mapping[int, Form], turned: bool) -> None:
    p = judge.problem
    earlier = [row.cause for row in judge.report.failures if row.cause]
    try:
        call = p.call(layout)
        outputs = p.outputs(call)
    except Exception as error:
        judge.add(label, REFUSED, first_line(error))
        return
    grads, held = judge.gradients(outputs, turned)
    try:
        found = p.vjp(outputs, call, grads)
    except BackwardError as error:
        judge.add_raised(label, error)
        return
    at = judge.compare(held, found)
    if at is None:
        _fine(judge, label, judge.which)
    else:
        judge.add(label, FAIL, str(at), earlier[0] if earlier else "only together", at)
