"""chainrule: a tensor library with glass walls.

`import chainrule as cr`, or `import chainrule as torch`: names and meanings are PyTorch's where
the idea is the same. The base needs NumPy alone; PyTorch is never required.
"""

from __future__ import annotations

from chainrule import _tensor, autograd, bench, check, func, linalg, nn, ops, optim, show, utils
from chainrule._tensor import Tensor
from chainrule._version import __version__
from chainrule.autograd import (
    Function,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from chainrule.check import gradcheck, gradgradcheck
from chainrule.creation import (
    arange,
    as_tensor,
    empty,
    empty_like,
    eye,
    from_dlpack,
    from_numpy,
    from_torch,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    tensor,
    zeros,
    zeros_like,
)
from chainrule.dtypes import (
    DType as dtype,
)
from chainrule.dtypes import (
    bfloat16,
    bool,
    cdouble,
    cfloat,
    complex64,
    complex128,
    double,
    float,
    float16,
    float32,
    float64,
    half,
    int,
    int8,
    int16,
    int32,
    int64,
    long,
    short,
    uint8,
)
from chainrule.errors import ChainruleError
from chainrule.io import load, save
from chainrule.layout import Layout
from chainrule.ops import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumsum,
    linear,
    log_softmax,
    logsumexp,
    matmul,
    max,
    mean,
    min,
    norm,
    prod,
    softmax,
    std,
    std_mean,
    sum,
    var,
    var_mean,
)
from chainrule.ops.bitwise import bitwise_and, bitwise_not, bitwise_or, bitwise_xor
from chainrule.ops.composed import (
    addcdiv,
    addcmul,
    bitwise_left_shift,
    bitwise_right_shift,
    celu,
    clamp_max,
    clamp_min,
    deg2rad,
    div,
    floor_divide,
    frac,
    hardshrink,
    hardsigmoid,
    hardswish,
    heaviside,
    isneginf,
    isposinf,
    logaddexp2,
    logical_xor,
    logit,
    nan_to_num,
    rad2deg,
    round,
    selu,
    sgn,
    signbit,
    softshrink,
    tanhshrink,
    threshold,
)
from chainrule.ops.contraction import (
    einsum,
)
from chainrule.ops.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from chainrule.ops.decomposition import matrix_power
from chainrule.ops.elementwise_losses import cosine_similarity, pairwise_distance
from chainrule.ops.gathering import (
    gather,
    index_select,
    one_hot,
    take_along_dim,
)
from chainrule.ops.gathering import (
    scatter_add_to as scatter_add,
)
from chainrule.ops.joining import (
    cat,
    hstack,
    roll,
    stack,
    tile,
    vstack,
)
from chainrule.ops.joining import (
    cat as concat,
)
from chainrule.ops.joining import (
    cat as concatenate,
)
from chainrule.ops.masking import (
    clamp,
    masked_fill,
    masked_select,
    nonzero,
    tril,
    triu,
)
from chainrule.ops.masking import (
    clamp as clip,
)
from chainrule.ops.named import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    ceil,
    copysign,
    cos,
    cosh,
    digamma,
    elu,
    eq,
    erf,
    erfc,
    erfinv,
    exp,
    exp2,
    expm1,
    floor,
    fmod,
    ge,
    gelu,
    gelu_tanh,
    gt,
    hardtanh,
    hypot,
    isfinite,
    isinf,
    isnan,
    le,
    leaky_relu,
    lerp,
    lgamma,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logsigmoid,
    lt,
    maximum,
    minimum,
    mish,
    mul,
    ndtr,
    ne,
    neg,
    npdf,
    polygamma,
    pow,
    reciprocal,
    relu,
    relu6,
    remainder,
    rsqrt,
    sech2,
    sigmoid,
    sign,
    silu,
    sin,
    sinc,
    sinh,
    softplus,
    softsign,
    sqrt,
    square,
    squareplus,
    squareplus_slope,
    sub,
    tan,
    tanh,
    trunc,
    where,
    xlog1py,
    xlogy,
)
from chainrule.ops.placing import (
    diagonal_scatter,
    index_copy,
    index_fill,
    masked_scatter,
    put,
    scatter,
    select_scatter,
    slice_scatter,
    take,
)
from chainrule.ops.placing import (
    index_add_to as index_add,
)
from chainrule.ops.products import (
    addbmm,
    addmm,
    addmv,
    addr,
    baddbmm,
    bmm,
    cdist,
    cross,
    dot,
    inner,
    kron,
    mm,
    mv,
    outer,
    tensordot,
)
from chainrule.ops.rearranging import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    cartesian_prod,
    column_stack,
    diag,
    diag_embed,
    diagflat,
    dsplit,
    dstack,
    fliplr,
    flipud,
    hsplit,
    meshgrid,
    repeat_interleave,
    rot90,
    tensor_split,
    trace,
    vander,
    vsplit,
)
from chainrule.ops.running import (
    cummax,
    cummin,
    cumprod,
    diff,
    logcumsumexp,
)
from chainrule.ops.scattering import (
    index_reduce,
    scatter_reduce,
)
from chainrule.ops.searching import (
    bincount,
    bucketize,
    histc,
    isin,
    searchsorted,
    unique,
    unique_consecutive,
)
from chainrule.ops.sorting import (
    argsort,
    kthvalue,
    median,
    mode,
    msort,
    nanmedian,
    sort,
    topk,
)
from chainrule.ops.systems import cholesky, det, logdet, slogdet
from chainrule.ops.systems import inv as inverse
from chainrule.ops.views import (
    as_strided,
    broadcast_to,
    chunk,
    clone,
    diagonal,
    flatten,
    flip,
    movedim,
    narrow,
    permute,
    reshape,
    select,
    split,
    squeeze,
    transpose,
    unbind,
    unflatten,
    unsqueeze,
)
from chainrule.random import (
    Generator,
    get_rng_state,
    manual_seed,
    rand,
    randint,
    randn,
    randperm,
    set_rng_state,
)

# PyTorch has these two in `autograd`; here they live in `check`, which is built on it.
autograd.gradcheck = gradcheck
autograd.gradgradcheck = gradgradcheck
