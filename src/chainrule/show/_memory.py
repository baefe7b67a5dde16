"""A tensor in memory: its logical grid above, the one line of memory below, as text or SVG.

`memory` reads a layout and the storage's values and decides what is shown; `_memory_text` and
`_memory_svg` draw it. Relies on `Layout` for every fact that is stated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod
from typing import Any, NamedTuple

from chainrule.autograd.value import Value
from chainrule.errors import InputError
from chainrule.layout import Layout, merging
from chainrule.ops import family

Ints = tuple[int, ...]

# What is shown at most: more is elided, and the picture says how much.
MAX_ROWS = 8
MAX_BLOCKS = 4
MAX_CELLS = 48
# An address that more indices than this share is marked "×99+".
MAX_SHARED = 99
# Threads that read together on a GPU.
WARP = 32


class Block(NamedTuple):
    """One matrix of the grid: leading index, rows and columns shown; None stands for a gap."""

    leading: Ints
    rows: list[int | None]
    columns: list[int | None]


class Scene:
    """What both drawings show, decided once; `columns` is how many cells fit side by side."""

    def __init__(
        self,
        layout: Layout,
        values: Sequence[Any] | None,
        highlight: Ints | None,
        title: str,
        tensor: Any = None,
    ) -> None:
        self.tensor = tensor
        self.layout = layout
        self.values = values
        self.title = title
        self.highlight = highlight
        self.target = None if highlight is None else layout.address(highlight)
        span = layout.bounds()
        self.span = span
        needed = layout.offset if span is None else span[1] + 1
        self.size = needed if values is None else len(values)
        if values is not None:
            layout.check_fits(len(values))

    def text(self, address: int) -> str:
        """The value at an address as it is drawn; without values, the address."""
        return str(address) if self.values is None else short(self.values[address])

    # The grid.

    def blocks(self, columns: int) -> list[Block | None]:
        """The matrices shown, None where some are left out; [] for an empty tensor."""
        shape = self.layout.shape
        if self.layout.numel == 0:
            return []
        height, width = ((1, 1, *shape))[-2:]
        leading = shape[:-2]
        picked = (*(0,) * max(0, 2 - len(shape)), *(self.highlight or ()))
        row, column = (picked[-2], picked[-1]) if self.highlight is not None else (0, 0)
        rows, across = elided(height, MAX_ROWS, row), elided(width, columns, column)
        number = 0
        if self.highlight is not None:
            for size, i in zip(leading, self.highlight, strict=False):
                number = number * size + i
        return [
            None if block is None else Block(unravel(block, leading), rows, across)
            for block in elided(prod(leading), MAX_BLOCKS, number)
        ]

    def index(self, block: Block, row: int, column: int) -> Ints:
        """The logical index of a cell of the grid."""
        return (*block.leading, *(row, column)[2 - min(2, self.layout.ndim) :])

    def grid_addresses(self, columns: int) -> list[int]:
        """The addresses of the elements that the grid shows."""
        return [
            self.layout.address(self.index(block, row, column))
            for block in self.blocks(columns)
            if block is not None
            for row in block.rows
            if row is not None
            for column in block.columns
            if column is not None
        ]

    # The memory line.

    def stretches(self) -> list[tuple[int, int]]:
        """The runs of addresses shown, as (start, stop): all, or both ends of what is reached."""
        if self.size <= MAX_CELLS:
            return [(0, self.size)]
        low, high = self.span or (0, 0)
        head = range(low - 1, min(low + MAX_CELLS // 3, high + 2))
        tail = range(max(high - MAX_CELLS // 8, low - 1), high + 2)
        wanted = {*head, *tail}
        if self.target is not None:
            wanted |= set(range(self.target - 2, self.target + 3))
        runs: list[tuple[int, int]] = []
        for address in sorted(a for a in wanted if 0 <= a < self.size):
            # A gap of one or two cells costs less than saying that it is there.
            if runs and address <= runs[-1][1] + 2:
                runs[-1] = (runs[-1][0], address + 1)
            else:
                runs.append((address, address + 1))
        return runs

    def mark(self, address: int) -> str | None:
        """Which index lies at an address: `1,0`; `×3` where three share it; None where none."""
        found = list(islice(self.layout.indices_at(address), MAX_SHARED + 1))
        if len(found) > MAX_SHARED:
            return f"×{MAX_SHARED}+"
        if len(found) > 1:
            return f"×{len(found)}"
        return (",".join(map(str, found[0])) or "()") if found else None

    # The facts.

    def facts(self) -> Iterator[tuple[str, str]]:
        """Shape, stride, offset and what follows from them, as (name, text of a line or two)."""
        layout = self.layout
        yield "shape", str(layout.shape)
        yield "stride", signed_all(layout.strides)
        yield "offset", str(layout.offset)
        if layout.ndim:
            letters = "ijklmn" if layout.ndim <= 6 else [f"i{d}" for d in range(layout.ndim)]
            yield "address", sum_of(layout, letters[: layout.ndim])
        fault = merging.row_major_fault(layout.shape, layout.strides)
        if fault is None:
            yield "contiguous", "yes"
        else:
            stride = signed(layout.strides[fault[0]])
            yield "contiguous", f"no: dimension {fault[0]} has stride {stride}, not {fault[1]}"
        seam = merging.view_seam(layout.shape, layout.strides, (layout.numel,))
        if seam is None:
            flat = layout.view(-1)
            stride = f", stride {signed(flat.strides[0])}" if flat.numel > 1 else ""
            yield ".view(-1)", f"yes{stride}"
        else:
            outer, inner = seam
            needed = f"{layout.shape[inner]}·{bracketed(layout.strides[inner])}"
            reason = f"(stride {signed(layout.strides[outer])} is not {needed})"
            yield ".view(-1)", f"no: dimensions {outer} and {inner} do not merge\n{reason}"
        if layout.self_overlaps:
            yield "overlap", "yes: some addresses belong to several indices"
        if self.tensor is not None:
            yield from self._tensor_facts()

    def _tensor_facts(self) -> Iterator[tuple[str, str]]:
        """What only a tensor has: who shares its memory, and elements of a size in bytes."""
        layout, size = self.layout, self.tensor.dtype.itemsize
        others = [m for m in family.members(self.tensor) if m is not self.tensor]
        if others:
            seen = [f"{m.layout.shape} stride {signed_all(m.layout.strides)}" for m in others[:3]]
            more = f"\nand {len(others) - 3} more" if len(others) > 3 else ""
            yield "aliases", "\n".join(seen) + more
        if layout.ndim and layout.numel:
            names = {layout.ndim - 1: "row"}
            if layout.ndim > 1:
                names[layout.ndim - 2] = "column"
            for dim, name in names.items():
                count = layout.transactions(dim, itemsize=size)
                threads = min(WARP, layout.shape[dim])
                yield f"by {name}", f"a warp of {threads} reads {count} × 32 B"

    def caption(self) -> str:
        """How much memory there is and how much of it the tensor reaches."""
        numel = self.layout.numel
        one = "" if self.size == 1 else "s"
        if numel == 0:
            return f"memory: {self.size:,} element{one}, none reached"
        if self.layout.self_overlaps:
            return f"memory: {self.size:,} element{one}, reached by {numel:,} indices"
        return f"memory: {self.size:,} element{one}, {numel:,} reached"

    def sum(self) -> str | None:
        """The highlighted element's address, written out."""
        if self.highlight is None:
            return None
        if not self.highlight:
            return f"the element is at offset {self.target}"
        factors = [str(i) for i in self.highlight]
        return f"[{', '.join(factors)}] is at offset {sum_of(self.layout, factors)} = {self.target}"


