"""Judges an operation against PyTorch: value, dtype, shape, strides, first and second gradient.

`check_op` runs one function on both devices, with inputs and incoming gradients in every memory
layout that our tensors can have. Relies on PyTorch alone for what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

import chainrule as cr

DEVICES = ("cpu", "torch")
LAYOUTS = ("contiguous", "transposed", "sliced", "flipped", "expanded")
SAME_DATA = ("contiguous", "transposed", "sliced", "flipped")  # "expanded" repeats the first slice


def laid_out(module: Any, x: np.ndarray, layout: str, device: str | None = None) -> Any:
    """A tensor of `module` (chainrule or torch) with the values of `x` in a memory layout.

    "expanded" repeats the first slice of the first dimension that has several. PyTorch has no
    negative strides: it gets "flipped" as a contiguous tensor.
    """

    def made(array: np.ndarray) -> Any:
        array = np.array(array, order="C", copy=True)
        if module is torch:
            return as_torch(array)
        return cr.tensor(array, device=device)

    if not x.ndim:
        return made(x)
    if layout == "transposed":
        return made(np.transpose(x)).permute(tuple(range(x.ndim - 1, -1, -1)))
    if layout == "sliced":
        big = np.full((x.shape[0] + 2, *x.shape[1:-1], 2 * x.shape[-1] + 1), 7).astype(x.dtype)
        if x.ndim == 1:
            big = np.full(2 * x.shape[0] + 1, 7).astype(x.dtype)
            big[1::2] = x
            return made(big)[1::2]
        big[1:-1, ..., 1::2] = x
        return made(big)[1:-1, ..., 1::2]
    if layout == "flipped" and module is not torch:
        dims = tuple(range(x.ndim))
        return made(np.flip(x)).flip(dims)
    if layout == "expanded":
        dim = next((d for d, n in enumerate(x.shape) if n > 1), None)
        if dim is not None:
            return made(np.take(x, [0], dim)).expand(x.shape)
    return made(x)


def as_torch(x: np.ndarray) -> torch.Tensor:
    """A torch tensor with a copy of `x`, bfloat16 too."""
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(x, order="C", copy=True))


def host(t: Any) -> np.ndarray:
    """The values of a tensor of either library, halves as float32."""
    if isinstance(t, torch.Tensor):
        t = t.detach()
        return (t.float() if t.dtype in (torch.float16, torch.bfloat16) else t).numpy(force=True)
    a = t.detach().numpy()
    return a.astype(np.float32) if t.dtype.is_half else a


def dtype_name(t: Any) -> str:
    """`float32`, of a tensor of either library."""
    return str(t.dtype).rpartition(".")[2]


def check_same(ours: Any, theirs: Any, what: str, rtol: float = 1e-10, atol: float = 1e-12) -> None:
    """Both tensors have one shape, one dtype and values within the tolerance, NaN and inf alike."""
    assert isinstance(ours, cr.Tensor), f"{what}: a Tensor is expected, not {type(ours).__name__}"
    assert tuple(ours.shape) == tuple(theirs.shape), (
        f"{what}: shape {tuple(ours.shape)}, torch {tuple(theirs.shape)}"
    )
    assert dtype_name(ours) == dtype_name(theirs), (
        f"{what}: dtype {dtype_name(ours)}, torch {dtype_name(theirs)}"
    )
    a, b = host(ours), host(theirs)
    if a.dtype.kind in "biu":
        np.testing.assert_array_equal(a, b, err_msg=what)
    else:
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, equal_nan=True, err_msg=what)


def check_op(
    ours: Callable[..., Any],
    theirs: Callable[..., Any] | None,
    inputs: Sequence[Any],
    *,
    layouts: bool | Iterable[str] = True,
    second: bool = True,
    devices: Iterable[str] = DEVICES,
    rtol: float = 1e-10,
    atol: float = 1e-12,
    view: bool = False,
    float32: bool = True,
    seed: int = 0,
) -> None:
    """`ours(cr, *tensors)` agrees with `theirs(*tensors)` in value and in two derivatives.

    `theirs` None means that PyTorch spells it the same: `ours(torch, *tensors)`. Inputs are
    arrays or numbers; float64 arrays are differentiated, others only passed. `layouts` may name
    those to try; `view` compares strides as well; `float32` repeats value and gradient in
    float32, whose error may be twice that of PyTorch plus 8 roundings of the largest number.
    """
    reference = theirs if theirs is not None else lambda *t: ours(torch, *t)
    arrays = [np.array(x) for x in inputs]
    names = LAYOUTS if layouts is True else tuple(layouts) if layouts else ("contiguous",)
    for device in devices:
        for j, name in enumerate(names):
            same = [name] * len(arrays)
            mixed = [names[(i + j) % len(names)] for i in range(len(arrays))]
            for chosen in [same] if same == mixed else [same, mixed]:
                case = _Case(ours, reference, arrays, device, chosen, (rtol, atol), seed)
                case.values(view)
                for incoming in {LAYOUTS[j % 5], LAYOUTS[(j + 2) % 5]}:
                    case.first(incoming)
                if second:
                    case.second(LAYOUTS[(j + 1) % 5])
        if float32:
            _check_float32(ours, reference, arrays, device, seed)


def flat(outputs: Any) -> list[Any]:
    """The tensors of a result: one, or those of a (named) tuple or list."""
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


class _Case:
    """One function, device and choice of layouts, run in both libraries."""

    def __init__(
        self,
        ours: Callable[..., Any],
        theirs: Callable[..., Any],
        arrays: Sequence[np.ndarray],
        device: str,
        layouts: Sequence[str],
        tolerance: tuple[float, float],
        seed: int,
    ) -> None:
        self.layouts = tuple(layouts)
        self.label = f"device {device!r}, inputs {', '.join(layouts)}"
        self.device = device
        self.tolerance = tolerance
        self.random = np.random.default_rng(seed + 1)
        self.differentiated = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
        pairs = list(zip(arrays, layouts, strict=True))
        self.a = [laid_out(cr, x, name, device).detach() for x, name in pairs]
        self.b = [laid_out(torch, x, name) for x, name in pairs]
        for i in self.differentiated:
            self.a[i].requires_grad_()
            self.b[i].requires_grad_()
        before = [host(t).copy() for t in self.a]
        self.ya = flat(ours(cr, *self.a))
        self.yb = flat(theirs(*self.b))
        for i, (t, x) in enumerate(zip(self.a, before, strict=True)):
            np.testing.assert_array_equal(host(t), x, err_msg=f"{self.label}: input {i} changed")
        # Which outputs carry a gradient: PyTorch decides.
        self.grown = [i for i, y in enumerate(self.yb) if _tensor(y) and y.requires_grad]

    def values(self, view: bool) -> None:
        assert len(self.ya) == len(self.yb), f"{self.label}: {len(self.ya)} outputs"
        for i, (a, b) in enumerate(zip(self.ya, self.yb, strict=True)):
            what = f"{self.label}: output {i}"
            if not _tensor(b):
                assert a == b, f"{what}: {a!r}, torch {b!r}"
                continue
            check_same(a, b, what, *self.tolerance)
            assert str(a.device) == self.device, f"{what}: on device {a.device}"
            assert a.requires_grad == b.requires_grad, f"{what}: requires_grad {a.requires_grad}"
            if view and "flipped" not in self.layouts:
                assert a.stride() == b.stride(), f"{what}: stride {a.stride()}, torch {b.stride()}"

    def incoming(self, layout: str) -> tuple[list[Any], list[Any]]:
        """Random gradients of the outputs, the same for both libraries."""
        given: tuple[list[Any], list[Any]] = ([], [])
        for i in self.grown:
            g = self.random.standard_normal(tuple(self.yb[i].shape))
            g = g.astype(dtype_name(self.yb[i]))
            given[0].append(laid_out(cr, g, layout, self.device).detach())
            given[1].append(laid_out(torch, g, layout))
        return given

    def first(self, layout: str) -> None:
        if not self.grown:
            return
        ga, gb = self.incoming(layout)
        found = cr.autograd.grad(*self.ends(0), ga, retain_graph=True, allow_unused=True)
        wanted = torch.autograd.grad(*self.ends(1), gb, retain_graph=True, allow_unused=True)
        self.compare(found, wanted, self.b, f"gradient ({layout})")

    def second(self, layout: str) -> None:
        if not self.grown:
            return
        ga, gb = self.incoming(layout)
        for g in (*ga, *gb):
            g.requires_grad_()
        one = cr.autograd.grad(*self.ends(0), ga, create_graph=True, allow_unused=True)
        two = torch.autograd.grad(*self.ends(1), gb, create_graph=True, allow_unused=True)
        self.compare(one, two, self.b, f"gradient ({layout}) while recording")
        va, vb, da, db = [], [], [], []
        for a, b in zip(one, two, strict=True):
            if a is None or b is None or not (a.requires_grad and b.requires_grad):
                assert b is None or not b.requires_grad or not b.detach().abs().sum(), (
                    f"{self.label}: our gradient is off the graph, PyTorch's is on it"
                )
                continue
            v = self.random.standard_normal(tuple(b.shape)).astype(dtype_name(b))
            da.append(a)
            db.append(b)
            va.append(cr.tensor(v, device=self.device))
            vb.append(as_torch(v))
        if not da:
            return
        xa = [self.a[i] for i in self.differentiated] + ga
        xb = [self.b[i] for i in self.differentiated] + gb
        found = cr.autograd.grad(da, xa, va, allow_unused=True)
        wanted = torch.autograd.grad(db, xb, vb, allow_unused=True)
        self.compare(found, wanted, xb, "second gradient")

    def ends(self, which: int) -> tuple[list[Any], list[Any]]:
        ys, xs = (self.ya, self.a) if which == 0 else (self.yb, self.b)
        return [ys[i] for i in self.grown], [xs[i] for i in self.differentiated]

    def compare(self, found: Any, wanted: Any, like: Sequence[Any], what: str) -> None:
        """An input that is not used may have no gradient or zeros: both mean the same."""
        differentiated = [t for t in like if t.requires_grad]
        for i, (a, b, x) in enumerate(zip(found, wanted, differentiated, strict=True)):
            if a is None and b is None:
                continue
            a = cr.zeros(x.shape, dtype=getattr(cr, dtype_name(x))) if a is None else a
            b = torch.zeros_like(x) if b is None else b
            check_same(a, b, f"{self.label}: {what} of input {i}", *self.tolerance)


def _tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _check_float32(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    device: str,
    seed: int,
) -> None:
    narrow = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in arrays]
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in narrow]
    layouts = ["contiguous"] * len(arrays)
    case = _Case(ours, theirs, narrow, device, layouts, (0, 0), seed)
    truth = [laid_out(torch, x, "contiguous") for x in wide]
    for i in case.differentiated:
        truth[i].requires_grad_()
    exact = flat(theirs(*truth))
    for i, y in enumerate(exact):
        if _tensor(y):
            judge(case.ya[i], case.yb[i], y, f"float32, {case.label}: output {i}")
    if not case.grown:
        return
    ga, gb = case.incoming("contiguous")
    found = cr.autograd.grad(*case.ends(0), ga, allow_unused=True)
    wanted = torch.autograd.grad(*case.ends(1), gb, allow_unused=True)
    true = torch.autograd.grad(
        [exact[i] for i in case.grown],
        [truth[i] for i in case.differentiated],
        [g.to(torch.float64) for g in gb],
        allow_unused=True,
    )
    for i, (a, b, c) in enumerate(zip(found, wanted, true, strict=True)):
        if a is not None and b is not None:
            judge(a, b, c, f"float32, {case.label}: gradient of input {i}")


def judge(ours: Any, theirs: Any, truth: Any, what: str, roundings: float = 8) -> None:
    """Our error against a wider truth is at most twice PyTorch's plus a few roundings."""
    assert tuple(ours.shape) == tuple(theirs.shape), f"{what}: shape {ours.shape}"
    assert dtype_name(ours) == dtype_name(theirs), f"{what}: dtype {dtype_name(ours)}"
    a, b, c = (host(t).astype(np.float64) for t in (ours, theirs, truth))
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite], err_msg=what)
    if not finite.any():
        return
    eps = torch.finfo(theirs.dtype).eps if theirs.dtype.is_floating_point else 0.0
    a, b, c = a[finite], b[finite], c[finite]
    allowed = 2 * np.abs(b - c).max() + roundings * eps * np.abs(c).max()
    worst = np.abs(a - c).max()
    assert worst <= allowed, f"{what}: error {worst:.3g}, allowed {allowed:.3g}"


