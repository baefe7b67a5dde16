"""`chainrule train`: options in, one `TrainConfig` out; the work is `chainrule.train`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from chainrule.train.config import DTYPES, SIZES, TrainConfig


def train(
    context: typer.Context,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DIR|GLOB",
            help="The text to learn. Default: the source of Python's standard library.",
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        str, typer.Option(metavar="|".join(SIZES), help="The model's size.")
    ] = TrainConfig.size,
    steps: Annotated[int, typer.Option(help="Steps of the optimiser.")] = TrainConfig.steps,
    batch: Annotated[
        int | None, typer.Option(help="Windows in a batch. Default: what suits the size.")
    ] = None,
    context_bytes: Annotated[
        int | None,
        typer.Option("--context", help="Bytes in a window. Default: what suits the size."),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="The highest rate. Default: what suits the size.")
    ] = None,
    warmup: Annotated[
        int, typer.Option(help="Steps until the rate is highest.")
    ] = TrainConfig.warmup,
    dtype: Annotated[
        str, typer.Option(metavar="|".join(DTYPES), help="Of the weights and the arithmetic.")
    ] = TrainConfig.dtype,
    seed: Annotated[
        int, typer.Option(help="The same seed gives the same losses, to the last bit.")
    ] = TrainConfig.seed,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The run folder. Default: the next of runs/001, runs/002, …",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in --out (default: the last in runs/)."),
    ] = False,
) -> int:
    """Train a small GPT on bytes of text, and leave a folder with the model and a report.

    Ctrl-C saves and says where; --resume goes on exactly from there.
    """
    from chainrule.train import run

    config = TrainConfig(
        text=text,
        size=size,
        steps=steps,
        batch=batch,
        context=context_bytes,
        lr=lr,
        warmup=warmup,
        dtype=dtype,
        seed=seed,
        out=out,
        resume=resume,
    )
    return run(config, given=_given(context)).exit_code


def _given(context: typer.Context) -> frozenset[str]:
    """The options that stood on the command line, by their names in `TrainConfig`."""
    names = {"context_bytes": "context"}
    given: set[str] = set()
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            given.add(names.get(name, name))
    return frozenset(given)
