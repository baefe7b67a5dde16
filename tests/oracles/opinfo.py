"""Runs PyTorch's own OpInfo samples through our operations and judges every result.

OpInfo is the table from which PyTorch tests itself: sample inputs, dtypes and wrong calls for each
operation. It is private to PyTorch, so the version is pinned (`pyproject.toml`); `mapping` says
which of our functions answers which entry. Relies on PyTorch alone for what is right.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.oracles.mapping import TABLE, Entry

import chainrule as cr

torch = pytest.importorskip("torch", reason="PyTorch is the oracle here, and it is not installed")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

FLOATS = ("float64", "float32", "float16", "bfloat16")
NARROW = ("int32", "int16", "int8", "uint8")  # the two devices in turn
WHOLE = ("int64", "int32", "int16", "int8", "uint8", "bool")

# How far a result may be from PyTorch's in the same dtype: (relative, absolute). Whoever is
# further away is judged against PyTorch in float64 instead, see `no_worse`.
TOLERANCE = {
    # Both sides round once an operation (1.1e-16); sums and powers of a sample's 20 to 1,000
    # numbers of size 10 differ by their order. A wrong formula differs by far more than 1e-10.
    "float64": (1e-10, 1e-11),
    # 16 roundings of 6e-8: transcendental functions within 2 to 5 ulp on each side.
    "float32": (1e-6, 1e-6),
    # One rounding of the result (4.9e-4) on each side; computed in float32 in between.
    "float16": (1e-3, 1e-4),
    # One rounding of the result (3.9e-3) on each side; computed in float32 in between.
    "bfloat16": (8e-3, 1e-3),
}
# The layouts in which an incoming gradient arrives, in turn.
INCOMING = ("contiguous", "transposed", "sliced", "flipped")


@cache
def infos() -> dict[str, Any]:
    """Every OpInfo entry by its full name, `div.no_rounding_mode` for a variant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {op.full_name: op for op in op_db}


@dataclass
class Result:
    """What became of the samples of one operation."""

    name: str
    samples: int = 0
    passed: int = 0
    unsupported: Counter[str] = field(default_factory=Counter)
    differs: Counter[str] = field(default_factory=Counter)
    wrong_calls: int = 0
    raised: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


class Unsupported(Exception):
    """A sample holds something that has no counterpart in ours."""


class Pair:
    """One call in both libraries: the same numbers in the same memory layout."""

    def __init__(self, sample: Any, device: str, wider: bool = False) -> None:
        self.device = device
        self.leaves: list[tuple[Any, Any]] = []
        self.wider = wider
        self.placed = False  # whether anything says on which device the result is
        self._made: dict[int, tuple[Any, Any]] = {}
        both = self._both((sample.input, tuple(sample.args), dict(sample.kwargs)))
        self.ours, self.theirs = both

    def _both(self, x: Any) -> tuple[Any, Any]:
        if isinstance(x, torch.Tensor):
            if id(x) not in self._made:
                self._made[id(x)] = self._tensors(x)
            return self._made[id(x)]
        if isinstance(x, torch.dtype):
            return getattr(cr, name_of(x)), x
        if isinstance(x, torch.device):
            self.placed = True
            return self.device, x
        if isinstance(x, torch.memory_format):
            return str(x), x
        if isinstance(x, slice):
            parts = [self._both(v) for v in (x.start, x.stop, x.step)]
            return slice(*[p[0] for p in parts]), slice(*[p[1] for p in parts])
        if isinstance(x, (tuple, list)):
            parts = [self._both(v) for v in x]
            kind = list if isinstance(x, list) else tuple
            return kind(p[0] for p in parts), kind(p[1] for p in parts)
        if isinstance(x, dict):
            parts = {k: self._both(v) for k, v in x.items()}
            return {k: v[0] for k, v in parts.items()}, {k: v[1] for k, v in parts.items()}
        if isinstance(x, str) and x == "cpu":
            self.placed = True
            return self.device, x
        if x is None or x is ... or isinstance(x, (bool, int, float, str, np.generic, np.ndarray)):
            return x, x
        raise Unsupported(f"{type(x).__name__} arguments")

    def _tensors(self, x: Any) -> tuple[Any, Any]:
        self.placed = True
        theirs = x.detach()
        if self.wider:
            theirs = theirs.double() if x.is_floating_point() else theirs
            return None, theirs
        ours = from_torch(theirs, self.device)
        if x.requires_grad:
            ours.requires_grad_()
            theirs.requires_grad_()
            self.leaves.append((ours, theirs))
        return ours, theirs


