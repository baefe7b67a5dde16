"""Writes the README's benchmark table from the committed results, between two marker comments.

`python benchmarks/table.py` rewrites the table; `--check` fails if the README shows other figures
than the results give, and prints which rows were measured on sources that have changed since.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from chainrule.bench import results, sources
from chainrule.bench.results import Row

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
STALE = " (stale)"
OURS = "chainrule"


@dataclass(frozen=True)
class Target:
    """One line of the table: which rows, and what ours is to reach.

    `floor` and `goal` are limits on the ratio, or on our own value where there is no peer.
    """

    subject: str
    case: str
    direction: str
    peer: str | None
    floor: float | None = None
    goal: float | None = None


def targets() -> list[Target]:
    """The lines of the table, in order."""
    one, both = ("one operand needs a gradient", "both operands need a gradient")
    small, large = "MLP 32x3-8-1 float64", "MLP 256x784-512-10 float32"
    attention = [
        Target("attention", f"attention 8x2048x64, {mask}", direction, "torch", 3.0, 2.0)
        for mask in ("full", "causal")
        for direction in ("forward", "both")
    ]
    chain = "100,000 nodes in a row"
    growth = "peak memory of attention, growth with length"
    return [
        Target("per_op", f"4x4 chain, {one}", "both", "torch", 0.65),
        Target("per_op", f"4x4 chain, {both}", "both", "torch", 0.65, 0.5),
        Target("mlp", small, "both", "torch", 0.55, 0.4),
        Target("mlp", small, "both", "numpy by hand"),
        Target("mlp", small, "both", "jax jit, one core"),
        Target("mlp", large, "both", "torch", 1.0),
        Target("mlp", large, "both", "numpy by hand", None, 1.05),
        Target("gpt", "GPT 4x128, batch 16x128", "step", "torch", 1.3, 1.0),
        *attention,
        Target("slices", "x[i] loop, T = 4000", "backward", "torch", 0.2),
        Target("slices", "x[i] loop, growth with T", "backward", None, 1.1),
        *[Target("deep", chain, phase, "torch") for phase in ("forward", "backward", "free")],
        Target("attention_memory", growth, "forward", None, 1.1),
        Target("attention_memory", growth, "both", None, 1.1),
    ]


def found(rows: list[Row], target: Target, provider: str) -> Row | None:
    """The row of one provider."""
    key = (target.case, target.direction, provider)
    return next((row for row in rows if row.key == key), None)


def limit(value: float | None) -> str:
    """A limit as a cell."""
    return f"≤ {value:g}" if value is not None else ""


def verdict(value: float, target: Target) -> str:
    """Which of the two limits the value keeps."""
    if target.goal is not None and value <= target.goal:
        return "goal"
    if target.floor is not None and value <= target.floor:
        return "floor"
    return "**missed**" if target.floor is not None or target.goal is not None else ""


def line(rows: list[Row], target: Target, mark: str) -> str | None:
    """One line of the table, or None where the peer was not there to be measured."""
    ours = found(rows, target, OURS)
    if ours is None:
        raise SystemExit(
            f"results/{target.subject}.csv has no row for {target.case}, {target.direction}: "
            f"run python benchmarks/run.py {target.subject}"
        )
    peer_cell = ratio_cell = ""
    value = ours.value
    if target.peer is not None:
        theirs = found(rows, target, target.peer)
        if theirs is None:
            return None
        ratio = found(rows, target, f"{OURS} / {theirs.provider}")
        assert ratio is not None, "a peer's row comes with a ratio"
        value = ratio.value
        peer_cell, ratio_cell = f"{theirs.provider}: {theirs.shown()}", f"{value:.2f}"
    case = target.case.replace("x[i]", "`x[i]`")
    cells = [
        f"{case}, {target.direction}{mark}",
        ours.shown(),
        peer_cell,
        ratio_cell,
        limit(target.floor),
        limit(target.goal),
        verdict(value, target),
    ]
    return "| " + " | ".join(cells) + " |"


def render(folder: Path, root: Path) -> tuple[str, list[str]]:
    """The table, and a sentence for every subject that is stale."""
    lines = [
        "| case | ours | peer | ratio | floor | goal | reached |",
        "|---|---|---|---|---|---|---|",
    ]
    stale: dict[str, str] = {}
    settings: dict[str, None] = {}
    for target in targets():
        path = folder / f"{target.subject}.csv"
        listed = path.with_suffix(".sha256")
        if not path.is_file() or not listed.is_file():
            raise SystemExit(
                f"{path.name} or its .sha256 is missing: run python benchmarks/run.py "
                f"{target.subject}"
            )
        rows = results.read(path)
        text = listed.read_text(encoding="utf-8")
        changed = sources.changed(text, root)
        if any(row.sources != sources.short_hash(text) for row in rows):
            changed.append(listed.name)
        if changed:
            stale[target.subject] = f"{target.subject} is stale: {', '.join(changed)} changed"
        made = line(rows, target, STALE if changed else "")
        if made is not None:
            lines.append(made)
            chip = rows[0].chip.rpartition(", ")[0]  # threads are said by subject
            settings[f"{chip}; {max((r.versions for r in rows), key=len)}; {rows[0].date}"] = None
    lines += ["", *(f"Measured on {setting}." for setting in brief(settings))]
    return "\n".join(lines), list(stale.values())


def brief(settings: dict[str, None]) -> list[str]:
    """Settings without those that another one contains (fewer packages imported)."""
    parts = {text: set(text.split("; ")) for text in settings}
    return [a for a in parts if not any(a != b and parts[a] < parts[b] for b in parts)]


def between(readme: str) -> tuple[int, int]:
    """Where the table is in the README."""
    start, end = readme.find(BEGIN), readme.find(END)
    if start < 0 or end < start:
        raise SystemExit(f"README.md lacks the two lines {BEGIN} and {END}, in this order")
    return start + len(BEGIN), end


def same(shown: str, wanted: str) -> bool:
    """Whether two tables agree in all but the stale marks and blanks."""
    plain = [re.sub(r"\s+", " ", text.replace(STALE, "")).strip() for text in (shown, wanted)]
    return plain[0] == plain[1]


def main(arguments: list[str] | None = None) -> None:
    """Rewrite the table, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail on a difference")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    options = parser.parse_args(arguments)
    table, stale = render(options.results, ROOT)
    for sentence in stale:
        print(sentence)
    readme = options.readme.read_text(encoding="utf-8")
    start, end = between(readme)
    if not options.check:
        whole = f"{readme[:start]}\n{table}\n{readme[end:]}"
        options.readme.write_text(whole, encoding="utf-8")
    elif not same(readme[start:end], table):
        raise SystemExit(
            "the README's benchmark table is not what benchmarks/results gives: run "
            "python benchmarks/table.py"
        )


if __name__ == "__main__":
    main()
