"""Attention's memory is linear in the sequence length, and its example says what it prints."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table():
    benchmark = load(ROOT / "benchmarks" / "attention_memory.py")
    measured = benchmark.measure()
    return {k: benchmark.exponent(benchmark.LENGTHS, v) for k, v in measured.items()}


@pytest.mark.parametrize("direction", ["forward", "both"])
@pytest.mark.parametrize(("provider", "expected"), [("chainrule", 1.0), ("naive", 2.0)])
def test_exponent_of_peak_memory(table, provider, expected, direction):
    assert table[provider, direction] == pytest.approx(expected, abs=0.1)


def test_the_example_prints_its_error():
    script = ROOT / "examples" / "tiled_attention_numpy.py"
    run = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, check=True
    )
    error = float(re.search(r"from the naive form: (\S+)", run.stdout)[1])
    assert 0 < error < 2e-15
    assert "finite True" in run.stdout
    assert "1024 instead of 4096" in run.stdout
