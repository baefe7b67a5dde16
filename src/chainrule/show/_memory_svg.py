"""The picture of a tensor in memory as a self-contained SVG, drawn for a width of 360 px.

Colours follow `prefers-color-scheme`; the style is scoped by a class, so that several pictures
live in one page. Lines break rather than shrink: every letter is at least 9 px at 360 px.
"""

from __future__ import annotations

from html import escape
from zlib import crc32

from chainrule.show._memory import Block, Scene, wrapped

WIDTH = 360
MARGIN = 10
CELL_HEIGHT = 20
GUTTER = 20
# Width of a monospaced letter, in parts of its size, and the sizes used.
ADVANCE = 0.602
TEXT, SMALL = 11.5, 9.0
# Values with more characters are cut.
LONGEST = 9

STYLE = """
.chainrule-memory{--ink:#1f2328;--soft:#57606a;--line:#afb8c1;--fill:#dbe9ff;--hit:#ffd58a;
--edge:#9a6700;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
@media (prefers-color-scheme:dark){.chainrule-memory{--ink:#e6edf3;--soft:#9aa5b1;
--line:#4b5560;--fill:#17355e;--hit:#5c4300;--edge:#e3b341}}
.chainrule-memory text{fill:var(--ink);font-size:11.5px;white-space:pre}
.chainrule-memory .soft{fill:var(--soft)}
.chainrule-memory .small{font-size:9px}
.chainrule-memory .middle{text-anchor:middle}
.chainrule-memory .right{text-anchor:end}
.chainrule-memory .bold{font-weight:600}
.chainrule-memory rect{fill:none;stroke:var(--line)}
.chainrule-memory .reached{fill:var(--fill)}
.chainrule-memory .hit{fill:var(--hit);stroke:var(--edge);stroke-width:1.6}
"""


def draw(scene: Scene) -> str:
    """The whole picture."""
    page = Page()
    if scene.title:
        page.line(scene.title, "bold")
        page.y += 4
    for name, text in scene.facts():
        page.fact(name, text)
    page.y += 8
    draw_grid(page, scene)
    page.y += 8
    draw_memory(page, scene)
    if (written := scene.sum()) is not None:
        page.y += 6
        page.line(written, "bold")
    return page.svg(scene)


