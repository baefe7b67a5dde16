"""Ctrl-C as a request: the step in hand is finished, the state saved, and then the run ends.

A second Ctrl-C does not wait. SIGTERM is taken the same way, as batch systems send it first.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Stopped(Exception):
    """Raised by `Stopping.check` where there is nothing left to save."""


class Stopping:
    """While the context lasts, a signal sets `signal` instead of breaking in.

    Outside the main thread, where Python allows no handlers, it does nothing.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells report it: 130 for Ctrl-C."""
        return 128 + self.signal if self.signal else 0

    def check(self) -> None:
        """Raise `Stopped` if a signal came."""
        if self.signal:
            raise Stopped

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
