"""A chain of 100,000 operations: that it works, and how long forward, backward and freeing take.

Nothing recurses: a walk or a release that did would overflow the stack. One thread on both
sides. Needs torch. Run: `python benchmarks/deep.py`.
"""

from __future__ import annotations

import numpy as np
import torch

import chainrule as cr
from chainrule.bench import Prepared
from chainrule.bench.subject import Subject, main

NODES = 100_000
CASE = "100,000 nodes in a row"
FACTOR = 0.99999  # so that the gradient, FACTOR ** NODES = 0.37, proves that every node was passed


class Chain:
    """y = y * FACTOR, NODES times, from a float64 leaf of 4 elements."""

    def __init__(self, library, nodes: int = NODES) -> None:
        self.nodes = nodes
        self.x = library.tensor(np.ones(4), requires_grad=True)
        self.g = library.tensor(np.ones(4))

    def forward(self):
        y = self.x
        for _ in range(self.nodes):
            y = y * FACTOR
        return y

    def backward(self, y):
        self.x.grad = None
        y.backward(self.g)
        return y

    def held(self):
        """A list with the only reference to the end of a chain whose saved values are there."""
        return [self.forward()]

    def free(self, held):
        held.clear()


def measure(subject: Subject) -> None:
    """The three phases, each with the others untimed."""
    subject.use_threads(1)
    with subject.watching():
        short = Chain(cr, 10)
        short.backward(short.forward())
    chains = {"chainrule": Chain(cr), "torch": Chain(torch)}
    for chain in chains.values():
        chain.backward(chain.forward())
        np.testing.assert_allclose(chain.x.grad.numpy(), FACTOR**NODES, rtol=1e-9)
    phases = {
        "forward": {name: c.forward for name, c in chains.items()},
        "backward": {name: Prepared(c.forward, c.backward) for name, c in chains.items()},
        "free": {name: Prepared(c.held, c.free) for name, c in chains.items()},
    }
    for direction, functions in phases.items():
        subject.compare(CASE, direction, functions, rounds=3, warmup=1, watch=False)


if __name__ == "__main__":
    main(measure, __file__)
