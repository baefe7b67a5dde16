"""The tape and the walk as self-contained SVGs: a row a node, a bar for what it keeps or passes."""

from __future__ import annotations

from math import isfinite, log10
from typing import TYPE_CHECKING

from chainrule.show._memory_svg import MARGIN, TEXT, WIDTH, Page
from chainrule.show._tape_text import gradient, said, size, summary, where

if TYPE_CHECKING:
    from chainrule.show._tape import Tape
    from chainrule.show._walk import Walk

INDENT = MARGIN + 20.0
ROOM = WIDTH - MARGIN - INDENT


def tape(t: Tape) -> str:
    """A bar a node, as long as the memory that it keeps."""
    page = Page()
    page.line(summary(t), "bold")
    most = max(max((e.kept for e in t.entries), default=0), 1)
    for e in t.entries:
        page.y += 5
        at = "" if e.place is None else where(e.place)
        page.line(f"{e.number} {e.name} {e.shape}  {at}")
        if e.place is not None:
            page.line(
                f"to {', '.join(e.to)}" + (f": {e.formula}" if e.formula else ""), "soft", INDENT
            )
        for s in e.saved:
            page.line(f"keeps {said(s, e.number)}", "soft", INDENT)
        if e.kept:
            bar(page, e.kept / most, size(e.kept))
    return page.finished("The tape of a tensor", summary(t))


def walk(w: Walk) -> str:
    """A bar a step: the incoming gradient's norm, on a logarithmic scale over this walk."""
    page = Page()
    page.line(w.summary(), "bold")
    norms = [log10(s.incoming.norm) for s in w.steps if s.incoming and s.incoming.norm > 0]
    low, high = (min(norms), max(norms)) if norms else (0.0, 0.0)
    for s in w.steps:
        page.y += 5
        at = "" if s.place is None else where(s.place)
        page.line(f"{s.number} {s.name}  {at}")
        if s.formula:
            page.line(s.formula, "soft", INDENT)
        if s.incoming is not None:
            n = s.incoming.norm
            share = 1.0
            if n > 0 and isfinite(n) and high > low:
                share = 0.05 + 0.95 * (log10(n) - low) / (high - low)
            kind = "hit" if s.incoming.nonfinite else "reached"
            bar(page, share if n > 0 else 0.01, f"in {gradient(s.incoming)}", kind)
        for to, g in s.outgoing:
            page.line(f"out {'none' if g is None else gradient(g)}, to {to}", "soft", INDENT)
    return page.finished("A walk back", w.summary())


def bar(page: Page, share: float, text: str, kind: str = "reached") -> None:
    """A bar of a share of the room, and its figure below it."""
    page.rect(INDENT, page.y + 2, round(max(1.0, share * ROOM), 1), kind)
    page.text(INDENT + 4, page.y + TEXT + 4, text)
    page.y += 26
