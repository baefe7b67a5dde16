"""`save` and `load`: tensors, plain values and any nesting of them in one safetensors file.

The file is readable by every safetensors reader: a tensor's name is its path, joined with dots
(`{"layer": {"weight": t}}` is `layer.weight`), so a state dict keeps its names. What is around
the tensors (dicts with their order and their keys, lists, tuples, numbers, strings, bools, None)
is JSON in the header's metadata under `chainrule`, and beside it a checksum of the whole, so that a
file which changed on the disk is not taken for what was saved. No pickle, hence no code, is in it.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors

from chainrule import _files, backends, dtypes
from chainrule._tensor import Tensor
from chainrule.autograd.value import backend_for, raw_of
from chainrule.creation import wrap
from chainrule.dtypes import DType
from chainrule.errors import CheckpointError, InputError

VERSION = 1

CHECKSUM = "checksum"
_UNKNOWN = "crc32:00000000"

# safetensors' names of what a tensor here can hold; complex128 has none.
_DTYPES: dict[str, DType] = {
    "BOOL": dtypes.bool,
    "U8": dtypes.uint8,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "I32": dtypes.int32,
    "I64": dtypes.int64,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
    "C64": dtypes.complex64,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write tensors and plain values to `path`: the whole new file, or the old one stays.

    `obj` is a dict (or a list, a tuple, a tensor) of tensors, numbers, strings, bools, None and
    further dicts, lists and tuples. Tensors are written without gradient or history; tensors that
    share memory are written once each and loaded apart. Raises `InputError` for anything else and
    `CheckpointError` where the file cannot be written.
    """
    tensors: dict[str, Tensor] = {}
    tree = _fold(obj, (), tensors)
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise CheckpointError(f"Cannot write {path}: it is a folder. Name a file in it.")
    metadata = {"chainrule": json.dumps({"version": VERSION, "tree": tree}, allow_nan=False)}
    with _files.replacing(target) as temporary, open(temporary, "wb") as file:
        _write(file, tensors, metadata)


