"""The picture of a tensor in memory as text: box characters, no colours, a given width."""

from __future__ import annotations

from itertools import zip_longest

from chainrule.show._memory import Block, Scene, wrapped

LEFT = "     "
# Values with more characters are cut.
LONGEST = 10


def draw(scene: Scene, width: int) -> str:
    """The whole picture."""
    grid = draw_grid(scene, width)
    across = max(map(len, grid), default=0) + 3
    facts = draw_facts(scene, 4 * width)
    if scene.layout.ndim <= 2 and across + max(map(len, facts)) <= width:
        # The facts stand beside the grid, from its top edge on.
        lines = [f"{a:<{across}}{b}" for a, b in zip_longest(grid, ["", *facts], fillvalue="")]
    else:
        lines = [*grid, "", *[LEFT + fact for fact in draw_facts(scene, width - len(LEFT))]]
    lines += ["", *draw_memory(scene, width)]
    if scene.title:
        lines = [LEFT + scene.title, "", *lines]
    if (written := scene.sum()) is not None:
        lines += ["", *[LEFT + line for line in wrapped(written, width - len(LEFT))]]
    return "\n".join(line.rstrip() for line in lines)


def draw_facts(scene: Scene, width: int) -> list[str]:
    """Names and what is said of them in two columns."""
    column = max(len(name) for name, _ in scene.facts()) + 2
    lines: list[str] = []
    for name, text in scene.facts():
        for said in text.split("\n"):
            for line in wrapped(said, width - column):
                lines.append(f"{name:<{column}}{line}")
                name = ""
    return lines


# The grid.


