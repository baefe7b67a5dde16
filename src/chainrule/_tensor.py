"""`Tensor`: what people hold. Its methods are the operations of `chainrule.ops`.

Names and meanings are PyTorch's; differences (negative steps, no `.data`, `ndarray * Tensor`)
are improvements that `docs/conventions.md` lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from chainrule import autograd, backends, ops
from chainrule.autograd import engine
from chainrule.autograd.node import Leaf, Node, RemovableHandle, Rule, record
from chainrule.autograd.state import is_grad_enabled
from chainrule.autograd.value import (
    Value,
    backend_for,
    new_alias,
    new_value,
    rare,
    raw_of,
    user_place,
)
from chainrule.dtypes import DType, as_dtype
from chainrule.errors import DTypeError, GradError, InputError, ShapeError
from chainrule.layout import Layout
from chainrule.ops import (
    bitwise,
    composed,
    decomposition,
    gathering,
    indexing,
    inplace,
    joining,
    masking,
    named,
    placing,
    products,
    rearranging,
    running,
    scattering,
    searching,
    sorting,
    systems,
    views,
)
from chainrule.ops._apply import register_alias, to_dtype
from chainrule.storage import Storage


class Device(str):
    """A device's name, with PyTorch's `.type`."""

    __slots__ = ()

    @property
    def type(self) -> str:
        """The kind of device."""
        return str(self).partition(":")[0]


class Tensor(Value):
    """An n-dimensional array of one dtype, with a gradient if asked for.

    Made by `cr.tensor`, `cr.zeros`, `cr.from_numpy` and operations, not by calling this class
    with a shape: `Tensor(data)` copies `data` as `cr.tensor(data)` does, in float32.
    """

    __slots__ = ()
    __array_priority__ = 1000

    def __new__(cls, data: Any = (), requires_grad: bool = False) -> Tensor:
        from chainrule import dtypes
        from chainrule.creation import tensor

        return tensor(data, dtype=dtypes.float32, requires_grad=requires_grad)

    # What it is.

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return tuple(self._a.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[views.checked_dim(dim, self.ndim)]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._a.shape)

    def dim(self) -> int:
        """The number of dimensions."""
        return len(self._a.shape)

    def numel(self) -> int:
        """The number of elements."""
        total = 1
        for n in self._a.shape:
            total *= n
        return total

    def nelement(self) -> int:
        """The number of elements."""
        return self.numel()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return backend_for(self._a).dtype_of(self._a)

    @property
    def device(self) -> Device:
        """Where the memory is: "cpu" (NumPy) or "torch"."""
        return Device(backend_for(self._a).name)

    def stride(self, dim: int | None = None) -> Any:
        """The step in elements along each dimension, or along one."""
        strides = self.layout.strides
        return strides if dim is None else strides[views.checked_dim(dim, self.ndim)]

    def storage_offset(self) -> int:
        """Where in the storage the first element is."""
        return self.layout.offset

    def data_ptr(self) -> int:
        """The address of the first element."""
        return backend_for(self._a).data_ptr(self._a)

    def element_size(self) -> int:
        """Bytes an element."""
        return self.dtype.itemsize

    def is_contiguous(self) -> bool:
        """Whether strides are row-major (dimensions of size 1 do not count)."""
        return self.layout.is_contiguous

    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating-point one."""
        return self.dtype.is_floating_point

    @property
    def data(self) -> Any:
        """There is none: writing through it would escape the checks."""
        raise GradError(
            "there is no .data: to update a parameter use "
            "'with torch.no_grad(): p -= lr * p.grad'; to read without history use .detach()"
        )

    # Gradient.

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded."""
        return self.node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for a gradient of this leaf, or stop asking."""
        if not isinstance(requires_grad, (bool, np.bool_)):  # pyright: ignore
            raise InputError(f"requires_grad is True or False, not {requires_grad!r}")
        if requires_grad and self.node is None:
            if not self.dtype.is_floating_point:
                raise DTypeError(
                    "only tensors of floating-point dtype can require gradients, not "
                    f"{self.dtype.name}"
                )
            self.node = Leaf(self)
        elif not requires_grad and self.node is not None:
            if not isinstance(self.node, Leaf):
                raise GradError("only a leaf can stop requiring grad: use .detach()")
            self.node = None
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made this tensor."""
        return not isinstance(self.node, Node)

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor; it prints the operation and the line."""
        return self.node if isinstance(self.node, Node) else None

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf, or of a tensor that called `retain_grad`."""
        return self.node.grad if isinstance(self.node, Leaf) else rare(self, "grad")

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and value.shape != self.shape:
            raise ShapeError(f"a gradient of shape {value.shape} for a tensor of {self.shape}")
        if value is not None and value.dtype is not self.dtype:
            raise DTypeError(
                f"a gradient of dtype {value.dtype.name} for a tensor of {self.dtype.name}"
            )
        if isinstance(self.node, Leaf):
            self.node.grad = value
        else:
            self.more()["grad"] = value

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Tensor] | None = None,
    ) -> None:
        """Add the gradients of this tensor to the `.grad` of the leaves it depends on."""
        autograd.backward(self, gradient, retain_graph, create_graph, inputs)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call `hook(grad)` once with the summed gradient; what it returns replaces it."""
        if self.node is None:
            raise GradError("cannot register a hook on a tensor that does not require grad")
        return RemovableHandle(self.node.hooks_made().before, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Call `hook(tensor)` after this leaf's `.grad` has been added to."""
        if not isinstance(self.node, Leaf):
            raise GradError("post-accumulate hooks are for leaves that require grad")
        return RemovableHandle(self.node.hooks_made().after, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf in `.grad`; runs after its other hooks."""
        import weakref

        if self.node is None:
            raise GradError("cannot retain the gradient of a tensor that does not require grad")
        if isinstance(self.node, Node):
            self.node.hooks_made().retained = weakref.ref(self)

    # Out of the tensor.

    def numpy(self) -> np.ndarray[Any, Any]:
        """The same memory as an ndarray; refused for tensors that require grad."""
        if self.node is not None:
            raise GradError("numpy() of a tensor that requires grad: use .detach().numpy()")
        return backend_for(self._a).to_numpy(self._a)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        a = self.numpy()
        return np.array(a, dtype=dtype, copy=copy) if copy or dtype is not None else a

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out", ())
        if out and not any(isinstance(x, Tensor) for x in out):  # array += tensor
            return getattr(ufunc, method)(*map(_as_array, inputs), **kwargs)
        op = _UFUNCS.get(ufunc.__name__)
        if method != "__call__" or kwargs or op is None:
            return NotImplemented
        return op(*inputs)

    def item(self) -> Any:
        """The only element as a Python number."""
        if self.numel() != 1:
            raise ShapeError(f"item() needs exactly one element, this has shape {self.shape}")
        return backend_for(self._a).to_numpy(self._a).item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return backend_for(self._a).to_numpy(self._a).tolist()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ShapeError(
                f"the truth of a tensor of {self.numel()} elements is ambiguous: use .any(), "
                ".all() or a comparison of single elements"
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.category > 1:
            raise DTypeError(f"a {self.dtype.name} tensor cannot be used as an index")
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __len__(self) -> int:
        if not self._a.shape:
            raise ShapeError("a 0-d tensor has no length")
        return self._a.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._a.shape:
            raise ShapeError("a 0-d tensor cannot be iterated over")
        return iter(views.unbind(self, 0))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).numpy().any())

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        from chainrule._repr import tensor_repr

        return tensor_repr(self)

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        if self.ndim:
            raise DTypeError(
                f"the format {spec!r} is for one number, this tensor has shape {self.shape}"
            )
        return format(self.item(), spec)

    def __dlpack__(self, **kwargs: Any) -> Any:
        if self.node is not None:
            raise GradError("DLPack of a tensor that requires grad: use .detach()")
        if min(self.stride(), default=0) < 0:  # PyTorch ends the process when it gets one
            raise InputError(
                f"DLPack of a tensor with stride {self.stride()}: other libraries have no negative "
                "strides; use .clone()"
            )
        try:
            return self._a.__dlpack__(**kwargs)
        except BufferError as wrong:
            raise InputError(f"DLPack of this {self.dtype.name} tensor: {wrong}") from None

    def __dlpack_device__(self) -> Any:
        return backend_for(self._a).read(self._a).__dlpack_device__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise GradError("only leaves can be deep-copied: use .detach().clone()")
        storage = self.storage()
        held = memo.get(id(storage.log))
        if held is None:  # tensors that share memory share its copy
            b = storage.backend
            flat = b.copy(storage.view(Layout.contiguous((storage.numel,))))
            buffer, numel, _ = b.storage_of(flat)
            held = memo[id(storage.log)] = Storage(buffer, storage.dtype, numel, b, storage.home)
        copied: Tensor = new_alias(type(self), held, self.layout)
        register_alias(copied)
        memo[id(self)] = copied
        if self.node is not None:
            copied.requires_grad_()
            if self.grad is not None:
                copied.grad = self.grad.detach().clone()
        if rare(self, "parameter"):
            copied.more()["parameter"] = True
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if not self.is_leaf:
            raise GradError("only leaves can be pickled: use .detach()")
        b = backend_for(self._a)
        content = np.ascontiguousarray(b.to_numpy(raw_of(self))).tobytes()
        kept = {"requires_grad": self.requires_grad, "parameter": bool(rare(self, "parameter"))}
        return _rebuilt, (type(self), content, self.dtype, self.shape, str(self.device), kept)

    # To other dtypes and devices.

    def to(self, *args: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
        """In another dtype and on another device: `to(dtype)`, `to(device)`, or both."""
        for a in args:
            if isinstance(a, DType):
                dtype = a
            elif isinstance(a, Tensor):
                dtype, device = a.dtype, a.device
            elif isinstance(a, str):
                device = a
            elif a.__class__ is type:
                dtype = as_dtype(a)
            else:
                raise InputError(f"to() takes a dtype, a device or a tensor, not {a!r}")
        out: Any = self if dtype is None else to_dtype(self, dtype)
        if device is not None and device != out.device:
            out = _to_device(out, str(device))
        return out

    def type(self, dtype: DType) -> Tensor:
        """In another dtype."""
        return self.to(dtype)

    def float(self) -> Tensor:
        """In float32."""
        from chainrule import dtypes

        return self.to(dtypes.float32)

    def double(self) -> Tensor:
        """In float64."""
        from chainrule import dtypes

        return self.to(dtypes.float64)

    def half(self) -> Tensor:
        """In float16."""
        from chainrule import dtypes

        return self.to(dtypes.float16)

    def bfloat16(self) -> Tensor:
        """In bfloat16."""
        from chainrule import dtypes

        return self.to(dtypes.bfloat16)

    def long(self) -> Tensor:
        """In int64."""
        from chainrule import dtypes

        return self.to(dtypes.int64)

    def int(self) -> Tensor:
        """In int32."""
        from chainrule import dtypes

        return self.to(dtypes.int32)

    def bool(self) -> Tensor:
        """Whether each element is non-zero."""
        from chainrule import dtypes

        return self.to(dtypes.bool)

    def cpu(self) -> Tensor:
        """On the NumPy device."""
        return self.to("cpu")

    # Views and copies.

    @property
    def T(self) -> Tensor:
        """The dimensions in reverse order."""
        return views.permute(self, tuple(range(self.ndim - 1, -1, -1)))

    @property
    def mT(self) -> Tensor:
        """The last two dimensions exchanged."""
        return views.transpose(self, -2, -1)

    def t(self) -> Tensor:
        """The transpose of a matrix; 0-d and 1-D stay."""
        if self.ndim > 2:
            raise ShapeError(f"t() is for at most 2 dimensions, this has {self.ndim}: use .mT")
        return self.T

    view = views.view_as
    reshape = views.reshape
    flatten = views.flatten
    unflatten = views.unflatten
    permute = views.permute
    transpose = views.transpose
    swapaxes = views.transpose
    movedim = views.movedim
    expand = views.expand
    flip = views.flip
    squeeze = views.squeeze
    unsqueeze = views.unsqueeze
    select = views.select
    narrow = views.narrow
    unfold = views.unfold
    diagonal = views.diagonal
    as_strided = views.as_strided
    split = views.split
    chunk = views.chunk
    unbind = views.unbind
    detach = views.detach
    clone = views.clone
    contiguous = views.contiguous

    def bucketize(
        self, boundaries: Tensor, *, out_int32: Any = False, right: Any = False
    ) -> Tensor:
        """Which of the intervals between `boundaries` each element is in."""
        return searching.bucketize(self, boundaries, out_int32=out_int32, right=right)

    def expand_as(self, other: Tensor) -> Tensor:
        """Expanded to the shape of `other`."""
        return views.expand(self, other.shape)

    def view_as(self, other: Tensor) -> Tensor:
        """Viewed in the shape of `other`."""
        return views.view_as(self, other.shape)

    def reshape_as(self, other: Tensor) -> Tensor:
        """Reshaped to the shape of `other`."""
        return views.reshape(self, other.shape)

    __getitem__ = indexing.get_item
    gather = gathering.gather
    scatter_add = gathering.scatter_add_to
    index_select = gathering.index_select
    take_along_dim = gathering.take_along_dim
    masked_fill = masking.masked_fill
    masked_select = masking.masked_select
    nonzero = masking.nonzero
    tril = masking.tril
    triu = masking.triu
    clamp = masking.clamp
    clip = masking.clamp
    repeat = joining.repeat
    tile = joining.tile
    roll = joining.roll
    diff = running.diff
    cummax = running.cummax
    cummin = running.cummin
    cumprod = running.cumprod
    logcumsumexp = running.logcumsumexp
    argsort = sorting.argsort
    kthvalue = sorting.kthvalue
    median = sorting.median
    mode = sorting.mode
    msort = sorting.msort
    nanmedian = sorting.nanmedian
    sort = sorting.sort
    topk = sorting.topk
    bincount = searching.bincount
    histc = searching.histc
    isin = searching.isin
    unique = searching.unique
    unique_consecutive = searching.unique_consecutive
    diag = rearranging.diag
    diag_embed = rearranging.diag_embed
    diagflat = rearranging.diagflat
    dsplit = rearranging.dsplit
    fliplr = rearranging.fliplr
    flipud = rearranging.flipud
    hsplit = rearranging.hsplit
    repeat_interleave = rearranging.repeat_interleave
    rot90 = rearranging.rot90
    tensor_split = rearranging.tensor_split
    trace = rearranging.trace
    vsplit = rearranging.vsplit
    index_add = placing.index_add_to
    diagonal_scatter = placing.diagonal_scatter
    index_copy = placing.index_copy
    index_fill = placing.index_fill
    masked_scatter = placing.masked_scatter
    put = placing.put
    scatter = placing.scatter
    select_scatter = placing.select_scatter
    slice_scatter = placing.slice_scatter
    take = placing.take
    scatter_reduce = scattering.scatter_reduce
    index_reduce = scattering.index_reduce
    det = systems.det
    logdet = systems.logdet
    slogdet = systems.slogdet
    inverse = systems.inv
    cholesky = systems.cholesky
    matrix_power = decomposition.matrix_power
    addbmm = products.addbmm
    addmm = products.addmm
    addmv = products.addmv
    addr = products.addr
    baddbmm = products.baddbmm
    bmm = products.bmm
    cross = products.cross
    dot = products.dot
    inner = products.inner
    kron = products.kron
    mv = products.mv
    outer = products.outer

    # Arithmetic and comparison.

    __add__ = named.add
    __radd__ = named.radd
    __sub__ = named.sub
    __rsub__ = named.rsub
    __mul__ = named.mul
    __rmul__ = named.rmul
    __truediv__ = named.div
    __rtruediv__ = named.rdiv
    __pow__ = named.pow
    __rpow__ = named.rpow
    __floordiv__ = composed.floor_divide
    __mod__ = named.remainder
    __rmod__ = named.rremainder
    __matmul__ = ops.matmul
    __neg__ = named.neg
    __abs__ = named.abs
    __lt__ = named.lt
    __le__ = named.le
    __gt__ = named.gt
    __ge__ = named.ge

    def __eq__(self, other: object) -> Any:
        return NotImplemented if other is None or isinstance(other, str) else named.eq(self, other)

    def __ne__(self, other: object) -> Any:
        return NotImplemented if other is None or isinstance(other, str) else named.ne(self, other)

    def __pos__(self) -> Tensor:
        return self

    def __rfloordiv__(self, other: Any) -> Tensor:
        return composed.floor_divide(other, self)

    def polygamma(self, n: Any) -> Tensor:
        """The n-th derivative of digamma."""
        return named.polygamma(n, self)

    def __rmatmul__(self, other: Any) -> Tensor:
        return ops.matmul(other, self)

    __and__ = bitwise.bitwise_and
    __rand__ = bitwise.bitwise_and
    __or__ = bitwise.bitwise_or
    __ror__ = bitwise.bitwise_or
    __xor__ = bitwise.bitwise_xor
    __rxor__ = bitwise.bitwise_xor
    __invert__ = bitwise.bitwise_not

    # Elementwise, by name.

    reciprocal = named.reciprocal
    square = named.square
    exp = named.exp
    exp2 = named.exp2
    expm1 = named.expm1
    log = named.log
    log2 = named.log2
    log10 = named.log10
    log1p = named.log1p
    sqrt = named.sqrt
    rsqrt = named.rsqrt
    abs = named.abs
    sign = named.sign
    floor = named.floor
    ceil = named.ceil
    trunc = named.trunc
    round = composed.round
    sigmoid = named.sigmoid
    tanh = named.tanh
    sinh = named.sinh
    cosh = named.cosh
    asinh = named.asinh
    acosh = named.acosh
    atanh = named.atanh
    sin = named.sin
    cos = named.cos
    tan = named.tan
    asin = named.asin
    acos = named.acos
    atan = named.atan
    erf = named.erf
    erfc = named.erfc
    relu = named.relu
    isnan = named.isnan
    isinf = named.isinf
    isfinite = named.isfinite
    neg = named.neg
    logical_not = named.logical_not
    add = named.add
    sub = named.sub
    mul = named.mul
    div = composed.div
    pow = named.pow
    remainder = named.remainder
    fmod = named.fmod
    maximum = named.maximum
    minimum = named.minimum
    atan2 = named.atan2
    hypot = named.hypot
    logaddexp = named.logaddexp
    copysign = named.copysign
    lerp = named.lerp
    lgamma = named.lgamma
    digamma = named.digamma
    xlogy = named.xlogy
    erfinv = named.erfinv
    sinc = named.sinc
    addcdiv = composed.addcdiv
    addcmul = composed.addcmul
    bitwise_left_shift = composed.bitwise_left_shift
    bitwise_right_shift = composed.bitwise_right_shift
    clamp_max = composed.clamp_max
    clamp_min = composed.clamp_min
    deg2rad = composed.deg2rad
    floor_divide = composed.floor_divide
    frac = composed.frac
    hardshrink = composed.hardshrink
    heaviside = composed.heaviside
    isneginf = composed.isneginf
    isposinf = composed.isposinf
    logaddexp2 = composed.logaddexp2
    logical_xor = composed.logical_xor
    logit = composed.logit
    nan_to_num = composed.nan_to_num
    rad2deg = composed.rad2deg
    sgn = composed.sgn
    signbit = composed.signbit
    lt = named.lt
    le = named.le
    gt = named.gt
    ge = named.ge
    eq = named.eq
    ne = named.ne
    logical_and = named.logical_and
    logical_or = named.logical_or
    bitwise_and = bitwise.bitwise_and
    bitwise_or = bitwise.bitwise_or
    bitwise_xor = bitwise.bitwise_xor
    bitwise_not = bitwise.bitwise_not
    subtract = named.sub
    multiply = named.mul
    divide = composed.div
    true_divide = named.div
    negative = named.neg
    absolute = named.abs
    matmul = ops.matmul
    mm = products.mm

    # Reductions.

    sum = ops.sum
    mean = ops.mean
    var = ops.var
    std = ops.std
    prod = ops.prod
    amax = ops.amax
    amin = ops.amin
    max = ops.max
    min = ops.min
    argmax = ops.argmax
    argmin = ops.argmin
    any = ops.any
    all = ops.all
    count_nonzero = ops.count_nonzero
    cumsum = ops.cumsum
    logsumexp = ops.logsumexp
    softmax = ops.softmax
    log_softmax = ops.log_softmax
    norm = ops.norm

    # Writing in place.

    __setitem__ = indexing.set_item
    scatter_add_ = gathering.scatter_add_
    addcmul_ = composed.addcmul_
    addcdiv_ = composed.addcdiv_
    nan_to_num_ = composed.nan_to_num_
    floor_divide_ = composed.floor_divide_
    lerp_ = inplace.in_place(named.lerp)
    scatter_ = placing.scatter_
    index_add_ = placing.index_add_
    index_copy_ = placing.index_copy_
    index_fill_ = placing.index_fill_
    put_ = placing.put_
    masked_scatter_ = placing.masked_scatter_
    scatter_reduce_ = scattering.scatter_reduce_
    index_reduce_ = scattering.index_reduce_
    addbmm_ = products.addbmm_
    addmm_ = products.addmm_
    addmv_ = products.addmv_
    addr_ = products.addr_
    baddbmm_ = products.baddbmm_
    masked_fill_ = masking.masked_fill_
    clamp_ = masking.clamp_
    __iadd__ = inplace.in_place(named.add)
    __isub__ = inplace.in_place(named.sub)
    __imul__ = inplace.in_place(named.mul)
    __itruediv__ = inplace.in_place(named.div)
    __ipow__ = inplace.in_place(named.pow)

    mul_ = inplace.in_place(named.mul)
    div_ = inplace.in_place(named.div)
    pow_ = inplace.in_place(named.pow)
    neg_ = inplace.in_place(named.neg)
    abs_ = inplace.in_place(named.abs)
    exp_ = inplace.in_place(named.exp)
    log_ = inplace.in_place(named.log)
    sqrt_ = inplace.in_place(named.sqrt)
    square_ = inplace.in_place(named.square)
    reciprocal_ = inplace.in_place(named.reciprocal)
    sigmoid_ = inplace.in_place(named.sigmoid)
    tanh_ = inplace.in_place(named.tanh)
    relu_ = inplace.in_place(named.relu)

    def add_(self, other: Any, *, alpha: float = 1) -> Tensor:
        """Add `alpha * other` in place."""
        return self.__iadd__(other if alpha == 1 else named.mul(other, alpha))

    def sub_(self, other: Any, *, alpha: float = 1) -> Tensor:
        """Subtract `alpha * other` in place."""
        return self.__isub__(other if alpha == 1 else named.mul(other, alpha))

    def copy_(self, source: Any) -> Tensor:
        """Write `source`, broadcast and converted, into this tensor."""
        return inplace.assign(self, source)

    def fill_(self, value: Any) -> Tensor:
        """Write one value everywhere."""
        return inplace.assign(self, value)

    def zero_(self) -> Tensor:
        """Write zeros."""
        return inplace.assign(self, 0)

    def detach_(self) -> Tensor:
        """Drop this tensor's history."""
        self.node = None
        return self


def _as_array(x: Any) -> Any:
    return x.numpy() if isinstance(x, Tensor) else x


def _rebuilt(
    kind: Any, content: bytes, dtype: DType, shape: tuple[int, ...], device: str, kept: Any
) -> Tensor:
    """A tensor out of what `Tensor.__reduce_ex__` keeps."""
    native = backends.get("cpu").native_dtype(dtype)
    array = np.frombuffer(bytearray(content), native).reshape(shape)
    t: Tensor = new_value(kind, backends.get(device).from_numpy(array))
    if kept["parameter"]:
        t.more()["parameter"] = True
    return t.requires_grad_(kept["requires_grad"])


def _moved(raw: Any, device: str) -> Any:
    """A copy of a raw array on another device."""
    return backends.get(device).from_numpy(np.array(backend_for(raw).to_numpy(raw), copy=True))


TO_DEVICE = Rule(
    "to device",
    lambda node, g: (_moved(g, node.attrs[0]),),
    lambda node, g: (_to_device(g, node.attrs[0]),),
)


def _to_device(t: Any, device: str) -> Any:
    out = new_value(type(t), _moved(raw_of(t), device))
    if t.node is not None and is_grad_enabled():
        home = (backend_for(t._a).name,)
        out.node = record(TO_DEVICE, (), (t.node,), home, tuple(out._a.shape), user_place())
    return out


_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": named.add,
    "subtract": named.sub,
    "multiply": named.mul,
    "divide": named.div,
    "true_divide": named.div,
    "power": named.pow,
    "remainder": named.remainder,
    "matmul": ops.matmul,
    "maximum": named.maximum,
    "minimum": named.minimum,
    "less": named.lt,
    "less_equal": named.le,
    "greater": named.gt,
    "greater_equal": named.ge,
    "equal": named.eq,
    "not_equal": named.ne,
    "negative": named.neg,
    "absolute": named.abs,
    "rint": named.round,
    "arcsin": named.asin,
    "arccos": named.acos,
    "arctan": named.atan,
    "arctan2": named.atan2,
    "arcsinh": named.asinh,
    "arccosh": named.acosh,
    "arctanh": named.atanh,
}
_SAME_NAME = (
    "ceil cos cosh exp exp2 expm1 floor fmod hypot isfinite isinf isnan log log10 log1p log2 "
    "logaddexp logical_and logical_not logical_or reciprocal sign sin sinh sqrt square tan tanh "
    "trunc"
)
for _name in _SAME_NAME.split():
    _UFUNCS[_name] = getattr(named, _name)


engine.set_tensor_ops(ops, Tensor)