class Page:
    """The pieces drawn so far and the height they have taken."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.y = float(MARGIN)

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """A piece of text with its baseline at y."""
        style = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{style}>{escape(text)}</text>')

    def rect(self, x: float, y: float, width: float, kind: str = "") -> None:
        """A cell with its top left corner at (x, y)."""
        style = f' class="{kind}"' if kind else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{CELL_HEIGHT}"{style}/>'
        )

    def line(self, text: str, kind: str = "", x: float = MARGIN) -> None:
        """Text of any length on as many lines as it needs."""
        room = int((WIDTH - MARGIN - x) / (TEXT * ADVANCE))
        for piece in wrapped(text, room):
            self.text(x, self.y + TEXT, piece, kind)
            self.y += TEXT + 4

    def fact(self, name: str, text: str) -> None:
        """A name and what is said of it."""
        self.text(MARGIN, self.y + TEXT, name, "soft")
        for piece in text.split("\n"):
            self.line(piece, x=MARGIN + 11 * TEXT * ADVANCE)

    def svg(self, scene: Scene) -> str:
        """Everything about a scene, in the order in which it is drawn."""
        facts = [f"{name} {text}".replace("\n", " ") for name, text in scene.facts()]
        said = "; ".join([*facts, scene.caption(), *filter(None, [scene.sum()])]) + "."
        return self.finished(scene.title or "A tensor in memory", said)

    def finished(self, title: str, said: str) -> str:
        """The page, with the title and description that a screen reader speaks."""
        height = round(self.y + MARGIN)
        body = "\n".join(self.parts)
        # Two pictures in one page must not name each other's title.
        name = f"chainrule-memory-{crc32((title + said + body).encode()):08x}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="chainrule-memory" role="img" '
            f'viewBox="0 0 {WIDTH} {height}" width="100%" style="max-width:34rem" '
            f'aria-labelledby="{name}-title {name}-desc">\n'
            f'<title id="{name}-title">{escape(title)}</title>\n'
            f'<desc id="{name}-desc">{escape(said)}</desc>\n'
            f"<style>{STYLE}</style>\n{body}\n</svg>\n"
        )


def draw_grid(page: Page, scene: Scene) -> None:
    """The logical elements, a matrix after the other, side by side as far as they fit."""
    if scene.layout.numel == 0:
        page.line("(empty: no elements)", "soft")
        return
    most = (WIDTH - 2 * MARGIN - GUTTER) // 24
    longest = max(len(scene.text(address)) for address in scene.grid_addresses(most))
    columns = len(str(scene.layout.shape[-1] - 1)) if scene.layout.ndim else 1
    cell = max(24.0, cell_width(min(max(longest, columns), LONGEST)))
    fit = max(3, int((WIDTH - 2 * MARGIN - GUTTER) / cell))
    x, below = float(MARGIN), page.y
    for block in scene.blocks(fit):
        if block is None:
            page.y, x = below + 4, float(MARGIN)
            page.line("⋯", "soft")
            below = page.y
            continue
        width = GUTTER + cell * len(block.columns)
        if x > MARGIN and x + width > WIDTH - MARGIN:
            page.y, x = below + 8, float(MARGIN)
        below = max(below, draw_block(page, scene, block, x, cell))
        x += width + GUTTER
    page.y = below
    hidden = scene.layout.numel - len(scene.grid_addresses(fit))
    if hidden:
        page.y += 2
        page.line(f"({hidden:,} of {scene.layout.numel:,} elements not shown)", "soft")


def draw_block(page: Page, scene: Scene, block: Block, left: float, cell: float) -> float:
    """One matrix with its row and column numbers; returns the y below it."""
    y, x0 = page.y, left + GUTTER
    hit: tuple[float, float, str] | None = None
    if block.leading:
        page.text(x0, y + TEXT, f"[{', '.join(map(str, block.leading))}, :, :]", "soft")
        y += TEXT + 4
    if scene.layout.ndim:
        for k, column in enumerate(block.columns):
            name = "⋯" if column is None else str(column)
            page.text(x0 + (k + 0.5) * cell, y + SMALL, name, "soft small middle")
        y += SMALL + 4
    for row in block.rows:
        if scene.layout.ndim > 1:
            name = "⋮" if row is None else str(row)
            page.text(x0 - 5, y + 13, name, "soft small right")
        for k, column in enumerate(block.columns):
            centre = x0 + (k + 0.5) * cell
            if row is None or column is None:
                page.text(centre, y + 14, "⋮" if row is None else "⋯", "soft middle")
                continue
            index = scene.index(block, row, column)
            text = clipped(scene.text(scene.layout.address(index)))
            if index == scene.highlight:
                hit = (x0 + k * cell, y, text)
                continue
            page.rect(x0 + k * cell, y, cell, "reached")
            page.text(centre, y + 14, text, "middle")
        y += CELL_HEIGHT
    if hit is not None:  # last, so that its edge lies over its neighbours'
        page.rect(hit[0], hit[1], cell, "hit")
        page.text(hit[0] + cell / 2, hit[1] + 14, hit[2], "middle")
    return y


def draw_memory(page: Page, scene: Scene) -> None:
    """The storage in the order of its addresses; what the tensor reaches is filled and named."""
    page.line(scene.caption())
    if scene.size == 0:
        return
    page.y += 2
    stretches = scene.stretches()
    shown = [address for start, stop in stretches for address in range(start, stop)]
    marks = {address: scene.mark(address) or "" for address in shown}
    longest = min(max(len(scene.text(address)) for address in shown), LONGEST)
    small = max(len(str(shown[-1])), *map(len, marks.values()))
    cell = max(24.0, cell_width(longest), small * SMALL * ADVANCE + 5)
    fit = max(1, int((WIDTH - 2 * MARGIN) / cell))
    at = 0
    for start, stop in stretches:
        if start > at:
            page.line(f"⋮ {start - at:,} not shown", "soft")
        for first in range(start, stop, fit):
            memory_row(page, scene, range(first, min(first + fit, stop)), cell, marks)
        at = stop
    if at < scene.size:
        page.line(f"⋮ {scene.size - at:,} not shown", "soft")


def memory_row(page: Page, scene: Scene, row: range, cell: float, marks: dict[int, str]) -> None:
    """A few consecutive cells: addresses (unless they are the values), values, indices."""
    # Highlighted last, so that its edge lies over its neighbours'.
    for address in sorted(row, key=lambda a: a == scene.target):
        x, centre = MARGIN + (address - row[0]) * cell, MARGIN + (address - row[0] + 0.5) * cell
        y = page.y
        if scene.values is not None:
            page.text(centre, y + SMALL, str(address), "soft small middle")
            y += SMALL + 4
        reached = marks[address]
        page.rect(x, y, cell, "hit" if address == scene.target else "reached" if reached else "")
        kind = "middle" if reached else "soft middle"
        page.text(centre, y + 14, clipped(scene.text(address)), kind)
        page.text(centre, y + CELL_HEIGHT + SMALL + 2, reached, "small middle")
    page.y += CELL_HEIGHT + SMALL + 8 + (0 if scene.values is None else SMALL + 4)


def cell_width(letters: int) -> float:
    """Room for so many letters."""
    return round(letters * TEXT * ADVANCE + 8, 1)


def clipped(text: str) -> str:
    """A value that is too long, cut with an ellipsis."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
