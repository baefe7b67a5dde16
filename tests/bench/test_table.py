"""The README's table says what the committed results say, and marks what is stale."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from chainrule.bench import results, sources
from chainrule.bench.results import Row

ROOT = Path(__file__).parents[2]


@pytest.fixture
def table(monkeypatch, tmp_path):
    """The script, working on a repository of its own with one measured file."""
    path = ROOT / "benchmarks" / "table.py"
    spec = importlib.util.spec_from_file_location("benchmarks_table", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look it up
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "measured.py").write_text("x = 1\n")
    (tmp_path / "README.md").write_text(f"before\n{module.BEGIN}\n{module.END}\nafter\n")
    listed = sources.listing([tmp_path / "measured.py"], tmp_path)
    rows = {}
    for target in module.targets():
        found = rows.setdefault(target.subject, [])
        meta = ("2 cores, x86-64 AVX2, 1 thread used", "python 3.11.7", "2026-01-01")
        meta = (*meta, sources.short_hash(listed))
        key = (target.case, target.direction)
        alone = "exponent" if target.peer is None else "s"
        new = [Row(*key, "chainrule", 1.0, alone, *meta)]
        if target.peer is not None and "jax" not in target.peer:
            new.append(Row(*key, target.peer, 2.0, "s", *meta))
            new.append(Row(*key, f"chainrule / {target.peer}", 0.47, "x", *meta))
        found += [row for row in new if row.key not in {r.key for r in found}]
    for name, found in rows.items():
        results.write(tmp_path / f"{name}.csv", found)
        (tmp_path / f"{name}.sha256").write_text(listed)
    return module


def run(table, *options):
    folder = table.ROOT
    table.main(["--results", str(folder), "--readme", str(folder / "README.md"), *options])
    return (folder / "README.md").read_text()


def test_the_table_is_written_between_the_markers_and_then_passes_the_check(table, capsys):
    text = run(table)
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    line = "| 4x4 chain, both operands need a gradient, both | 1 s | torch: 2 s | 0.47 | ≤ 0.65 | "
    assert line + "≤ 0.5 | goal |" in text
    assert "Measured on 2 cores, x86-64 AVX2; python 3.11.7; 2026-01-01." in text
    assert run(table, "--check") == text
    assert run(table) == text
    assert capsys.readouterr().out == ""


def test_where_we_lose_the_table_says_so(table):
    text = run(table)
    assert "≤ 0.2 |  | **missed** |" in text  # slices, 0.47
    assert "| 0.47 | ≤ 0.55 | ≤ 0.4 | floor |" in text


def test_a_peer_that_was_not_installed_has_no_line(table):
    assert "jax" not in run(table)


def test_other_figures_than_the_results_fail_the_check(table):
    text = run(table)
    (table.ROOT / "README.md").write_text(text.replace("0.47", "0.46", 1))
    with pytest.raises(SystemExit, match=r"run python benchmarks/table\.py"):
        run(table, "--check")


def test_changed_sources_are_printed_and_marked_but_fail_nothing(table, capsys):
    fresh = run(table)
    (table.ROOT / "measured.py").write_text("x = 2\n")
    assert run(table, "--check") == fresh
    assert "per_op is stale: measured.py changed" in capsys.readouterr().out
    assert "need a gradient, both (stale) |" in run(table)


@pytest.mark.parametrize(
    ("readme", "message"),
    [("no table here\n", "lacks the two lines"), ("{end}\n{begin}\n", "lacks the two lines")],
)
def test_a_readme_without_markers_is_refused(table, readme, message):
    text = readme.format(begin=table.BEGIN, end=table.END)
    (table.ROOT / "README.md").write_text(text)
    with pytest.raises(SystemExit, match=message):
        run(table)


def test_a_missing_result_says_what_to_run(table):
    (table.ROOT / "gpt.csv").unlink()
    with pytest.raises(SystemExit, match=r"run python benchmarks/run\.py gpt"):
        run(table)
