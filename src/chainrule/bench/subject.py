"""What every script of `benchmarks/` shares: its options, its threads and its rows.

A script states its cases in a function of one `Subject` and hands it to `main`. Relies on the
timing of this package and on the files beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from chainrule.backends import blas, parallel
from chainrule.bench import machine, results, sources
from chainrule.bench._timing import Comparison, Prepared, Timed, compare
from chainrule.bench.results import Row
from chainrule.errors import InputError

OURS = "chainrule"
RATIO = "x"  # the unit of a ratio: times
# They make NumPy's BLAS take kernels meant for another processor.
FOREIGN = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


class Subject:
    """Collects the rows of one script and the files of ours that it ran."""

    def __init__(
        self, *, quick: bool = False, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.quick = quick
        self.clock = clock
        self.rows: list[Row] = []
        self.ran: set[Path] = set()
        self.threads = machine.cores()

    def use_threads(self, n: int) -> None:
        """From here on, let our pool, NumPy's BLAS and PyTorch use `n` threads."""
        if n > machine.cores():
            raise InputError(f"this case needs {n} cores, and {machine.cores()} may be used")
        self.threads = n
        parallel.set_num_threads(n)
        controls = blas._hold.find()
        if controls is not None:
            controls[1](n)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(n)

    def watching(self) -> AbstractContextManager[None]:
        """Within the block, note which of our files run."""
        return sources.watch(self.ran)

    def put(
        self,
        case: str,
        direction: str,
        provider: str,
        value: float,
        unit: str,
        *,
        elsewhere: str = "",
    ) -> None:
        """Add one row, as of the threads now in use.

        `elsewhere` names a package and its version that another process imported.
        """
        chip = machine.chip(self.threads)
        versions = machine.versions() + (f"; {elsewhere}" if elsewhere else "")
        date = datetime.date.today().isoformat()
        self.rows.append(Row(case, direction, provider, value, unit, chip, versions, date))

    def compare(
        self,
        case: str,
        direction: str,
        functions: Mapping[str, Timed],
        *,
        per: int = 1,
        rounds: int = 21,
        warmup: int = 2,
        watch: bool = True,
    ) -> Comparison:
        """Time `functions` in turn; add seconds for each, and our ratio to every other.

        A call is `per` operations. Providers whose name starts with "chainrule" are ours: each is
        called once more to see which files it runs, unless `watch` is false.
        """
        if watch:
            with self.watching():
                for name, fn in functions.items():
                    if name.startswith(OURS):
                        _call(fn)
        found = compare(
            functions,
            rounds=min(rounds, 3) if self.quick else rounds,
            warmup=1 if self.quick else warmup,
            clock=self.clock,
        )
        for name, timing in found.timings.items():
            self.put(case, direction, name, timing.median / per, "s")
        for name in found.timings:
            if OURS in functions and name != OURS:
                self.put(case, direction, f"{OURS} / {name}", found.ratio(OURS, name), RATIO)
        return found


def _call(fn: Timed) -> None:
    if isinstance(fn, Prepared):
        fn.fn(fn.prepare())
    else:
        fn()


def main(measure: Callable[[Subject], None], script: str) -> None:
    """Run one script: print its rows and, with --csv, write them and the list of its sources."""
    parser = argparse.ArgumentParser(description=f"The benchmark {Path(script).stem}.")
    parser.add_argument("--quick", action="store_true", help="three rounds: does it run?")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument(
        "--thread-time",
        action="store_true",
        help="count the calling thread's work instead of the time that passes (busy machines)",
    )
    options = parser.parse_args()
    set_here = [name for name in FOREIGN if name in os.environ]
    if set_here:
        raise SystemExit(
            f"{' and '.join(set_here)} is set, so NumPy's BLAS would not run its own kernels for "
            f"this processor: start with env {' '.join('-u ' + name for name in set_here)}"
        )
    subject = Subject(
        quick=options.quick, clock=time.thread_time if options.thread_time else time.perf_counter
    )
    measure(subject)
    root = Path(script).resolve().parents[1]
    listed = sources.listing([*subject.ran, Path(script)], root)
    mark = sources.short_hash(listed)
    rows = [dataclasses.replace(row, sources=mark) for row in subject.rows]
    if not rows:
        raise InputError(f"{Path(script).name} measured nothing")
    sys.stdout.write(f"{Path(script).stem}\n{results.text(rows)}\n")
    if options.csv:
        results.write(options.csv, rows)
        options.csv.with_suffix(".sha256").write_text(listed, encoding="utf-8")
