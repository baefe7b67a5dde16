"""Attention on the CPU: ours, tiled in NumPy, against PyTorch's scaled_dot_product_attention.

8 heads of 2048×64 float32, all keys or causal. Two threads on both sides. Needs torch.
Run: `python benchmarks/attention.py`.
"""

from __future__ import annotations

import numpy as np
import torch

import chainrule as cr
import chainrule.nn.functional as F
from chainrule.bench.subject import Subject, main

SHAPE = (1, 8, 2048, 64)


class Attention:
    """q, k, v as leaves, and one fixed incoming gradient."""

    def __init__(self, library, attend, causal: bool) -> None:
        rng = np.random.default_rng(0)
        q, k, v, g = (rng.standard_normal(SHAPE, dtype=np.float32) for _ in range(4))
        self.no_grad, self.attend, self.causal = library.no_grad, attend, causal
        self.leaves = [library.tensor(a, requires_grad=True) for a in (q, k, v)]
        self.g = library.tensor(g)

    def forward(self):
        with self.no_grad():
            return self.attend(*self.leaves, is_causal=self.causal)

    def both(self):
        for leaf in self.leaves:
            leaf.grad = None
        self.attend(*self.leaves, is_causal=self.causal).backward(self.g)
        return self.leaves


def measure(subject: Subject) -> None:
    """Full and causal, forward alone (not recorded) and with the backward."""
    subject.use_threads(2)
    for case, causal in (("full", False), ("causal", True)):
        ours = Attention(cr, F.scaled_dot_product_attention, causal)
        theirs = Attention(torch, torch.nn.functional.scaled_dot_product_attention, causal)
        np.testing.assert_allclose(ours.forward().numpy(), theirs.forward().numpy(), atol=1e-5)
        for a, b in zip(ours.both(), theirs.both(), strict=True):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), atol=1e-5)
        for direction in ("forward", "both"):
            functions = {"chainrule": getattr(ours, direction), "torch": getattr(theirs, direction)}
            subject.compare(f"attention 8x2048x64, {case}", direction, functions, rounds=9)


if __name__ == "__main__":
    main(measure, __file__)