def check_half(
    ours: Callable[..., Any],
    theirs: Callable[..., Any] | None,
    inputs: Sequence[Any],
    *,
    devices: Iterable[str] = DEVICES,
    dtypes: Iterable[str] = ("float16", "bfloat16"),
    roundings: float = 2,
) -> None:
    """In half types, value and gradient are the float64 ones, rounded once or nearly so."""
    reference = theirs if theirs is not None else lambda *t: ours(torch, *t)
    for name in dtypes:
        native = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        rounded = [np.asarray(x).astype(native) for x in inputs]
        exact = [x.astype(np.float64) for x in rounded]
        for device in devices:
            xs = [cr.tensor(x, device=device, requires_grad=True) for x in rounded]
            ts = [torch.tensor(x, requires_grad=True) for x in exact]
            y, t = ours(cr, *xs), reference(*ts)
            what = f"{name} on {device}"
            judge(y, t.to(getattr(torch, name)), t, what, roundings)
            if not t.requires_grad:
                continue
            g = np.random.default_rng(3).standard_normal(tuple(t.shape)).astype(native)
            found = cr.autograd.grad(y, xs, cr.tensor(g, device=device), allow_unused=True)
            wanted = torch.autograd.grad(
                t, ts, torch.tensor(g.astype(np.float64)), allow_unused=True
            )
            for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
                if a is not None and b is not None:
                    low = b.to(getattr(torch, name))
                    judge(a, low, b, f"{what}: gradient of input {i}", roundings)
