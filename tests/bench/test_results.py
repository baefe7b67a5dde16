"""Results survive the file, merge by median, and know the sources they were measured on."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

import chainrule as cr
from chainrule.bench import machine, results, sources, subject
from chainrule.bench.results import Row
from chainrule.errors import InputError

ROOT = Path(__file__).parents[2]
ROW = Row(
    "x[i], “quoted”, 3", "both", "chainrule", 1.5e-6, "s", "2 cores", "python 3", "2026-01-01", "ab"
)


def test_rows_come_back_from_a_file_as_they_were(tmp_path):
    rows = [ROW, dataclasses.replace(ROW, provider="torch", value=12345.678)]
    results.write(tmp_path / "a.csv", rows)
    back = results.read(tmp_path / "a.csv")
    assert back[0] == ROW
    assert back[1].value == pytest.approx(12345.678, rel=1e-3)
    header = (tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()[0]
    assert header == "case,direction,provider,value,unit,chip,versions,date,sources"


@pytest.mark.parametrize(
    ("text", "message"),
    [("case,value\na,1\n", "run the benchmark again"), ("HEAD\na,b,c,fast,s,,,,\n", "line 2")],
)
def test_a_foreign_file_is_refused(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text.replace("HEAD", ",".join(results.FIELDS)))
    with pytest.raises(InputError, match=message):
        results.read(path)


def test_runs_merge_by_median_and_say_how_far_they_are_apart():
    runs = [[dataclasses.replace(ROW, value=value)] for value in (3.0, 1.0, 2.0)]
    assert results.merge(runs) == [dataclasses.replace(ROW, value=2.0)]
    assert results.disagreement(runs) == 3.0


def test_a_row_that_one_run_lacks_is_an_error():
    with pytest.raises(InputError, match="only some of the 2 runs measured"):
        results.merge([[ROW], [ROW, dataclasses.replace(ROW, case="other")]])


def test_the_sources_are_read_off_what_runs():
    seen = set()
    x = cr.tensor([1.0, 2.0], requires_grad=True)
    with sources.watch(seen):
        (x * x).sum().backward()
    names = {path.name for path in seen}
    assert {"codegen.py", "arithmetic.py", "engine.py", "reductions.py"} <= names
    assert not names & {"attention.py", "losses.py", "sources.py"}
    assert sys.getprofile() is None


def test_a_listing_is_what_sha256sum_writes_and_knows_what_changed(tmp_path):
    for name, text in (("a.py", "one\n"), ("b.py", "two\n"), ("c.py", "three\n")):
        (tmp_path / name).write_text(text)
    listed = sources.listing([tmp_path / "c.py", tmp_path / "a.py", tmp_path / "b.py"], tmp_path)
    first = hashlib.sha256(b"one\n").hexdigest()
    assert listed.splitlines()[0] == f"{first}  a.py"
    assert sources.changed(listed, tmp_path) == []
    (tmp_path / "a.py").write_bytes(b"one\r\n")  # the same text, checked out on Windows
    assert sources.changed(listed, tmp_path) == []
    (tmp_path / "b.py").write_text("2\n")
    (tmp_path / "c.py").unlink()
    assert sources.changed(listed, tmp_path) == ["b.py", "c.py"]
    two = sources.listing([tmp_path / "a.py", tmp_path / "b.py"], tmp_path)
    assert sources.short_hash(two) != sources.short_hash(listed)


def test_the_chip_names_no_host_and_the_versions_what_is_imported():
    chip = machine.chip(1)
    assert chip.startswith(f"{machine.cores()} core")
    assert chip.endswith("1 thread used")
    versions = machine.versions()
    assert f"chainrule {cr.__version__}" in versions
    assert "numpy " in versions


def test_a_subject_adds_its_times_and_ratios():
    made = subject.Subject(quick=True)
    x = cr.tensor([1.0])
    functions = {"chainrule": lambda: cr.exp(x), "python": lambda: sum(range(5000))}
    made.use_threads(1)
    found = made.compare("case", "forward", functions, per=10)
    assert [row.provider for row in made.rows] == ["chainrule", "python", "chainrule / python"]
    ours, _, ratio = made.rows
    assert ours.value == found.timings["chainrule"].median / 10
    assert (ratio.value, ratio.unit) == (found.ratio("chainrule", "python"), "x")
    assert ours.chip.endswith("1 thread used")
    assert any(path.parent.name == "ops" for path in made.ran)


def test_a_script_refuses_blas_kernels_for_another_processor():
    script = ROOT / "benchmarks" / "per_op.py"
    run = subprocess.run(
        [sys.executable, str(script), "--quick"],
        capture_output=True,
        text=True,
        env={"OPENBLAS_CORETYPE": "Haswell", "PYTHONPATH": str(ROOT / "src")},
    )
    assert run.returncode == 1
    assert "env -u OPENBLAS_CORETYPE" in run.stderr
