"""A training run's whole state in one safetensors file.

Everything that decides the next loss is in it (weights, optimiser, schedule, generator, batches),
and no code: no pickle. Relies on `chainrule.save`, which writes the whole file or leaves the old.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chainrule as cr
from chainrule.errors import CheckpointError

FORMAT = "chainrule-checkpoint-1"


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a dict of tensors, plain values and nests of them."""
    cr.save({"format": FORMAT, **state}, path)


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote. Raises `CheckpointError` if the file is damaged or not ours."""
    state = cr.load(path)
    found = state.pop("format", None) if isinstance(state, dict) else None
    if found != FORMAT:
        raise CheckpointError(
            f"{path} is not a training checkpoint of chainrule's (its format is {found!r}, not "
            f"{FORMAT!r}): check the path given to --out."
        )
    return state
