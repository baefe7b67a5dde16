"""Loss and all gradients of two small networks: ours, PyTorch eager, and NumPy by hand.

32×3→8→1 float64 with squareplus (mean squared error; one thread) is all bookkeeping;
256×784→512→10 float32 with ReLU (cross entropy; two threads) is mostly matrix products. JAX, if
it is installed, runs the first one jitted, in a process of its own pinned to one core, where it
is fastest. Needs torch. Run: `python benchmarks/mlp.py`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np

import chainrule as cr
import chainrule.nn.functional as F
from chainrule import bench
from chainrule.bench.subject import RATIO, Subject, main

SMALL = "MLP 32x3-8-1 float64"
LARGE = "MLP 256x784-512-10 float32"


def small_inputs():
    """x, the target, and W1, b1, W2, b2 with weights as (out, in)."""
    rng = np.random.default_rng(0)
    shapes = ((32, 3), (32, 1), (8, 3), (8,), (1, 8), (1,))
    return [rng.standard_normal(shape) for shape in shapes]


def large_inputs():
    """x, the classes, and W1, b1, W2, b2 with weights as (out, in)."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((256, 784), dtype=np.float32)
    classes = rng.integers(0, 10, 256)
    shapes = ((512, 784), (512,), (10, 512), (10,))
    weights = [rng.standard_normal(shape, dtype=np.float32) * np.float32(0.04) for shape in shapes]
    return [x, classes, *weights]


class Eager:
    """Loss and gradients by `.backward()`, for ours and for PyTorch."""

    def __init__(self, library, functional, inputs, network) -> None:
        self.functional, self.network = functional, network
        self.x, self.target = (library.tensor(a) for a in inputs[:2])
        self.weights = [library.tensor(a, requires_grad=True) for a in inputs[2:]]

    def __call__(self):
        for w in self.weights:
            w.grad = None
        loss = self.network(self.functional, self.x, self.target, *self.weights)
        loss.backward()
        return loss

    def results(self):
        loss = self()
        return [loss.detach().numpy(), *(w.grad.numpy() for w in self.weights)]


def small_network(squareplus):
    """The small network with a given squareplus."""

    def network(F, x, target, w1, b1, w2, b2):
        hidden = squareplus(F.linear(x, w1, b1))
        return F.mse_loss(F.linear(hidden, w2, b2), target)

    return network


def written_out(x):
    """Squareplus as a formula, where the library has no such function."""
    return 0.5 * (x + (x * x + 4.0).sqrt())


def large_network(F, x, target, w1, b1, w2, b2):
    """The large network."""
    return F.cross_entropy(F.linear(F.relu(F.linear(x, w1, b1)), w2, b2), target)


def small_by_hand(x, target, w1, b1, w2, b2):
    """Forward and backward of the small network in NumPy."""
    z = x @ w1.T + b1
    root = np.sqrt(z * z + 4.0)
    hidden = 0.5 * (z + root)
    error = hidden @ w2.T + b2 - target
    loss = (error * error).mean()
    d_out = error * (2.0 / error.size)
    d_z = (d_out @ w2) * hidden / root  # squareplus' = squareplus / root
    return loss, d_z.T @ x, d_z.sum(0), d_out.T @ hidden, d_out.sum(0)


def large_by_hand(x, target, w1, b1, w2, b2):
    """Forward and backward of the large network in NumPy, in place where that saves a pass."""
    n = np.arange(len(x))
    hidden = x @ w1.T
    hidden += b1
    np.maximum(hidden, 0, out=hidden)
    d_out = hidden @ w2.T
    d_out += b2
    d_out -= d_out.max(1, keepdims=True)
    picked = d_out[n, target]
    np.exp(d_out, out=d_out)
    total = d_out.sum(1, keepdims=True)
    loss = (np.log(total[:, 0]) - picked).mean()
    d_out /= total
    d_out[n, target] -= 1
    d_out *= np.float32(1 / len(x))
    d_hidden = d_out @ w2
    d_hidden *= hidden > 0
    return loss, d_hidden.T @ x, d_hidden.sum(0), d_out.T @ hidden, d_out.sum(0)


def jax_alone() -> None:
    """Print the seconds a call of the small network, jitted, on one core. Runs by itself."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX makes its threads
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_enable_x64", True)

    def loss(weights, x, target):
        w1, b1, w2, b2 = weights
        z = x @ w1.T + b1
        hidden = 0.5 * (z + jax.numpy.sqrt(z * z + 4.0))
        return ((hidden @ w2.T + b2 - target) ** 2).mean()

    inputs = [jax.numpy.asarray(a) for a in small_inputs()]
    step = jax.jit(jax.value_and_grad(loss))
    timing = bench.time(lambda: jax.block_until_ready(step(inputs[2:], *inputs[:2])), repeats=41)
    value, grads = step(inputs[2:], *inputs[:2])
    expected = small_by_hand(*small_inputs())
    for a, b in zip((value, *grads), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    print(json.dumps({"seconds": timing.median, "version": jax.__version__}))


def measure(subject: Subject) -> None:
    """Both networks; a row for JAX where it is installed."""
    import torch

    theirs = torch.nn.functional
    inputs = small_inputs()
    steps = {
        "chainrule": Eager(cr, F, inputs, small_network(cr.squareplus)),
        "chainrule, formula written out": Eager(cr, F, inputs, small_network(written_out)),
        "torch": Eager(torch, theirs, inputs, small_network(written_out)),
        "numpy by hand": lambda: small_by_hand(*inputs),
    }
    agree(steps, small_by_hand(*inputs), 1e-10)
    subject.use_threads(1)
    found = subject.compare(SMALL, "both", steps, rounds=41)
    ours = found.timings["chainrule"].median
    if importlib.util.find_spec("jax") is None:
        print("JAX is not installed: its row is left out")
    elif not hasattr(os, "sched_setaffinity"):
        print("this system cannot pin a process to a core: the row of JAX is left out")
    else:
        alone = subprocess.run(
            [sys.executable, __file__, "--jax-alone"], capture_output=True, text=True, check=True
        )
        measured = json.loads(alone.stdout.splitlines()[-1])
        seconds, version = measured["seconds"], f"jax {measured['version']}"
        name = "jax jit, one core"
        subject.put(SMALL, "both", name, seconds, "s", elsewhere=version)
        # Not paired: JAX needs a process of its own to be at its best.
        ratio = ours / seconds
        subject.put(SMALL, "both", f"chainrule / {name}", ratio, RATIO, elsewhere=version)
    inputs = large_inputs()
    steps = {
        "chainrule": Eager(cr, F, inputs, large_network),
        "torch": Eager(torch, theirs, inputs, large_network),
        "numpy by hand": lambda: large_by_hand(*inputs),
    }
    agree(steps, large_by_hand(*inputs), 2e-5)
    subject.use_threads(2)
    subject.compare(LARGE, "both", steps, rounds=31)


def agree(steps, expected, tolerance) -> None:
    """Refuse to time what does not compute the same thing."""
    for step in steps.values():
        if isinstance(step, Eager):
            for a, b in zip(step.results(), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


if __name__ == "__main__":
    if "--jax-alone" in sys.argv:
        jax_alone()
    else:
        main(measure, __file__)
