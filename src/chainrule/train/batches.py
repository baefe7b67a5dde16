"""Windows of text, drawn at random, in an order that a seed and a counter fix completely.

Batch number i is a function of (seed, i) alone, so the state to save is two whole numbers and a
run continues exactly where it stopped. Relies on NumPy's counter-based Philox generator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.errors import CheckpointError, InputError

Raw = Any


class Batches:
    """An endless supply of int64 arrays of shape (batch, context + 1), values 0 to 255.

    Columns :-1 are the model's input and 1: its targets. Windows start anywhere with equal
    probability and may overlap.
    """

    __slots__ = ("_text", "batch", "context", "drawn", "seed")

    def __init__(self, text: bytes, *, batch: int, context: int, seed: int) -> None:
        if batch < 1 or context < 1:
            raise InputError(
                f"A batch of {batch} windows of {context} bytes makes no sense: both are at "
                "least 1."
            )
        if not 0 <= seed < 2**63:
            raise InputError(f"The seed is {seed}: it has to be at least 0 and below 2**63.")
        if len(text) <= context:
            raise InputError(
                f"The text has {len(text):,} bytes, and one window takes context + 1 = "
                f"{context + 1:,}: give more text or a smaller context."
            )
        self._text: Raw = np.frombuffer(text, np.uint8)
        self.batch = batch
        self.context = context
        self.seed = seed
        self.drawn = 0

    def next(self) -> Raw:
        """Draw the next batch."""
        windows = self._text.size - self.context
        # A counter of its own for each batch. The raw bits are part of Philox's definition; the
        # methods of Generator may change with NumPy. 64 bits modulo n favour no window by more
        # than n / 2**64.
        bits = np.random.Philox(key=self.seed, counter=[0, 0, 0, self.drawn])
        starts = (bits.random_raw(self.batch) % np.uint64(windows)).astype(np.int64)
        self.drawn += 1
        return self._text[starts[:, None] + np.arange(self.context + 1)].astype(np.int64)

    def state_dict(self) -> dict[str, int]:
        """The whole state: the seed and how many batches were drawn."""
        return {"seed": self.seed, "drawn": self.drawn}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from `state`. Raises `CheckpointError` if it is not one of `state_dict`'s."""
        seed, drawn = state.get("seed"), state.get("drawn")
        if not isinstance(seed, int) or not isinstance(drawn, int) or drawn < 0:
            raise CheckpointError(f"The state of the batches is {state}, without seed and drawn.")
        self.seed, self.drawn = seed, drawn


def fixed_windows(text: bytes, *, context: int, count: int) -> Raw:
    """Up to `count` windows that do not share a target, spread evenly: (n, context + 1), int64.

    These are what a loss is measured on: the same bytes at every step and in every run.
    """
    codes: Raw = np.frombuffer(text, np.uint8)
    available = (codes.size - 1) // context
    if available < 1 or count < 1:
        raise InputError(
            f"The text has {codes.size:,} bytes, and one window takes context + 1 = "
            f"{context + 1:,}: give more text or a smaller context."
        )
    n = min(count, available)
    starts = (np.arange(n) * available // n) * context
    return codes[starts[:, None] + np.arange(context + 1)].astype(np.int64)
