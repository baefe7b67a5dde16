"""One set of inputs of `check.against`: the truth, the plain run, and the function in every layout.

The truth is the reference in float64, the plain run the reference in the inputs' own dtype; both are
made once and serve every layout that holds the same values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from chainrule.check import causes
from chainrule.check.guards import guarded
from chainrule.check.layouts import Form, contiguous, forms
from chainrule.check.problem import BackwardError, Call, Problem, first_line
from chainrule.check.report import FAIL, OK, REFUSED, SKIP, Mismatch, Report, Row
from chainrule.check.yardstick import Yardstick
from chainrule.errors import InputError

Raw = Any
Results = tuple[list[Raw], list[Raw | None]]
"""Outputs, and the gradients of the wanted inputs (none where they are not judged)."""
Goal = tuple[Results, Results]
"""Results of the truth and of the plain run."""


class Trial:
    """One set of inputs."""

    def __init__(
        self,
        fn: Callable[..., Any],
        reference: Callable[..., Any],
        inputs: Sequence[Any],
        report: Report,
        prefix: str,
        gradients: bool,
        factor: float,
    ) -> None:
        probe = Problem(fn, inputs, wanted=())
        asked = [i for i in probe.floating if probe.host.requires_grad(inputs[i])]
        self.asked = bool(asked)
        wanted = (asked or probe.floating) if gradients else []
        self.own = Problem(fn, inputs, probe.names, probe.host, wanted)
        self.naive = Problem(reference, inputs, probe.names, probe.host, wanted)
        self.truth = Problem(reference, inputs, probe.names, probe.host, wanted, "float64")
        self.host, self.report, self.prefix = probe.host, report, prefix
        self.values = dict(self.own.values)
        self.backward = bool(wanted)
        self.cotangents: dict[int, Raw] = {}
        self.which: list[int] = []
        self.noted = False
        self.kinds: list[str] = []
        self.yardstick = Yardstick(factor)

    def add(
        self, label: str, status: str, detail: str = "", cause: str = "", at: Mismatch | None = None
    ) -> None:
        """Append a row under this trial's size."""
        self.report.rows.append(Row(self.prefix + label, status, detail, cause, at))

    def run(self, layouts: bool) -> None:
        """The inputs as given, then every layout."""
        try:
            goal = self._goal({})
        except InputError:
            raise
        except Exception as error:  # no truth at this size, so nothing to judge by
            self.add("as given", SKIP, f"the reference raised {first_line(error)}")
            return
        try:
            if not self._one("as given", {}, {}, {}, goal):
                layouts = False
        except Exception as error:  # a kernel may raise anything
            self.add("as given", FAIL, f"raised {first_line(error)}")
            return
        self._out(goal, layouts)
        if layouts:
            self._gradients(goal)
            self._inputs(goal)

    # -- what is right ----------------------------------------------------------------------------

    def _goal(self, values: Mapping[int, Raw], cotangents: Mapping[int, Raw] | None = None) -> Goal:
        """The truth and the plain run at `values`; the first call also draws the cotangents."""
        both: list[Results] = []
        for problem in (self.truth, self.naive):
            call = problem.call({i: contiguous(v.shape) for i, v in values.items()}, values)
            outputs = problem.outputs(call)
            if not self.noted:
                self._note(outputs)
            both.append(self._results(problem, call, outputs, {}, cotangents or self.cotangents))
        return both[0], both[1]

    def _note(self, outputs: list[Any]) -> None:
        self.noted = True
        if not outputs:
            raise InputError(
                f"the reference {self.truth.title} returns no {self.host.name} tensor, so there is "
                "nothing to judge by: return the tensor that the function should give"
            )
        for o, t in enumerate(outputs):
            kind = self.host.dtype(t)
            if "float" in kind and kind != "float64":
                raise InputError(
                    f"output {o} of the reference is {kind} for float64 inputs: write the "
                    "reference without casts, so that it can tell the truth"
                )
        rng = np.random.default_rng(20)
        self.which = [o for o, t in enumerate(outputs) if self.host.requires_grad(t)]
        floating = any("float" in self.host.dtype(t) for t in outputs)
        if self.asked and self.backward and floating and not self.which:
            raise InputError(
                f"no output of the reference {self.truth.title} is on the tape, so the gradients "
                "that the inputs require cannot be judged: write it in differentiable operations, "
                "or give inputs that require no gradient"
            )
        for o in self.which:
            shape = tuple(outputs[o].shape)
            sign = rng.choice([-1.0, 1.0], shape)
            self.cotangents[o] = np.asarray(sign * rng.integers(4, 13, shape) / 8.0)

    def _results(
        self,
        problem: Problem,
        call: Call,
        outputs: list[Any],
        layout: Mapping[int, Form],
        cotangents: Mapping[int, Raw],
    ) -> Results:
        values = [self.host.values(t) for t in outputs]
        on_tape = all(self.host.requires_grad(outputs[o]) for o in self.which)
        if not (self.backward and self.which and on_tape):
            return values, []
        grads = {
            o: problem.gradient((f := layout.get(o, contiguous(v.shape))).place(v), f, outputs[o])
            for o, v in cotangents.items()
        }
        return values, problem.vjp(outputs, call, grads)

    # -- one run ----------------------------------------------------------------------------------

    def _one(
        self,
        label: str,
        inputs: Mapping[int, Form],
        values: Mapping[int, Raw],
        grads: Mapping[int, Form],
        goal: Goal,
        cotangents: Mapping[int, Raw] | None = None,
    ) -> bool:
        own, held = self.own, cotangents or self.cotangents
        with guarded(self.host) as overruns:
            call = own.call(inputs, values)
            outputs = own.outputs(call)
            if len(outputs) != len(goal[0][0]):
                self.add(label, FAIL, f"{len(outputs)} outputs, want {len(goal[0][0])}")
                return False
            self.kinds = [self.host.dtype(t) for t in outputs]
            lost = [o for o in self.which if not self.host.requires_grad(outputs[o])]
            mine = self._results(own, call, outputs, grads, held)
        worst, note = self._judge(goal, mine)
        if worst is not None:
            cause = self._cause(inputs, values, grads, held, worst.input)
            self.add(label, FAIL, f"{worst}: {note}", cause, worst)
            return False
        if overruns.count():
            self.add(label, FAIL, "memory around a buffer the function allocated was written to")
            return False
        touched = own.disturbed(call)
        if touched:
            self.add(label, FAIL, f"memory in or around the input {touched} was written to")
            return False
        if self.backward and lost and self.asked:
            self.add(label, FAIL, f"output {lost[0]} is cut off from the tape: no gradient flows")
            return False
        if self.backward and lost:
            note += f"; gradients not judged, output {lost[0]} is not on the tape"
        if all(v.size and v.dtype.kind == "f" and np.isnan(v).all() for v in goal[0][0]):
            self.add(label, SKIP, "the reference gives NaN everywhere, as the function does")
            return True
        self.add(label, OK, note)
        return True

    def _judge(self, goal: Goal, mine: Results) -> tuple[Mismatch | None, str]:
        (truth, truth_grads), (naive, naive_grads) = goal
        many = len(truth) > 1
        rows: list[tuple[int, str, Raw, Raw, Raw, str]] = [
            (-1, f"y{o}" if many else "y", truth[o], naive[o], mine[0][o], self.kinds[o])
            for o in range(len(truth))
        ]
        for at, got in enumerate(mine[1]):
            i = self.own.wanted[at]
            blank = np.zeros(self.own.shape(i))
            exact = blank if truth_grads[at] is None else truth_grads[at]
            plain = blank if naive_grads[at] is None else naive_grads[at]
            back = blank if got is None else got
            rows.append((i, f"d{self.own.names[i]}", exact, plain, back, self.own.dtypes[i]))
        ratio = 0.0
        for i, name, exact, plain, got, kind in rows:
            if got.shape != exact.shape:
                return (
                    Mismatch(i, name, (), np.nan, np.nan),
                    f"shape {got.shape}, want {exact.shape}",
                )
            at, share, note = self.yardstick.compare(name, exact, plain, got, kind)
            if at is not None:
                return Mismatch(i, name, at, float(got[at]), float(exact[at])), note
            ratio = max(ratio, share)
        if not any(row[2].size for row in rows):
            return None, "nothing to judge: every result is empty"
        return None, f"{ratio:.2f} of the plain run's error"

    def _cause(
        self,
        inputs: Mapping[int, Form],
        values: Mapping[int, Raw],
        grads: Mapping[int, Form],
        cotangents: Mapping[int, Raw],
        at: int,
    ) -> str:
        for o, form in grads.items():
            return causes.gradient_layout(self.own, o, form, cotangents[o])
        for i, form in inputs.items():
            held = values.get(i, self.values[i])
            which = list(range(len(self.kinds))) if at < 0 else self.which
            return causes.input_layout(self.own, i, form, held, which, at < 0)
        return ""

    # -- layouts ----------------------------------------------------------------------------------

    def _gradients(self, goal: Goal) -> None:
        if not self.backward:
            return
        call = self.own.call()
        outputs = self.own.outputs(call)
        for o in self.which:
            if not self.host.requires_grad(outputs[o]):
                continue
            name = f"grad {o} " if len(self.which) > 1 else "grad "
            shape = self.cotangents[o].shape
            for form in forms(shape, negative=self.host.negative, expand=True):
                held = dict(self.cotangents)
                wanted = goal
                if form.expanded:
                    held[o] = form.settle(held[o])
                    wanted = self._goal({}, held)
                try:
                    self._one(name + form.label(), {}, {}, {o: form}, wanted, held)
                except Exception as error:  # a kernel may raise anything
                    text = str(error) if isinstance(error, BackwardError) else first_line(error)
                    self.add(name + form.label(), FAIL, f"raised {text}")

    def _inputs(self, goal: Goal) -> None:
        for i in self.own.tensors:
            expand = i in self.own.wanted or i in self.own.floating
            for form in forms(self.own.shape(i), negative=self.host.negative, expand=expand):
                if form.name == "contiguous" and form.strides == self.own.given[i].strides:
                    continue
                label = f"input {self.own.names[i]} {form.label()}"
                values: dict[int, Raw] = {}
                wanted = goal
                if form.expanded:
                    values = {i: form.settle(self.values[i])}
                    try:
                        wanted = self._goal(values)
                    except Exception as error:  # no truth at equal elements
                        self.add(label, SKIP, f"the reference raised {first_line(error)}")
                        continue
                try:
                    self._one(label, {i: form}, values, {}, wanted)
                except BackwardError as error:
                    self.add(label, FAIL, f"raised {error}")
                except Exception as error:  # saying no in words is a function's right
                    self.add(label, REFUSED, first_line(error))

    def _out(self, goal: Goal, layouts: bool) -> None:
        """Where the function takes `out=`: every element written, nothing around it touched."""
        try:
            if "out" not in inspect.signature(self.own.fn).parameters:
                return
        except (TypeError, ValueError):
            return
        if len(goal[0][0]) != 1:
            return
        shape = goal[0][0][0].shape
        plain = Problem(self.own.fn, self.own.inputs, self.own.names, self.host, ())
        like = plain.outputs(plain.call())[0]
        kind = self.host.dtype(like)
        if "float" not in kind:
            return
        found = forms(shape, negative=self.host.negative, expand=False)
        for form in found if layouts else found[:2]:
            buffer = form.place(np.full(shape, np.nan))
            out, memory = self.host.make(buffer, form, like)
            call, label = plain.call(), f"out= {form.label()}"
            try:
                plain.fn(*call.args, out=out)
            except Exception as error:  # saying no in words is a function's right
                self.add(label, REFUSED, first_line(error))
                continue
            got = self.host.values(out)
            left = np.isnan(got) & ~np.isnan(goal[0][0][0])
            around = self.host.values(memory)
            form.window(around)[...] = np.nan
            at, _, note = self.yardstick.compare("y", goal[0][0][0], goal[1][0][0], got, kind)
            if left.any():
                self.add(label, FAIL, f"{int(left.sum())} of {left.size} elements are not written")
            elif not np.isnan(around).all():
                self.add(label, FAIL, "memory around the output was written to")
            elif at is not None:
                worst = Mismatch(-1, "y", at, float(got[at]), float(goal[0][0][0][at]))
                self.add(label, FAIL, f"{worst}: {note}", "", worst)
            else:
                self.add(label, OK)
