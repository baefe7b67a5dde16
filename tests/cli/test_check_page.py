"""docs/check.md shows what the command prints: every listing on the page is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chainrule.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
FILES = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"```console\n\$ chainrule (.*?)\n(.*?)```", PAGE, re.DOTALL)


def plain(text):
    """Without the digits that another processor may round differently, and trailing blanks."""
    return [re.sub(r"\d+\.\d+(e[-+]\d+)?", "#", line).rstrip() for line in text.strip().split("\n")]


@pytest.mark.parametrize(("command", "printed"), COMMANDS)
def test_the_page_shows_what_the_command_prints(command, printed, tmp_path, monkeypatch, capsys):
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == (1 if "FAIL" in printed else 0)
    assert plain(capsys.readouterr().out) == plain(printed)


def test_the_page_has_its_listings():
    assert len(FILES) == 2
    assert len(COMMANDS) == 3
