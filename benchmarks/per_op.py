"""What one small operation costs: a chain of 400 multiplications and additions, 4×4 float32.

Almost all of it is bookkeeping: the tape's and the interpreter's. One thread on both sides.
Needs torch. Run: `python benchmarks/per_op.py`.
"""

from __future__ import annotations

import numpy as np
import torch

import chainrule as cr
from chainrule.bench.subject import Subject, main

OPS = 400
CASES = {"one operand needs a gradient": False, "both operands need a gradient": True}


class Chain:
    """y = y * w, y = y + b, over and over; `both` asks for the gradients of w and b too."""

    def __init__(self, library, both: bool) -> None:
        rng = np.random.default_rng(0)

        def tensor(value, requires_grad):
            return library.tensor(value.astype(np.float32), requires_grad=requires_grad)

        self.x = tensor(rng.standard_normal((4, 4)), True)
        self.w = tensor(1 + 1e-3 * rng.standard_normal((4, 4)), both)
        self.b = tensor(1e-3 * rng.standard_normal((4, 4)), both)
        self.g = tensor(np.ones((4, 4)), False)

    def forward(self):
        y, w, b = self.x, self.w, self.b
        for _ in range(OPS // 2):
            y = y * w
            y = y + b
        return y

    def both(self):
        self.x.grad = self.w.grad = self.b.grad = None
        self.forward().backward(self.g)

    def gradients(self):
        self.both()
        leaves = (self.x, self.w, self.b)
        return [t.grad.numpy() for t in leaves if t.requires_grad]


def measure(subject: Subject) -> None:
    """Time per operation, forward alone (recording) and with the backward walk."""
    subject.use_threads(1)
    for case, both in CASES.items():
        ours, theirs = Chain(cr, both), Chain(torch, both)
        for a, b in zip(ours.gradients(), theirs.gradients(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4)
        for direction in ("forward", "both"):
            functions = {"chainrule": getattr(ours, direction), "torch": getattr(theirs, direction)}
            subject.compare(f"4x4 chain, {case}", direction, functions, per=OPS, rounds=41)


if __name__ == "__main__":
    main(measure, __file__)
