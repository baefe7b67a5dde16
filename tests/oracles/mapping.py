"""Which function of ours answers which OpInfo entry, and where the two are not the same.

One row an operation: ours, what of PyTorch's call it lacks, and where it differs on purpose
(`docs/conventions.md`). Rows are as near to `cr.name` as they can be: what a row adapts, a user
would have to adapt too. Needs no PyTorch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import chainrule as cr
import chainrule.nn.functional as F

When = Callable[[Any, str], bool]


def always(sample: Any, dtype: str) -> bool:
    """Every sample of every dtype."""
    return True


@dataclass(frozen=True)
class Difference:
    """Where ours differs on purpose: these aspects are then not compared.

    Aspects: "value", "dtype", "view" (strides), "gradient" (first and second), "second", "order"
    (which of several equal elements an index names), and "refused", where ours has to raise.
    """

    reason: str
    aspects: tuple[str, ...]
    when: When = always


@dataclass(frozen=True, eq=False)
class Entry:
    """One row: the function, how it is written, and its limits."""

    ours: Callable[..., Any]
    written: str
    lacks: Mapping[str, str] = field(default_factory=dict)
    without: tuple[tuple[When, str], ...] = ()
    differs: tuple[Difference, ...] = ()
    takes: tuple[tuple[Callable[[Any], bool], str], ...] = ()
    shape_only: bool = False
    only_index: bool = False  # the one output is indices
    # Judged against float64, the error may be twice PyTorch's and this many roundings of the
    # largest number.
    roundings: float = 4

    def unsupported(self, sample: Any, dtype: str) -> str | None:
        """Why ours cannot be called with this sample, or None."""
        for keyword in sample.kwargs:
            if keyword in self.lacks:
                return self.lacks[keyword]
        return next((reason for when, reason in self.without if when(sample, dtype)), None)

    def accepts(self, sample: Any) -> str | None:
        """Why ours answers a call that PyTorch refuses, or None."""
        return next((reason for when, reason in self.takes if when(sample)), None)


def function(name: str, **limits: Any) -> Entry:
    """`cr.name`."""
    return Entry(getattr(cr, name), f"cr.{name}", **limits)


def functional(name: str, **limits: Any) -> Entry:
    """`F.name`."""
    return Entry(getattr(F, name), f"F.{name}", **limits)


def method(name: str, **limits: Any) -> Entry:
    """`x.name(…)`."""
    return Entry(getattr(cr.Tensor, name), f"x.{name}()", **limits)


def read(name: str) -> Entry:
    """`x.name`, a property."""
    return Entry(operator.attrgetter(name), f"x.{name}")


def keyword(*names: str) -> dict[str, str]:
    """No such keywords."""
    return {name: f"no `{name}=`" for name in names}


def dtype_is(*names: str) -> When:
    """Samples of these dtypes."""
    return lambda sample, dtype: dtype in names


def number(x: Any) -> bool:
    """A Python number rather than a tensor."""
    return isinstance(x, (bool, int, float, complex))


def _with_number(sample: Any) -> bool:
    operands = (sample.input, *sample.args)
    return any(map(number, operands)) and not all(map(number, operands))


def _bound(sample: Any) -> bool:
    return not number(sample.input)


def _first(sample: Any) -> bool:
    return number(sample.input) and not number(sample.args[0])


BOUND = ((_bound, "a bound may be a number"),)
FIRST_NUMBER = ((_first, "numbers are operands, on either side"),)
NUMBERS = ((_with_number, "numbers are operands, on either side"),)
WHOLE = ("int64", "int32", "int16", "int8", "uint8")
STORAGE_ONLY = "complex numbers are stored, not computed with"


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[(slice(None),) * dim + (slice(start, end, step),)]


def _index_put(x: Any, key: Any, value: Any, accumulate: bool = False) -> Any:
    y = x.clone()
    y[tuple(key)] = value
    return y


def _to(x: Any, *args: Any, memory_format: Any = None) -> Any:
    # The two flags before the last (non_blocking, copy) say nothing about the result.
    return x.to(*args[:-2])


def _formatted(sample: Any, dtype: str) -> bool:
    found = str(sample.kwargs.get("memory_format", "torch.preserve_format"))
    return found not in ("torch.preserve_format", "torch.contiguous_format")


def _cast(name: str) -> Entry:
    def ours(x: Any, memory_format: Any = None) -> Any:
        return getattr(x, name)()

    return Entry(ours, f"x.{name}()", without=((_formatted, "no channels-last memory format"),))


def _reflected(name: str, sign: str, **limits: Any) -> Entry:
    return Entry(getattr(cr.Tensor, name), f"y {sign} x", takes=NUMBERS, **limits)


def _class_probabilities(sample: Any, dtype: str) -> bool:
    return sample.args[0].is_floating_point()


def _short_index(sample: Any, dtype: str) -> bool:
    return "uint8" in str(sample.args[1].dtype)


def _no_integer(sample: Any, dtype: str) -> bool:
    return dtype in WHOLE and bool((sample.input < 0).any())


def _scaled_by_fractions(sample: Any, dtype: str) -> bool:
    factors = (sample.kwargs.get("alpha", 1), sample.kwargs.get("beta", 1))
    return dtype in WHOLE and any(f != int(f) for f in factors)


def _fraction(sample: Any, dtype: str) -> bool:
    return dtype in (*WHOLE, "bool") and any(isinstance(x, float) for x in sample.args)


def _summed_alone(sample: Any, dtype: str) -> bool:
    if dtype not in WHOLE or dtype == "int64" or "->" not in sample.args[0]:
        return False
    left, right = sample.args[0].split("->")
    terms = left.split(",")
    labels = {c for c in left if c.isalpha() and c not in right}
    return any(sum(c in term for term in terms) == 1 for c in labels)


def _sizes_differ(sample: Any, dtype: str) -> bool:
    dims = sample.kwargs.get("dims")
    if not isinstance(dims, (list, tuple)):
        return False
    pairs = zip(*dims, strict=True)
    return any(sample.input.shape[i] != sample.args[0].shape[j] for i, j in pairs)


def _outside(sample: Any, dtype: str) -> bool:
    start = sample.kwargs.get("storage_offset")
    return (
        sample.input.requires_grad and start is not None and start < sample.input.storage_offset()
    )


def _out_of_range(sample: Any, dtype: str) -> bool:
    target = str(sample.kwargs.get("dtype", dtype))
    return target.endswith("uint8") and sample.args[0] < 0


def _linalg_diagonal(x: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    return cr.diagonal(x, offset, dim1, dim2)


IN_RANGE = (
    Difference(
        "a number out of the dtype's range is refused; PyTorch wraps it",
        ("refused",),
        _out_of_range,
    ),
)

# Elementwise functions of one tensor, and of two: the same name in both libraries.
STABLE = Difference(
    "which of equal elements an index names: the first one here, unspecified in PyTorch", ("order",)
)
NO_FRACTIONS = Difference(
    "fractional factors of integers are refused; PyTorch truncates them",
    ("refused",),
    _scaled_by_fractions,
)


def _stated(reason: str, when: When, *aspects: str) -> dict[str, Any]:
    return {"differs": (Difference(reason, aspects, when),)}


UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 floor isfinite "
    "isinf isnan log log10 log1p log2 logical_not neg reciprocal round rsqrt sigmoid sign sin "
    "sinh sqrt square tan tanh trunc"
)
BINARY = (
    "atan2 eq fmod ge gt hypot le logaddexp logical_and logical_or lt maximum minimum mul ne "
    "pow remainder"
)
# Array functions whose samples need no adapting.
ARRAY = (
    "all amax amin any argmax argmin as_strided broadcast_to cat chunk clamp clone count_nonzero "
    "cumsum diagonal flatten flip gather hstack index_select log_softmax logsumexp masked_fill "
    "masked_select matmul mean movedim narrow nonzero permute prod reshape roll scatter_add "
    "select softmax split squeeze stack std std_mean sum take_along_dim tile transpose tril triu "
    "unbind unflatten unsqueeze var var_mean vstack"
)

PRODUCTS = "addbmm addmm addmv addr baddbmm bmm cdist cross dot inner kron mv outer tensordot trace"
ORDER = (
    "argsort bincount bucketize cummax cummin cumprod diff histc isin kthvalue logcumsumexp median "
    "mode msort nanmedian searchsorted sort topk unique unique_consecutive"
)
PLACING = (
    "diagonal_scatter index_add index_copy index_fill masked_scatter put scatter select_scatter "
    "slice_scatter take"
)
REARRANGING = (
    "atleast_1d atleast_2d atleast_3d block_diag cartesian_prod column_stack diag diag_embed "
    "diagflat dsplit dstack fliplr flipud hsplit repeat_interleave rot90 tensor_split vsplit"
)
SPECIAL = (
    "addcdiv addcmul deg2rad erfinv frac isneginf isposinf lerp logit nan_to_num rad2deg sgn "
    "signbit sinc"
)
SPECIAL_BINARY = (
    "bitwise_left_shift bitwise_right_shift copysign floor_divide heaviside logaddexp2 logical_xor "
    "xlogy"
)
ACTIVATIONS = "celu hardshrink hardswish selu softshrink softsign tanhshrink threshold"
NINE_DIGITS = "PyTorch's trigamma, which is the derivative, has nine digits"


def _at_a_pole(sample: Any, dtype: str) -> bool:
    x = sample.input.double()
    return bool(((x <= 0) & (x == x.round())).any())


def _trigamma(sample: Any, dtype: str) -> bool:
    return sample.args[0] == 1 and dtype == "float64"


def _polygamma() -> Entry:
    poles = Difference(
        "inf and NaN at the poles, where PyTorch's sine of π is not 0", ("value",), _at_a_pole
    )
    digits = Difference("PyTorch's trigamma has nine digits", ("value", "gradient"), _trigamma)
    return Entry(lambda x, order: cr.polygamma(order, x), "cr.polygamma", differs=(digits, poles))


REDUCED = ("sum", "amax", "amin", "mean", "prod")
INTEGERS = ((dtype_is(*WHOLE, "bool"), "no convolution of integers"),)
FLOATS_ONLY = ((dtype_is(*WHOLE, "bool"), "floating-point tensors only"),)
ADAPTED_POOLING = "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"
RESIZING = "area bicubic bilinear linear nearest nearest-exact trilinear"
POOLING = "avg_pool1d avg_pool2d avg_pool3d"
LOSSES = (
    "binary_cross_entropy_with_logits cosine_similarity hinge_embedding_loss huber_loss kl_div "
    "margin_ranking_loss normalize smooth_l1_loss soft_margin_loss"
)
FLOAT_LOSSES = "cosine_embedding_loss pairwise_distance poisson_nll_loss"


def _normalised(name: str) -> Entry:
    # Both libraries write the running statistics, and no input of a sample may be changed.
    def ours(
        x: Any, running_mean: Any = None, running_var: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        copies = [s if s is None else s.clone() for s in (running_mean, running_var)]
        return getattr(F, name)(x, *copies, *args, **kwargs)

    flat = ((lambda s, d: s.input.ndim < 2, "inputs are (N, C, …)"),)
    return Entry(ours, f"F.{name}", without=flat)


CONVOLUTIONS = "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"

TABLE: dict[str, Entry] = {
    **{name: function(name) for name in f"{UNARY} {ARRAY}".split()},
    **{name: function(name) for name in f"{PRODUCTS} {ORDER} {PLACING} {REARRANGING}".split()},
    **{f"index_reduce.{how}": function("index_reduce") for how in REDUCED[1:]},
    **{f"scatter_reduce.{how}": function("scatter_reduce") for how in REDUCED},
    **{
        f"nn.functional.{name}": functional(name, without=INTEGERS) for name in CONVOLUTIONS.split()
    },
    **{
        name: function(name, differs=(NO_FRACTIONS,))
        for name in ["addbmm", "addmm", "addmv", "baddbmm"]
    },
    **{
        name: function(name, differs=(STABLE,))
        for name in ["kthvalue", "median", "mode", "nanmedian", "sort", "topk"]
    },
    "argsort": function("argsort", differs=(STABLE,), only_index=True),
    "addr": function(
        "addr",
        **_stated(
            "factors of bools make integers; bool in PyTorch",
            lambda s, d: d == "bool" and "alpha" in s.kwargs,
            "dtype",
            "value",
        ),
    ),
    "cdist": Entry(lambda x, y, p=2.0, how="": cr.cdist(x, y, p), "cr.cdist"),
    "tensordot": function(
        "tensordot",
        **_stated(
            "contracted sizes have to be equal; PyTorch broadcasts", _sizes_differ, "refused"
        ),
    ),
    "index_add": function(
        "index_add",
        **_stated(
            "a factor beyond the dtype is refused; PyTorch wraps it",
            lambda s, d: d == "uint8" and s.kwargs.get("alpha", 1) < 0,
            "refused",
        ),
    ),
    "scatter": function(
        "scatter",
        **_stated("2.5 into integers is refused; PyTorch truncates it", _fraction, "refused"),
    ),
    "addmm.decomposed": function("addmm", differs=(NO_FRACTIONS,)),
    "bmm.triton_optimized": function("bmm"),
    "einsum": Entry(
        lambda tensors, equation: cr.einsum(equation, *tensors),
        "cr.einsum",
        **_stated(
            "integers keep their dtype; PyTorch's are int64 where one operand is summed",
            _summed_alone,
            "dtype",
            "value",
        ),
    ),
    "meshgrid.list_of_tensors": function("meshgrid"),
    "meshgrid.variadic_tensors": function("meshgrid"),
    **{name: function(name, takes=NUMBERS) for name in BINARY.split()},
    **{name: function(name) for name in SPECIAL.split()},
    **{name: function(name, takes=NUMBERS) for name in SPECIAL_BINARY.split()},
    **{f"nn.functional.{name}": functional(name) for name in ACTIVATIONS.split()},
    "nn.functional.hardsigmoid": functional(
        "hardsigmoid",
        **_stated("PyTorch's gradient is a sixth in float32", dtype_is("float64"), "gradient"),
    ),
    "digamma": function("digamma", **_stated(NINE_DIGITS, dtype_is("float64"), "gradient")),
    "lgamma": function("lgamma", **_stated(NINE_DIGITS, dtype_is("float64"), "second")),
    **{f"polygamma.polygamma_n_{n}": _polygamma() for n in range(5)},
    "special.polygamma.special_polygamma_n_0": _polygamma(),
    "special.xlog1py": function("xlog1py", takes=NUMBERS),
    "div.floor_rounding": function("div", takes=NUMBERS),
    "div.trunc_rounding": function("div", takes=NUMBERS),
    **{f"round.decimals_{k}": function("round") for k in ("0", "3", "neg_3")},
    "linalg.cross": Entry(
        lambda x, y, *, dim=-1: cr.cross(x, y, dim),
        "cr.cross",
        takes=((lambda s: s.input.ndim != s.args[0].ndim, "operands broadcast"),),
    ),
    # Arithmetic.
    "add": function("add", lacks=keyword("alpha")),
    "sub": function("sub", lacks=keyword("alpha")),
    "div.no_rounding_mode": function("div"),
    "true_divide": method("true_divide"),
    "positive": Entry(operator.pos, "+x"),
    "__radd__": _reflected("__radd__", "+"),
    "__rsub__": _reflected("__rsub__", "-"),
    "__rmul__": _reflected("__rmul__", "*"),
    "__rdiv__": _reflected("__rtruediv__", "/"),
    "__rmod__": _reflected("__rmod__", "%"),
    "__rpow__": _reflected(
        "__rpow__",
        "**",
        differs=(
            Difference(
                "an integer to a negative power is refused; PyTorch truncates it to 0",
                ("refused",),
                _no_integer,
            ),
        ),
    ),
    "__rmatmul__": _reflected("__rmatmul__", "@"),
    "bitwise_and": function("bitwise_and", takes=NUMBERS),
    "bitwise_or": function("bitwise_or", takes=NUMBERS),
    "bitwise_xor": function("bitwise_xor", takes=NUMBERS),
    "bitwise_not": function("bitwise_not"),
    "__rand__": _reflected("__rand__", "&"),
    "__ror__": _reflected("__ror__", "|"),
    "__rxor__": _reflected("__rxor__", "^"),
    "clamp_max": Entry(lambda x, high: cr.clamp(x, max=high), "cr.clamp(max=)", takes=BOUND),
    "clamp_min": Entry(lambda x, low: cr.clamp(x, min=low), "cr.clamp(min=)", takes=BOUND),
    "max.binary": function("max", takes=FIRST_NUMBER),
    "min.binary": function("min", takes=FIRST_NUMBER),
    "special.ndtr": function("ndtr"),
    "where": Entry(lambda x, condition, y: cr.where(condition, x, y), "cr.where"),
    "fill": Entry(lambda x, value: x.clone().fill_(value), "x.fill_()"),
    # Reductions and normalisation.
    "max.reduction_no_dim": function("max"),
    "max.reduction_with_dim": function("max"),
    "min.reduction_no_dim": function("min"),
    "min.reduction_with_dim": function("min"),
    "std.unbiased": function("std"),
    "var.unbiased": function("var"),
    "std_mean.unbiased": function("std_mean"),
    "var_mean.unbiased": function("var_mean"),
    "norm": function("norm"),
    "norm.fro": function("norm"),
    "norm.inf": function("norm"),
    "linalg.vector_norm": Entry(lambda x, ord=2, **kwargs: cr.norm(x, ord, **kwargs), "cr.norm"),
    "softmax.with_dtype": function("softmax"),
    "log_softmax.with_dtype": function("log_softmax"),
    # Views, shapes and indexing.
    "gather": function(
        "gather",
        differs=(
            Difference("an empty index has to be an integer one too", ("refused",), _short_index),
        ),
    ),
    "narrow": function(
        "narrow",
        takes=((lambda s: "bool" in str(getattr(s.args[1], "dtype", "")), "True is 1"),),
    ),
    "T": read("T"),
    "mT": read("mT"),
    "t": method("t"),
    "mm": method("mm"),
    "as_strided.partial_views": function(
        "as_strided",
        differs=(
            Difference(
                "a view of elements outside a tensor that needs a gradient is refused",
                ("refused",),
                _outside,
            ),
        ),
    ),
    "contiguous": method("contiguous"),
    "expand": method("expand"),
    "expand_as": method("expand_as"),
    "item": method("item"),
    "linalg.diagonal": Entry(_linalg_diagonal, "cr.diagonal"),
    "repeat": method("repeat"),
    "reshape_as": method("reshape_as"),
    "slice": Entry(_slice, "x[a:b:c]"),
    "split.list_args": function("split"),
    "split_with_sizes": function("split"),
    "squeeze.multiple": function("squeeze"),
    "unfold": method("unfold"),
    "view": method("view"),
    "view_as": method("view_as"),
    "__getitem__": Entry(operator.getitem, "x[key]"),
    "index_put": Entry(
        _index_put,
        "x[key] = y",
        without=((lambda s, d: s.kwargs.get("accumulate"), "no accumulating write"),),
    ),
    "constant_pad_nd": Entry(lambda x, pad, value=0: F.pad(x, pad, value=value), "F.pad"),
    "nn.functional.pad.constant": functional("pad"),
    # To another dtype.
    **{
        name: _cast(name) for name in ["bfloat16", "bool", "double", "float", "half", "int", "long"]
    },
    "to": Entry(_to, "x.to()", without=((_formatted, "no channels-last memory format"),)),
    # Making tensors.
    "arange": function("arange"),
    "eye": function("eye"),
    "full": function("full", differs=IN_RANGE),
    "linspace": function("linspace"),
    "ones": function("ones"),
    "zeros": function("zeros"),
    "empty": function("empty", shape_only=True),
    "randn": function("randn", shape_only=True),
    "empty_like": function("empty_like", shape_only=True),
    "full_like": function("full_like", differs=IN_RANGE),
    "ones_like": function("ones_like"),
    "zeros_like": function("zeros_like"),
    # Layers and losses.
    "nn.functional.cross_entropy": functional(
        "cross_entropy",
        lacks=keyword("weight"),
        without=((_class_probabilities, "targets are class numbers"),),
    ),
    "nn.functional.elu": functional("elu"),
    "nn.functional.embedding": Entry(
        lambda weight, index, **kwargs: F.embedding(index, weight, **kwargs),
        "F.embedding",
        lacks=keyword("max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
    ),
    "nn.functional.gelu": functional("gelu"),
    "nn.functional.hardtanh": functional(
        "hardtanh",
        differs=(
            Difference(
                "integers become float32; PyTorch truncates the bounds",
                ("dtype", "value"),
                dtype_is(*WHOLE),
            ),
        ),
    ),
    "nn.functional.l1_loss": functional("l1_loss"),
    "nn.functional.layer_norm": functional("layer_norm"),
    "nn.functional.leaky_relu": functional("leaky_relu"),
    "nn.functional.linear": functional("linear"),
    "nn.functional.logsigmoid": functional("logsigmoid"),
    "nn.functional.mish": functional("mish"),
    "nn.functional.mse_loss": functional("mse_loss"),
    "nn.functional.nll_loss": functional("nll_loss", lacks=keyword("weight")),
    "nn.functional.one_hot": functional("one_hot"),
    "nn.functional.relu": functional("relu"),
    "nn.functional.relu6": functional("relu6"),
    "nn.functional.rms_norm": functional("rms_norm"),
    "nn.functional.scaled_dot_product_attention": functional(
        "scaled_dot_product_attention",
        without=((lambda s, d: s.kwargs["dropout_p"] > 0, "dropout draws from another generator"),),
        # Scores of ±300 are exponentiated: one rounding of a score is hundreds of the result's.
        roundings=100,
    ),
    "nn.functional.silu": functional("silu"),
    "nn.functional.batch_norm": _normalised("batch_norm"),
    "nn.functional.instance_norm": _normalised("instance_norm"),
    "nn.functional.group_norm": functional("group_norm"),
    "nn.functional.binary_cross_entropy": functional(
        "binary_cross_entropy",
        **_stated(
            "PyTorch's second gradient adds 1e-12 to its denominators",
            dtype_is("float64"),
            "second",
        ),
    ),
    **{f"nn.functional.{name}": functional(name) for name in LOSSES.split()},
    **{
        f"nn.functional.{name}": functional(name, without=FLOATS_ONLY)
        for name in FLOAT_LOSSES.split()
    },
    "nn.functional.triplet_margin_loss": functional(
        "triplet_margin_loss",
        without=FLOATS_ONLY,
        takes=((lambda s: s.kwargs.get("margin", 1) <= 0, "a margin may be negative"),),
    ),
    **{f"nn.functional.{name}": functional(name) for name in ADAPTED_POOLING.split()},
    **{f"nn.functional.{name}": functional(name, without=FLOATS_ONLY) for name in POOLING.split()},
    "cholesky": function("cholesky"),
    "logdet": function("logdet"),
    "nn.functional.softplus": functional("softplus"),
}

_RESIZED = "judged in tests/ops/test_pooling.py; PyTorch's own samples of it have no row here yet"
_MANY = "judged in tests/ops/test_pooling.py; PyTorch's thousands of samples would take minutes"

# Entries whose plain form is above and whose variant ours does not have at all.
VARIANTS = {
    "norm.nuc": "the nuclear norm needs singular values",
    "nn.functional.pad.circular": "only `constant` padding",
    "nn.functional.pad.reflect": "only `constant` padding",
    "nn.functional.pad.replicate": "only `constant` padding",
    "nn.functional.pad.replicate_negative": "only `constant` padding",
    "nn.functional.silu.complex": STORAGE_ONLY,
    **{f"nn.functional.max_pool{n}d": _MANY for n in (1, 2, 3)},
    **{f"nn.functional.interpolate.{how}": _RESIZED for how in RESIZING.split()},
    "nn.functional.batch_norm.without_cudnn": "has samples for CUDA only",
    "linspace.tensor_overload": "start and end are numbers",
    "nn.functional.dropout": "draws from another generator; its own tests are in tests/ops",
    "zero_": "writes into its input, which no sample's may be; tests/ops/test_inplace.py",
    "randint": "draws from another generator; its own tests are in tests/test_creation.py",
}
