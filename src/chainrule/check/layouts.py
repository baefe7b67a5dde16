"""The memory layouts that a check puts every array into, and the poisoned buffers that hold them.

Plain integers and NumPy: a `Form` is a shape, strides and an offset inside a buffer that is larger
than what the form reaches. Everything it does not reach is poison, so a stray read shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

Raw = Any
GUARD = 16
"""Elements of poison behind the furthest element that a form or a flat read would touch."""


@dataclass(frozen=True)
class Form:
    """One way to lay an array out in memory; strides and offset in elements."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def expanded(self) -> bool:
        """Whether several indices share one element."""
        shared = any(n > 1 and s == 0 for n, s in zip(self.shape, self.strides, strict=True))
        return shared and prod(self.shape) > 0

    @property
    def length(self) -> int:
        """Elements in the buffer: enough for the form, for a flat read from its start, and a guard."""
        reach = sum((n - 1) * max(s, 0) for n, s in zip(self.shape, self.strides, strict=True))
        return self.offset + max(reach + 1, prod(self.shape)) + GUARD

    def label(self) -> str:
        """`stride (4, 1)`, with the offset where there is one."""
        return f"stride {self.strides}" + (f" offset {self.offset}" if self.offset else "")

    def window(self, buffer: Raw) -> Raw:
        """The form's elements as a NumPy view of `buffer`."""
        size = buffer.itemsize
        strides = tuple(s * size for s in self.strides)
        if prod(self.shape) == 0:
            return np.empty(self.shape, buffer.dtype)
        return np.ndarray(self.shape, buffer.dtype, buffer, self.offset * size, strides)

    def place(self, values: Raw) -> Raw:
        """A poisoned 1-D buffer whose elements seen through this form are `values`."""
        buffer = np.empty(self.length, values.dtype)
        buffer[...] = _poison(values)
        self.window(buffer)[...] = values
        return buffer

    def misread(self, buffer: Raw, use_offset: bool = True) -> Raw:
        """What code sees that takes this form for row-major memory."""
        start = self.offset if use_offset else 0
        return buffer[start : start + prod(self.shape)].reshape(self.shape)

    def settle(self, values: Raw) -> Raw:
        """`values` made constant along the expanded dimensions, so that the form can hold them."""
        pick = tuple(
            slice(0, 1) if s == 0 and n > 1 else slice(None)
            for n, s in zip(self.shape, self.strides, strict=True)
        )
        return np.broadcast_to(values[pick], self.shape).copy()


def _poison(values: Raw) -> Raw:
    """NaN for floats; for integers a value of the array's own, so that a stray index stays legal."""
    if values.dtype.kind in "fc":
        return np.nan
    return values.max() if values.size else 0


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous array."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def _ordered(shape: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """Dense strides where `order` lists the dimensions from slowest to fastest."""
    strides = [0] * len(shape)
    step = 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


def contiguous(shape: tuple[int, ...]) -> Form:
    """The plain row-major form."""
    return Form("contiguous", shape, row_major(shape))


def transposed(shape: tuple[int, ...]) -> Form:
    """The column-major form: the memory of the reversed dimensions."""
    return Form("transposed", shape, _ordered(shape, list(reversed(range(len(shape))))))


def forms(shape: tuple[int, ...], *, negative: bool, expand: bool) -> list[Form]:
    """The layouts to try on an array of `shape`, each different from the others, contiguous first."""
    plain = row_major(shape)
    wide = [d for d, n in enumerate(shape) if n > 1]
    out = [contiguous(shape), Form("offset", shape, plain, 5)]
    if len(wide) >= 2:
        out.append(transposed(shape))
    if len(wide) >= 3:
        order = list(range(len(shape)))
        order[wide[-1]], order[wide[-2]] = order[wide[-2]], order[wide[-1]]
        out.append(Form("last two swapped", shape, _ordered(shape, order)))
    if shape:
        padded = (*(n + 1 for n in shape[:-1]), 2 * shape[-1] + 1)
        steps = row_major(padded)
        out.append(Form("sliced", shape, (*steps[:-1], 2), 3))
    if negative and wide:
        out.append(Form("flipped", shape, tuple(-s for s in plain), 2 + prod(shape) - 1))
    if expand and wide:
        zero = {"expanded": wide}
        if len(wide) >= 2:
            zero |= {"rows repeated": wide[:1], "last repeated": wide[-1:]}
        for name, dims in zero.items():
            kept = tuple(1 if d in dims else n for d, n in enumerate(shape))
            strides = tuple(0 if d in dims else s for d, s in enumerate(row_major(kept)))
            out.append(Form(name, shape, strides))
    return _distinct(out)


def _distinct(found: list[Form]) -> list[Form]:
    seen: set[tuple[object, ...]] = set()
    kept: list[Form] = []
    for form in found:
        key = (
            form.offset,
            tuple(s for n, s in zip(form.shape, form.strides, strict=True) if n > 1),
        )
        if prod(form.shape) and key not in seen:
            seen.add(key)
            kept.append(form)
    return kept