def name_of(dtype: Any) -> str:
    """`float32`, of a dtype of either library."""
    return str(dtype).rpartition(".")[2]


def from_torch(t: Any, device: str) -> Any:
    """Our tensor with the numbers, shape, strides and offset of `t`; memory of its own."""
    if t.dtype.is_complex:
        raise Unsupported("complex numbers")
    whole = t.is_contiguous() and t.untyped_storage().nbytes() == t.numel() * t.element_size()
    if whole or not t.numel():
        return cr.tensor(numpy_of(t.contiguous()), device=device)
    size = t.untyped_storage().nbytes() // t.element_size()
    flat = cr.tensor(numpy_of(t.as_strided((size,), (1,), 0)), device=device)
    return flat.as_strided(tuple(t.shape), t.stride(), t.storage_offset())


def numpy_of(t: Any) -> np.ndarray:
    """A copy of a torch tensor as an array, bfloat16 too."""
    t = t.detach()
    if t.dtype == torch.bfloat16:
        return t.view(torch.int16).numpy().copy().view(ml_dtypes.bfloat16)
    return t.resolve_neg().resolve_conj().numpy().copy()


def host(t: Any) -> np.ndarray:
    """The values of a tensor of either library; halves as float32."""
    if isinstance(t, torch.Tensor):
        t = t.detach()
        return (t.float() if t.dtype in (torch.float16, torch.bfloat16) else t).numpy(force=True)
    a = t.detach().numpy()
    return a.astype(np.float32) if t.dtype.is_half else a


def flat(out: Any) -> list[Any]:
    """The outputs of a call, in order."""
    if isinstance(out, (tuple, list)):
        return [y for part in out for y in flat(part)]
    return [out]


def samples(info: Any, dtype: str, grad: bool = False) -> Iterator[Any]:
    """The samples of one dtype; the same ones each time.

    `sample_inputs_func` is what `info.sample_inputs` wraps: the wrapper inspects the whole stack
    for each call, which takes ten times as long as the samples.
    """
    seed()
    yield from info.sample_inputs_func(info, "cpu", getattr(torch, dtype), grad)


def seed() -> None:
    """Every generator that OpInfo draws from."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (OpInfo's own)


def run(name: str) -> Result:
    """All samples of one OpInfo entry through our function."""
    info, entry, result = infos()[name], TABLE[name], Result(name)
    allowed = {name_of(d) for d in info.supported_dtypes("cpu")}
    for dtype in (*FLOATS, *WHOLE):
        if dtype not in allowed:
            continue
        grad = dtype == "float64" and info.supports_autograd
        for i, sample in enumerate(samples(info, dtype, grad)):
            result.samples += 1
            why = entry.unsupported(sample, dtype)
            if why is None:
                try:
                    differences = judge(info, entry, sample, dtype, i)
                except Unsupported as reason:
                    why = str(reason)
                except Exception as wrong:
                    result.failures.append(f"{dtype} sample {i}: {told(wrong)}\n  {shown(sample)}")
                    continue
            if why is not None:
                result.unsupported[why] += 1
                continue
            result.differs.update(differences)
            result.passed += not differences
    wrong_calls(info, entry, result)
    return result


def told(wrong: BaseException) -> str:
    """An error in one line of a report."""
    text = " ".join(str(wrong).split())
    return f"{type(wrong).__name__}: {text[:600]}"


def shown(sample: Any) -> str:
    """A sample's arguments, tensors as shape, stride and dtype."""

    def one(x: Any) -> str:
        if isinstance(x, torch.Tensor):
            layout = "" if x.is_contiguous() else f", stride {x.stride()}"
            return f"<{name_of(x.dtype)} {tuple(x.shape)}{layout}>"
        if isinstance(x, (tuple, list)):
            return f"[{', '.join(map(one, x))}]"
        if isinstance(x, dict):
            return ", ".join(f"{k}={one(v)}" for k, v in x.items())
        return repr(x)

    return f"{one(sample.input)}, *{one(sample.args)}, {one(sample.kwargs)}"


