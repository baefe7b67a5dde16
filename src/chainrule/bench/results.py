"""The one table that benchmarks write: a row a measurement, kept as CSV in the repository.

Relies on the standard library. Times are in seconds, memory in bytes, ratios and exponents are
plain numbers; a ratio's provider is "ours / theirs".
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from chainrule.bench._timing import duration
from chainrule.errors import InputError


@dataclass(frozen=True)
class Row:
    """One measurement. `sources` is the hash of the files whose code it ran."""

    case: str
    direction: str
    provider: str
    value: float
    unit: str
    chip: str = ""
    versions: str = ""
    date: str = ""
    sources: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What is measured: the same key twice is a repetition."""
        return self.case, self.direction, self.provider

    def shown(self) -> str:
        """The value with its unit, for people."""
        if self.unit == "s":
            return duration(self.value)
        if self.unit == "B":
            return f"{self.value / 2**20:.3g} MiB"
        return f"{self.value:.2f}"


FIELDS = tuple(field.name for field in dataclasses.fields(Row))


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write rows, values with four digits: more would be noise in every diff."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for row in rows:
            cells = dataclasses.asdict(row)
            cells["value"] = f"{row.value:.4g}"
            writer.writerow([cells[name] for name in FIELDS])


def read(path: Path) -> list[Row]:
    """Read what `write` wrote; raises `InputError` for a file with other columns."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != FIELDS:
            raise InputError(
                f"{path.name} has the columns {reader.fieldnames}, not {list(FIELDS)}: "
                "run the benchmark again"
            )
        rows: list[Row] = []
        for cells in reader:
            try:
                rows.append(Row(**{**cells, "value": float(cells["value"])}))  # pyright: ignore[reportArgumentType]
            except (TypeError, ValueError):  # noqa: PERF203 - the line is part of the error
                raise InputError(f"{path.name}, line {reader.line_num}: not a row") from None
        return rows


def merge(runs: Sequence[Sequence[Row]]) -> list[Row]:
    """One row a key: the median over runs, in the order of the first run.

    Raises `InputError` where a run lacks a row that another has.
    """
    values: dict[tuple[str, str, str], list[float]] = {}
    for run in runs:
        for row in run:
            values.setdefault(row.key, []).append(row.value)
    short = [key for key, found in values.items() if len(found) != len(runs)]
    if short:
        raise InputError(f"only some of the {len(runs)} runs measured {' / '.join(short[0])}")
    return [dataclasses.replace(row, value=median(values[row.key])) for row in runs[0]]


def disagreement(runs: Sequence[Sequence[Row]]) -> float:
    """The largest ratio between two runs' values of the same row."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for run in runs:
        for row in run:
            values.setdefault(row.key, []).append(row.value)
    return max((max(v) / min(v) for v in values.values() if min(v) > 0), default=1.0)


def text(rows: Sequence[Row]) -> str:
    """Rows as lines of text, one a measurement, under a line for what they were taken on."""
    width = [max((len(getattr(r, name)) for r in rows), default=0) for name in FIELDS[:3]]
    lines: list[str] = []
    setting = ""
    for row in rows:
        if f"{row.chip}; {row.versions}" != setting:
            setting = f"{row.chip}; {row.versions}"
            lines.append(f"# {setting}")
        cells = [f"{key:<{w}}" for key, w in zip(row.key, width, strict=True)]
        lines.append("  ".join([*cells, f"{row.shown():>10}"]))
    return "\n".join(lines)
