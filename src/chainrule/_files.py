"""Files that are either the old one or the new one, whatever happens in between.

The new content goes to a temporary file in the same folder, is flushed and fsynced, and takes the
name in one rename; then the folder is fsynced. A kill, a full disk or an error leaves the old file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from chainrule.errors import CheckpointError

TEMPORARY = ".partial"
"""How the names of temporary files end; what is left of them after a kill may be deleted."""


@contextlib.contextmanager
def replacing(
    path: Path, advice: str = "Make room or choose another folder."
) -> Generator[Path, None, None]:
    """Yield a temporary path to write to; on leaving it takes the place of `path`.

    Raises `CheckpointError`, which ends with `advice`, where the disk is full or refuses; `path`
    is then untouched.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        kept = "the previous one is untouched" if path.exists() else "nothing was written"
        raise CheckpointError(
            f"Cannot write {path}: {error.strerror or error}; {kept}. {advice}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` last; a file system that cannot fsync a folder needs no help."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
