"""The tape and the walk as text: a node a paragraph of two or three lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from chainrule.storage import Place

if TYPE_CHECKING:
    from chainrule.show._tape import Saved, Tape
    from chainrule.show._walk import Gradient, Walk


def tape(t: Tape) -> str:
    """The whole listing."""
    return "\n".join([*wrapped(summary(t), t.width), "", *_entries(t)])


def summary(t: Tape) -> str:
    """How much there is and which line keeps most."""
    nodes = sum(1 for e in t.entries if e.place is not None)
    leaves = len(t.entries) - nodes
    text = f"{nodes} node{'s'[: nodes != 1]}, {leaves} lea{'f' if leaves == 1 else 'ves'}; kept for backward: "
    text += size(t.kept)
    if t.leaves:
        text += f", and {size(t.leaves)} that the leaves have anyway"
    if t.lines:
        place, most = t.lines[0]
        text += f". Most: {size(most)} by {where(place)}"
    return text


def _entries(t: Tape) -> Iterator[str]:
    names = max(len(e.name) for e in t.entries)
    shapes = max(len(str(e.shape)) for e in t.entries)
    digits = len(str(len(t.entries) - 1))
    indent = " " * (digits + 4)
    for e in t.entries:
        head = f"{e.number:>{digits}}  {e.name:<{names}}  {e.shape!s:<{shapes}}  "
        yield cut(head + ("" if e.place is None else sourced(e.place)), t.width)
        if e.place is None:
            continue
        passes = f"to {', '.join(e.to)}" + (f": {e.formula}" if e.formula else "")
        for line in wrapped(passes, t.width - len(indent)):
            yield indent + line
        if e.freed:
            yield f"{indent}what it kept is freed"
        for s in e.saved:
            yield cut(f"{indent}keeps {said(s, e.number)}", t.width)


def said(s: Saved, number: int) -> str:
    """One saved value of node `number` in words."""
    text = f"{s.what} {s.shape} {s.dtype}"
    if s.alias is None:
        return f"{text}: {size(s.nbytes)}"
    if s.alias == "packed":
        return text
    if s.alias == str(number):
        return f"{text}: the same memory"
    return f"{text}: the memory of {s.alias if s.alias[0] == 'l' else 'node ' + s.alias}"


def walk(w: Walk) -> str:
    """The whole walk."""
    lines = [*wrapped(w.summary(), w.width), ""]
    digits = len(str(len(w.steps) - 1))
    indent = " " * (digits + 4)
    names = max(len(s.name) for s in w.steps)
    for s in w.steps:
        place = "" if s.place is None else sourced(s.place)
        lines.append(cut(f"{s.number:>{digits}}  {s.name:<{names}}  {place}", w.width))
        lines += [indent + line for line in wrapped(s.formula, w.width - len(indent)) if s.formula]
        if s.incoming is not None:
            lines.append(f"{indent}in   {gradient(s.incoming)}")
        for to, g in s.outgoing:
            lines.append(f"{indent}out  {'none' if g is None else gradient(g)}, to {to}")
    return "\n".join(line.rstrip() for line in lines)


def gradient(g: Gradient) -> str:
    """One gradient in figures."""
    text = f"{g.shape} norm {g.norm:.4g}"
    return text + (f", {g.nonfinite} of {g.numel} not finite" if g.nonfinite else "")


def size(count: int) -> str:
    """Bytes in a unit that keeps the number short."""
    if count < 10_000:
        return f"{count:,} B"
    units = ["kB", "MB", "GB", "TB"]
    value = count / 1000
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.4g} {units[0]}"


def where(place: Place) -> str:
    """File and line, without the folders."""
    return str(place).replace("\\", "/").rpartition("/")[2]


def sourced(place: Place) -> str:
    """File, line, and the line's text."""
    return f"{where(place)}  {place.text}".rstrip()


def cut(text: str, width: int) -> str:
    """One line, cut with an ellipsis where it is too long."""
    text = text.rstrip()
    return text if len(text) <= width else text[: width - 1] + "…"


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` letters."""
    from chainrule.show._memory import wrapped as broken

    return broken(text, width)
