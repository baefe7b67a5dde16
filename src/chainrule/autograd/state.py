"""The grad mode: whether operations are recorded, one contextvar for every thread and task."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

recording: ContextVar[bool] = ContextVar("chainrule_grad_mode", default=True)

is_grad_enabled: Callable[[], bool] = recording.get


class set_grad_enabled:  # noqa: N801 - PyTorch's name
    """Record operations or not: a context manager, a decorator, or a call that lasts.

    As in PyTorch, calling it takes effect at once and leaving the `with` block restores.
    """

    def __init__(self, mode: bool) -> None:
        self._tokens: list[Token[bool]] = [recording.set(mode)]
        self._mode = mode

    def __enter__(self) -> None:
        if not self._tokens:
            self._tokens.append(recording.set(self._mode))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recording.reset(self._tokens.pop())

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Decorate `fn` to run in this mode; the mode set by the constructor is undone."""
        recording.reset(self._tokens.pop())
        return _decorate(fn, self._mode)


class _Mode:
    """A mode that takes effect only inside a `with` block or a decorated function."""

    _mode: bool

    def __init__(self, mode: Any = True) -> None:
        self._tokens: list[Token[bool]] = []
        if not mode:  # `inference_mode(False)` turns it off
            self._mode = not self._mode

    def __new__(cls, mode: Any = True) -> Any:
        if callable(mode):  # `@no_grad` without parentheses
            return _decorate(mode, cls._mode)
        return super().__new__(cls)

    def __enter__(self) -> None:
        self._tokens.append(recording.set(self._mode))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recording.reset(self._tokens.pop())

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        return _decorate(fn, self._mode)


class no_grad(_Mode):  # noqa: N801 - PyTorch's name
    """Operations inside are not recorded: `with no_grad():` or `@no_grad()`."""

    _mode = False


class enable_grad(_Mode):  # noqa: N801 - PyTorch's name
    """Operations inside are recorded, also within `no_grad`."""

    _mode = True


class inference_mode(_Mode):  # noqa: N801 - PyTorch's name
    """The same as `no_grad`: an unrecorded operation keeps no books here that could be skipped."""

    _mode = False


def _decorate(fn: Callable[P, R], mode: bool) -> Callable[P, R]:
    @functools.wraps(fn)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        token = recording.set(mode)
        try:
            return fn(*args, **kwargs)
        finally:
            recording.reset(token)

    return wrapped
