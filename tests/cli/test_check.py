"""`chainrule check`: one row a layout, an exit code, and sentences for mistakes."""

from __future__ import annotations

import textwrap

import pytest

from chainrule.cli import main

FILE = """
import torch

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return 3 * g.as_strided(g.shape, (g.shape[1], 1))

def right(x, w):
    return (x @ w).tanh()

def inputs():
    return torch.ones(2, 3).double().requires_grad_(), torch.ones(3, 2).double().requires_grad_()

def softmax(x):
    return torch.softmax(x.float(), -1).to(x.dtype)

def plain(x):
    return torch.softmax(x, -1)

def coarse(x):
    return plain(x.bfloat16()).to(x.dtype)

def sized(n):
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(0)).half()

def half():
    return torch.ones(2, 3).half().requires_grad_()

def nothing(*x):
    pass

def largest(x):
    return x.argmax()

def raises(x):
    raise ValueError("not today")

seven = 7
"""
OWN = """
import chainrule as cr

def cube(x):
    return x * x * x

cube.example_inputs = (cr.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=cr.float64, requires_grad=True),)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "operators.py"
    path.write_text(textwrap.dedent(FILE))
    return path


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(textwrap.dedent(OWN))
    return path


def run(capsys, *arguments):
    code = main(["check", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_backward_that_ignores_strides_fails_with_one_row_a_layout(capsys, file):
    code, out, _ = run(capsys, f"{file}:Wrong", "--shape", "4,4")
    assert code == 1
    (row,) = [line for line in out.splitlines() if "grad stride (0, 0)" in line]
    assert "FAIL" in row
    assert row.endswith("want 3.0: the backward assumes a contiguous gradient")
    assert "dx[" in row


def test_a_right_function_passes_with_the_files_inputs(capsys, file):
    code, out, _ = run(capsys, f"{file}:right")
    assert code == 0, out
    assert "input x stride (1, 2)" in out
    assert run(capsys, f"{file}:right", "--second", "--fast")[0] == 0
    assert "stride" not in run(capsys, f"{file}:right", "--no-layouts")[1]


def test_shapes_make_seeded_inputs_of_the_files_host(capsys, file, own):
    first = run(capsys, f"{file}:right", "--shape", "2,3", "--shape", "3,2")
    assert first[0] == 0
    assert first == run(capsys, f"{file}:right", "--shape", "2,3", "--shape", "3,2")
    assert "flipped" not in first[1]
    assert "-3" not in first[1]
    assert "stride (-3, -1)" in run(capsys, f"{own}:cube", "--shape", "2,3")[1]


def test_example_inputs_of_our_own_function(capsys, own):
    code, out, _ = run(capsys, f"{own}:cube")
    assert code == 0, out
    assert "stride (-2, -1)" in out


def test_against_a_reference_with_sizes(capsys, file):
    code, out, _ = run(
        capsys, f"{file}:softmax", "--against", "plain", "--inputs", "sized",
        "--block", "8", "--no-layouts",
    )  # fmt: skip
    assert code == 0, out
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["0", "1", "7", "8", "9"]
    code, out, _ = run(
        capsys,
        f"{file}:coarse",
        "--against",
        f"{file}:plain",
        "--inputs",
        "sized",
        "--sizes",
        "4;6",
    )
    assert code == 1
    assert "times that of a plain float16 run" in out


def test_against_with_shapes_in_half_precision(capsys, file):
    code, out, _ = run(
        capsys, f"{file}:softmax", "--against", "plain", "--shape", "4,9", "--dtype", "bfloat16"
    )
    assert code == 0, out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{file}"], "names no function: write FILE:FN"),
        (["nowhere.py:f"], "nowhere.py is not a file"),
        (["{file}:soft"], "has no 'soft'; it defines Wrong, right, inputs, softmax"),
        (["{file}:seven"], "seven is not a function, but a int"),
        (["{file}:right", "--shape", "2,x"], "write whole numbers with commas, such as 3,4"),
        (["{file}:right", "--shape", "2,3", "--shape", "4"], "right raised RuntimeError"),
        (["{file}:right", "--shape", "2", "--host", "jax"], "write chainrule or torch"),
        (["{file}:Wrong", "--shape", "2,2", "--dtype", "int8"], "write float64, float32"),
        (["{file}:Wrong", "--shape", "2,2", "--dtype", "float16"], "give --against REF"),
        (["{file}:Wrong", "--shape", "2,2", "--seed", "-1"], "--seed -1: write a whole number"),
        (["{file}:Wrong", "--shape", "2,2", "--eps", "0"], "eps=0: the step of the differences"),
        (["{file}:Wrong", "--shape", "2,2", "--rtol", "-1"], "rtol=-1: a tolerance is"),
        (["{file}:Wrong", "--inputs", "half"], "(--against on the command line)"),
        (["{file}:nothing", "--shape", "3"], "nothing returns NoneType and no torch tensor"),
        (["{file}:largest", "--shape", "3"], "no output of largest (int64) can be differentiated"),
        (["{file}:right", "--against", "nothing"], "reference nothing returns no torch tensor"),
        (["{file}:Wrong", "--inputs", "sized"], "is for --against"),
        (["{file}:Wrong", "--against", "plain", "--shape", "2", "--sizes", "3"], "--sizes needs"),
        (["{own}:plain"], "own.py has no 'plain'"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_two(capsys, file, own, arguments, sentence):
    code, out, err = run(capsys, *(a.format(file=file, own=own) for a in arguments))
    assert code == 2, out
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_a_reference_that_raises_judges_nothing_and_is_no_pass(capsys, file):
    code, out, _ = run(capsys, f"{file}:softmax", "--against", "raises", "--shape", "3")
    assert code == 2
    assert out.splitlines()[0].endswith("against raises: nothing was judged")
    assert "ValueError: not today" in out


def test_the_help_breaks_lines_only_where_they_are_full(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert run(capsys, "--help")[0] == 0
    from chainrule.cli import check

    paragraphs = check.check.__doc__.strip().split("\n\n")
    assert all("\n" not in p.strip() for p in paragraphs)


def test_no_inputs_says_how_to_give_them(capsys, tmp_path):
    bare = tmp_path / "bare.py"
    bare.write_text("def f(x):\n    return x\n")
    code, _, err = run(capsys, f"{bare}:f")
    assert code == 2
    assert "give --shape 3,4 for each input, or define a function inputs()" in err


def test_a_file_that_does_not_load_says_why(capsys, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name\n")
    code, _, err = run(capsys, f"{broken}:f")
    assert code == 2
    assert "raised ModuleNotFoundError: No module named 'nothing_of_that_name'" in err
