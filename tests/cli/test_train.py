"""The command: options reach the run, mistakes are one sentence, help and version come fast."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import chainrule.train
from chainrule import __version__
from chainrule.cli import COMMANDS, main
from chainrule.errors import InputError
from chainrule.train import TrainConfig

SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def asked(monkeypatch):
    """What the command would run, without running it."""
    calls = []

    class Outcome:
        exit_code = 0

    def record(config, *, given):
        calls.append((config, given))
        return Outcome

    monkeypatch.setattr(chainrule.train, "run", record)
    return calls


def test_without_options_the_defaults_run(asked):
    assert main(["train"]) == 0
    assert asked == [(TrainConfig(), frozenset())]


def test_every_option_reaches_the_run(asked):
    options = {
        "text": "a.txt", "size": "micro", "steps": 7, "batch": 3, "context": 32, "lr": 0.25,
        "warmup": 2, "dtype": "float64", "seed": 9, "out": "somewhere",
    }  # fmt: skip
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    assert main(["train", *arguments, "--resume"]) == 0
    ((config, given),) = asked
    assert config == TrainConfig(**options, resume=True)
    assert given == {*options, "resume"}


def test_a_runs_exit_code_is_the_commands(monkeypatch):
    class Outcome:
        exit_code = 130

    monkeypatch.setattr(chainrule.train, "run", lambda config, given: Outcome)
    assert main(["train"]) == 130


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("The text is empty."), 1, "chainrule: The text is empty.\n"),
        (KeyboardInterrupt(), 130, "chainrule: stopped.\n"),
    ],
)
def test_an_error_is_one_sentence(monkeypatch, capsys, error, code, said):
    def fail(config, given):
        raise error

    monkeypatch.setattr(chainrule.train, "run", fail)
    assert main(["train"]) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--steps", "0"], 1, "chainrule: --steps is 0: it has to be at least 1."),
        (["--size", "huge"], 1, "chainrule: There is no size 'huge': choose one of nano, micro"),
        (["--text", "no/such/file"], 1, "chainrule: There is no file or folder no/such/file"),
        (["--resume", "--out", "no/such/run"], 1, "chainrule: There is no run folder no/such/run"),
        (["--steps", "many"], 2, "Invalid value for '--steps'"),
        (["--stepps", "5"], 2, "No such option"),
    ],
)
def test_mistakes_are_said_on_stderr(tmp_path, monkeypatch, capsys, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == code
    err = capsys.readouterr().err
    assert said in " ".join(err.split())
    assert "Traceback" not in err
    assert os.listdir(tmp_path) == []


def test_the_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"chainrule {__version__}\n"


def test_help_names_every_command_and_option(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    for name in ("text", "size", "steps", "batch", "context", "lr", "warmup", "dtype", "seed"):
        assert f"--{name}" in shown


def test_without_a_command_the_help_is_shown(capsys):
    assert main([]) == 2
    assert "train" in "".join(capsys.readouterr())


def test_importing_the_library_loads_no_command_line():
    code = (
        "import sys, chainrule, chainrule.cli\n"
        "print(sorted({'rich', 'typer', 'click', 'torch', 'chainrule.train'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"
