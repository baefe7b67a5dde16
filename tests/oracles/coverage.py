"""Writes docs/coverage.md from a run of every OpInfo sample through ours.

`python -m tests.oracles.coverage` runs all and writes the page; with names it runs only those and
prints what fails.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.oracles.mapping import TABLE, VARIANTS
from tests.oracles.opinfo import TOLERANCE, Result, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"

HEAD = """\
# Coverage: PyTorch's own samples

Written by `python -m tests.oracles.coverage`; do not edit. `tests/oracles/test_opinfo.py` holds
every row against a run.

PyTorch tests itself from a table, OpInfo: for each operation sample inputs in every dtype, and
calls that have to fail. Here each sample goes through PyTorch and through ours, on the devices
`"cpu"` and `"torch"`, and must agree in value, shape, dtype, `requires_grad` and, where PyTorch's
result is a view, in strides and place in memory. No input may be changed. In float64 the first
gradient (both devices) and the second one (by `create_graph`) are compared for random incoming
gradients that arrive contiguous, transposed, sliced and flipped in turn.

A result may differ from PyTorch's in the same dtype by

| dtype | relative | absolute |
|---|---|---|
{tolerances}

and where it differs more, its error against PyTorch in float64 may be twice PyTorch's own, plus a
few roundings of the largest number (for narrow dtypes only).

Samples are counted once a dtype: float64, float32, float16, bfloat16, int64, int32, int16, int8,
uint8 and bool, where PyTorch's operation takes them; of the integers below int64 each sample goes
to one of the devices in turn. "Passed" are those compared in full,
"different" those where ours differs on purpose, "not supported" the calls that ours does not have;
the last column says what and why. "Wrong calls" are those that PyTorch refuses and ours refuses
too, by one of its own errors or a `TypeError`, of all that PyTorch lists.

{summary}

| operation | ours | samples | passed | different | not supported | wrong calls | what and why |
|---|---|---|---|---|---|---|---|
"""


def row(result: Result) -> str:
    """The line of the table for one operation."""
    wrong = f"{result.raised} of {result.wrong_calls}" if result.wrong_calls else ""
    parts = [
        f"{kind}{reason} ({n})"
        for kind, counted in (
            ("not supported: ", result.unsupported),
            ("different: ", result.differs),
            ("accepted: ", result.accepted),
        )
        for reason, n in counted.items()
    ]
    numbers = (result.samples, result.passed, result.differs.total(), result.unsupported.total())
    shown = " | ".join(f"{n:,}" if n else "" for n in numbers)
    written = TABLE[result.name].written.replace("|", "\\|")
    return f"| `{result.name}` | `{written}` | {shown} | {wrong} | {'; '.join(parts)} |"


def page(results: list[Result]) -> str:
    """The whole document."""
    tolerances = "\n".join(f"| {d} | {r:g} | {a:g} |" for d, (r, a) in TOLERANCE.items())
    samples = sum(r.samples for r in results)
    passed = sum(r.passed for r in results)
    different = sum(r.differs.total() for r in results)
    unsupported = sum(r.unsupported.total() for r in results)
    wrong, raised = sum(r.wrong_calls for r in results), sum(r.raised for r in results)
    summary = (
        f"**{len(results)} operations, {samples:,} samples: {passed:,} passed, {different:,} "
        f"differ on purpose, {unsupported:,} are not supported, "
        f"{sum(len(r.failures) for r in results)} failed.** "
        f"Of {wrong:,} wrong calls {raised:,} are refused, {wrong - raised:,} accepted on purpose."
    )
    lines = [HEAD.format(tolerances=tolerances, summary=summary) + "\n".join(map(row, results))]
    lines.append("\nVariants that ours does not have at all:\n")
    lines.append("| operation | why |\n|---|---|")
    lines.extend(f"| `{name}` | {reason} |" for name, reason in VARIANTS.items())
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> int:
    """Run the named operations, or all and write the page; returns how many samples failed."""
    results: list[Result] = []
    for name in names or TABLE:
        began = time.perf_counter()
        result = run(name)
        results.append(result)
        took = time.perf_counter() - began
        print(f"{took:6.1f} s  {row(result)}  {len(result.failures)} failed", flush=True)
        for text in result.failures:
            print(f"  - {text}")
    failed = sum(len(r.failures) for r in results)
    if not names and not failed:
        PAGE.write_text(page(results))
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
