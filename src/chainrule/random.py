"""Random numbers: one generator, seeded by `manual_seed`, the same numbers on every backend."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from chainrule import backends, dtypes
from chainrule._tensor import Tensor
from chainrule.creation import checked_size, from_numpy, wrap
from chainrule.dtypes import DType
from chainrule.errors import InputError


class Generator:
    """A stream of random numbers (PCG64) whose state can be saved and restored exactly."""

    def __init__(self, seed: int | None = None) -> None:
        self.numpy = np.random.default_rng(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream again from `seed`, any non-negative integer."""
        if seed < 0:
            raise InputError(f"a seed must not be negative, got {seed}")
        self.numpy = np.random.default_rng(seed)
        return self

    def get_state(self) -> Tensor:
        """The state as a uint8 tensor, which `cr.save` can keep."""
        text = json.dumps(self.numpy.bit_generator.state, sort_keys=True)
        return from_numpy(np.frombuffer(text.encode(), np.uint8).copy())

    def set_state(self, state: Tensor) -> None:
        """Continue from a state that `get_state` gave."""
        try:
            self.numpy.bit_generator.state = json.loads(bytes(state.numpy()).decode())
        except (ValueError, TypeError, KeyError) as wrong:
            raise InputError(f"this is not a state of a Generator: {wrong}") from None


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator; returns it."""
    return default_generator.manual_seed(seed)


def get_rng_state() -> Tensor:
    """The default generator's state as a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(state: Tensor) -> None:
    """Continue the default generator from `state`."""
    default_generator.set_state(state)


def _floating(dtype: DType) -> DType:
    dtype = dtypes.as_dtype(dtype)
    if not dtype.is_floating_point:
        raise InputError(f"random numbers of this kind are floating point, not {dtype.name}")
    return dtype


def rand(
    *size: Any,
    dtype: DType = dtypes.float32,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform numbers in [0, 1)."""
    source = (generator or default_generator).numpy
    shape = checked_size(size)
    raw = backends.get(device).random_uniform(source, shape, _floating(dtype))
    return wrap(raw, requires_grad)


def randn(
    *size: Any,
    dtype: DType = dtypes.float32,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Standard normal numbers."""
    source = (generator or default_generator).numpy
    shape = checked_size(size)
    raw = backends.get(device).random_normal(source, shape, _floating(dtype))
    return wrap(raw, requires_grad)


def randint(
    low: int,
    high: int | Any = None,
    size: Any = None,
    *,
    dtype: DType = dtypes.int64,
    device: str | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform integers in [low, high); `randint(high, size)` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    if high <= low:
        raise InputError(f"randint needs low < high, got {low} and {high}")
    source = (generator or default_generator).numpy
    dtype = dtypes.as_dtype(dtype)
    b = backends.get(device)
    return wrap(b.cast(b.from_numpy(source.integers(low, high, checked_size((size,)))), dtype))


def randperm(n: int, *, device: str | None = None, generator: Generator | None = None) -> Tensor:
    """The integers 0 to n−1 in random order, int64."""
    source = (generator or default_generator).numpy
    (n,) = checked_size((n,))
    return wrap(backends.get(device).from_numpy(source.permutation(n)))
