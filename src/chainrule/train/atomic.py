"""`replacing` of `chainrule._files` with the advice that fits a training run: go on with --resume."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from chainrule import _files
from chainrule._files import TEMPORARY as TEMPORARY

ADVICE = "Make room or choose another folder, and go on with --resume."


def replacing(path: Path) -> AbstractContextManager[Path]:
    """Yield a temporary path to write to; on leaving it takes the place of `path`."""
    return _files.replacing(path, ADVICE)


def write_bytes(path: Path, data: bytes) -> None:
    """Make `data` the whole content of `path`, or leave `path` as it is."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)
