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


class WriteLog:
    """What is known of the writes into one block of memory, shared by every storage of it."""

    __slots__ = ("readonly", "version", "writes")

    def __init__(self) -> None:
        self.version = 0
        self.writes: deque[Write] = deque(maxlen=_KEPT_WRITES)
        self.readonly: str | None = None  # why writing is forbidden


class Storage:
    """A flat block of memory and the family of tensors that share both it and a history.

    `buffer` is the backend's own object, `numel` its length in elements, `home` the layout of the
    first tensor. A detached tensor has a storage of its own on the same buffer and log.
    """

    __slots__ = (
        "__weakref__",
        "aliases",
        "backend",
        "buffer",
        "dtype",
        "home",
        "log",
        "numel",
        "root",
    )

    def __init__(
        self,
        buffer: Any,
        dtype: DType,
        numel: int,
        backend: Any,
        home: Layout,
        log: WriteLog | None = None,
    ) -> None:
        self.buffer = buffer
        self.dtype = dtype
        self.numel = numel
        self.backend = backend
        self.home = home
        self.log = WriteLog() if log is None else log
        self.root: Any = None  # a weak reference to the first tensor
        self.aliases: list[Any] | None = None  # weak references to its recorded views

    def sibling(self, home: Layout) -> Storage:
        """The same memory for a family of its own, whose first tensor has the layout `home`."""
        return Storage(self.buffer, self.dtype, self.numel, self.backend, home, self.log)

    @property
    def version(self) -> int:
        """How many writes there were."""
        return self.log.version

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
        log = self.log
        log.version += 1
        log.writes.append(Write(CLOCK.now, log.version, place))

    def check_writable(self) -> None:
        """Raise `GradError` with the reason where writing is forbidden."""
        if self.log.readonly is not None:
            raise GradError(self.log.readonly)

    def writes_since(self, clock: int) -> list[Write]:
        """The kept writes made after the clock read `clock`, oldest first."""
        return [w for w in self.log.writes if w.clock > clock]

    def __len__(self) -> int:
        return self.numel

    def __repr__(self) -> str:
        return f"Storage({self.numel} × {self.dtype.name}, version {self.version})"
