"""What a training run is told: the sizes of model, and every option with its check.

A `TrainConfig` is plain data; it goes to the run folder as JSON and comes back the same. Relies on
nothing else of ours but the errors.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from chainrule.errors import CheckpointError, InputError


@dataclass(frozen=True)
class Size:
    """The shape of a GPT, and a step size and batch that suit it."""

    layers: int
    heads: int
    width: int
    batch: int
    context: int
    lr: float


SIZES: dict[str, Size] = {
    "nano": Size(layers=2, heads=2, width=64, batch=16, context=64, lr=4e-3),
    "micro": Size(layers=4, heads=4, width=128, batch=16, context=128, lr=3e-3),
    "small": Size(layers=6, heads=8, width=256, batch=16, context=256, lr=1e-3),
}

DTYPES = ("float32", "float64", "bfloat16")


@dataclass(frozen=True)
class TrainConfig:
    """One training run. `None` for batch, context and lr means what suits the size.

    `out` is the run folder and `resume` says to go on in it; neither is part of what is learned.
    Raises `InputError` for a value that makes no sense.
    """

    text: str | None = None
    size: str = "nano"
    steps: int = 1400
    batch: int | None = None
    context: int | None = None
    lr: float | None = None
    warmup: int = 100
    dtype: str = "float32"
    seed: int = 0
    out: str | None = None
    resume: bool = False
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.1
    clip: float = 1.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise InputError(f"There is no size {self.size!r}: choose one of {', '.join(SIZES)}.")
        if self.dtype not in DTYPES:
            why = " (its gradients vanish without loss scaling)" if self.dtype == "float16" else ""
            raise InputError(
                f"Training in {self.dtype!r} is not offered{why}: choose one of "
                f"{', '.join(DTYPES)}."
            )
        for name, least in (("steps", 1), ("warmup", 0), ("batch", 1), ("context", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"--{name} is {value}: it has to be at least {least}.")
        if self.lr is not None and not (math.isfinite(self.lr) and self.lr > 0):
            raise InputError(f"--lr is {self.lr}: it has to be a positive number.")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"--seed is {self.seed}: it has to be at least 0 and below 2**63.")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout is {self.dropout}: it has to be at least 0 and below 1.")
        if not self.clip > 0:
            raise InputError(f"clip is {self.clip}: it has to be a positive number.")

    def resolved(self) -> TrainConfig:
        """The same run with every None replaced by what suits the size (`text` stays)."""
        size = SIZES[self.size]
        return dataclasses.replace(
            self,
            batch=self.batch or size.batch,
            context=self.context or size.context,
            lr=self.lr or size.lr,
            # A short run still has to reach its full rate.
            warmup=min(self.warmup, self.steps // 2),
        )

    @property
    def shape(self) -> Size:
        """The model's shape."""
        return SIZES[self.size]

    def to_json(self) -> dict[str, Any]:
        """What the run folder keeps: everything but where it is and whether it went on."""
        fields = dataclasses.asdict(self)
        del fields["out"], fields["resume"]
        return fields

    @staticmethod
    def from_json(fields: dict[str, Any]) -> TrainConfig:
        """Undo `to_json`. Raises `CheckpointError` for fields that do not fit."""
        known = {field.name for field in dataclasses.fields(TrainConfig)} - {"out", "resume"}
        if set(fields) != known:
            raise CheckpointError(
                "The run's config.json has other fields than this version of chainrule writes: "
                "start a new run."
            )
        values = dict(fields)
        try:
            first, second = values.pop("betas")
            return TrainConfig(**values, betas=(first, second))
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"The run's config.json cannot be used: {error}") from error


def conflicts(asked: TrainConfig, stored: TrainConfig, given: frozenset[str]) -> list[str]:
    """The options in `given` whose value differs from the stored run's, as sentences' parts."""
    return [
        f"--{name} {getattr(asked, name)} (the run has {getattr(stored, name)})"
        for name in sorted(given - {"out", "resume"})
        if getattr(asked, name) != getattr(stored, name)
    ]
