"""Timing tells what a clock told it: with a clock of ours, every figure is known beforehand."""

from __future__ import annotations

import time

import pytest

import chainrule as cr
from chainrule.bench import Comparison, Prepared, Timing
from chainrule.bench._timing import duration
from chainrule.errors import InputError


class Clock:
    """A clock that moves only when told to."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def __call__(self):
        return self.now

    def task(self, name, *seconds):
        """A function that takes these durations in turn, the last one from then on."""
        left = list(seconds)

        def run(*state):
            self.log.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]
            return state

        return run


def test_the_median_of_samples_after_the_warm_up():
    clock = Clock()
    task = clock.task("f", 100.0, 100.0, 2.0, 9.0, 4.0)
    timing = cr.bench.time(task, repeats=3, warmup=2, clock=clock)
    assert timing.samples == (2.0, 9.0, 4.0)
    assert timing.median == 4.0
    assert timing.best == 2.0
    assert timing.spread == pytest.approx((6.5 - 3.0) / 4.0)


def test_short_functions_are_called_often_enough_to_fill_a_sample():
    clock = Clock()
    timing = cr.bench.time(clock.task("f", 1e-4), repeats=2, min_sample=0.01, clock=clock)
    assert 100 <= timing.calls <= 120
    assert timing.median == pytest.approx(1e-4)


def test_functions_take_turns_in_alternating_order():
    clock = Clock()
    tasks = {"a": clock.task("a", 1.0), "b": clock.task("b", 1.0)}
    cr.bench.compare(tasks, rounds=4, warmup=1, clock=clock)
    assert "".join(clock.log) == "ab" + "ab" + "ba" + "ab" + "ba"


def test_a_ratio_is_taken_within_rounds_so_drift_cancels():
    # The machine slows down fourfold half-way: b takes half of a's time in every round, while the
    # ratio of the slow rounds' a to the fast rounds' b would be 8.
    clock = Clock()
    tasks = {
        "a": clock.task("a", 2.0, 2.0, 2.0, 8.0, 8.0),
        "b": clock.task("b", 1.0, 1.0, 1.0, 4.0, 4.0),
    }
    found = cr.bench.compare(tasks, rounds=4, warmup=1, clock=clock)
    assert found.ratio("a", "b") == 2.0
    assert found.ratios() == {("a", "b"): 2.0, ("b", "a"): 0.5}
    assert "a is 2.00 x it" in str(found)


def test_a_ratio_is_the_median_not_the_mean_of_the_rounds():
    timings = {"a": Timing((1.0, 1.0, 50.0), 1), "b": Timing((2.0, 2.0, 2.0), 1)}
    assert Comparison(timings).ratio("a", "b") == 0.5


def test_preparation_is_not_timed_and_its_result_is_handed_over():
    clock = Clock()
    handed = []

    def prepare():
        clock.now += 50.0
        return "state"

    def run(state):
        handed.append(state)
        clock.now += 3.0

    timing = cr.bench.time(Prepared(prepare, run), repeats=2, clock=clock)
    assert timing.samples == (3.0, 3.0)
    assert set(handed) == {"state"}


def test_the_state_is_dropped_after_the_clock_is_read():
    clock = Clock()

    class Slow:
        def __del__(self):
            clock.now += 50.0

    def run(state):
        clock.now += 3.0
        return state

    timing = cr.bench.time(Prepared(Slow, run), repeats=2, clock=clock)
    assert timing.samples == (3.0, 3.0)


def test_it_agrees_with_a_real_sleep():
    assert 0.01 <= cr.bench.time(lambda: time.sleep(0.01), repeats=3, warmup=0).best < 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cr.bench.time(int, repeats=0), "got 0 and 2"),
        (lambda: cr.bench.time(int, warmup=-1), "got 20 and -1"),
        (lambda: cr.bench.compare({}), "at least one function to time"),
    ],
)
def test_nonsense_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.0, "2 s"), (0.01234, "12.3 ms"), (1.45e-6, "1.45 µs"), (3e-9, "3 ns"), (0.0, "0 ns")],
)
def test_durations_read_well(seconds, text):
    assert duration(seconds) == text