def called(function: Any, arguments: Any) -> list[Any]:
    """The outputs of a call, without NumPy's and PyTorch's warnings about numbers."""
    first, args, kwargs = arguments
    # PyTorch's other kernels of attention have no second derivative.
    attention = function is infos()["nn.functional.scaled_dot_product_attention"].op
    mathematics = sdpa_kernel(SDPBackend.MATH) if attention else nullcontext()
    with warnings.catch_warnings(), np.errstate(all="ignore"), mathematics:
        warnings.simplefilter("ignore")
        return flat(function(first, *args, **kwargs))


def judge(info: Any, entry: Entry, sample: Any, dtype: str, index: int) -> set[str]:
    """Compare one sample; returns the reasons why it is not compared in full, from the mapping."""
    differences = {d for d in entry.differs if d.when(sample, dtype)}
    skipped = {aspect for d in differences for aspect in d.aspects}
    reordered = False
    devices = ("cpu", "torch")
    for device in devices if dtype not in NARROW else devices[index % 2 :][:1]:
        pair = Pair(sample, device)
        before = [host(a).copy() for a, _ in pair._made.values()]
        try:
            theirs = called(info.op, pair.theirs)
        except RuntimeError:
            raise Unsupported("PyTorch itself fails on it") from None
        if "refused" in skipped:
            try:
                called(entry.ours, pair.ours)
            except cr.ChainruleError:
                continue
            raise AssertionError(f"on {device!r}: the mapping says that this is refused")
        ours = called(entry.ours, pair.ours)
        what = f"on {device!r}"
        for (a, _), was in zip(pair._made.values(), before, strict=True):
            np.testing.assert_array_equal(host(a), was, err_msg=f"{what}: an input was changed")
        assert len(ours) == len(theirs), f"{what}: {len(ours)} outputs, PyTorch {len(theirs)}"
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if "order" in skipped and isinstance(b, torch.Tensor) and b.dtype == torch.int64:
                if place == len(ours) - 1 and (len(ours) > 1 or entry.only_index):
                    reordered |= compare_order(a, b, what)
                    continue
            compare_output(info, sample, pair, a, b, what, dtype, skipped, entry)
        if pair.leaves and "gradient" not in skipped:
            second = device == "cpu" and info.supports_gradgrad and "second" not in skipped
            gradients(pair, ours, theirs, what, index, second)
    differences = {d for d in differences if "order" not in d.aspects or reordered}
    return {"; ".join(d.reason for d in entry.differs if d in differences)} - {""}


def compare_order(a: Any, b: Any, what: str) -> bool:
    """Whether two results of indices, of one shape and dtype, name equal elements differently."""
    assert a.shape == tuple(b.shape), f"{what}: shape {a.shape}, PyTorch {tuple(b.shape)}"
    assert name_of(a.dtype) == name_of(b.dtype), f"{what}: dtype {a.dtype}, PyTorch {b.dtype}"
    return not np.array_equal(host(a), host(b))


