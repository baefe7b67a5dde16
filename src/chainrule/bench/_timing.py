"""Timing: warm-up, samples long enough for the clock, medians, and interleaved comparison.

Two functions timed one after the other differ by whatever the machine did meanwhile. `compare`
takes one sample of each in turn and forms the ratio within each round, so that drift cancels.
"""

from __future__ import annotations

import gc
import time as clocks
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from chainrule.errors import InputError

Clock = Callable[[], float]


class Prepared(NamedTuple):
    """A function with a part that is not timed: every call is `fn(prepare())`, timing `fn` alone.

    What `prepare` returns is dropped after the clock has been read.
    """

    prepare: Callable[[], Any]
    fn: Callable[[Any], Any]


Timed = Callable[[], Any] | Prepared


@dataclass(frozen=True)
class Timing:
    """Seconds a call, one number a sample, and how many calls a sample took the mean of."""

    samples: tuple[float, ...]
    calls: int

    @property
    def median(self) -> float:
        """The middle sample, in seconds a call."""
        return _quantile(self.samples, 0.5)

    @property
    def best(self) -> float:
        """The fastest sample, in seconds a call."""
        return min(self.samples)

    @property
    def spread(self) -> float:
        """The distance between the quartiles over the median: 0.02 is steady, 0.3 is noise."""
        width = _quantile(self.samples, 0.75) - _quantile(self.samples, 0.25)
        return width / self.median if self.median else 0.0

    def __str__(self) -> str:
        return (
            f"{duration(self.median)} (best {duration(self.best)}, spread {self.spread:.0%}, "
            f"{len(self.samples)} samples of {self.calls} calls)"
        )


@dataclass(frozen=True)
class Comparison:
    """Timings by name; sample k of each was taken in the same round."""

    timings: Mapping[str, Timing]

    def ratio(self, name: str, other: str) -> float:
        """The median over rounds of time(name) / time(other): below 1, `name` is the faster."""
        pairs = zip(self.timings[name].samples, self.timings[other].samples, strict=True)
        return _quantile([a / b if b else float("inf") for a, b in pairs], 0.5)

    def ratios(self) -> dict[tuple[str, str], float]:
        """The ratio of every ordered pair of names."""
        names = list(self.timings)
        return {(a, b): self.ratio(a, b) for a in names for b in names if a != b}

    def __str__(self) -> str:
        first, *rest = self.timings
        width = max(map(len, self.timings))
        lines = [f"{first:<{width}}  {self.timings[first]}"]
        lines += [
            f"{name:<{width}}  {self.timings[name]}; {first} is {self.ratio(first, name):.2f} x it"
            for name in rest
        ]
        return "\n".join(lines)


def time(
    fn: Timed,
    *,
    repeats: int = 20,
    warmup: int = 2,
    min_sample: float = 0.005,
    clock: Clock = clocks.perf_counter,
) -> Timing:
    """Time `fn()`: `warmup` calls, then `repeats` samples of at least `min_sample` seconds each.

    `fn` takes no argument, or is a `Prepared` pair. `clock=time.thread_time` counts this thread's
    work alone, which is what to read on a busy machine if `fn` is single-threaded. The garbage
    collector stays as it is, since users pay for it too. Work that `fn` leaves running elsewhere
    (a GPU) is not waited for. Raises `InputError` for fewer than one repeat.

    >>> import chainrule as cr
    >>> cr.bench.time(lambda: sum(range(1000)), repeats=5).median > 0
    True
    """
    timings = compare(
        {"fn": fn}, rounds=repeats, warmup=warmup, min_sample=min_sample, clock=clock
    ).timings
    return timings["fn"]


def compare(
    functions: Mapping[str, Timed],
    *,
    rounds: int = 20,
    warmup: int = 2,
    min_sample: float = 0.005,
    clock: Clock = clocks.perf_counter,
) -> Comparison:
    """Time several functions in turn, one sample of each a round; see `time`.

    The order is reversed every other round (A B, B A, …), so that none always comes first.
    """
    if not functions:
        raise InputError("compare needs at least one function to time, got none")
    if rounds < 1 or warmup < 0:
        raise InputError(
            f"timing needs at least one round and no negative warm-up, got {rounds} and {warmup}"
        )
    calls: dict[str, int] = {}
    for name, fn in functions.items():
        taken = 0.0
        for _ in range(warmup):
            taken = _sample(fn, 1, clock)
        calls[name] = 1 if taken >= min_sample else _calls_for(fn, min_sample, clock)
    samples: dict[str, list[float]] = {name: [] for name in functions}
    order = list(functions)
    for _ in range(rounds):
        for name in order:
            gc.collect(1)  # nobody pays for what another left behind
            samples[name].append(_sample(functions[name], calls[name], clock))
        order.reverse()
    return Comparison({name: Timing(tuple(samples[name]), calls[name]) for name in functions})


def _sample(fn: Timed, calls: int, clock: Clock) -> float:
    """Seconds a call. The last result is freed after the clock is read, earlier ones before."""
    if isinstance(fn, Prepared):
        prepare, run = fn
        total = 0.0
        for _ in range(calls):
            state = prepare()
            start = clock()
            result = run(state)
            total += clock() - start
            del state, result
        return total / calls
    each = range(calls)
    result = None
    start = clock()
    for _ in each:
        result = fn()
    end = clock()
    del result
    return (end - start) / calls


def _calls_for(fn: Timed, min_sample: float, clock: Clock) -> int:
    """How many calls fill a sample: enough for the clock's grain not to matter."""
    calls = 1
    while True:
        taken = _sample(fn, calls, clock) * calls
        if taken >= min_sample:
            return calls
        # At most ten times as many while the estimate is coarse, then straight to the goal.
        wanted = int(calls * min_sample / taken * 1.1) + 1 if taken > 0 else 10 * calls
        calls = max(calls + 1, min(wanted, 10 * calls))


def _quantile(values: Sequence[float], q: float) -> float:
    """The quantile by linear interpolation between the sorted values."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best, three digits: 1.45 µs, 12.3 ms."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
