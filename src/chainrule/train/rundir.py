"""A run's folder: config.json, metrics.jsonl, checkpoint.safetensors, model.safetensors, report.html.

One process at a time (a lock that the system drops when the process dies); files are replaced
whole or not at all (`atomic`); metrics are appended line by line and cut back on resuming.
"""

from __future__ import annotations

import json
import math
import os
import sys
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from chainrule._version import __version__
from chainrule.errors import CheckpointError
from chainrule.train.atomic import TEMPORARY, write_bytes

FORMAT = "chainrule-run"
FORMAT_VERSION = 1

Record = dict[str, Any]


class RunDir:
    """A run folder that this process holds, as a context manager.

    Make one with `RunDir.create` or `RunDir.open`; both raise `CheckpointError` when the folder is
    not what they need or another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.json"
        self.metrics_path = path / "metrics.jsonl"
        self.checkpoint_path = path / "checkpoint.safetensors"
        self.model_path = path / "model.safetensors"
        self.report_path = path / "report.html"
        self._lock: IO[bytes] | None = None
        self._metrics: FileIO | None = None

    @classmethod
    def create(cls, path: Path, config: Record) -> RunDir:
        """Start a run in a new or empty folder; `config` goes to config.json."""
        if path.exists() and not path.is_dir():
            raise CheckpointError(f"{path} is a file: choose another --out for the run folder.")
        if (path / "config.json").exists():
            raise CheckpointError(
                f"{path} already holds a run: add --resume to go on with it, or choose another "
                "--out."
            )
        if path.is_dir() and any(entry.name != "run.lock" for entry in path.iterdir()):
            raise CheckpointError(
                f"{path} has files in it that are not a run's: choose another --out."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"Cannot make the run folder {path}: {error.strerror}. Choose another --out."
            ) from error
        run = cls(path)
        run._take_lock()
        try:
            head = {"format": FORMAT, "version": FORMAT_VERSION, "chainrule": __version__}
            text = json.dumps({**head, **config}, indent=2) + "\n"
            write_bytes(run.config_path, text.encode())
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """Hold the existing run in `path`, and clear away what a kill may have left."""
        if not path.is_dir():
            raise CheckpointError(f"There is no run folder {path}: leave out --resume to start it.")
        if not (path / "config.json").is_file():
            raise CheckpointError(
                f"{path} is not a run folder: it has no config.json. Check the path given to --out."
            )
        run = cls(path)
        run._take_lock()
        try:
            run.config()
            for stale in path.glob(f"*{TEMPORARY}"):
                stale.unlink()
        except BaseException:
            run.close()
            raise
        return run

    def config(self) -> Record:
        """What `create` was given. Raises `CheckpointError` if config.json is not ours or broken."""
        try:
            content = json.loads(self.config_path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{self.config_path} cannot be read as JSON ({error}): the run cannot go on; start "
                "a new one."
            ) from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise CheckpointError(
                f'{self.config_path} was not written by chainrule (its "format" is not "{FORMAT}"):'
                " check the path given to --out."
            )
        if content.get("version") != FORMAT_VERSION:
            raise CheckpointError(
                f"{self.config_path} has format version {content.get('version')}, and this "
                f"chainrule ({__version__}) reads version {FORMAT_VERSION}: go on with the version "
                "that started the run."
            )
        return {k: v for k, v in content.items() if k not in ("format", "version", "chainrule")}

    # --- metrics -----------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """Add one line to metrics.jsonl; it is with the system when this returns."""
        try:
            if self._metrics is None:
                # Unbuffered: what does not fit on the disk must fail here and not when closing.
                self._metrics = open(self.metrics_path, "ab", buffering=0)
            line = memoryview(_line(record))
            while line:
                line = line[self._metrics.write(line) :]
        except OSError as error:
            raise CheckpointError(
                f"Cannot write {self.metrics_path}: {error.strerror}; the last checkpoint is "
                "untouched. Make room and go on with --resume."
            ) from error

    def sync(self) -> None:
        """Bring the lines appended so far to the disk, before a checkpoint counts on them."""
        if self._metrics is not None:
            os.fsync(self._metrics.fileno())

    def metrics(self) -> list[Record]:
        """Every complete line of metrics.jsonl; a last line that a kill cut short is left out."""
        try:
            content = self.metrics_path.read_bytes()
        except FileNotFoundError:
            return []
        records: list[Record] = []
        for number, line in enumerate(content.split(b"\n")[:-1], start=1):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict):
                raise CheckpointError(
                    f"{self.metrics_path}, line {number}, is not a JSON object: the file was "
                    "changed or damaged. Delete that line to go on."
                )
            records.append(_from_json(record))
        return records

    def truncate_metrics(self, step: int) -> None:
        """Forget what came after `step`: the run goes on from there and writes it again."""
        kept = [r for r in self.metrics() if isinstance(r.get("step"), int) and r["step"] <= step]
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        write_bytes(self.metrics_path, b"".join(_line(record) for record in kept))

    # --- lock --------------------------------------------------------------------------------

    def _take_lock(self) -> None:
        path = self.path / "run.lock"
        try:
            self._lock = open(path, "ab+")
        except OSError as error:
            raise CheckpointError(f"Cannot write to {self.path}: {error.strerror}.") from error
        try:
            _lock_file(self._lock)
        except OSError as error:
            self._lock.seek(0)
            holder = self._lock.read().decode("ascii", "replace").strip() or "another process"
            self._lock.close()
            self._lock = None
            raise CheckpointError(
                f"{self.path} is in use by {holder}: wait for it to end, or choose another --out."
            ) from error
        self._lock.truncate(0)
        self._lock.write(f"process {os.getpid()}".encode())
        self._lock.flush()

    def close(self) -> None:
        """Close the metrics and let the lock go."""
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> RunDir:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def next_free(root: Path) -> Path:
    """The first of root/001, root/002, … after the last one there."""
    return root / f"{max(_numbers(root), default=0) + 1:03d}"


def latest(root: Path) -> Path:
    """The last of root/001, root/002, …; raises `CheckpointError` if there is none."""
    numbers = _numbers(root)
    if not numbers:
        raise CheckpointError(f"There is no run in {root}/ to resume: name one with --out.")
    return root / f"{max(numbers):03d}"


def _numbers(root: Path) -> list[int]:
    if not root.is_dir():
        return []
    return [int(entry.name) for entry in root.iterdir() if entry.name.isdecimal()]


def _lock_file(file: IO[bytes]) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _line(record: Record) -> bytes:
    return (json.dumps(_to_json(record), allow_nan=False) + "\n").encode()


def _to_json(value: Any) -> Any:
    """JSON has no NaN and no infinity; a run that diverged does. They are written as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"float"}:
            return float(value["float"])
        return {key: _from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    return value