def draw_grid(scene: Scene, width: int) -> list[str]:
    """The logical elements: a box a matrix, side by side as far as they fit."""
    if scene.layout.numel == 0:
        return ["", LEFT + "(empty: no elements)"]
    inner = cell_width(scene, width)
    gutter = max([3, *[len(str(size)) + 1 for size in scene.layout.shape[-2:-1]]])
    fit = max(3, (width - gutter - 3) // (inner + 1))
    rows: list[list[list[str]]] = []
    for block in scene.blocks(fit):
        # A gap is as wide as the page, so that it stands in a row of its own.
        gap = [f"{LEFT}⋯".ljust(width)]
        drawn = gap if block is None else draw_block(scene, block, inner, gutter)
        if rows and sum(max(map(len, b)) + 2 for b in [*rows[-1], drawn]) <= width:
            rows[-1].append(drawn)
        else:
            rows.append([drawn])
    lines = [line for row in rows for line in ["", *side_by_side(row)]][1:]
    return lines + left_out(scene, fit)


def draw_block(scene: Scene, block: Block, inner: int, gutter: int) -> list[str]:
    """One matrix with its row and column numbers; the leading index above it."""
    ndim = scene.layout.ndim
    head = " " * (gutter + 3)
    if ndim:
        head += "".join(f"{'⋯' if c is None else c:>{inner - 1}}  " for c in block.columns)
    lines = [head] if ndim else [""]
    if block.leading:
        lines.insert(0, " " * (gutter + 2) + f"[{', '.join(map(str, block.leading))}, :, :]")
    lines.append(" " * (gutter + 2) + ruler("┌┬┐", inner, len(block.columns)))
    for row in block.rows:
        cells = [grid_cell(scene, block, row, column, inner) for column in block.columns]
        name = "" if ndim < 2 else "⋮" if row is None else str(row)
        lines.append(f"{name:>{gutter + 1}} │{'│'.join(cells)}│")
    lines.append(" " * (gutter + 2) + ruler("└┴┘", inner, len(block.columns)))
    return lines


def grid_cell(scene: Scene, block: Block, row: int | None, column: int | None, inner: int) -> str:
    """One value, in brackets where it is highlighted; dots where elements are left out."""
    if row is None or column is None:
        return f"{'⋮' if column is not None else '⋯':>{inner - 1}} "
    index = scene.index(block, row, column)
    text = scene.text(scene.layout.address(index))
    return boxed(text, inner - 2, inner, index == scene.highlight)


def left_out(scene: Scene, fit: int) -> list[str]:
    """How many elements the grid does not show."""
    hidden = scene.layout.numel - len(scene.grid_addresses(fit))
    return [f"{LEFT}({hidden:,} of {scene.layout.numel:,} elements not shown)"] if hidden else []


# The memory.


def draw_memory(scene: Scene, width: int) -> list[str]:
    """The storage in the order of its addresses, with the reached cells marked below."""
    lines = [LEFT + scene.caption()]
    stretches = scene.stretches()
    if scene.size == 0:
        return lines
    shown = [address for start, stop in stretches for address in range(start, stop)]
    marks = {address: scene.mark(address) or "" for address in shown}
    longest = min(max(len(scene.text(address)) for address in shown), LONGEST)
    inner = max(longest + 2, len(str(shown[-1])) + 1, *(len(m) + 1 for m in marks.values()))
    fit = max(1, (width - len(LEFT) - 1) // (inner + 1))
    if fit > 4 and any(stop - start > fit for start, stop in stretches):
        fit -= fit % 4  # rows that break at a multiple of 4 are easier to count along
    at = 0
    for start, stop in stretches:
        if start > at:
            lines += [LEFT + f"⋮  {start - at:,} not shown"]
        for first in range(start, stop, fit):
            lines += memory_row(scene, range(first, min(first + fit, stop)), longest, inner, marks)
        at = stop
    if at < scene.size:
        lines += [LEFT + f"⋮  {scene.size - at:,} not shown"]
    return lines


def memory_row(
    scene: Scene, row: range, longest: int, inner: int, marks: dict[int, str]
) -> list[str]:
    """A few consecutive cells: addresses (unless they are the values), values, marks."""
    boxes = [boxed(scene.text(a), longest, inner, a == scene.target) for a in row]
    lines = [
        LEFT + ruler("┌┬┐", inner, len(row)),
        LEFT + "│" + "│".join(boxes) + "│",
        LEFT + ruler("└┴┘", inner, len(row)),
    ]
    if scene.values is not None:
        names = [f"{a:>{min(longest, len(str(row[-1])))}}" for a in row]
        lines.insert(0, LEFT + " " + " ".join(centred(name, inner) for name in names))
    if any(marks[a] for a in row):
        arrows = ["▲" if marks[a] else "" for a in row]
        lines.append(LEFT + " " + " ".join(centred(arrow, inner) for arrow in arrows))
        lines.append(LEFT + " " + " ".join(centred(marks[a], inner) for a in row))
    return lines


# Both.


def cell_width(scene: Scene, width: int) -> int:
    """Width of a cell of the grid with a space on both sides: the longest value shown."""
    fit = max(3, width // 4)
    longest = max(len(scene.text(address)) for address in scene.grid_addresses(fit))
    columns = len(str(scene.layout.shape[-1] - 1)) if scene.layout.ndim else 1
    return min(max(longest, columns), LONGEST) + 2


def boxed(text: str, longest: int, inner: int, highlighted: bool) -> str:
    """A value right-aligned among those up to `longest`, centred in its cell."""
    cell = centred(f"{clipped(text, longest):>{longest}}", inner)
    if not highlighted:
        return cell
    before = (inner - longest + 1) // 2
    return f"{cell[: before - 1]}[{cell[before : before + longest]}]{cell[before + longest + 1 :]}"


def clipped(text: str, room: int) -> str:
    """A value that is too long, cut with an ellipsis."""
    return text if len(text) <= room else text[: room - 1] + "…"


def centred(text: str, inner: int) -> str:
    """Centred, to the right where it does not come out even: values are right-aligned."""
    before = (inner - len(text) + 1) // 2
    return f"{' ' * before}{text}".ljust(inner)


def ruler(corners: str, inner: int, cells: int) -> str:
    """A horizontal edge: left corner, joints, right corner."""
    return corners[0] + corners[1].join(["─" * inner] * cells) + corners[2]


def side_by_side(blocks: list[list[str]]) -> list[str]:
    """Blocks of lines as one."""
    widths = [max(map(len, block)) for block in blocks]
    return [
        "  ".join(f"{line:<{w}}" for line, w in zip(row, widths, strict=True))
        for row in zip_longest(*blocks, fillvalue="")
    ]
