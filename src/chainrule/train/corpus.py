"""The text to learn: found, read, checked, and split into training and held-out bytes.

By default the source of Python's own standard library, which every machine with Python has; or a
file, a folder or a glob of the user's. Order and split depend on the files' names alone, so that
the same files give the same bytes everywhere. Relies on the standard library only.
"""

from __future__ import annotations

import glob
import hashlib
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from chainrule.errors import InputError

MAX_BYTES = 64 * 2**20
"""At most this much text is read: whole files in hash order, the last one cut."""

HELD_OUT_EVERY = 10
"""One file in this many is held out; of fewer files, this fraction at the end of each."""

NOT_SOURCE = frozenset(
    {"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"}
)
"""Folders of the standard library that are not its own source, or only its tests."""


@dataclass(frozen=True)
class Corpus:
    """Training and held-out bytes, with what a reader needs to know about where they came from."""

    name: str
    train: bytes
    held_out: bytes
    files: int
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 over both parts: two runs with the same digest saw the same text."""
        digest = hashlib.sha256(len(self.train).to_bytes(8, "little"))
        digest.update(self.train)
        digest.update(self.held_out)
        return digest.hexdigest()

    def require(self, context: int) -> None:
        """Raise `InputError` unless both parts hold one window of `context` + 1 bytes."""
        for part, text in (("training", self.train), ("held-out", self.held_out)):
            if len(text) <= context:
                raise InputError(
                    f"The {part} text of {self.name} has {len(text):,} bytes, and one window takes "
                    f"context + 1 = {context + 1:,}: give more text or a smaller --context."
                )


def load_corpus(text: str | None = None, *, max_bytes: int = MAX_BYTES) -> Corpus:
    """Read and split the text that `text` names: a file, a folder, a glob, or None for the default.

    Raises `InputError` if there is no such file, if nothing in it is text, or if it is empty.
    """
    if text is None:
        root = Path(sysconfig.get_path("stdlib"))
        return _build("Python's standard library", _standard_library(root), [], max_bytes)
    name = str(text)
    path = Path(name).expanduser()
    if path.is_dir():
        found = _files_below(path)
        if not found:
            raise InputError(f"The folder {name} holds no files (hidden ones are not read).")
        return _build_from_many(name, found, max_bytes)
    if path.exists():
        if not path.is_file():
            raise InputError(f"{name} is neither a file nor a folder: give --text a text file.")
        data = _read(path)
        notes = [_judge(name, data)]
        return _build(name, [(path.name, data)], [note for note in notes if note], max_bytes)
    if glob.has_magic(name):
        return _build_from_many(name, _files_matching(str(path)), max_bytes)
    raise InputError(f"There is no file or folder {name}: check the path given to --text.")


def _standard_library(root: Path) -> list[tuple[str, bytes]]:
    paths = [
        path for path in root.rglob("*.py") if not NOT_SOURCE & set(path.relative_to(root).parts)
    ]
    if not paths:
        raise InputError(
            f"This Python has no standard library source under {root}: give a text with --text."
        )
    return [(path.relative_to(root).as_posix(), _read(path)) for path in paths]


def _files_below(root: Path) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    for path in root.rglob("*"):
        relative = path.relative_to(root)
        if not any(part.startswith(".") for part in relative.parts) and path.is_file():
            found.append((relative.as_posix(), path))
    return found


def _files_matching(pattern: str) -> list[tuple[str, Path]]:
    found = [Path(match) for match in glob.glob(pattern, recursive=True)]
    files = [(path.as_posix(), path) for path in found if path.is_file()]
    if not files:
        raise InputError(f"No file matches {pattern}: check the glob given to --text.")
    return files


def _build_from_many(name: str, paths: Iterable[tuple[str, Path]], max_bytes: int) -> Corpus:
    """Of several files, those that are not text are left out, and the notes say so."""
    kept: list[tuple[str, bytes]] = []
    notes: list[str] = []
    refused: list[str] = []
    for key, path in sorted(paths):
        data = _read(path)
        try:
            note = _judge(key, data)
        except InputError as error:
            refused.append(str(error))
            continue
        kept.append((key, data))
        if note:
            notes.append(note)
    if refused and not kept:
        raise InputError(f"None of the {len(refused)} files of {name} is text. {refused[0]}")
    if refused:
        notes.append(f"Left out {len(refused)} of {len(refused) + len(kept)} files. {refused[0]}")
    return _build(name, kept, notes, max_bytes)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error


def _judge(name: str, data: bytes) -> str:
    """Return a note on bytes that are not UTF-8; raise `InputError` on what is no text at all.

    A model of bytes can learn any encoding, so a page of Latin-1 is welcome. A zero byte, or more
    than a tenth of undecodable bytes, means an image, an archive or UTF-16: there the comparison
    with the entropy of text would say nothing.
    """
    zero = data.find(0)
    if zero >= 0:
        raise InputError(
            f"{name} is not text: byte {zero:,} is zero. Give a text file (UTF-16 has to be "
            "converted to UTF-8 first)."
        )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        # "surrogateescape" turns each undecodable byte into one character of U+DC80…U+DCFF.
        decoded = data.decode("utf-8", "surrogateescape")
        bad = sum("\udc80" <= character <= "\udcff" for character in decoded)
        first = f"byte {error.start:,} is 0x{data[error.start]:02x}"
        if bad * 10 > len(data):
            raise InputError(
                f"{name} is not text: {bad:,} of {len(data):,} bytes are not UTF-8 ({first}). "
                "Give a text file, converted to UTF-8."
            ) from None
        return f"{name} is not UTF-8 ({bad:,} of {len(data):,} bytes; {first}): used byte by byte."
    return ""


def _build(
    name: str, files: Sequence[tuple[str, bytes]], notes: list[str], max_bytes: int
) -> Corpus:
    files = [(key, data) for key, data in files if data]
    total = sum(len(data) for _, data in files)
    if not total:
        raise InputError(f"{name} is empty: there is nothing to learn from.")
    # By hash and not by name, so that neither the cap nor the split takes one package as a whole.
    files = sorted(files, key=lambda file: hashlib.sha256(file[0].encode()).digest())
    kept: list[tuple[str, bytes]] = []
    room = max_bytes
    for key, data in files:
        if room <= 0:
            break
        kept.append((key, data[:room]))
        room -= len(data)
    if total > max_bytes:
        notes.append(
            f"Read {max_bytes:,} of {total:,} bytes, from {len(kept)} of {len(files)} files: "
            "a run takes no more text than that."
        )
    train, held_out = _split(kept)
    return Corpus(name, train, held_out, len(kept), tuple(notes))


def _split(files: Sequence[tuple[str, bytes]]) -> tuple[bytes, bytes]:
    """Hold out whole files where there are enough of them, else the end of each."""
    if len(files) >= HELD_OUT_EVERY:
        train = sorted(file for i, file in enumerate(files) if i % HELD_OUT_EVERY)
        held_out = sorted(files[::HELD_OUT_EVERY])
        return b"".join(data for _, data in train), b"".join(data for _, data in held_out)
    cuts = [(data, len(data) - len(data) // HELD_OUT_EVERY) for _, data in sorted(files)]
    return b"".join(data[:cut] for data, cut in cuts), b"".join(data[cut:] for data, cut in cuts)