def compare_output(
    info: Any,
    sample: Any,
    pair: Pair,
    a: Any,
    b: Any,
    what: str,
    dtype: str,
    skipped: set[str],
    entry: Entry,
) -> None:
    """Type, shape, dtype, device, strides of a view, values."""
    if not isinstance(b, torch.Tensor):
        assert type(a) is type(b), f"{what}: {type(a).__name__}, PyTorch {type(b).__name__}"
        assert a == b or (a != a and b != b), f"{what}: {a!r}, PyTorch {b!r}"
        return
    assert isinstance(a, cr.Tensor), f"{what}: a {type(a).__name__}, not a Tensor"
    assert a.shape == tuple(b.shape), f"{what}: shape {a.shape}, PyTorch {tuple(b.shape)}"
    if "dtype" not in skipped:
        assert name_of(a.dtype) == name_of(b.dtype), f"{what}: dtype {a.dtype}, PyTorch {b.dtype}"
    assert not pair.placed or a.device == pair.device, f"{what}: on device {a.device}"
    if "gradient" not in skipped:
        assert a.requires_grad == b.requires_grad, f"{what}: requires_grad {a.requires_grad}"
    if "view" not in skipped and b.numel():
        for x, y in pair._made.values():
            if b.untyped_storage().data_ptr() == y.untyped_storage().data_ptr():
                assert a.stride() == b.stride(), f"{what}: stride {a.stride()}, not {b.stride()}"
                moved = (b.data_ptr() - y.data_ptr(), a.data_ptr() - x.data_ptr())
                assert moved[0] == moved[1], f"{what}: view at byte {moved[1]}, not {moved[0]}"
                break
    if "value" in skipped or entry.shape_only:
        return
    u, v = host(a), host(b)
    if v.dtype.kind != "f":
        np.testing.assert_array_equal(u, v, err_msg=what)
        return
    rtol, atol = TOLERANCE[name_of(b.dtype)]
    if np.allclose(u, v, rtol, atol, equal_nan=True):
        return
    if name_of(b.dtype) == "float64":
        np.testing.assert_allclose(u, v, rtol, atol, equal_nan=True, err_msg=what)
    no_worse(info, entry, sample, u, b, what)


def no_worse(info: Any, entry: Entry, sample: Any, u: np.ndarray, b: Any, what: str) -> None:
    """Against float64 our error is at most twice PyTorch's and a few roundings."""
    wide = called(info.op, Pair(sample, "cpu", wider=True).theirs)
    exact = [y for y in wide if isinstance(y, torch.Tensor) and y.shape == b.shape]
    v = host(b).astype(np.float64)
    truth = min((host(y).astype(np.float64) for y in exact), key=lambda y: distance(v, y))
    limits = torch.finfo(b.dtype)
    truth = np.where(np.abs(truth) > limits.max, np.copysign(np.inf, truth), truth)
    u = u.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(u), np.isnan(truth), err_msg=f"{what}: NaN")
    finite = np.isfinite(truth)
    largest = np.abs(truth[finite]).max(initial=0)
    allowed = 2 * distance(v, truth) + entry.roundings * limits.eps * largest
    worst = distance(u, truth)
    assert worst <= allowed, (
        f"{what}: error {worst:.3g} against float64, allowed {allowed:.3g} "
        f"(PyTorch {distance(v, truth):.3g})"
    )


def distance(x: np.ndarray, y: np.ndarray) -> float:
    """The largest difference where `y` is finite."""
    finite = np.isfinite(y)
    return float(np.abs(x[finite] - y[finite]).max(initial=0))


