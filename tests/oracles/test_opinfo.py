"""Every operation of ours that PyTorch's own test table has: all samples, all wrong calls.

What is run and what is compared is in `opinfo`; the table of operations in `mapping`. Each test
also holds its row of docs/coverage.md against what it has just seen.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is the oracle here, and it is not installed")

from tests.oracles import coverage, opinfo
from tests.oracles.mapping import TABLE, VARIANTS, Difference, Entry

import chainrule as cr


@pytest.mark.parametrize("name", TABLE)
def test_samples_and_wrong_calls(name: str) -> None:
    result = opinfo.run(name)
    assert not result.failures, f"{len(result.failures)} failed\n" + "\n".join(result.failures[:6])
    counted = result.passed + result.differs.total() + result.unsupported.total()
    assert result.samples == counted
    assert coverage.row(result) in coverage.PAGE.read_text(), (
        f"docs/coverage.md is out of step with {name}: run python -m tests.oracles.coverage"
    )


def test_the_page_has_these_rows_and_no_others() -> None:
    lines = coverage.PAGE.read_text().splitlines()
    rows = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert rows == [*TABLE, *VARIANTS]


def test_every_row_is_an_entry_of_pytorchs() -> None:
    assert set(TABLE) | set(VARIANTS) <= set(opinfo.infos())


def test_no_function_of_ours_is_left_out() -> None:
    """Of the OpInfo entries that are named like a function of ours, each is in a table."""
    ours = {name for name in dir(cr) if callable(getattr(cr, name))}
    layers = {f"nn.functional.{name}" for name in dir(cr.nn.functional)}
    methods = {name for name in dir(cr.Tensor) if not name.startswith("_")}
    known = ours | layers | methods
    named = {n for n in opinfo.infos() if n in known or n.rpartition(".")[0] in known}
    assert named - set(TABLE) - set(VARIANTS) == set()


# The judge is judged: each kind of fault has to be seen.


def _wrong_value(x: cr.Tensor) -> cr.Tensor:
    return cr.sin(x) + 1e-6 * x


def _wrong_gradient(x: cr.Tensor) -> cr.Tensor:
    return cr.sin(x.detach())


def _wrong_second(x: cr.Tensor) -> cr.Tensor:
    class Sine(cr.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.slope = cr.cos(x)
            return cr.sin(x)

        @staticmethod
        def backward(ctx, g):
            return g * ctx.slope.detach()

    return Sine.apply(x)


def _wrong_dtype(x: cr.Tensor) -> cr.Tensor:
    return cr.sin(x).double()


def _writes(x: cr.Tensor) -> cr.Tensor:
    y = cr.sin(x)
    if x.numel():
        x.detach().zero_()
    return y


@pytest.mark.parametrize(
    ("name", "ours", "seen"),
    [
        ("sin", _wrong_value, "Not equal to tolerance"),
        ("sin", _wrong_gradient, "requires_grad False"),
        ("sin", _wrong_second, "second gradient"),
        ("sin", _wrong_dtype, "dtype"),
        ("sin", _writes, "an input was changed"),
        ("transpose", lambda x, a, b: cr.transpose(x, a, b).clone(), "stride"),
        ("select", lambda x, dim, i: x.clone().select(dim, i), "view at byte"),
        ("reshape", lambda x, shape: cr.zeros(1).reshape(shape), "wrong call|shape"),
        ("floor", lambda x: cr.floor(x).to("cpu"), "on device cpu"),
        ("chunk", lambda x, *a, **k: cr.chunk(x, *a, **k)[:1], "outputs"),
        ("eye", lambda n, m=None, **k: cr.from_numpy(np.eye(abs(n), abs(m or n))), "accepted"),
    ],
)
def test_the_judge_sees_each_kind_of_fault(
    name: str, ours: object, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLE, name, Entry(ours, "wrong"))
    report = "\n".join(opinfo.run(name).failures)
    assert any(part in report for part in seen.split("|")), report[:2000]


def test_a_stated_refusal_has_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = Difference("never", ("refused",))
    monkeypatch.setitem(TABLE, "sin", Entry(cr.sin, "cr.sin", differs=(stated,)))
    assert "says that this is refused" in opinfo.run("sin").failures[0]
