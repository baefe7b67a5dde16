"""A training run's whole state in one safetensors file: tensors by path, the rest as JSON.

Everything that decides the next loss is in it (weights, optimiser, schedule, generator, batches),
and no code: no pickle. Relies on `chainrule.save` and `load`, and on `atomic` for the writing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chainrule as cr
from chainrule.errors import CheckpointError
from chainrule.train.atomic import replacing

FORMAT = "chainrule-checkpoint-1"

Tree = Any


def save(path: Path, tree: Tree) -> None:
    """Write a tree of dicts, lists, tuples, tensors, numbers, strings, True, False and None."""
    tensors: dict[str, Any] = {}
    skeleton = _fold(tree, "", tensors)
    with replacing(path) as temporary:
        cr.save({**tensors, "format": FORMAT, "tree": json.dumps(skeleton)}, str(temporary))


def load(path: Path) -> Tree:
    """Read what `save` wrote. Raises `CheckpointError` if the file is damaged or not ours."""
    try:
        stored = cr.load(str(path))
    except OSError as error:
        raise CheckpointError(f"Cannot read {path}: {error.strerror or error}.") from error
    if stored.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} is not a training checkpoint of chainrule's (its format is "
            f"{stored.get('format')!r}, not {FORMAT!r}): check the path given to --out."
        )
    try:
        return _unfold(json.loads(stored["tree"]), stored)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged: its tensors and its list of contents disagree ({error!r}). "
            "Start a new run."
        ) from error


def _fold(tree: Tree, path: str, tensors: dict[str, Any]) -> Tree:
    """The tree as JSON, with each tensor moved to `tensors` and its name left in its place."""
    if isinstance(tree, cr.Tensor):
        name = path.lstrip("/")
        tensors[name] = tree
        return {"tensor": name}
    if isinstance(tree, dict):
        # A list of pairs, since the keys of an optimiser's state are whole numbers.
        return {"dict": [[k, _fold(v, f"{path}/{k}", tensors)] for k, v in tree.items()]}
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [_fold(v, f"{path}/{i}", tensors) for i, v in enumerate(tree)]}
    return tree


def _unfold(tree: Tree, tensors: dict[str, Any]) -> Tree:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {k: _unfold(v, tensors) for k, v in content}
    if kind == "list":
        return [_unfold(v, tensors) for v in content]
    if kind == "tuple":
        return tuple(_unfold(v, tensors) for v in content)
    raise ValueError(f"unknown kind {kind!r}")
