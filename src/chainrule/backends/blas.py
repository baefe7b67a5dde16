"""Holds NumPy's BLAS to one thread while several Python threads call it.

It relies on OpenBLAS, which NumPy's wheels carry, exporting its thread-count functions; where
they are missing `can_hold()` is false and callers leave the threading to BLAS.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

_NAMES = tuple(
    (f"{prefix}openblas_get_num_threads{suffix}", f"{prefix}openblas_set_num_threads{suffix}")
    for prefix in ("scipy_", "")
    for suffix in ("64_", "")
)


def _candidate_libraries() -> Iterator[Path]:
    """NumPy's own BLAS first; then one that the system has loaded, but not SciPy's copy."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        if folder.is_dir():
            yield from sorted(p for p in folder.iterdir() if "openblas" in p.name)
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return
    loaded = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "openblas" in line}
    yield from (Path(p) for p in sorted(loaded) if "scipy" not in p and p.startswith("/"))


def _find_controls() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    for path in _candidate_libraries():
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for get_name, set_name in _NAMES:
            try:
                get, put = getattr(library, get_name), getattr(library, set_name)
            except AttributeError:
                continue
            get.argtypes, get.restype = [], ctypes.c_int
            put.argtypes, put.restype = [ctypes.c_int], None
            return get, put
    return None


class _Hold:
    """Counts who wants BLAS single-threaded: the count is one number for the whole process.

    The first to enter remembers the setting and the last to leave restores it. Meanwhile other
    threads' BLAS calls also run on one thread: slower, never wrong.
    """

    def __init__(self) -> None:
        self.controls: tuple[Callable[[], int], Callable[[int], None]] | None = None
        self.searched = False
        self.lock = threading.Lock()
        self.holders = 0
        self.before = 1

    def find(self) -> tuple[Callable[[], int], Callable[[int], None]] | None:
        if not self.searched:
            self.controls = _find_controls()
            self.searched = True
        return self.controls

    def enter(self) -> None:
        controls = self.find()
        if controls is None:
            return
        get, put = controls
        with self.lock:
            if self.holders == 0:
                self.before = get()
                if self.before != 1:
                    put(1)
            self.holders += 1

    def leave(self) -> None:
        if self.controls is None:
            return
        get, put = self.controls
        with self.lock:
            self.holders = max(0, self.holders - 1)  # a fork inside the block has reset it
            # Someone else's change made meanwhile (threadpoolctl, say) is theirs: let it stand.
            if self.holders == 0 and self.before != 1 and get() == 1:
                put(self.before)

    def after_fork(self) -> None:
        """A child has none of the parent's other threads, so nobody in it holds anything."""
        self.lock = threading.Lock()
        if self.holders and self.controls is not None:
            self.controls[1](self.before)
        self.holders = 0


_hold = _Hold()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hold.after_fork)


def can_hold() -> bool:
    """Whether this process's BLAS lets its thread count be set."""
    return _hold.find() is not None


def num_threads() -> int | None:
    """The threads BLAS would use now, or None where it cannot be asked."""
    controls = _hold.find()
    return None if controls is None else controls[0]()


@contextmanager
def single_threaded() -> Generator[None, None, None]:
    """Hold BLAS to one thread inside the block; nests, and is safe from several threads."""
    _hold.enter()
    try:
        yield
    finally:
        _hold.leave()
