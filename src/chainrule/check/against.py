"""check.against: a function or kernel that cannot run in float64, against a reference that can.

The yardstick is the reference itself: run in float64 it is the truth, run in the function's own dtype
it shows how much error that dtype cannot avoid. Layouts, sizes and guard regions as `gradcheck`'s.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from chainrule.check.hosts import host_of
from chainrule.check.problem import title_of
from chainrule.check.report import Report
from chainrule.check.trial import Trial
from chainrule.errors import InputError


def against(
    fn: Callable[..., Any],
    reference: Callable[..., Any],
    *inputs: Any,
    layouts: bool = True,
    sizes: str | Iterable[Any] | None = None,
    gradients: bool = True,
    block: int = 64,
    factor: float = 2.0,
) -> Report:
    """Judge `fn` by a plain `reference` with the same arguments; returns a `Report`.

    The error of every output and gradient against `reference` in float64 may be at most `factor`
    times that of `reference` in the inputs' own dtype, in its maximum and its root mean square;
    a correctly rounded result counts as the least error the dtype allows. Gradients are judged for
    the inputs that require one, or for all floating inputs where none does.

    `inputs` are the arguments (chainrule or PyTorch tensors of any floating dtype, and anything
    else), or one function of sizes that returns them. With such a function, `sizes` is `"edges"`
    (0, 1, `block` - 1, `block`, `block` + 1 for all sizes together and for each alone) or a list of
    sizes; each entry an int or a tuple of ints. With `layouts`, inputs and incoming gradients are
    swept as in `gradcheck`, and `out=`, where `fn` has it, is given poisoned buffers.

    Raises `InputError` for arguments that make no sense and when the reference leaves float64,
    returns no tensor, or cannot be differentiated at inputs that require a gradient.
    """
    report = Report(f"{title_of(fn)} against {title_of(reference)}")
    factory = inputs[0] if len(inputs) == 1 and callable(inputs[0]) else None
    if factory is not None and not _is_tensor(factory):
        for size in _sizes(factory, sizes, block):
            made: Any = factory(*size)
            args = tuple(made) if isinstance(made, (tuple, list)) else (made,)
            prefix = f"size {', '.join(map(str, size))} "
            Trial(fn, reference, args, report, prefix, gradients, factor).run(layouts)
    elif sizes is not None:
        raise InputError(
            "sizes need a function that makes the inputs of a size: "
            "check.against(fn, reference, lambda n: torch.randn(n, n), sizes='edges')"
        )
    else:
        Trial(fn, reference, inputs, report, "", gradients, factor).run(layouts)
    return report


def _is_tensor(x: Any) -> bool:
    try:
        host_of([x])
    except InputError:
        return False
    return True


def _sizes(
    factory: Callable[..., Any], sizes: str | Iterable[Any] | None, block: int
) -> list[tuple[int, ...]]:
    if sizes is not None and not isinstance(sizes, str):
        return [tuple(s) if isinstance(s, (tuple, list)) else (int(s),) for s in sizes]
    if sizes not in (None, "edges"):
        raise InputError(f"sizes={sizes!r}: give 'edges', or a list of sizes")
    empty = inspect.Parameter.empty
    count = sum(
        p.default is empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        for p in inspect.signature(factory).parameters.values()
    )
    if not count:
        raise InputError("the function that makes the inputs takes no size: give it one parameter")
    edges = sorted({0, 1, max(block - 1, 0), block, block + 1})
    found = [(n,) * count for n in edges]
    if count > 1:
        for at in range(count):
            found += [tuple(n if d == at else block + 1 for d in range(count)) for n in edges]
    return list(dict.fromkeys(found))