class Picture:
    """A drawing of a tensor in memory: `str()` is text, `.svg()` an SVG, notebooks show the SVG."""

    def __init__(self, scene: Scene, width: int) -> None:
        self._scene = scene
        self._width = width

    def __str__(self) -> str:
        from chainrule.show._memory_text import draw

        return draw(self._scene, self._width)

    __repr__ = __str__

    def svg(self) -> str:
        """A self-contained SVG, for light and dark backgrounds, readable from 360 px on."""
        from chainrule.show._memory_svg import draw

        return draw(self._scene)

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return f'<div style="max-width: 34rem">{self.svg()}</div>'


def memory(
    t: Any, highlight: Sequence[int] | None = None, *, title: str = "", width: int = 80
) -> Picture:
    """The picture of a tensor, or of a `Layout` alone, in memory.

    A tensor is anything with `t.layout` (a `Layout`) and `t.storage().tolist()` (the flat list of
    its storage's values); of a Layout alone the addresses are drawn. Of our tensors it also says who
    shares the memory (views recorded while they live) and how many segments of 32 bytes the first
    warp touches that reads along a row or down a column. `highlight=(i, j)` marks one
    element in the grid and in memory and writes out its address; `title` stands above; `width` is
    that of the text in characters. Large tensors are elided, and the picture says by how much.
    Raises IndexRangeError or ShapeError for a highlight that is no index, InputError for a thing
    without a layout and a width below 40.

    >>> from chainrule.layout import Layout
    >>> print(memory(Layout.contiguous((2, 2)).transpose(0, 1)))
           0   1
         ┌───┬───┐   shape       (2, 2)
       0 │ 0 │ 2 │   stride      (1, 2)
       1 │ 1 │ 3 │   offset      0
         └───┴───┘   address     0 + i·1 + j·2
                     contiguous  no: dimension 1 has stride 2, not 1
                     .view(-1)   no: dimensions 0 and 1 do not merge
                                 (stride 1 is not 2·2)
    <BLANKLINE>
         memory: 4 elements, 4 reached
         ┌────┬────┬────┬────┐
         │  0 │  1 │  2 │  3 │
         └────┴────┴────┴────┘
            ▲    ▲    ▲    ▲
           0,0  1,0  0,1  1,1
    """
    if width < 40:
        raise InputError(f"width {width} is too narrow for the drawing: use at least 40")
    tensor = t if isinstance(t, Value) else None
    if isinstance(t, Layout):
        layout, values = t, None
    elif isinstance(getattr(t, "layout", None), Layout):
        layout, values = t.layout, t.storage().tolist()
    else:
        raise InputError(
            f"memory draws a tensor or a Layout, got {type(t).__name__}: make a tensor of it first"
        )
    index = None
    if highlight is not None:
        layout.address(highlight)
        index = tuple(
            int(i) + size if i < 0 else int(i)
            for i, size in zip(highlight, layout.shape, strict=True)
        )
    return Picture(Scene(layout, values, index, title, tensor), width)


