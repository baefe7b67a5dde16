"""Runs every benchmark, each in a fresh process, several times over, and writes `results/`.

The sweeps (A B C, A B C) are apart in time, so that a value is the median over different
moods of the machine. Run: `env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python benchmarks/run.py`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chainrule.bench import results
from chainrule.errors import InputError

HERE = Path(__file__).resolve().parent
SUBJECTS = ("per_op", "mlp", "gpt", "attention", "slices", "deep", "attention_memory")


def run_one(subject: str, folder: Path, *, quick: bool) -> list[results.Row]:
    """One script in a process of its own; its rows."""
    path = folder / f"{subject}.csv"
    command = [sys.executable, str(HERE / f"{subject}.py"), "--csv", str(path)]
    done = subprocess.run(command + ["--quick"] * quick, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{subject}.py failed:\n{done.stdout}{done.stderr}")
    return results.read(path)


def run_all(subjects: tuple[str, ...], sweeps: int, out: Path, *, quick: bool) -> None:
    """Sweep over the subjects, print each merged table, and write it to `out`."""
    runs: dict[str, list[list[results.Row]]] = {subject: [] for subject in subjects}
    listings: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for sweep in range(1, sweeps + 1):
            for subject in subjects:
                start = time.perf_counter()
                rows = run_one(subject, folder, quick=quick)
                print(f"sweep {sweep}/{sweeps}  {subject}: {time.perf_counter() - start:.0f} s")
                listing = (folder / f"{subject}.sha256").read_text(encoding="utf-8")
                if listings.setdefault(subject, listing) != listing:
                    raise SystemExit(f"the sources of {subject} changed while it was measured")
                runs[subject].append(rows)
    out.mkdir(parents=True, exist_ok=True)
    for subject, found in runs.items():
        merged = results.merge(found)
        print(f"\n{subject}: runs differ by up to {results.disagreement(found) - 1:.0%}")
        print(results.text(merged))
        results.write(out / f"{subject}.csv", merged)
        (out / f"{subject}.sha256").write_text(listings[subject], encoding="utf-8")


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subjects", nargs="*", help=f"some of: {', '.join(SUBJECTS)} (all)")
    parser.add_argument("--sweeps", type=int, default=2, help="how often each subject runs")
    parser.add_argument("--quick", action="store_true", help="three rounds: does it run?")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where the CSVs go")
    options = parser.parse_args()
    unknown = [name for name in options.subjects if name not in SUBJECTS]
    if unknown or options.sweeps < 1:
        parser.error(f"no such subject: {', '.join(unknown)}" if unknown else "at least one sweep")
    start = time.perf_counter()
    try:
        run_all(
            tuple(options.subjects) or SUBJECTS, options.sweeps, options.out, quick=options.quick
        )
    except InputError as error:
        raise SystemExit(str(error)) from None
    print(f"\n{time.perf_counter() - start:.0f} s in all; results in {options.out}")


if __name__ == "__main__":
    main()
