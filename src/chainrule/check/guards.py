"""Poison and guard regions for the buffers that a function takes from `torch.empty`.

While `guarded` is open, every fresh uninitialised floating tensor is NaN and lies inside a larger
NaN buffer, so a skipped element and a write past the end both show. PyTorch only.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from chainrule.check.hosts import Host

MARGIN = 64
"""Elements on each side: a multiple of what any vector load wants for alignment."""


class Overruns:
    """The buffers handed out, and how many of them were written outside."""

    def __init__(self) -> None:
        self.buffers: list[tuple[Any, int]] = []

    def count(self) -> int:
        """Buffers whose guard regions no longer hold their poison."""
        return sum(
            not (bool(b[:MARGIN].isnan().all()) and bool(b[MARGIN + n :].isnan().all()))
            for b, n in self.buffers
        )


@contextmanager
def guarded(host: Host) -> Generator[Overruns, None, None]:
    """Poison what the function allocates with `torch.empty` and its kin, where the host is PyTorch."""
    found = Overruns()
    if host.name != "torch":
        yield found
        return
    torch: Any = import_module("torch")
    mode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
    aten = torch.ops.aten
    kinds = {
        aten.empty.memory_format,
        aten.empty_strided.default,
        aten.empty_like.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
    }

    class Poison(mode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made: Any = func(*args, **(kwargs or {}))
            if func not in kinds or not made.is_floating_point() or made.numel() == 0:
                return made
            reach = 1 + sum((n - 1) * s for n, s in zip(made.shape, made.stride(), strict=True))
            whole: Any = torch.full(
                (reach + 2 * MARGIN,), torch.nan, dtype=made.dtype, device=made.device
            )
            found.buffers.append((whole, reach))
            return whole.as_strided(made.shape, made.stride(), MARGIN)

    with Poison():
        yield found
