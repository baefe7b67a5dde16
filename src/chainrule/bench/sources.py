"""Which of our files a benchmark ran, and whether they are still what they were.

The list is read off one traced call, not kept by hand. It is stored beside the results in the
form of `sha256sum`, so that `sha256sum -c` in the repository's root says what has changed.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import chainrule
from chainrule import calculus
from chainrule.ops import codegen, rules

_PRINTED = "<chainrule "  # the file name of functions that we print and compile
_PRINTERS = [
    Path(codegen.__file__),
    Path(rules.__file__),
    *sorted(Path(calculus.__file__).parent.glob("*.py")),  # what they print from
]


@contextmanager
def watch(found: set[Path]) -> Generator[None, None, None]:
    """Add to `found` the files of the package whose functions run inside the block.

    Code that was printed from the calculus table counts as the files of the printers and of the
    table. The block runs slowly: it is for one call before the timing starts.
    """
    names: set[str] = set()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            names.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    if any(name.startswith(_PRINTED) for name in names):
        found.update(path.resolve() for path in _PRINTERS)
    package = Path(chainrule.__file__).parent.resolve()
    bench = Path(__file__).parent.resolve()
    for name in names:
        if name.startswith("<"):
            continue
        path = Path(name).resolve()
        if path.is_relative_to(package) and not path.is_relative_to(bench):
            found.add(path)


def listing(paths: Iterable[Path], root: Path) -> str:
    """One line a file, sorted: its SHA-256 and its path from `root`."""
    names = sorted(path.resolve().relative_to(root.resolve()).as_posix() for path in paths)
    return "".join(f"{_digest(root / name)}  {name}\n" for name in names)


def short_hash(listed: str) -> str:
    """Twelve digits that stand for a listing."""
    return hashlib.sha256(listed.encode()).hexdigest()[:12]


def changed(listed: str, root: Path) -> list[str]:
    """The files of a listing that are no longer what they were, or are gone."""
    out: list[str] = []
    for line in listed.splitlines():
        digest, _, name = line.partition("  ")
        path = root / name
        if not path.is_file() or _digest(path) != digest:
            out.append(name)
    return out


def _digest(path: Path) -> str:
    # Line ends as in the repository, whatever a checkout has made of them.
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
