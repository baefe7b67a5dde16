"""Making tensors: from data, from other libraries' memory, and filled with a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite
from typing import Any

import numpy as np

from chainrule import backends, dtypes
from chainrule._tensor import Tensor
from chainrule.autograd.value import Value, backend_for, new_value, raw_of
from chainrule.backends import numpy as host
from chainrule.dtypes import DType
from chainrule.errors import DTypeError, InputError, MissingExtraError, ShapeError
from chainrule.ops.views import sizes


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor that owns a copy of `data`: numbers, nested sequences, an array or a tensor.

    Python floats become float32, integers int64, bools bool, complex numbers complex64; arrays
    keep their dtype. Raises `ShapeError` for ragged lists and `InputError` for what is no number.
    """
    if device is None and isinstance(data, Value):
        device = backend_for(data._a).name
    b = backends.get(device)
    dtype = None if dtype is None else dtypes.as_dtype(dtype)
    raw = b.copy(b.asarray(_array(data, dtype)))
    if dtype is not None:
        raw = b.cast(raw, dtype)
    return wrap(raw, requires_grad)


def as_tensor(data: Any, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """`data` as a tensor, sharing memory where it can: tensors and writable, aligned arrays."""
    if isinstance(data, Tensor):
        out = data if dtype is None else data.to(dtype)
        return out if device is None else out.to(device)
    if isinstance(data, np.ndarray) and device in (None, "cpu") and _shareable(data) is None:
        out = from_numpy(data)
        return out if dtype is None else out.to(dtype)
    return tensor(data, dtype=dtype, device=device)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor of the same memory as `array`; negative strides are welcome.

    Raises `InputError` for arrays that cannot be shared: read-only, misaligned, byte-swapped, or
    of a dtype without a counterpart. `cr.tensor(array)` copies such an array instead.
    """
    if not isinstance(array, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"from_numpy takes a NumPy array, not {type(array).__name__}")
    reason = _shareable(array)
    if reason is not None:
        raise InputError(f"from_numpy: {reason}; cr.tensor(array) makes a copy")
    return wrap(array)


def from_dlpack(source: Any) -> Tensor:
    """A tensor of the same memory as any CPU array that speaks DLPack.

    Raises `InputError` where the memory cannot be shared, with the producer's reason.
    """
    return wrap(_from_dlpack(source, "from_dlpack"))


def _from_dlpack(source: Any, name: str) -> np.ndarray[Any, Any]:
    try:
        array = np.from_dlpack(source)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as wrong:
        raise InputError(f"{name}: a {type(source).__name__} is not shared: {wrong}") from None
    reason = _shareable(array)
    if reason is not None:
        raise InputError(f"{name}: {reason}; cr.tensor(…) makes a copy")
    return array


def wrap(raw: Any, requires_grad: bool = False) -> Tensor:
    """A tensor around a raw array."""
    t: Tensor = new_value(Tensor, raw)
    if requires_grad is not False:
        t.requires_grad_(requires_grad)
    return t


def _shareable(a: np.ndarray[Any, Any]) -> str | None:
    """Why the memory of `a` cannot be shared, or None; raises for a dtype that we do not have."""
    if not _known(a) and a.dtype.isnative:
        raise InputError(f"NumPy's dtype {a.dtype} has no counterpart here: convert with .astype")
    if not a.flags.writeable:
        return "the array is read-only, and a tensor may be written to"
    if not a.flags.aligned:
        return "the array is misaligned"
    if not a.dtype.isnative:
        return f"the array's byte order ({a.dtype.str}) is not this machine's"
    if any(s % a.itemsize for s in a.strides):
        return f"the strides {a.strides} are not whole elements of {a.itemsize} bytes"
    return None


def _known(a: np.ndarray[Any, Any]) -> bool:
    """Whether the dtype of `a` is one of ours."""
    try:
        host.dtype_of(a)
    except InputError:
        return False
    return True


def _array(data: Any, dtype: DType | None) -> Any:
    if isinstance(data, Value):
        return host.asarray(backend_for(data._a).to_numpy(raw_of(data)))
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.aligned or any(s % array.itemsize for s in array.strides):
            array = array.copy()  # PyTorch takes none of these
        if not _known(array):
            raise InputError(
                f"NumPy's dtype {array.dtype} has no counterpart here: convert with .astype"
            )
        return array
    if type(data).__module__.partition(".")[0] == "torch":
        theirs = backends.get("torch")  # unlike DLPack: also bfloat16, and what requires grad
        return theirs.to_numpy(theirs.asarray(data))
    if hasattr(data, "__dlpack__") and not isinstance(data, (list, tuple)):
        return np.from_dlpack(data)
    data = _plain(data)
    try:
        array = np.asarray(data)
    except ValueError:
        raise ShapeError(
            "the nested sequences are ragged: every list of one level must have the same length"
        ) from None
    except OverflowError:
        raise InputError("an integer is out of the range of int64") from None
    if array.dtype == object and all(isinstance(x, (int, float)) for x in array.flat):
        raise InputError("an integer is out of the range of int64")
    if array.dtype.kind not in "biufcV" or array.dtype == object:
        raise InputError(
            f"cannot make a tensor of this {type(data).__name__}: it is not a number, a nested list "
            "of numbers or an array"
        )
    if array.dtype.kind == "u" and array.itemsize == 8:
        raise InputError("an integer is out of the range of int64")
    found = host.dtype_of(array)
    if dtype is not None and dtype.category == 1 and found in _NUMBERS and array.size:
        with np.errstate(invalid="ignore"):
            low, high = array.min(), array.max()
        for number in (low.item(), high.item()):  # of NaN both are NaN
            dtypes.check_fits(number, dtype)
    if array.size == 0 and not isinstance(data, (int, float, bool)) and dtype is None:
        return array.astype(np.float32)
    if found is dtypes.complex128 and dtype is None:
        return array.astype(np.complex64)
    if found is dtypes.float64 and dtype is None:
        with np.errstate(over="ignore"):  # beyond float32 is infinite, as in PyTorch
            return array.astype(np.float32)
    return array


_NUMBERS = (dtypes.int64, dtypes.float64)  # what NumPy makes of Python's


def _plain(data: Any) -> Any:
    """Nested lists with tensors replaced by their values."""
    if isinstance(data, Value):
        return backend_for(data._a).to_numpy(raw_of(data))
    if isinstance(data, (list, tuple)):
        return [_plain(x) for x in data]  # pyright: ignore[reportUnknownVariableType]
    return data


def full(
    size: int | Sequence[int],
    fill_value: float,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`fill_value` everywhere; its own type gives the default dtype."""
    if dtype is None:
        known = (bool, dtypes.bool), (int, dtypes.int64)
        dtype = next((d for k, d in known if isinstance(fill_value, k)), dtypes.float32)
    dtype = dtypes.as_dtype(dtype)
    dtypes.check_fits(fill_value, dtype)
    b = backends.get(device)
    raw = b.empty(checked_size((size,)), dtype)
    b.assign(raw, fill_value)
    return wrap(raw, requires_grad)


def checked_size(size: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes as a tuple of non-negative integers."""
    shape = sizes(size)
    if any(n < 0 for n in shape):
        raise ShapeError(f"sizes must not be negative: {shape}")
    return shape


def empty(
    *size: Any,
    dtype: DType = dtypes.float32,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of unspecified values."""
    raw = backends.get(device).empty(checked_size(size), dtypes.as_dtype(dtype))
    return wrap(raw, requires_grad)


def zeros(
    *size: Any,
    dtype: DType = dtypes.float32,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros; sizes as separate integers or as one sequence."""
    return full(sizes(size), 0.0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones(
    *size: Any,
    dtype: DType = dtypes.float32,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones; sizes as separate integers or as one sequence."""
    return full(sizes(size), 1.0, dtype=dtype, device=device, requires_grad=requires_grad)


def full_like(
    input: Tensor,
    fill_value: float,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`fill_value` in the shape of `input`, and in its dtype and on its device unless given."""
    device = device or input.device
    dtype = dtype or input.dtype
    return full(input.shape, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)


def zeros_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros in the shape of `input`, and in its dtype and on its device unless given."""
    return full_like(input, 0.0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones in the shape of `input`, and in its dtype and on its device unless given."""
    return full_like(input, 1.0, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Unspecified values in the shape of `input`, in its dtype and on its device unless given."""
    device = device or input.device
    dtype = dtype or input.dtype
    return empty(input.shape, dtype=dtype, device=device, requires_grad=requires_grad)


def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from `start` (0 if one argument is given) up to but without `end`.

    For an integer dtype `start` and `step` are truncated first, for int64 `end` too.
    """
    if end is None:
        start, end = 0, start
    for number in (start, end, step):
        if isinstance(number, str) or not hasattr(number, "__float__"):
            raise DTypeError(f"arange counts with numbers, not {number!r}")  # pyright: ignore
    if not (isfinite(start) and isfinite(end) and isfinite(step)):
        raise InputError(f"arange from {start} to {end} with step {step} has no end")
    if step == 0 or (end - start) * step < 0:
        raise InputError(f"arange from {start} to {end} cannot be walked with step {step}")
    whole = all(isinstance(x, int) for x in (start, end, step))
    dtype = dtypes.as_dtype(dtype or (dtypes.int64 if whole else dtypes.float32))
    if dtype.category == 1 and not whole:
        end = int(end) if dtype is dtypes.int64 else end
        count = ceil((end - (int(start) if dtype is dtypes.int64 else start)) / step)
        start, step = int(start), int(step)
        end = start + count * step
    b = backends.get(device)
    return wrap(b.cast(b.from_numpy(np.arange(start, end, step)), dtype), requires_grad)


def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: DType = dtypes.float32,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` evenly spaced numbers from `start` to `end`, both included."""
    (steps,) = sizes((steps,))
    dtype = dtypes.as_dtype(dtype)
    if steps < 0:
        raise InputError(f"linspace needs a number of steps of at least 0, got {steps}")
    for bound in (start, end):
        if len(getattr(bound, "shape", ())):
            raise ShapeError(f"linspace runs between two numbers, not shape {tuple(bound.shape)}")  # pyright: ignore
    start, end = float(start), float(end)
    if dtype.category == 1:  # PyTorch's: the ends are of the dtype too
        start, end = int(start), int(end)
    b = backends.get(device)
    return wrap(b.cast(b.from_numpy(np.linspace(start, end, steps)), dtype), requires_grad)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DType = dtypes.float32,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones on the diagonal of an n × m matrix (square by default), zeros elsewhere."""
    n, m = checked_size((n, n if m is None else m))
    dtype = dtypes.as_dtype(dtype)
    b = backends.get(device)
    return wrap(b.cast(b.from_numpy(np.eye(n, m)), dtype), requires_grad)


def from_torch(source: Any) -> Tensor:
    """A tensor on device "torch" of the same memory as a PyTorch tensor, without its history."""
    if not type(source).__module__.startswith("torch"):
        raise InputError(f"from_torch takes a PyTorch tensor, not {type(source).__name__}")
    try:
        b = backends.get("torch")
    except MissingExtraError:  # pragma: no cover - a torch tensor without torch
        raise
    return wrap(b.asarray(source))
