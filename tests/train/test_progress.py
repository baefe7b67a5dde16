"""Progress: plain lines where there is no terminal, a live bar where there is one."""

import io
import re

import pytest

from chainrule.train import progress
from chainrule.train.progress import Progress, clock


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def run(out, time, steps, seconds, **options):
    with Progress(steps, tokens_per_step=1000, out=out, **options) as bar:
        for step in range(options.get("first", 0) + 1, steps + 1):
            time[0] += seconds
            bar.update(step, loss=2.0 / step, gradient_norm=0.5)


def test_plain_lines_hold_every_figure(time):
    out = io.StringIO()
    run(out, time, steps=20, seconds=2.0)
    lines = out.getvalue().splitlines()
    assert lines[0] == ("step  1/20  loss 2.0000  500 tokens/s  gradient norm 0.5  0:38 left")
    assert lines[-1].startswith("step 20/20  loss 0.1000  500 tokens/s")
    # One line every five seconds, that is every third step.
    assert [int(re.findall(r"\d+", line)[0]) for line in lines] == [1, 4, 7, 10, 13, 16, 19, 20]
    assert "\x1b" not in out.getvalue()


def test_a_resumed_run_counts_its_speed_from_where_it_started(time):
    out = io.StringIO()
    run(out, time, steps=110, seconds=10.0, first=100)
    assert out.getvalue().splitlines()[0] == (
        "step 101/110  loss 0.0198  100 tokens/s  gradient norm 0.5  1:30 left"
    )


def test_measuring_is_shown_as_a_share(time):
    out = io.StringIO()
    with Progress(10, out=out) as bar:
        for done in range(8):
            time[0] += 2.0
            bar.measuring("samples", done, 8)
    assert out.getvalue().splitlines() == ["samples  25 %", "samples  62 %"]


def test_a_terminal_gets_a_bar_and_lines_above_it(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    out = Terminal()
    with Progress(3, tokens_per_step=10, out=out) as bar:
        bar.say("saved [here]")
        for step in (1, 2, 3):
            bar.update(step, loss=1.5, gradient_norm=2.0)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())
    assert "saved [here]" in shown
    assert "step 3/3  loss 1.5000" in shown
    assert "\x1b" in out.getvalue()


def test_a_terminals_bar_shows_the_measuring(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    out = Terminal()
    with Progress(3, out=out) as bar:
        bar.measuring("samples", 1, 4)
    assert "samples  25 %" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())


def test_times_are_short():
    assert [clock(s) for s in (0, 59.6, 3599, 3600)] == ["0:00", "1:00", "59:59", "1:00:00"]
