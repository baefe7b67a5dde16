"""Modules: the parts of networks, under PyTorch's names."""

from __future__ import annotations

from chainrule.nn import functional as functional
from chainrule.nn import init as init
from chainrule.nn import utils as utils
from chainrule.nn.activations import (
    ELU as ELU,
)
from chainrule.nn.activations import (
    GELU as GELU,
)
from chainrule.nn.activations import (
    Identity as Identity,
)
from chainrule.nn.activations import (
    LeakyReLU as LeakyReLU,
)
from chainrule.nn.activations import (
    LogSigmoid as LogSigmoid,
)
from chainrule.nn.activations import (
    LogSoftmax as LogSoftmax,
)
from chainrule.nn.activations import (
    Mish as Mish,
)
from chainrule.nn.activations import (
    ReLU as ReLU,
)
from chainrule.nn.activations import (
    ReLU6 as ReLU6,
)
from chainrule.nn.activations import (
    Sigmoid as Sigmoid,
)
from chainrule.nn.activations import (
    SiLU as SiLU,
)
from chainrule.nn.activations import (
    Softmax as Softmax,
)
from chainrule.nn.activations import (
    Softplus as Softplus,
)
from chainrule.nn.activations import (
    Squareplus as Squareplus,
)
from chainrule.nn.activations import (
    Tanh as Tanh,
)
from chainrule.nn.containers import (
    ModuleDict as ModuleDict,
)
from chainrule.nn.containers import (
    ModuleList as ModuleList,
)
from chainrule.nn.containers import (
    Sequential as Sequential,
)
from chainrule.nn.layers import (
    CrossEntropyLoss as CrossEntropyLoss,
)
from chainrule.nn.layers import (
    Dropout as Dropout,
)
from chainrule.nn.layers import (
    Embedding as Embedding,
)
from chainrule.nn.layers import (
    L1Loss as L1Loss,
)
from chainrule.nn.layers import (
    LayerNorm as LayerNorm,
)
from chainrule.nn.layers import (
    Linear as Linear,
)
from chainrule.nn.layers import (
    MSELoss as MSELoss,
)
from chainrule.nn.layers import (
    NLLLoss as NLLLoss,
)
from chainrule.nn.layers import (
    RMSNorm as RMSNorm,
)
from chainrule.nn.module import Module as Module
from chainrule.nn.parameter import Parameter as Parameter
from chainrule.nn.recurrent import RNN as RNN
from chainrule.nn.recurrent import RNNCell as RNNCell
from chainrule.nn.transformer import (
    GPT as GPT,
)
from chainrule.nn.transformer import (
    Block as Block,
)
from chainrule.nn.transformer import (
    CausalSelfAttention as CausalSelfAttention,
)
