"""Writes the generated parts of the documents: edges, sizes, the README's picture.

`python docs/generate.py` rewrites them; `--check` only says whether they are in step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import chainrule as cr
from chainrule.calculus import TABLE
from chainrule.train.config import SIZES

ROOT = Path(__file__).resolve().parents[1]


def edges() -> str:
    """Every row of the table that has a value or gradient by convention."""
    lines = ["| operation | formula | at the edges |", "|---|---|---|"]
    for row in TABLE.values():
        if row.edges:
            lines.append(f"| `{row.name}` | {cell(row.formula)} | {cell(row.edges)} |")
    return "\n".join(lines)


def integers() -> str:
    """What each operation makes of integers."""
    said = {
        "same": "Integers stay integers",
        "float": "Integers become float32",
        "bool": "The result is bool",
    }
    return "\n".join(
        f"- {text}: {', '.join(f'`{r.name}`' for r in TABLE.values() if r.result == kind)}."
        for kind, text in said.items()
    )


def picture() -> str:
    """Every second column of a 3×4 tensor, in memory."""
    x = cr.arange(12).view(3, 4)
    return f"```text\n{cr.show.memory(x[:, ::2])}\n```"


def sizes() -> str:
    """The sizes of model that `chainrule train` offers."""
    lines = [
        "| size | layers | heads | width | parameters | batch | context | rate |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, s in SIZES.items():
        model = cr.nn.GPT(256, s.context, s.layers, s.heads, s.width)
        count = sum(p.numel() for p in model.parameters())
        shape = f"{s.layers} | {s.heads} | {s.width} | {count:,}"
        lines.append(f"| {name} | {shape} | {s.batch} | {s.context} | {s.lr:g} |")
    return "\n".join(lines)


def cell(text: str) -> str:
    """`text` inside a table: a bar would end the cell."""
    return text.replace("|", "\\|")


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "docs/conventions.md": {"edges": edges, "integers": integers},
    "docs/train.md": {"sizes": sizes},
    "README.md": {"picture": picture},
}


def rendered(text: str, parts: dict[str, Callable[[], str]]) -> str:
    """`text` with what stands between each pair of markers made anew."""
    for name, make in parts.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise SystemExit(f"the markers {begin} … {end} are missing")
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


def main() -> int:
    """Rewrite, or compare; 1 if something is out of step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    stale = 0
    for name, parts in PARTS.items():
        path = ROOT / name
        old = path.read_text(encoding="utf-8")
        new = rendered(old, parts)
        if new != old:
            stale += 1
            print(f"{name} {'is out of step' if check else 'rewritten'}")
            if not check:
                path.write_text(new, encoding="utf-8")
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
