"""What is used around a model, under PyTorch's names: `utils.checkpoint`."""

from chainrule.utils import checkpoint

__all__ = ["checkpoint"]
