"""Raw array work on one device behind one protocol: what a backend must offer.

A backend is a module whose functions take and return its own raw arrays; it knows nothing of
autograd. `numpy` is the default (device "cpu"), `torch` (device "torch") runs on raw PyTorch
tensors and is the seam through which other devices enter. A derivative rule is written once
against these functions: the differentiable namespace `chainrule.ops` offers the same ones.

Every primitive of the calculus table is a function of the same name (`b.exp(x)`); beyond them a
rule may call `where sum amax amin argmax cumsum matmul gather scatter_add index_get index_add
concat reshape permute expand flip cast zeros full tril triu`, with non-negative tuples of
dimensions and `keepdim` positional. Dtypes are equal before a backend is called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from numpy import ndarray

from chainrule.backends import numpy as numpy_backend
from chainrule.errors import DeviceError, MissingExtraError

Backend = Any  # a module that offers the functions above


def backend_of(raw: Any) -> Backend:
    """The backend that `raw` belongs to."""
    if isinstance(raw, ndarray):
        return numpy_backend
    module: ModuleType | None = sys.modules.get("chainrule.backends.torch")
    if module is not None and module.owns(raw):
        return module
    return numpy_backend  # NumPy's own scalars, as its 0-d operations return them


def get(device: str | None) -> Backend:
    """The backend of a device name: None or "cpu" is NumPy, "torch" is raw PyTorch tensors."""
    if device is None or device == "cpu":
        return numpy_backend
    if device == "torch":
        try:
            from chainrule.backends import torch as torch_backend
        except ImportError as missing:
            raise MissingExtraError(
                "device 'torch' needs PyTorch, which is not installed: "
                "pip install 'chainrule[torch]'"
            ) from missing
        return torch_backend
    raise DeviceError(f"there is no device {device!r}: the devices are 'cpu' and 'torch'")
