"""chainrule: a tensor library with glass walls.

`import chainrule as cr`, or `import chainrule as torch`: names and meanings are PyTorch's where
the idea is the same. The base needs NumPy alone; PyTorch is never required.
"""

from __future__ import annotations

from chainrule import _tensor, autograd, ops
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
from chainrule.layout import Layout
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
