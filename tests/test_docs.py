"""The documents are true: listings run, tables are in step, named files and tests exist.

A `pycon` block is a session; its expected output must match to the letter, but for line breaks in
error messages. A `python` block that starts with `# NAME.py` is a file, and a `console` block that
starts with `$ python NAME.py` shows what running it prints.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import itertools
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.calculus import TABLE
from chainrule.dtypes import ALL

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
# docs/check.md has tests of its own, in tests/cli.
SESSIONS = [page for page in PAGES if page != "docs/check.md"]
INF, NAN = math.inf, math.nan


def blocks(page, language):
    """The fenced blocks of a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def steps(block):
    """(source, expected output) of each prompt of a session."""
    for piece in re.split(r"^(?=>>> )", block, flags=re.MULTILINE):
        if not piece.strip():
            continue
        lines = piece.splitlines()
        code = list(itertools.takewhile(lambda s: s[:4].rstrip() in (">>>", "..."), lines))
        yield "\n".join(s[4:] for s in code), "\n".join(lines[len(code) :])


def run(source, scope):
    """What a session prints for `source`; for an error its class and its sentence."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            for statement in ast.parse(source).body:
                code = compile(ast.Interactive([statement]), "<page>", "single")
                exec(code, scope)
        except cr.ChainruleError as error:
            print(f"{type(error).__name__}: {error}")
    return shown.getvalue().rstrip("\n")


@pytest.mark.parametrize("page", SESSIONS)
def test_every_session_prints_what_the_page_says(page):
    scope = {"cr": cr, "np": np, "__name__": "page"}
    cr.manual_seed(0)
    for block in blocks(page, "pycon"):
        for source, expected in steps(block):
            got = run(source, scope)
            if re.match(r"\w*Error: ", got):
                got, expected = (" ".join(text.split()) for text in (got, expected))
            assert got == expected.rstrip("\n"), source


def files_of(page):
    """The files that a page lists, by name."""
    listed = {}
    for block in blocks(page, "python"):
        found = re.match(r"# (\w+\.py)\n", block)
        if found:
            listed[found[1]] = block
    return listed


@pytest.mark.parametrize("page", SESSIONS)
def test_every_listed_file_prints_what_the_page_says(page, tmp_path):
    for name, text in files_of(page).items():
        (tmp_path / name).write_text(text)
    for block in blocks(page, "console"):
        command, _, expected = block.partition("\n")
        found = re.fullmatch(r"\$ python (\w+\.py)", command)
        if not found:
            continue
        done = subprocess.run(
            [sys.executable, found[1]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        printed = done.stdout
        if done.returncode:  # of a traceback the page shows the last line
            printed += done.stderr.splitlines()[-1]
        printed = printed.replace(f"{tmp_path}{os.sep}", "")
        assert " ".join(printed.split()) == " ".join(expected.split())


def test_the_generated_parts_are_in_step():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for page, parts in generate.PARTS.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert generate.rendered(text, parts) == text, f"python docs/generate.py rewrites {page}"


@pytest.mark.parametrize("page", PAGES)
def test_every_file_test_and_link_that_a_page_names_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for path, _, test in re.findall(
        r"`((?:tests|src|docs|examples|benchmarks)/[\w./]+)(::(\w+))?`", text
    ):
        assert (ROOT / path).exists(), path
        if test:
            assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert ((ROOT / page).parent / link).exists(), link


def test_code_places_in_the_glossary_name_what_is_there():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    places = re.findall(r"`(\w[\w/]*\.py)(?::([\w.]+))?`", text)
    assert len(places) > 20
    for path, name in places:
        base = ROOT / ("examples" if (ROOT / "examples" / path).exists() else "src/chainrule")
        source = (base / path).read_text(encoding="utf-8")
        for part in filter(None, name.split(".")):
            defined = rf"^\s*(def|class) {part}\b|^{part}\b.* = "
            assert re.search(defined, source, flags=re.MULTILINE), f"{path}:{name}"


def test_the_training_page_has_every_option_and_every_file_of_a_run(tmp_path):
    from chainrule.cli.train import train
    from chainrule.train.rundir import RunDir

    text = (ROOT / "docs" / "train.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE))
    options = {p for p in inspect.signature(train).parameters if p != "context"}
    named = {f"--{'context' if o == 'context_bytes' else o}" for o in options}
    files = {p.name for p in vars(RunDir(tmp_path)).values() if isinstance(p, Path)}
    assert named <= rows
    assert files - {tmp_path.name} <= rows


# Edges of elementwise operations -----------------------------------------------------------------

# Row: points, each with the value and the gradient by each argument (None: not checked).
EDGES = {
    "div": [((1, 0), INF, None), ((-1, 0), -INF, None), ((0, 0), NAN, None)],
    "reciprocal": [((0,), INF, (-INF,))],
    "lt": [((NAN, 1), False, None), ((1, NAN), False, None)],
    "le": [((NAN, 1), False, None), ((1, NAN), False, None)],
    "gt": [((NAN, 1), False, None), ((1, NAN), False, None)],
    "ge": [((NAN, 1), False, None), ((1, NAN), False, None)],
    "eq": [((NAN, NAN), False, None), ((0.0, -0.0), True, None)],
    "ne": [((NAN, NAN), True, None)],
    "logical_and": [((NAN, 1), True, None), ((NAN, 0), False, None)],
    "logical_or": [((NAN, 0), True, None)],
    "logical_not": [((NAN,), False, None)],
    "maximum": [((3, 3), 3, (0.5, 0.5)), ((NAN, 1), NAN, None), ((1, NAN), NAN, None)],
    "minimum": [((3, 3), 3, (0.5, 0.5)), ((NAN, 1), NAN, None), ((1, NAN), NAN, None)],
    "clamp": [
        ((-1, -1, 1), -1, (1, 0, 0)),
        ((1, -1, 1), 1, (1, 0, 0)),
        ((0, 2, 1), 1, (0, 0, 1)),
        ((NAN, -1, 1), NAN, (0, 0, 0)),
    ],
    "abs": [((0,), 0, (0,))],
    "sign": [((0,), 0, None), ((NAN,), NAN, None)],
    "floor": [((2,), 2, (0,))],
    "ceil": [((2,), 2, (0,))],
    "trunc": [((2,), 2, (0,))],
    "round": [((2.5,), 2, (0,)), ((3.5,), 4, (0,)), ((-0.5,), -0.0, (0,))],
    "remainder": [((5, -3), -1, None), ((-5, 3), 1, None), ((5, 0), NAN, None)],
    "fmod": [((5, -3), 2, None), ((-5, 3), -2, None), ((5, 0), NAN, None)],
    "pow": [((0, 0), 1, (0, 0)), ((2, 0), 1, (0, math.log(2))), ((0, 2), 0, (0, 0))],
    "sqrt": [((0,), 0, (INF,)), ((-1,), NAN, None)],
    "rsqrt": [((0,), INF, (-INF,))],
    "hypot": [((0, 0), 0, (0, 0))],
    "hypot_slope": [((0, 0), 0, (0, 0))],
    "log": [((0,), -INF, (INF,)), ((-1,), NAN, None)],
    "log2": [((0,), -INF, None), ((-1,), NAN, None)],
    "log10": [((0,), -INF, None), ((-1,), NAN, None)],
    "log1p": [((-1,), -INF, None), ((-2,), NAN, None)],
    "logaddexp": [((INF, INF), INF, (NAN, NAN)), ((-INF, -INF), -INF, (NAN, NAN))],
    "acosh": [((1,), 0, (INF,)), ((0.5,), NAN, None)],
    "atanh": [((1,), INF, (INF,)), ((-1,), -INF, (INF,)), ((2,), NAN, None)],
    "sin": [((INF,), NAN, None), ((-INF,), NAN, None)],
    "cos": [((INF,), NAN, None), ((-INF,), NAN, None)],
    "tan": [((INF,), NAN, None), ((-INF,), NAN, None)],
    "asin": [((1,), math.pi / 2, (INF,)), ((-1,), -math.pi / 2, (INF,)), ((2,), NAN, None)],
    "acos": [((1,), 0, (-INF,)), ((-1,), math.pi, (-INF,)), ((2,), NAN, None)],
    "atan2": [((0, 0), 0, (0, 0)), ((0.0, -1), math.pi, None), ((-0.0, -1), -math.pi, None)],
    "relu": [((0,), 0, (0,)), ((NAN,), NAN, (1,))],
    "relu6": [((0,), 0, (0,)), ((6,), 6, (0,))],
    "hardtanh": [((-1, -1, 1), -1, (0, 1, 0)), ((1, -1, 1), 1, (0, 0, 1))],
    "leaky_relu": [((0, 0.01), 0, (0.01, 0))],
    "elu": [((0, 1.5), 0, (1.5, 0))],
    "silu": [((-INF,), NAN, None)],
    "mish": [((-INF,), NAN, None)],
    "gelu": [((-INF,), NAN, None)],
    "gelu_tanh": [((-INF,), NAN, None)],
    # For 0 < b < 2⁶⁰: far out, with a large b, the limits are b / 4|x| and x.
    "squareplus": [((-1e30, 2.0**59), 2.0**57 / 1e30, None), ((1e30, 2.0**59), 1e30, (1, None))],
    "squareplus_slope": [((1e30, 2.0**59), 1, None), ((-1e30, 2.0**59), 0, None)],
    "copysign": [((0, 1), 0, (0, 0)), ((2, -0.0), -2, (-1, 0)), ((2, 0.0), 2, (1, 0))],
    "digamma": [((0,), -INF, None), ((-1,), NAN, None), ((-2,), NAN, None)],
    "erfinv": [((1,), INF, None), ((-1,), -INF, None), ((1.5,), NAN, None)],
    "lerp": [((1, 3, 0.5), 2, (0.5, 0.5, 2)), ((1, 3, 1), 3, (0, 1, 2)), ((1, 3, 0), 1, (1, 0, 2))],
    "lgamma": [((0,), INF, None), ((-1,), INF, None), ((INF,), INF, None), ((-INF,), INF, None)],
    "logit": [((1,), INF, None), ((0,), -INF, None), ((1.5,), NAN, None)],
    "polygamma": [((1, 0), INF, None), ((1, -1), INF, None)],
    "sinc": [((0,), 1, (0,))],
    "softsign": [((INF,), NAN, None), ((-INF,), NAN, None)],
    "xlog1py": [((0, INF), 0, None), ((0, NAN), NAN, None), ((0, -2), 0, (0, 0))],
    "xlogy": [((0, INF), 0, None), ((0, NAN), NAN, None), ((0, 0), 0, (0, None))],
}
TAKEN_BRANCH = {"where"}  # has a test of its own below


def test_every_row_that_states_an_edge_has_points_here():
    stated = {row.name for row in TABLE.values() if row.edges}
    assert stated == set(EDGES) | TAKEN_BRANCH


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("name", sorted(EDGES))
def test_every_stated_edge_holds_on_tensors(name, device):
    operation = getattr(cr.ops, name, None) or cr.ops.elementwise.operation(name)
    for point, value, slopes in EDGES[name]:
        xs = [
            cr.tensor(float(p), dtype=cr.float64, device=device, requires_grad=True) for p in point
        ]
        with np.errstate(all="ignore"):
            y = operation(*xs)
        assert y.item() == pytest.approx(value, nan_ok=True, abs=1e-20), (name, point)
        if slopes is None:
            continue
        if y.requires_grad:
            found = cr.autograd.grad(y, xs, allow_unused=True, materialize_grads=True)
            found = [g.item() for g in found]
        else:
            found = [0.0] * len(xs)  # a step: no gradient is recorded
        for got, want in zip(found, slopes, strict=True):
            assert want is None or got == pytest.approx(want, nan_ok=True), (name, point)


def test_the_branch_of_where_that_is_not_taken_has_gradient_0():
    a, b = (cr.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    taken = cr.autograd.grad(cr.where(cr.tensor([True, False]), a, b).sum(), (a, b))
    assert [g.tolist() for g in taken] == [[1.0, 0.0], [0.0, 1.0]]


# Edges of array operations -----------------------------------------------------------------------

ARRAY_EDGES = {
    "ties of amax": (lambda m, x: x.amax(), [1.0, 3.0, 3.0]),
    "ties of amin": (lambda m, x: x.amin(), [1.0, 1.0, 3.0]),
    "ties of max of all": (lambda m, x: x.max(), [1.0, 3.0, 3.0]),
    "NaN in amax": (lambda m, x: x.amax(), [1.0, NAN, 3.0]),
    "ties of max along a dimension": (lambda m, x: x.max(0).values, [1.0, 3.0, 3.0]),
    "ties of min along a dimension": (lambda m, x: x.min(0).values, [1.0, 1.0, 3.0]),
    "norm of zeros": (lambda m, x: m.norm(x), [0.0, 0.0]),
    "1-norm of zeros": (lambda m, x: m.norm(x, 1), [0.0, 0.0]),
    "3-norm of zeros": (lambda m, x: m.norm(x, 3), [0.0, 0.0]),
    "std of equal elements": (lambda m, x: m.std(x, 0, correction=0), [2.0, 2.0]),
    "prod with one zero": (lambda m, x: x.prod(), [0.0, 2.0, 3.0]),
    "prod with two zeros": (lambda m, x: x.prod(), [0.0, 0.0, 3.0]),
    "prod of none": (lambda m, x: x.prod(), []),
    "sum of none": (lambda m, x: x.sum(), []),
    "mean of none": (lambda m, x: x.mean(), []),
    "logsumexp of -inf alone": (lambda m, x: m.logsumexp(x, 0), [-INF, -INF]),
    "softmax of -inf alone": (lambda m, x: m.softmax(x, 0).sum(), [-INF, -INF]),
    "repeated places": (lambda m, x: x[m.tensor([0, 0, 1])].sum(), [1.0, 2.0]),
    "gather of repeated places": (
        lambda m, x: m.gather(x, 0, m.tensor([1, 1, 1])).sum(),
        [1.0, 2.0],
    ),
    "clamp at its bounds": (lambda m, x: m.clamp(x, -1.0, 1.0).sum(), [-1.0, 0.0, 1.0, 2.0]),
    "clamp with min above max": (lambda m, x: m.clamp(x, 2.0, 1.0).sum(), [0.0, 3.0]),
    "cross entropy with every target ignored": (
        lambda m, x: m.nn.functional.cross_entropy(x.reshape(1, 2), m.tensor([-100])),
        [1.0, 2.0],
    ),
    "sum of cross entropies with every target ignored": (
        lambda m, x: m.nn.functional.cross_entropy(
            x.reshape(1, 2), m.tensor([-100]), reduction="sum"
        ),
        [1.0, 2.0],
    ),
    "first of equal elements": (lambda m, x: m.argmax(x), [1.0, 3.0, 3.0]),
    "NaN is the largest": (lambda m, x: m.argmax(x), [1.0, NAN, 3.0]),
    "NaN is the smallest": (lambda m, x: m.argmin(x), [1.0, NAN, 3.0]),
}


def value_and_gradient(module, f, data):
    x = module.tensor(data, dtype=module.float64, requires_grad=True)
    y = f(module, x)
    if not y.requires_grad:
        return y.item(), None
    (g,) = module.autograd.grad(y, x)
    return y.item(), g.tolist()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", sorted(ARRAY_EDGES))
def test_array_edges_follow_pytorch(case):
    f, data = ARRAY_EDGES[case]
    value, gradient = value_and_gradient(cr, f, data)
    want, slope = value_and_gradient(torch, f, data)
    assert value == pytest.approx(want, nan_ok=True)
    assert gradient == (slope if slope is None else pytest.approx(slope, nan_ok=True))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_var_without_degrees_of_freedom_is_nan():
    assert math.isnan(cr.tensor([2.0]).var().item())
    assert math.isnan(cr.tensor([2.0]).std().item())


def test_attention_of_a_row_that_sees_no_key_is_0_and_so_are_its_gradients():
    q, k, v = (cr.randn(1, 2, 4, dtype=cr.float64, requires_grad=True) for _ in range(3))
    mask = cr.tensor([[True, False], [False, False]])
    out = cr.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    grads = cr.autograd.grad(out.sum(), (q, k, v))
    assert out[0, 1].tolist() == [0.0] * 4
    assert grads[0][0, 1].tolist() == [0.0] * 4
    assert all(np.isfinite(g.numpy()).all() for g in grads)


# Dtypes ------------------------------------------------------------------------------------------

REAL = [d for d in ALL if not d.is_complex]


@pytest.mark.parametrize("first", REAL, ids=lambda d: d.name)
def test_promotion_is_pytorchs(first):
    shapes = (), (1,)
    for second in REAL:
        for a, b in itertools.product(shapes, shapes):
            ours = cr.zeros(a, dtype=first) + cr.zeros(b, dtype=second)
            theirs = torch.zeros(a, dtype=getattr(torch, first.name)) + torch.zeros(
                b, dtype=getattr(torch, second.name)
            )
            assert f"torch.{ours.dtype.name}" == str(theirs.dtype), (second, a, b)
    for number in (True, 1, 1.0):
        for shape in shapes:
            ours = cr.zeros(shape, dtype=first) + number
            theirs = torch.zeros(shape, dtype=getattr(torch, first.name)) + number
            assert f"torch.{ours.dtype.name}" == str(theirs.dtype), (number, shape)


@pytest.mark.parametrize("name", sorted(n for n, row in TABLE.items() if row.arity == 1))
def test_integers_become_what_the_page_says(name):
    row = TABLE[name]
    operation = cr.ops.elementwise.operation(name)
    with np.errstate(all="ignore"):
        result = operation(cr.tensor([1], dtype=cr.int32)).dtype
    want = {"same": cr.int32, "float": cr.float32, "bool": cr.bool}[row.result]
    assert result is want


# The project's own description -------------------------------------------------------------------


def test_the_newest_entry_of_the_changelog_is_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[?(\d[\w.]*)", text, flags=re.MULTILINE)[1] == cr.__version__
