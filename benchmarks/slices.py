"""Backward through a loop over x[i]: ours is linear in the number of steps, PyTorch's quadratic.

x has T rows of 32 float32; the loop is h = h / 2 + x[i]. One thread on both sides. Needs torch.
Run: `python benchmarks/slices.py`.
"""

from __future__ import annotations

import numpy as np
import torch

import chainrule as cr
from chainrule.bench import Prepared
from chainrule.bench.subject import Subject, main

LENGTHS = (500, 1000, 2000, 4000, 8000)
WIDTH = 32


def loop(library, values) -> Prepared:
    """The loop, untimed, and then its backward."""
    x = library.tensor(values, requires_grad=True)

    def forward():
        x.grad = None
        h = x[0]
        for i in range(1, len(values)):
            h = h * 0.5 + x[i]
        return h.sum()

    def backward(loss):
        loss.backward()
        return x.grad

    return Prepared(forward, backward)


def exponent(lengths, values) -> float:
    """The slope of log(value) against log(length), by least squares."""
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])


def measure(subject: Subject) -> None:
    """Backward at every length, and the exponent of its growth over all of them."""
    subject.use_threads(1)
    lengths = LENGTHS[:3] if subject.quick else LENGTHS
    taken: dict[str, list[float]] = {}
    for n in lengths:
        values = np.random.default_rng(0).standard_normal((n, WIDTH), dtype=np.float32)
        loops = {"chainrule": loop(cr, values), "torch": loop(torch, values)}
        grads = [f.fn(f.prepare()).numpy() for f in loops.values()]
        np.testing.assert_allclose(*grads, rtol=1e-5)
        rounds = 9 if n < 4000 else 3
        found = subject.compare(f"x[i] loop, T = {n}", "backward", loops, rounds=rounds, warmup=1)
        for name, timing in found.timings.items():
            taken.setdefault(name, []).append(timing.median)
    for name, values in taken.items():
        subject.put(
            "x[i] loop, growth with T", "backward", name, exponent(lengths, values), "exponent"
        )


if __name__ == "__main__":
    main(measure, __file__)
