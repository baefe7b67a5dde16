"""The training run: text, batches, a small GPT, and a folder that keeps what happened.

`run(TrainConfig(...))` is what `chainrule train` calls. The parts that need no engine (corpus,
entropy, batches, rundir, report, progress) import no Tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainrule.train.config import TrainConfig

if TYPE_CHECKING:
    from chainrule.train.loop import Outcome

__all__ = ["TrainConfig", "run"]


def run(config: TrainConfig, *, given: frozenset[str] = frozenset()) -> Outcome:
    """Train, and leave a run folder; see `chainrule.train.loop.run`, loaded when called."""
    from chainrule.train import loop

    return loop.run(config, given=given)
