"""check.against: a function or kernel that cannot run in float64, against a reference that can.

The yardstick is the reference itself: run in float64 it is the truth, run in the function's own dtype
it shows how much error that dtype cannot avoid. Layouts, sizes and guard regions as `gradcheck`'s.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from chainrule.check import causes
from chainrule.check.guards import guarded
from chainrule.check.hosts import host_of
from chainrule.check.layouts import Form, contiguous, forms
from chainrule.check.problem import BackwardError, Call, Problem, first_line, title_of
from chainrule.check.report import FAIL, OK, REFUSED, SKIP, Mismatch, Report, Row, number
from chainrule.errors import InputError

Raw = Any
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
LARGEST = {"float64": 1.8e308, "float32": 3.4e38, "float16": 65504.0, "bfloat16": 3.38e38}


def against(
    fn: Callable[..., Any],
    reference: Callable[..., Any],
    *inputs: Any,
    layouts: bool = True,
    sizes: str | Iterable[Any] | None = None,
    gradients: bool = True,
    block: int = 64,
    factor: float = 2.0,
) -> Report:
    """Judge `fn` by a plain `reference` with the same arguments; returns a `Report`.

    The error of every output and gradient against `reference` in float64 may be at most `factor`
    times that of `reference` in the inputs' own dtype, in its maximum and its root mean square;
    a correctly rounded result counts as the least error the dtype allows. Gradients are judged for
    the inputs that require one, or for all floating inputs where none does.

    `inputs` are the arguments (chainrule or PyTorch tensors of any floating dtype, and anything
    else), or one function of sizes that returns them. With such a function, `sizes` is `"edges"`
    (0, 1, `block` - 1, `block`, `block` + 1 for all sizes together and for each alone) or a list of
    sizes; each entry an int or a tuple of ints. With `layouts`, inputs and incoming gradients are
    swept as in `gradcheck`, and `out=`, where `fn` has it, is given poisoned buffers.

    Raises `InputError` for arguments that make no sense and when the reference leaves float64.
    """
    report = Report(f"{title_of(fn)} against {title_of(reference)}")
    factory = inputs[0] if len(inputs) == 1 and callable(inputs[0]) else None
    if factory is not None and not _is_tensor(factory):
        for size in _sizes(factory, sizes, block):
            made: Any = factory(*size)
            args = tuple(made) if isinstance(made, (tuple, list)) else (made,)
            prefix = f"size {', '.join(map(str, size))} "
            _Trial(fn, reference, args, report, prefix, gradients, factor).run(layouts)
    elif sizes is not None:
        raise InputError(
            "sizes need a function that makes the inputs of a size: "
            "check.against(fn, reference, lambda n: torch.randn(n, n), sizes='edges')"
        )
    else:
        _Trial(fn, reference, inputs, report, "", gradients, factor).run(layouts)
    return report


def _is_tensor(x: Any) -> bool:
    try:
        host_of([x])
    except InputError:
        return False
    return True


def _sizes(
    factory: Callable[..., Any], sizes: str | Iterable[Any] | None, block: int
) -> list[tuple[int, ...]]:
    if sizes is not None and not isinstance(sizes, str):
        return [tuple(s) if isinstance(s, (tuple, list)) else (int(s),) for s in sizes]
    if sizes not in (None, "edges"):
        raise InputError(f"sizes={sizes!r}: give 'edges', or a list of sizes")
    empty = inspect.Parameter.empty
    count = sum(
        p.default is empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        for p in inspect.signature(factory).parameters.values()
    )
    if not count:
        raise InputError("the function that makes the inputs takes no size: give it one parameter")
    edges = sorted({0, 1, max(block - 1, 0), block, block + 1})
    found = [(n,) * count for n in edges]
    if count > 1:
        for at in range(count):
            found += [tuple(n if d == at else block + 1 for d in range(count)) for n in edges]
    return list(dict.fromkeys(found))


class _Trial:
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
        self.host, self.report, self.prefix, self.factor = probe.host, report, prefix, factor
        self.values = dict(self.own.values)
        self.backward = bool(wanted)
        self.cotangents: dict[int, Raw] = {}
        self.which: list[int] = []
        self.kinds: list[str] = []

    def add(
        self, label: str, status: str, detail: str = "", cause: str = "", at: Mismatch | None = None
    ) -> None:
        """Append a row under this trial's size."""
        self.report.rows.append(Row(self.prefix + label, status, detail, cause, at))

    def run(self, layouts: bool) -> None:
        """The inputs as given, then every layout."""
        try:
            goal = self._reference({})
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

    def _reference(self, values: Mapping[int, Raw]) -> tuple[Any, Any]:
        """(outputs, gradients) of the truth and of the naive run, at `values`."""
        both: list[tuple[list[Raw], list[Raw | None]]] = []
        for problem in (self.truth, self.naive):
            call = problem.call({i: contiguous(v.shape) for i, v in values.items()}, values)
            outputs = problem.outputs(call)
            if problem is self.truth:
                self._note(outputs)
            both.append(self._results(problem, call, outputs, {}, self.cotangents))
        return both[0], both[1]

    def _note(self, outputs: list[Any]) -> None:
        for o, t in enumerate(outputs):
            kind = self.host.dtype(t)
            if "float" in kind and kind != "float64":
                raise InputError(
                    f"output {o} of the reference is {kind} for float64 inputs: write the "
                    "reference without casts, so that it can tell the truth"
                )
        rng = np.random.default_rng(20)
        self.which = [o for o, t in enumerate(outputs) if self.host.requires_grad(t)]
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
    ) -> tuple[list[Raw], list[Raw | None]]:
        values = [self.host.values(t) for t in outputs]
        if not (self.backward and self.which):
            return values, []
        reached = {o: v for o, v in cotangents.items() if self.host.requires_grad(outputs[o])}
        grads = {
            o: problem.gradient((f := layout.get(o, contiguous(v.shape))).place(v), f, outputs[o])
            for o, v in reached.items()
        }
        return values, problem.vjp(outputs, call, grads)

    # -- one run ----------------------------------------------------------------------------------

    def _one(
        self,
        label: str,
        inputs: Mapping[int, Form],
        values: Mapping[int, Raw],
        grads: Mapping[int, Form],
        goal: tuple[Any, Any],
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
        self.add(label, OK, note)
        return True

    def _judge(self, goal: tuple[Any, Any], mine: Any) -> tuple[Mismatch | None, str]:
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
            at, share, note = _compare(exact, plain, got, kind, self.factor)
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

    def _gradients(self, goal: tuple[Any, Any]) -> None:
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
                    kept, self.cotangents = self.cotangents, held
                    wanted = self._at(held, {})
                    self.cotangents = kept
                try:
                    self._one(name + form.label(), {}, {}, {o: form}, wanted, held)
                except Exception as error:  # a kernel may raise anything
                    text = str(error) if isinstance(error, BackwardError) else first_line(error)
                    self.add(name + form.label(), FAIL, f"raised {text}")

    def _at(self, cotangents: Mapping[int, Raw], values: Mapping[int, Raw]) -> tuple[Any, Any]:
        """As `_reference`, with other incoming gradients."""
        both: list[Any] = []
        for problem in (self.truth, self.naive):
            call = problem.call({i: contiguous(v.shape) for i, v in values.items()}, values)
            outputs = problem.outputs(call)
            both.append(self._results(problem, call, outputs, {}, cotangents))
        return both[0], both[1]

    def _inputs(self, goal: tuple[Any, Any]) -> None:
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
                        wanted = self._at(self.cotangents, values)
                    except Exception as error:  # no truth at equal elements
                        self.add(label, SKIP, f"the reference raised {first_line(error)}")
                        continue
                try:
                    self._one(label, {i: form}, values, {}, wanted)
                except BackwardError as error:
                    self.add(label, FAIL, f"raised {error}")
                except Exception as error:  # saying no in words is a function's right
                    self.add(label, REFUSED, first_line(error))

    def _out(self, goal: tuple[Any, Any], layouts: bool) -> None:
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
            at, _, note = _compare(goal[0][0][0], goal[1][0][0], got, kind, self.factor)
            if left.any():
                self.add(label, FAIL, f"{int(left.sum())} of {left.size} elements are not written")
            elif not np.isnan(around).all():
                self.add(label, FAIL, "memory around the output was written to")
            elif at is not None:
                worst = Mismatch(-1, "y", at, float(got[at]), float(goal[0][0][0][at]))
                self.add(label, FAIL, f"{worst}: {note}", "", worst)
            else:
                self.add(label, OK)


def _compare(
    exact: Raw, plain: Raw, got: Raw, kind: str, factor: float
) -> tuple[tuple[int, ...] | None, float, str]:
    """The element that breaks the bound (or None), the error's share of the plain run's, a reason."""
    if exact.dtype.kind != "f" or kind not in EPS:
        bad = got != exact
        at = _first(bad)
        return at, 0.0, "an exact result is wanted"
    with np.errstate(all="ignore"):
        reach = np.isfinite(exact) & (np.abs(exact) <= LARGEST[kind])
        odd = reach & ~np.isfinite(got) & np.isfinite(plain)
        if odd.any():
            return _first(odd), 0.0, "not finite, where the plain run is"
        special = ~np.isfinite(exact) & ~(
            (got == exact) | (np.isnan(got) & np.isnan(exact)) | (got == plain)
        )
        special &= ~(np.isnan(got) & np.isnan(plain))
        if special.any():
            return _first(special), 0.0, "the special value is lost"
        judged = reach & np.isfinite(got) & np.isfinite(plain)
        mine, theirs = np.abs(got - exact)[judged], np.abs(plain - exact)[judged]
        size = np.abs(exact)[judged]
    if not mine.size:
        return None, 0.0, ""
    rounding = EPS[kind] / 2
    share = 0.0
    for what, measure in (("largest", np.max), ("root-mean-square", _rms)):
        error = float(measure(mine))
        least = max(float(measure(theirs)), rounding * float(measure(size)), _tiny(kind))
        ratio = error / least
        share = max(share, ratio)
        if ratio > factor:
            gap = np.where(judged, np.abs(got - exact), -1.0)
            at = tuple(int(n) for n in np.unravel_index(int(np.argmax(gap)), gap.shape))
            return (
                at,
                ratio,
                (
                    f"the {what} error {error:.3g} is {number(float(f'{ratio:.3g}'))} times that of a "
                    f"plain {kind} run ({least:.3g}), at most {factor:g} is allowed"
                ),
            )
    return None, share, ""


def _tiny(kind: str) -> float:
    """The spacing of the smallest numbers of a dtype."""
    return {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24}.get(kind, 2.0**-133)


def _rms(x: Raw) -> float:
    return float(np.sqrt(np.mean(x * x)))


def _first(bad: Raw) -> tuple[int, ...] | None:
    if not bad.any():
        return None
    return tuple(int(n) for n in np.unravel_index(int(np.argmax(bad)), bad.shape))