def elided(count: int, most: int, keep: int) -> list[int | None]:
    """Which of `count` things to show in `most` places: the first, the last, and `keep`."""
    if count <= most:
        return list(range(count))
    most = max(most, 3)
    if keep < most - 2:
        return [*range(most - 2), None, count - 1]
    if keep >= count - (most - 2):
        return [0, None, *range(count - (most - 2), count)]
    return [0, None, keep, None, count - 1][: max(most, 5)]


def unravel(number: int, shape: Ints) -> Ints:
    """The row-major index of the `number`-th element of `shape`."""
    index: list[int] = []
    for size in reversed(shape):
        number, i = divmod(number, size)
        index.append(i)
    return tuple(reversed(index))


def short(value: Any) -> str:
    """A value in a few characters."""
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    if isinstance(value, complex):
        return f"{value:.3g}".replace("-", "−")
    return str(value).replace("-", "−")


def signed(number: int) -> str:
    """An integer with a true minus sign."""
    return str(number).replace("-", "−")


def signed_all(numbers: Ints) -> str:
    """A tuple of integers with true minus signs."""
    return str(numbers).replace("-", "−")


def bracketed(number: int) -> str:
    """An integer as a factor: a negative one in brackets."""
    return f"({signed(number)})" if number < 0 else str(number)


def sum_of(layout: Layout, factors: Sequence[str]) -> str:
    """Offset + factor·stride + ..., written out."""
    terms = [f"{f}·{bracketed(s)}" for f, s in zip(factors, layout.strides, strict=True)]
    return " + ".join([str(layout.offset), *terms])


def wrapped(text: str, room: int) -> list[str]:
    """Lines of at most `room` letters, broken at spaces where there are any."""
    lines: list[str] = []
    while len(text) > room:
        cut = text.rfind(" ", 1, room + 1)
        cut = cut if cut > 0 else room
        lines.append(text[:cut])
        text = text[cut:].lstrip()
    return [*lines, text]
