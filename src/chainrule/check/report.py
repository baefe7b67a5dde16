"""What a check found: one row a layout, the evidence below, and the error that carries both.

Plain text only, so that it reads the same in a terminal, a log and an exception.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chainrule.errors import CheckError

OK, FAIL, SKIP, REFUSED = "ok", "FAIL", "skip", "refused"


class GradcheckError(CheckError):
    """A check failed; `report` holds the rows."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


class PrecisionWarning(UserWarning):
    """The inputs are too coarse for finite differences to judge."""


def number(x: float) -> str:
    """`x` to six digits, always recognisable as a float."""
    return str(float(f"{x:.6g}"))


def element(name: str, index: tuple[int, ...]) -> str:
    """`dx[3, 1]`, or `dx` for a tensor of no dimensions."""
    return name + (f"[{', '.join(map(str, index))}]" if index else "")


@dataclass(frozen=True)
class Mismatch:
    """The element that is furthest off."""

    input: int
    """Index of the input among the arguments; -1 for an output."""
    name: str
    index: tuple[int, ...]
    got: float
    want: float

    @property
    def absolute(self) -> float:
        """The absolute error."""
        return abs(self.got - self.want)

    @property
    def relative(self) -> float:
        """The error relative to the wanted value."""
        return self.absolute / abs(self.want) if self.want else float("inf")

    def __str__(self) -> str:
        return f"{element(self.name, self.index)} = {number(self.got)}, want {number(self.want)}"


@dataclass(frozen=True)
class Row:
    """One layout and how it fared: `ok`, `FAIL`, `skip` (not judged) or `refused` (an error)."""

    label: str
    status: str
    detail: str = ""
    cause: str = ""
    mismatch: Mismatch | None = None

    def text(self) -> str:
        """Detail and cause, as the table prints them."""
        return ": ".join(part for part in (self.detail, self.cause) if part)


@dataclass
class Report:
    """The rows of one check; true when some row was judged and none failed."""

    title: str
    rows: list[Row] = field(default_factory=list[Row])
    evidence: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        return self.judged and not self.failures

    @property
    def judged(self) -> bool:
        """Whether any row compared something: skipped and refused rows compare nothing."""
        return any(row.status in (OK, FAIL) for row in self.rows)

    @property
    def failures(self) -> list[Row]:
        """The rows that failed."""
        return [row for row in self.rows if row.status == FAIL]

    def __str__(self) -> str:
        width = max((len(row.label) for row in self.rows), default=0)
        state = max((len(row.status) for row in self.rows), default=0)
        bad, total = len(self.failures), len(self.rows)
        verdict = "passed" if self.judged else "nothing was judged"
        lines = [f"{self.title}: " + (f"{bad} of {total} rows fail" if bad else verdict)]
        for row in self.rows:
            lines.append(f"  {row.label:<{width}}  {row.status:<{state}}  {row.text()}".rstrip())
        return "\n".join([*lines, *(f"  {line}" for line in self.evidence)])

    def raise_if_failed(self) -> None:
        """Raise `GradcheckError` (a `CheckError`) with the whole table unless the check passed."""
        if not self:
            raise GradcheckError(str(self), self)
