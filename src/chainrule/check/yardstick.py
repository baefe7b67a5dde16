"""How wrong a result may be: at most so many times what its dtype cannot avoid.

The measure is the error of a plain run in the same dtype, and never less than the rounding of the
true result, in its maximum and its root mean square. Special values must be where they belong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.check.judge import index_of
from chainrule.check.report import number

Raw = Any
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
LARGEST = {"float64": 1.8e308, "float32": 3.4e38, "float16": 65504.0, "bfloat16": 3.38e38}
SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}


class Yardstick:
    """Compares results and remembers, by name, the error that the first comparison allowed."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.first: dict[tuple[str, str], float] = {}

    def compare(
        self, name: str, exact: Raw, plain: Raw, got: Raw, kind: str
    ) -> tuple[tuple[int, ...] | None, float, str]:
        """(element that breaks the bound or None, error as a share of the plain run's, reason)."""
        if exact.dtype.kind != "f" or kind not in EPS:
            return _first(got != exact), 0.0, "an exact result is wanted"
        with np.errstate(all="ignore"):
            reach = np.isfinite(exact) & (np.abs(exact) <= LARGEST[kind])
            odd = reach & ~np.isfinite(got) & np.isfinite(plain)
            if odd.any():
                return _first(odd), 0.0, "not finite, where the plain run is"
            alike = (got == exact) | (got == plain)
            alike |= np.isnan(got) & (np.isnan(exact) | np.isnan(plain))
            lost = ~np.isfinite(exact) & ~alike
            if lost.any():
                return _first(lost), 0.0, "the special value is lost"
            judged = reach & np.isfinite(got) & np.isfinite(plain)
            mine, theirs = np.abs(got - exact), np.abs(plain - exact)
        if not judged.any():
            return None, 0.0, ""
        share = 0.0
        for what, measure in (("largest", np.max), ("root-mean-square", _rms)):
            error = float(measure(mine[judged]))
            rounding = EPS[kind] / 2 * float(measure(np.abs(exact[judged])))
            least = max(float(measure(theirs[judged])), rounding, SMALLEST[kind])
            # at equal elements, which expanded layouts need, a plain run is often exact by luck
            least = max(least, self.first.setdefault((name, what), least))
            ratio = error / least
            share = max(share, ratio)
            if ratio > self.factor:
                at = int(np.argmax(np.where(judged, mine, -1.0)))
                return (
                    index_of(at, mine.shape),
                    ratio,
                    (
                        f"the {what} error {error:.3g} is {number(float(f'{ratio:.3g}'))} times that "
                        f"of a plain {kind} run ({least:.3g}), at most {self.factor:g} is allowed"
                    ),
                )
        return None, share, ""


def _rms(x: Raw) -> float:
    return float(np.sqrt(np.mean(x * x)))


def _first(bad: Raw) -> tuple[int, ...] | None:
    return index_of(int(np.argmax(bad)), bad.shape) if bad.any() else None