def _write(file: BinaryIO, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """The format itself: 8 bytes of length, a JSON header, then every tensor's bytes.

    Written here because the package's own writer wants all bytes in memory at once and has
    changed its arguments between versions; it is the package that reads and validates.
    """
    # The checksum is known when all is written and then put in its place, the first in the text.
    header: dict[str, Any] = {"__metadata__": {CHECKSUM: _UNKNOWN, **metadata}}
    start = 0
    # The widest first, as the package does, so that all of them are aligned.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    for name, t in ordered:
        end = start + t.numel() * t.dtype.itemsize
        header[name] = {
            "dtype": _NAMES[t.dtype],
            "shape": list(t.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    crc = _header_crc(header)
    for _, t in ordered:
        b = backend_for(t._a)
        data = np.ascontiguousarray(b.to_numpy(raw_of(t))).reshape(-1).view(np.uint8).data
        crc = zlib.crc32(data, crc)
        file.write(data)
    file.seek(8 + text.index(_UNKNOWN.encode()))
    file.write(_checksum(crc).encode())


def _header_crc(header: dict[str, Any]) -> int:
    """Of what the header says and not of its spelling: other programs may write it their way."""
    metadata = {k: v for k, v in header["__metadata__"].items() if k != CHECKSUM}
    said = {**header, "__metadata__": metadata}
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())


def _checksum(crc: int) -> str:
    return f"crc32:{crc:08x}"


def _fold(obj: Any, path: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    """`obj` as JSON: plain values as they are, everything else as an object of one key."""
    if isinstance(obj, Tensor):
        name = ".".join(path) or "tensor"
        while name in tensors or name == "__metadata__":
            name += "'"  # {"a": {"b": t}, "a.b": t}: two paths of one spelling
        if obj.dtype not in _NAMES:
            raise InputError(
                f"cr.save: {_place(path)} is {obj.dtype.name}, which safetensors cannot hold"
            )
        tensors[name] = obj
        return {"tensor": name}
    if isinstance(obj, np.generic):
        obj = obj.item()
    if obj is None or isinstance(obj, (bool, str)):
        return obj
    if isinstance(obj, int):
        return int(obj)
    if isinstance(obj, float):
        return float(obj) if math.isfinite(obj) else {"float": repr(float(obj))}
    if isinstance(obj, Mapping):
        pairs: list[Any] = []
        for key, value in obj.items():
            if key is not None and not isinstance(key, (str, int)):
                raise InputError(
                    f"cr.save: a key at {_place(path)} is a {type(key).__name__}: use strings or "
                    "integers"
                )
            pairs.append([key, _fold(value, (*path, str(key)), tensors)])
        return {"dict": pairs}
    if isinstance(obj, (list, tuple)):
        kind = "list" if isinstance(obj, list) else "tuple"
        items = [_fold(x, (*path, str(i)), tensors) for i, x in enumerate(obj)]
        return {kind: items}
    hint = "; wrap it in cr.from_numpy" if isinstance(obj, np.ndarray) else ""
    raise InputError(
        f"cr.save: {_place(path)} is a {type(obj).__name__}: a file holds tensors, numbers, "
        f"strings, bools, None, dicts, lists and tuples{hint}"
    )


def _place(path: tuple[str, ...]) -> str:
    return repr(".".join(path)) if path else "the object itself"


def load(path: str | os.PathLike[str], device: str | None = None) -> Any:
    """What `save` wrote, with fresh tensors on `device`; they require no gradient.

    Any other safetensors file gives a dict of its tensors by name. Raises `CheckpointError` for a
    file that is missing, truncated, changed since `save`, or not safetensors at all.
    """
    b = backends.get(device)
    content = _read(path)
    try:
        entries = safetensors.deserialize(content)
    except safetensors.SafetensorError as wrong:  # pyright: ignore[reportAttributeAccessIssue]
        raise CheckpointError(_diagnosis(path, content, wrong)) from wrong
    metadata = _verified(path, content)
    tensors: dict[str, Tensor] = {}
    for name, info in entries:
        dtype = _DTYPES.get(info["dtype"])
        if dtype is None:
            raise CheckpointError(
                f"{path}: tensor {name!r} has the dtype {info['dtype']}, which has no counterpart "
                "here: convert it where the file was made."
            )
        data = np.frombuffer(info["data"], backends.get("cpu").native_dtype(dtype))
        array = data.reshape(info["shape"])
        if not array.flags.writeable:  # an empty buffer is read-only
            array = array.copy()
        tensors[name] = wrap(b.from_numpy(array))
    described = metadata.get("chainrule")
    if described is None:
        return tensors
    try:
        head = json.loads(described)
        version = head["version"]
        if version != VERSION:
            raise CheckpointError(
                f"{path} has format version {version}, this chainrule reads version {VERSION}: "
                "load it with the version that wrote it."
            )
        return _unfold(head["tree"], tensors)
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        if isinstance(wrong, CheckpointError):
            raise
        raise CheckpointError(
            f"{path} is damaged: its list of contents does not fit its tensors ({wrong!r}). Use "
            "another copy."
        ) from wrong


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"There is no file {path}: check the path.") from None
    except OSError as wrong:
        raise CheckpointError(f"Cannot read {path}: {wrong.strerror or wrong}.") from wrong


def _verified(path: str | os.PathLike[str], content: bytes) -> dict[str, str]:
    """The metadata, once the checksum in it agrees; files without one have nothing to agree."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    metadata: dict[str, str] = header.get("__metadata__") or {}
    kept = metadata.get(CHECKSUM, "")
    if kept.startswith("crc32:"):
        found = _checksum(zlib.crc32(memoryview(content)[end:], _header_crc(header)))
        if found != kept:
            raise CheckpointError(
                f"{path} is damaged: it was changed after it was written (its checksum is {found} "
                f"and was {kept}). Use another copy, or make the file anew."
            )
    return metadata


def _diagnosis(path: str | os.PathLike[str], content: bytes, wrong: Exception) -> str:
    """Why `content` is no safetensors file, in one sentence."""
    if not content:
        return f"{path} is empty: the writing never finished. Use another copy."
    if content[:4] == b"PK\x03\x04" or content[:2] == b"\x80\x02":
        return (
            f"{path} is a pickle, as torch.save writes: such files run code when read. Convert it "
            "with safetensors.torch.save_file."
        )
    if content[8:9] == b"{":
        return (
            f"{path} is a damaged safetensors file ({wrong}; {len(content)} bytes): it was cut off "
            "or changed. Use another copy."
        )
    return f"{path} is not a safetensors file ({wrong}): check the path."


def _unfold(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(tree, dict):
        if isinstance(tree, list):
            raise ValueError("a bare list")
        return tree
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "float":
        return float(content)
    if kind == "dict":
        return {key: _unfold(value, tensors) for key, value in content}
    items = [_unfold(x, tensors) for x in content]
    if kind == "list":
        return items
    if kind == "tuple":
        return tuple(items)
    raise ValueError(f"unknown kind {kind!r}")
