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
from chainrule.nn.convolution import Conv1d as Conv1d
from chainrule.nn.convolution import Conv2d as Conv2d
from chainrule.nn.convolution import Conv3d as Conv3d
from chainrule.nn.convolution import ConvTranspose1d as ConvTranspose1d
from chainrule.nn.convolution import ConvTranspose2d as ConvTranspose2d
from chainrule.nn.convolution import ConvTranspose3d as ConvTranspose3d
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
from chainrule.nn.losses import BCELoss as BCELoss
from chainrule.nn.losses import BCEWithLogitsLoss as BCEWithLogitsLoss
from chainrule.nn.losses import CosineEmbeddingLoss as CosineEmbeddingLoss
from chainrule.nn.losses import CosineSimilarity as CosineSimilarity
from chainrule.nn.losses import HuberLoss as HuberLoss
from chainrule.nn.losses import KLDivLoss as KLDivLoss
from chainrule.nn.losses import SmoothL1Loss as SmoothL1Loss
from chainrule.nn.losses import TripletMarginLoss as TripletMarginLoss
from chainrule.nn.module import Module as Module
from chainrule.nn.norms import BatchNorm1d as BatchNorm1d
from chainrule.nn.norms import BatchNorm2d as BatchNorm2d
from chainrule.nn.norms import BatchNorm3d as BatchNorm3d
from chainrule.nn.norms import GroupNorm as GroupNorm
from chainrule.nn.norms import InstanceNorm1d as InstanceNorm1d
from chainrule.nn.norms import InstanceNorm2d as InstanceNorm2d
from chainrule.nn.norms import InstanceNorm3d as InstanceNorm3d
from chainrule.nn.parameter import Parameter as Parameter
from chainrule.nn.pooling import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from chainrule.nn.pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from chainrule.nn.pooling import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from chainrule.nn.pooling import AvgPool1d as AvgPool1d
from chainrule.nn.pooling import AvgPool2d as AvgPool2d
from chainrule.nn.pooling import AvgPool3d as AvgPool3d
from chainrule.nn.pooling import Flatten as Flatten
from chainrule.nn.pooling import MaxPool1d as MaxPool1d
from chainrule.nn.pooling import MaxPool2d as MaxPool2d
from chainrule.nn.pooling import MaxPool3d as MaxPool3d
from chainrule.nn.pooling import Unflatten as Unflatten
from chainrule.nn.pooling import Upsample as Upsample
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
