"""Measuring time fairly: `cr.bench.time(fn)` and `cr.bench.compare({"ours": f, "theirs": g})`.

Relies on the standard library alone. `results`, `sources` and `subject` are what the project's
own `benchmarks/` are written with; they are imported where they are needed.
"""

from __future__ import annotations

from chainrule.bench._timing import Comparison, Prepared, Timing, compare, time

__all__ = ["Comparison", "Prepared", "Timing", "compare", "time"]
