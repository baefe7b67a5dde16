"""The line that moves while a network trains: step, loss, tokens/s, gradient norm, time left.

A live bar on a terminal, plain lines now and then elsewhere. rich is loaded when a run starts.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Shows how far `steps` steps are, as a context manager.

    `first` is the step a resumed run starts from; speed and time left count from there.
    """

    def __init__(
        self, steps: int, *, first: int = 0, tokens_per_step: int = 0, out: TextIO | None = None
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self.steps = steps
        self.first = first
        self.tokens_per_step = tokens_per_step
        self._console = Console(file=out or sys.stdout, highlight=False, soft_wrap=True)
        self._started = time.perf_counter()
        self._printed = self._started
        self._bar: RichProgress | None = None
        if self._console.is_terminal:
            self._bar = RichProgress(
                TextColumn("{task.fields[line]}"), BarColumn(bar_width=None), console=self._console
            )
            self._task = self._bar.add_task("", total=steps, completed=first, line="starting")

    def update(self, step: int, *, loss: float, gradient_norm: float) -> None:
        """Show that `step` steps are done."""
        now = time.perf_counter()
        if self._bar is not None:
            self._bar.update(
                self._task, completed=step, line=self._line(step, loss, gradient_norm, now)
            )
        elif step in (self.first + 1, self.steps) or now - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = now
            self.say(self._line(step, loss, gradient_norm, now))

    def measuring(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` parts of what comes after the steps are done."""
        now = time.perf_counter()
        line = f"{what}  {100 * done // total} %"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, line=line)
        elif now - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = now
            self.say(line)

    def say(self, text: str) -> None:
        """Print a line of its own, above the bar where there is one."""
        self._console.print(text, markup=False)

    def _line(self, step: int, loss: float, gradient_norm: float, now: float) -> str:
        seconds = max(now - self._started, 1e-9)
        done = step - self.first
        speed = done * self.tokens_per_step / seconds
        left = (self.steps - step) * seconds / max(done, 1)
        return (
            f"step {step:>{len(str(self.steps))}}/{self.steps}  loss {loss:.4f}  "
            f"{speed:,.0f} tokens/s  gradient norm {gradient_norm:.3g}  {clock(left)} left"
        )

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def clock(seconds: float) -> str:
    """Seconds as m:ss, or h:mm:ss.

    >>> clock(83.2), clock(3725)
    ('1:23', '1:02:05')
    """
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"
