"""The command line: `chainrule COMMAND`. One module a command; typer is loaded when it runs.

A mistake of the user's is one sentence on stderr and exit code 1 (2 for a wrong option), never a
traceback. A command is a function in a module of this package, named in `COMMANDS`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

COMMANDS = {
    "check": "chainrule.cli.check:check",
    "train": "chainrule.cli.train:train",
}
"""Command → the function that runs it and may return an exit code.

Its signature gives the options, its docstring the help.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; the console script's entry point."""
    import typer

    app = typer.Typer(
        name="chainrule",
        help="A tensor library with glass walls.",
        add_completion=False,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def options(  # pyright: ignore[reportUnusedFunction]
        version: bool = typer.Option(
            False, "--version", is_eager=True, help="Print the version and stop.", callback=_version
        ),
    ) -> None:
        pass

    for name, place in COMMANDS.items():
        module, function = place.split(":")
        app.command(name)(_guarded(getattr(importlib.import_module(module), function)))

    try:
        app(args=arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


def _guarded(command: Callable[..., int | None]) -> Callable[..., None]:
    """The command, ending in an exit code whatever happens short of a bug."""

    @functools.wraps(command)
    def guarded(*positional: Any, **named: Any) -> None:
        from chainrule.errors import ChainruleError

        try:
            code = command(*positional, **named)
        except ChainruleError as error:
            sys.stderr.write(f"chainrule: {error}\n")
            code = 1
        except KeyboardInterrupt:
            sys.stderr.write("chainrule: stopped.\n")
            code = 130
        raise SystemExit(code or 0)

    return guarded


def _version(asked: bool) -> None:
    if asked:
        import typer

        from chainrule._version import __version__

        typer.echo(f"chainrule {__version__}")
        raise typer.Exit
