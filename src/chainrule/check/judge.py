"""The state that the parts of one gradient check share, and how two gradients are compared.

The right answer of any layout is the product of an incoming gradient with the Jacobian that was
judged against differences; where there is none (fast mode), a contiguous run stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from chainrule.check.layouts import contiguous, transposed
from chainrule.check.problem import BackwardError, Problem, first_line
from chainrule.check.report import FAIL, Mismatch, Report, Row

Raw = Any
MACHINE = {"float64": 2.0**-52, "float32": 2.0**-23}


class Judge:
    """One check in progress; rows go to `report`."""

    def __init__(
        self,
        problem: Problem,
        report: Report,
        eps: float = 1e-6,
        atol: float = 1e-5,
        rtol: float = 1e-3,
        nondet_tol: float = 0.0,
    ) -> None:
        self.problem, self.report, self.host = problem, report, problem.host
        self.eps, self.atol, self.rtol, self.nondet_tol = eps, atol, rtol, nondet_tol
        self.rng = np.random.default_rng(20)
        self.which: list[int] = []
        """Outputs that are on the tape."""
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.operations: dict[int, str] = {}
        self.base: dict[int, Raw] = {}
        self.analytic: dict[tuple[int, int], Raw] = {}
        """Jacobian blocks from the backward, by (output, input)."""
        self.wrong: dict[tuple[int, int], str] = {}
        """Blocks that differ from the numeric ones, and why."""
        self.memory: dict[int, Any] = {}
        """The whole memory of the incoming gradients last made, by output."""
        self.culprit: tuple[Mismatch, int, Raw, str] | None = None
        """The first failing element; the output, incoming gradient and row that showed it."""

    def add(
        self, label: str, status: str, detail: str = "", cause: str = "", at: Mismatch | None = None
    ) -> None:
        """Append a row."""
        self.report.rows.append(Row(label, status, detail, cause, at))

    def add_raised(self, label: str, error: BaseException, cause: str = "") -> None:
        """Append the row of a backward that raised, with its own sentence."""
        text = str(error) if isinstance(error, BackwardError) else first_line(error)
        self.add(label, FAIL, f"raised {text}", cause)

    def differential(self, i: int) -> str:
        """`dx` for an input called x."""
        return f"d{self.problem.names[i]}"

    def output(self, o: int) -> str:
        """`y`, or `y1` where there are several outputs."""
        return f"y{o}" if len(self.which) > 1 else "y"

    def blame(self, at: Mismatch, o: int, v: Raw, label: str) -> None:
        """Remember the first failing gradient element for the evidence."""
        if self.culprit is None and at.input >= 0:
            self.culprit = (at, o, v, label)

    def known(self, o: int, at: Mismatch) -> str:
        """The cause already found for this block with a plain incoming gradient."""
        return self.wrong.get((o, at.input), "")

    def cotangent(self, shape: tuple[int, ...]) -> Raw:
        """A random incoming gradient of eighths, so that every dtype holds it exactly."""
        sign = self.rng.choice([-1.0, 1.0], shape)
        return np.asarray(sign * self.rng.integers(4, 13, shape) / 8.0)

    def gradients(
        self, outputs: list[Any], turned: bool = False
    ) -> tuple[dict[int, Any], dict[int, Raw]]:
        """An incoming gradient for every output on the tape, as tensors and as values."""
        grads: dict[int, Any] = {}
        held: dict[int, Raw] = {}
        for o in self.which:
            form = (transposed if turned else contiguous)(self.shapes[o])
            held[o] = self.cotangent(self.shapes[o])
            grads[o], self.memory[o] = self.host.make(form.place(held[o]), form, outputs[o])
        return grads, held

    def bad(self, got: Raw, want: Raw, slack: Raw | float = 0.0) -> Raw:
        """Where |got - want| > atol + rtol * |want| + slack; NaN never passes."""
        with np.errstate(all="ignore"):
            near = np.abs(got - want) <= self.atol + self.rtol * np.abs(want) + slack
        return ~(near | (got == want))

    def compare(
        self,
        held: Mapping[int, Raw],
        found: list[Raw | None],
        values: Mapping[int, Raw] | None = None,
    ) -> Mismatch | None:
        """The worst element of the gradients `found` for the incoming gradients `held`.

        `values` are input values other than the user's; then the truth is a contiguous run there.
        """
        p = self.problem
        plain = self.contiguous_run(held, values) if values or not self.analytic else None
        for at, i in enumerate(p.wanted):
            if not p.values[i].size:
                continue
            blank, back = np.zeros(p.shape(i)), found[at]
            got = blank if back is None else back
            if plain is None:
                want, slack = self.product(held, i)
            else:
                flat = plain[at]
                want, slack = (blank if flat is None else flat), 0.0
            bad = self.bad(got, want, slack)
            if bad.any():
                return mismatch(i, self.differential(i), bad, got, want)
        return None

    def product(self, held: Mapping[int, Raw], i: int) -> tuple[Raw, Raw]:
        """The gradient of input `i` by the Jacobian, and the rounding of that sum."""
        p = self.problem
        want = np.zeros(p.values[i].size)
        size = np.zeros(p.values[i].size)
        for o, v in held.items():
            if (o, i) in self.analytic:
                with np.errstate(all="ignore"):
                    want += v.reshape(-1) @ self.analytic[o, i]
                    size += np.abs(v.reshape(-1)) @ np.abs(self.analytic[o, i])
        rounding = 32 * MACHINE.get(p.dtypes[i], 2.0**-52)
        return want.reshape(p.shape(i)), rounding * size.reshape(p.shape(i))

    def contiguous_run(
        self, held: Mapping[int, Raw], values: Mapping[int, Raw] | None
    ) -> list[Raw | None]:
        """The gradients with every changed input and every incoming gradient contiguous."""
        p = self.problem
        call = p.call({i: contiguous(p.shape(i)) for i in values or {}}, values)
        outputs = p.outputs(call)
        grads = {
            o: p.gradient((form := contiguous(v.shape)).place(v), form, outputs[o])
            for o, v in held.items()
        }
        return p.vjp(outputs, call, grads)


def index_of(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an element by its row-major position."""
    return tuple(int(n) for n in np.unravel_index(flat, shape)) if shape else ()


def worst(bad: Raw, got: Raw, want: Raw) -> tuple[int, ...]:
    """The index among `bad` that is furthest off; what is not finite comes first."""
    with np.errstate(all="ignore"):
        gap = np.where(bad, np.abs(got - want), -1.0)
    gap = np.where(bad & ~np.isfinite(gap), np.inf, gap)
    return index_of(int(np.argmax(gap)), gap.shape)


def mismatch(i: int, name: str, bad: Raw, got: Raw, want: Raw) -> Mismatch:
    """The worst element as a `Mismatch`."""
    index = worst(bad, got, want)
    return Mismatch(i, name, index, float(got[index]), float(want[index]))
