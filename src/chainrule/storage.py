"""Storage: one flat typed block of memory, shared by every alias of a tensor.

It carries what all aliases must agree on: the version counter, who wrote last, and whether
writing is allowed. It relies on a backend to hold the bytes and knows nothing of autograd.
"""

from __future__ import annotations

import linecache
from collections import deque
from types import CodeType
from typing import Any, NamedTuple

from chainrule.dtypes import DType
from chainrule.errors import GradError
from chainrule.layout import Layout


class Place(NamedTuple):
    """Where an instruction is, kept as the code object and the offset until someone asks."""

    code: CodeType
    lasti: int

    @property
    def line(self) -> int:
        """The line number in the file."""
        positions = list(self.code.co_lines())
        for start, end, line in positions:
            if start <= self.lasti < end and line is not None:
                return line
        return self.code.co_firstlineno

    def __str__(self) -> str:
        return f"{self.code.co_filename}:{self.line}"

    @property
    def text(self) -> str:
        """The source line itself, stripped; empty where the source is not at hand."""
        return linecache.getline(self.code.co_filename, self.line).strip()


class Write(NamedTuple):
    """One write into a storage: the clock's reading, the new version, the line that wrote."""

    clock: int
    version: int
    place: Place


class WriteClock:
    """Counts every write into any storage, so that "was anything written since?" is one look."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0


CLOCK = WriteClock()
_KEPT_WRITES = 16


class Storage:
    """A flat block: `buffer` is the backend's own object, `numel` its length in elements."""

    __slots__ = (
        "__weakref__",
        "aliases",
        "backend",
        "buffer",
        "dtype",
        "numel",
        "readonly",
        "version",
        "writes",
    )

    def __init__(self, buffer: Any, dtype: DType, numel: int, backend: Any) -> None:
        self.buffer = buffer
        self.dtype = dtype
        self.numel = numel
        self.backend = backend
        self.version = 0
        self.writes: deque[Write] = deque(maxlen=_KEPT_WRITES)
        self.readonly: str | None = None
        self.aliases: list[Any] | None = None

    def view(self, layout: Layout) -> Any:
        """The backend's array of this memory, seen through `layout`."""
        return self.backend.view(self.buffer, self.dtype, layout)

    def tolist(self) -> list[Any]:
        """Every element in memory order."""
        return self.backend.to_numpy(self.view(Layout.contiguous((self.numel,)))).tolist()

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return self.backend.buffer_ptr(self.buffer)

    def wrote(self, place: Place) -> None:
        """Note one write, from the line at `place`."""
        CLOCK.now += 1
        self.version += 1
        self.writes.append(Write(CLOCK.now, self.version, place))

    def check_writable(self) -> None:
        """Raise `GradError` with the reason where writing is forbidden."""
        if self.readonly is not None:
            raise GradError(self.readonly)

    def writes_since(self, clock: int) -> list[Write]:
        """The kept writes made after the clock read `clock`, oldest first."""
        return [w for w in self.writes if w.clock > clock]

    def __len__(self) -> int:
        return self.numel

    def __repr__(self) -> str:
        return f"Storage({self.numel} × {self.dtype.name}, version {self.version})"
