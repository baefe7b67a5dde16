"""gradcheck and gradgradcheck: a backward against central differences, in every memory layout.

PyTorch's keywords and meanings, for our functions and PyTorch's. The Jacobian is judged once, at the
inputs as given; each layout of an input or an incoming gradient is then one more run whose right
answer follows from that Jacobian. Real inputs only: complex ones are refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.check import evidence, jacobian, sweep
from chainrule.check.judge import Judge
from chainrule.check.layouts import Form, contiguous
from chainrule.check.problem import BackwardError, Problem, argument_names, require_inputs, title_of
from chainrule.check.report import PrecisionWarning, Report
from chainrule.errors import InputError

Raw = Any


def _unsupported(asked: dict[str, bool]) -> None:
    for keyword, on in asked.items():
        if on:
            raise InputError(
                f"{keyword}=True is not offered: this check judges reverse-mode gradients of one "
                "call; leave the keyword out"
            )


def _require_tolerances(problem: Problem, eps: float, **tolerances: float) -> None:
    """Raise unless the inputs can be differenced with steps of `eps`."""
    require_inputs(problem)
    if not 0 < eps < float("inf"):
        raise InputError(f"eps={eps:g}: the step of the differences is a number above 0, say 1e-6")
    for keyword, value in tolerances.items():
        if not value >= 0:
            raise InputError(f"{keyword}={value:g}: a tolerance is a number of at least 0")
    for i in problem.wanted:
        held = problem.values[i].astype(problem.dtypes[i])
        up, down = ((held + s * eps).astype(held.dtype) for s in (1.0, -1.0))
        if np.any((up == down) & np.isfinite(held)):
            largest = float(np.max(np.abs(held[np.isfinite(held)])))
            raise InputError(
                f"eps={eps:g} is lost in the rounding of {problem.names[i]}, {problem.dtypes[i]} "
                f"with elements up to {largest:g}: take a larger eps or smaller inputs"
            )


def examine(
    fn: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    fast_mode: bool = False,
    layouts: bool = True,
    names: Sequence[str] | None = None,
    title: str = "",
    constant: bool = False,
) -> Report:
    """Run `gradcheck` and return its whole `Report`, passed or failed.

    With `constant`, a function whose outputs depend on no input passes if the differences agree.

    Raises `InputError` when no input requires a gradient, no output can be differentiated or a
    tolerance makes no sense, `DTypeError` for half and complex types, `LayoutError` for an input
    whose elements share memory.
    """
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    problem = Problem(fn, args, names)
    _require_tolerances(problem, eps, atol=atol, rtol=rtol, nondet_tol=nondet_tol)
    coarse = [problem.names[i] for i in problem.wanted if problem.dtypes[i] == "float32"]
    if coarse:
        warnings.warn(
            f"{', '.join(coarse)}: float32 inputs have too few digits for differences with step "
            f"{eps:g}; expect false alarms, or use float64 or check.against",
            PrecisionWarning,
            stacklevel=3,
        )
    report = Report(title or f"gradcheck of {title_of(fn)}")
    judge = Judge(problem, report, eps, atol, rtol, nondet_tol)
    if not jacobian.steady(judge):
        return report
    if not judge.which:
        jacobian.not_on_tape(judge, constant)
        return report
    try:
        if jacobian.projected(judge) if fast_mode else jacobian.whole(judge):
            jacobian.reentrant(judge)
            if check_grad_dtypes:
                jacobian.dtypes(judge)
            if check_undefined_grad:
                jacobian.undefined(judge)
        if layouts:
            sweep.gradient_layouts(judge)
            sweep.input_layouts(judge)
            sweep.together(judge)
    except BackwardError as error:
        judge.add_raised("backward", error)
    evidence.explain(judge)
    return report


def gradcheck(
    fn: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    layouts: bool = True,
) -> bool:
    """True when the gradients of `fn` at `inputs` agree with central differences in every layout.

    `fn` takes the inputs (chainrule or PyTorch tensors, float64) and returns a tensor or several; it
    must be deterministic. An element passes when |analytic - numeric| <= atol + rtol * |numeric|.
    With `layouts`, every input and incoming gradient is also transposed, sliced with an offset,
    expanded and, for chainrule tensors, flipped. `fast_mode` compares one random projection of the
    Jacobian. Two backward runs may differ by `nondet_tol`. Raises `GradcheckError` (a `CheckError`)
    with one row a layout, or returns False when `raise_exception` is false.
    """
    _unsupported(
        {
            "check_batched_grad": check_batched_grad,
            "check_batched_forward_grad": check_batched_forward_grad,
            "check_forward_ad": check_forward_ad,
        }
    )
    if not check_backward_ad:
        raise InputError("check_backward_ad=False leaves nothing to check")
    report = examine(
        fn,
        inputs,
        eps=eps,
        atol=atol,
        rtol=rtol,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        fast_mode=fast_mode,
        layouts=layouts,
    )
    return _verdict(report, raise_exception)


def gradgradcheck(
    fn: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    layouts: bool = True,
) -> bool:
    """True when the gradients of the gradients of `fn` agree with central differences.

    `grad_outputs` are the incoming gradients of the first backward, random where None; they are
    inputs of the check too. With `gen_non_contig_grad_outputs` the random ones are strided, as in
    PyTorch. The rest is as in `gradcheck`.
    """
    _unsupported(
        {"check_batched_grad": check_batched_grad, "check_fwd_over_rev": check_fwd_over_rev}
    )
    if not check_rev_over_rev:
        raise InputError("check_rev_over_rev=False leaves nothing to check")
    report = examine_twice(
        fn,
        inputs,
        grad_outputs,
        strided=gen_non_contig_grad_outputs,
        eps=eps,
        atol=atol,
        rtol=rtol,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        fast_mode=fast_mode,
        layouts=layouts,
    )
    return _verdict(report, raise_exception)


def examine_twice(
    fn: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    strided: bool = False,
    **keywords: Any,
) -> Report:
    """Run `gradgradcheck` and return its whole `Report`; keywords as in `examine`."""
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    first = Problem(fn, args)
    require_inputs(first)
    h, call = first.host, first.call()
    outputs = first.outputs(call)
    which = [o for o, t in enumerate(outputs) if h.requires_grad(t)]
    title = f"gradgradcheck of {title_of(fn)}"
    if not which:
        raise InputError(
            f"no output of {title_of(fn)} is on the tape, so there is no second derivative to check"
        )
    if grad_outputs is None:
        grads = tuple(_random_gradient(first, outputs[o], o, strided) for o in which)
    else:
        grads = tuple(grad_outputs) if isinstance(grad_outputs, (tuple, list)) else (grad_outputs,)
    if len(grads) != len(which):
        raise InputError(
            f"{title_of(fn)} has {len(which)} outputs that want a gradient, got {len(grads)} "
            "grad_outputs"
        )

    def backward(*both: Any) -> tuple[Any, ...]:
        mine, incoming = both[: len(args)], both[len(args) :]
        result: Any = fn(*mine)
        many: tuple[Any, ...] = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        tensors = [t for t in many if h.is_tensor(t)]
        wanted = [mine[i] for i in first.wanted]
        found = h.grad([tensors[o] for o in which], wanted, list(incoming), True)
        given = tuple(g for g in found if g is not None)
        if not given:
            raise InputError(
                f"the backward of {first.title} returns no gradient, so there is no second "
                "derivative to check"
            )
        return given

    names = [*argument_names(fn, len(args)), *_gradient_names(len(grads))]
    keywords = {"title": title, "constant": True, **keywords}  # a linear function is right too
    try:
        report = examine(backward, (*args, *grads), names=names, **keywords)
    except (InputError, TypeError):
        raise
    except Exception as error:  # the first backward of a user's function may raise anything
        report = Report(keywords["title"])
        Judge(first, report).add_raised("backward", error)
        return report
    if not report:
        known = [call.args[i] for i in first.tensors] + outputs
        for o in which:
            count = h.saved_intermediates(outputs[o], known)
            if count:
                report.evidence.append(
                    f"{h.operation(outputs[o])} saves {count} tensor(s) that are neither inputs "
                    "nor outputs: their dependence on the inputs is lost when the backward is "
                    "differentiated; recompute them in backward, or return them as outputs"
                )
    return report


def _gradient_names(count: int) -> list[str]:
    return ["g"] if count == 1 else [f"g{o}" for o in range(count)]


def _random_gradient(problem: Problem, output: Any, o: int, strided: bool) -> Any:
    shape = tuple(output.shape)
    form = contiguous(shape)
    if strided and shape:
        form = Form("strided", shape, tuple(2 * s for s in form.strides))
    values: Raw = np.random.default_rng(7 + o).standard_normal(shape)
    return problem.host.leaf(problem.gradient(form.place(values), form, output))


def _verdict(report: Report, raise_exception: bool) -> bool:
    if raise_exception:
        report.raise_if_failed()
    return bool(report)
