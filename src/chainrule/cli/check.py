"""`chainrule check FILE:FN`: judge a backward or a kernel in every memory layout, one row each.

Loads the user's file, finds or makes the inputs, runs `chainrule.check` and prints its report.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module, util
from pathlib import Path
from typing import Annotated, Any

import typer

from chainrule.check import Report, against, examine, examine_twice
from chainrule.errors import ChainruleError, InputError

Raw = Any


def check(
    target: Annotated[
        str,
        typer.Argument(metavar="FILE:FN", help="A Python file and the function to check in it."),
    ],
    reference: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="[FILE:]REF",
            help="Judge by this plain function, run in float64, instead of finite differences: for "
            "kernels and half types.",
        ),
    ] = "",
    inputs: Annotated[
        str,
        typer.Option(
            "--inputs",
            metavar="[FILE:]NAME",
            help="A function that returns the inputs (with --against it may take sizes), or a tuple "
            "of them.",
        ),
    ] = "",
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="N,N,…",
            help="One input of random numbers, each time it is given; '' is a scalar.",
        ),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="Of the --shape inputs; float64, with --against float32.", show_default=False
        ),
    ] = "",
    host: Annotated[
        str,
        typer.Option(
            metavar="chainrule|torch",
            help="Whose tensors --shape makes; torch where FILE imports PyTorch.",
            show_default=False,
        ),
    ] = "",
    seed: Annotated[int, typer.Option(help="Of the --shape inputs.")] = 0,
    second: Annotated[
        bool, typer.Option("--second", help="Check the second derivative (gradgradcheck).")
    ] = False,
    sizes: Annotated[
        str,
        typer.Option(
            metavar="edges|N;N,N;…",
            help="With --against and an --inputs function of sizes: which sizes to try.",
        ),
    ] = "",
    block: Annotated[
        int, typer.Option(help="The kernel's block, whose neighbours --sizes edges tries.")
    ] = 64,
    fast: Annotated[
        bool, typer.Option("--fast", help="One random projection instead of the whole Jacobian.")
    ] = False,
    layouts: Annotated[bool, typer.Option(help="Sweep the memory layouts.")] = True,
    eps: Annotated[float, typer.Option(help="The step of the differences.")] = 1e-6,
    atol: Annotated[float, typer.Option(help="Allowed absolute error.")] = 1e-5,
    rtol: Annotated[
        float, typer.Option(help="Allowed error relative to the numeric value.")
    ] = 1e-3,
) -> int:
    """Check that a function's gradients are right, in every memory layout.

    Inputs, the first that is there: --inputs, --shape, FN.example_inputs, `inputs` in FILE.

    FN: a Function of chainrule or PyTorch (its apply is checked), a module, a function of tensors.

    Exit code: 0 when it passes, 1 when a row fails, 2 when nothing could be judged.
    """
    try:
        report = _report(
            target, reference, inputs, shape, dtype, host, seed, sizes, block,
            second=second, layouts=layouts, eps=eps, atol=atol, rtol=rtol, fast=fast,
        )  # fmt: skip
    except ChainruleError as error:
        sys.stderr.write(f"chainrule check: {error}\n")
        return 2
    typer.echo(str(report))
    return 0 if report else 1 if report.judged else 2


def _report(
    target: str,
    reference: str,
    inputs: str,
    shape: list[str] | None,
    dtype: str,
    host: str,
    seed: int,
    sizes: str,
    block: int,
    *,
    second: bool,
    layouts: bool,
    eps: float,
    atol: float,
    rtol: float,
    fast: bool,
) -> Report:
    if seed < 0:
        raise InputError(f"--seed {seed}: write a whole number of at least 0")
    if dtype in ("float16", "bfloat16") and not reference:
        raise InputError(
            f"--dtype {dtype} is too coarse for finite differences: give --against REF, a plain "
            "function to judge by, or leave float64"
        )
    module, found, name = _find(target)
    fn = _function(found, name)
    if shape and not inputs:
        args: Any = _random(
            shape, dtype or ("float32" if reference else "float64"), host, module, seed
        )
    else:
        args = _inputs(inputs, module, found, target)
    if reference:
        other = _function(*_find(reference, module)[1:])
        if sizes and not callable(args):
            raise InputError("--sizes needs --inputs to name a function of sizes")
        given = (args,) if callable(args) else args
        takes_sizes = callable(args) and _parameters(args)
        if callable(args) and not takes_sizes:
            given = _tuple(_run(args, "the function of the inputs"))
        chosen = _sizes(sizes) if takes_sizes else None
        return against(fn, other, *given, layouts=layouts, sizes=chosen, block=block)
    if callable(args):
        if _parameters(args):
            raise InputError(
                "an inputs function of sizes is for --against; here it takes no argument"
            )
        args = _tuple(_run(args, "the function of the inputs"))
    judge = examine_twice if second else examine
    try:
        return judge(fn, args, layouts=layouts, eps=eps, atol=atol, rtol=rtol, fast_mode=fast)
    except ChainruleError:
        raise
    except Exception as error:  # the user's forward may raise anything
        raise InputError(f"{name} raised {type(error).__name__}: {error}") from error


def _run(fn: Callable[[], Any], what: str) -> Any:
    try:
        return fn()
    except Exception as error:  # the user's code may raise anything
        raise InputError(f"{what} raised {type(error).__name__}: {error}") from error


def _find(place: str, default: Any = None) -> tuple[Any, Any, str]:
    """(module, object, name) of `FILE:NAME`, or of NAME in the module `default`."""
    file, colon, name = place.rpartition(":")
    if not colon and default is None:
        raise InputError(f"{place!r} names no function: write FILE:FN, such as ops.py:softmax")
    module = _load(Path(file)) if colon else default
    found = module
    for part in name.split("."):
        if not part or not hasattr(found, part):
            near = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
            raise InputError(
                f"{file or module.__name__} has no {name!r}; it defines {', '.join(near) or 'nothing'}"
            )
        found = getattr(found, part)
    return module, found, name


def _load(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"{path} is not a file: write FILE:FN, such as ops.py:softmax")
    name = path.stem
    place = str(path.resolve())
    for module in list(sys.modules.values()):
        if getattr(module, "__chainrule_checked__", None) == place:
            return module
    spec = util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = util.module_from_spec(spec)
    module.__dict__["__chainrule_checked__"] = place
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules.setdefault(name, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's code may raise anything
        if sys.modules.get(name) is module:
            del sys.modules[name]
        raise InputError(f"{path} raised {type(error).__name__}: {error}") from error
    return module


def _function(found: Any, name: str) -> Callable[..., Any]:
    if isinstance(found, type) and callable(getattr(found, "apply", None)):
        return found.apply  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportAttributeAccessIssue]
    if not callable(found):
        raise InputError(f"{name} is not a function, but a {type(found).__name__}")
    return found


def _inputs(inputs: str, module: Any, found: Any, target: str) -> Any:
    """The inputs as a tuple, or a function that makes them."""
    if inputs:
        args = _find(inputs, module)[1]
    elif hasattr(found, "example_inputs"):
        args = found.example_inputs
    elif hasattr(module, "inputs"):
        args = module.inputs
    else:
        raise InputError(
            f"no inputs for {target}: give --shape 3,4 for each input, or define a function "
            "inputs() in the file that returns them"
        )
    return args if callable(args) and not hasattr(args, "requires_grad") else _tuple(args)


def _tuple(args: Any) -> tuple[Any, ...]:
    return tuple(args) if isinstance(args, (tuple, list)) else (args,)


def _parameters(fn: Callable[..., Any]) -> int:
    from inspect import Parameter, signature

    return sum(p.default is Parameter.empty for p in signature(fn).parameters.values())


def _sizes(text: str) -> str | list[tuple[int, ...]]:
    if text in ("", "edges"):
        return "edges"
    return [_numbers(part, "--sizes") for part in text.split(";")]


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        sizes = (-1,)
    if any(n < 0 for n in sizes):
        raise InputError(f"{option} {text!r}: write whole numbers with commas, such as 3,4")
    return sizes


def _random(shapes: list[str], dtype: str, host: str, module: Any, seed: int) -> tuple[Any, ...]:
    """Seeded standard normal inputs that require gradients."""
    import numpy as np

    torch = sys.modules.get("torch")
    uses_torch = torch is not None and any(
        v is torch or str(getattr(v, "__module__", "")).startswith("torch")
        for v in vars(module).values()
    )
    chosen = host or ("torch" if uses_torch else "chainrule")
    if chosen not in ("torch", "chainrule"):
        raise InputError(f"--host {chosen!r}: write chainrule or torch")
    try:
        namespace: Any = import_module(chosen)
    except ImportError as error:
        raise InputError(f"--host {chosen}: it is not installed") from error
    kind = getattr(namespace, dtype, None)
    if kind is None or "float" not in dtype:
        raise InputError(f"--dtype {dtype!r}: write float64, float32, float16 or bfloat16")
    rng = np.random.default_rng(seed)
    made: list[Any] = []
    for text in shapes:
        values: Raw = rng.standard_normal(_numbers(text, "--shape"))
        tensor = namespace.tensor(np.asarray(values), dtype=kind)
        tensor.requires_grad_()
        made.append(tensor)
    return tuple(made)
