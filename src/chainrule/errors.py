"""Every error class of chainrule.

Each derives from `ChainruleError` and from the builtin that a user of PyTorch or NumPy would
already catch. A message says what happened, with the numbers, and what to do.
"""

from __future__ import annotations


class ChainruleError(Exception):
    """The base of every error that chainrule raises on purpose."""


class LayoutError(ChainruleError, RuntimeError):
    """A layout cannot be expressed as a view, or a strided region is out of bounds."""


class ShapeError(ChainruleError, RuntimeError, ValueError):
    """Shapes do not fit each other or the operation."""


class DTypeError(ChainruleError, TypeError, RuntimeError):
    """A dtype does not fit the operation."""


class IndexRangeError(ChainruleError, IndexError):
    """An index or a dimension is out of range."""


class GradError(ChainruleError, RuntimeError):
    """A gradient was asked for where there is none, or a backward broke its contract."""


class StaleTensorError(GradError):
    """A tensor saved for backward was written to before backward ran."""


class DeviceError(ChainruleError, RuntimeError):
    """Tensors of different devices meet, or a device is not there."""


class MissingExtraError(ChainruleError, ImportError):
    """An optional dependency is needed and not installed."""


class CheckpointError(ChainruleError, RuntimeError, ValueError):
    """A checkpoint is missing, corrupt or foreign, or a checkpointed function ran differently."""


class CheckError(ChainruleError, RuntimeError, AssertionError):
    """A gradient check or a comparison with a reference failed."""


class InputError(ChainruleError, ValueError):
    """An argument's value makes no sense."""


class DivisionByZeroError(InputError, ZeroDivisionError, RuntimeError):
    """An integer was divided by 0, for which there is no integer."""