def gradients(
    pair: Pair, ours: list[Any], theirs: list[Any], what: str, index: int, second: bool
) -> None:
    """First gradients, and second ones by `create_graph`, for random incoming gradients."""
    from tests.ops.harness import laid_out

    grown = [
        (a, b)
        for a, b in zip(ours, theirs, strict=True)
        if isinstance(b, torch.Tensor) and b.requires_grad
    ]
    if not grown:
        return
    ya, yb = [a for a, _ in grown], [b for _, b in grown]
    xa, xb = [a for a, _ in pair.leaves], [b for _, b in pair.leaves]
    numbers = np.random.default_rng(index)
    g = [numbers.standard_normal(tuple(y.shape)) for y in yb]
    gb = [torch.tensor(x, requires_grad=second) for x in g]
    gb = [x.to(y.dtype) for x, y in zip(gb, yb, strict=True)]
    layout = INCOMING[index % len(INCOMING)]
    ga = [laid_out(cr, x, layout, pair.device).detach() for x in g]
    ga = [x.requires_grad_(second).to(y.dtype) for x, y in zip(ga, ya, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = torch.autograd.grad(
            yb, xb, gb, create_graph=second, allow_unused=True, retain_graph=True
        )
    found = cr.autograd.grad(ya, xa, ga, create_graph=second, allow_unused=True, retain_graph=True)
    same_gradients(found, wanted, xb, f"{what}: gradient (incoming {layout})")
    if not second:
        return
    pairs = [
        (a, b)
        for a, b in zip(found, wanted, strict=True)
        if b is not None and b.requires_grad and a is not None and a.requires_grad
    ]
    for a, b in zip(found, wanted, strict=True):
        off = b is not None and b.requires_grad and (a is None or not a.requires_grad)
        assert not off or not b.detach().abs().sum(), f"{what}: our gradient is off the graph"
    if not pairs:
        return
    v = [numbers.standard_normal(tuple(b.shape)) for _, b in pairs]
    xb, xa = [*xb, *gb], [*xa, *ga]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = torch.autograd.grad(
            [b for _, b in pairs],
            xb,
            [torch.tensor(x).to(b.dtype) for x, (_, b) in zip(v, pairs, strict=True)],
            allow_unused=True,
        )
    found = cr.autograd.grad(
        [a for a, _ in pairs],
        xa,
        [cr.tensor(x).to(a.dtype) for x, (a, _) in zip(v, pairs, strict=True)],
        allow_unused=True,
    )
    same_gradients(found, wanted, xb, f"{what}: second gradient")


def same_gradients(found: Any, wanted: Any, like: list[Any], what: str) -> None:
    """An input that is not used may have no gradient or zeros: both mean the same."""
    for i, (a, b, x) in enumerate(zip(found, wanted, like, strict=True)):
        if a is None and b is None:
            continue
        u = np.zeros(tuple(x.shape)) if a is None else host(a)
        v = np.zeros(tuple(x.shape)) if b is None else host(b)
        assert u.shape == v.shape, f"{what} {i}: shape {u.shape}, PyTorch {v.shape}"
        rtol, atol = TOLERANCE[name_of(x.dtype)]
        np.testing.assert_allclose(u, v, rtol, atol, equal_nan=True, err_msg=f"{what} {i}")


def wrong_calls(info: Any, entry: Entry, result: Result) -> None:
    """What PyTorch refuses, ours refuses: with an error of ours, or Python's for a bad call."""
    if info.error_inputs_func is None:
        return
    seed()
    for i, wrong in enumerate(info.error_inputs_func(info, "cpu")):
        sample = wrong.sample_input
        result.wrong_calls += 1
        why = entry.accepts(sample)
        if why is not None:
            result.accepted[why] += 1
            continue
        try:
            arguments = Pair(sample, "cpu").ours
        except (Unsupported, AttributeError, ValueError):
            result.raised += 1  # there is no way to write this call
            continue
        try:
            called(entry.ours, arguments)
        except (cr.ChainruleError, TypeError):
            result.raised += 1
        except Exception as other:
            result.failures.append(f"wrong call {i}: {told(other)}\n  {shown(sample)}")
        else:
            text = f"wrong call {i}: accepted; PyTorch: {wrong.error_regex}"
            result.failures.append(f"{text}\n  {shown(sample)}")
