"""The package's public names: all that is imported, nothing by accident."""

from __future__ import annotations

import ast
from pathlib import Path

import chainrule as cr


def test_all_lists_exactly_what_the_package_imports() -> None:
    tree = ast.parse(Path(cr.__file__).read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    }
    public = {n for n in imported if not n.startswith("_") or n == "__version__"}
    assert sorted(cr.__all__) == sorted(public)


def test_importing_brings_no_optional_dependency() -> None:
    import subprocess
    import sys

    code = (
        "import sys, chainrule; heavy = {'torch', 'rich', 'typer', 'matplotlib', 'scipy', "
        "'hypothesis'} & set(sys.modules); raise SystemExit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
