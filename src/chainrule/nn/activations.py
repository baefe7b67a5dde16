"""Activations as modules: each keeps its options and calls its function of `functional`."""

from __future__ import annotations

from collections.abc import Callable

from chainrule._tensor import Tensor
from chainrule.nn import functional as F
from chainrule.nn.module import Module


def _plain(name: str, fn: Callable[[Tensor], Tensor], what: str) -> type[Module]:
    """The module of an activation without options."""

    def forward(self: Module, input: Tensor) -> Tensor:
        return fn(input)

    forward.__doc__ = f"Elementwise {what}."
    body = {
        "forward": forward,
        "__doc__": f"Elementwise {what}.",
        "__module__": __name__,
        "__qualname__": name,
    }
    return type(name, (Module,), body)


ReLU = _plain("ReLU", F.relu, "max(x, 0), with slope 0 at 0")
ReLU6 = _plain("ReLU6", F.relu6, "min(max(x, 0), 6)")
SiLU = _plain("SiLU", F.silu, "x · sigmoid(x)")
Mish = _plain("Mish", F.mish, "x · tanh(softplus(x))")
Tanh = _plain("Tanh", F.tanh, "tanh x")
Sigmoid = _plain("Sigmoid", F.sigmoid, "1/(1 + exp(−x))")
LogSigmoid = _plain("LogSigmoid", F.logsigmoid, "log sigmoid(x)")


class Identity(Module):
    """The input itself; takes and forgets any arguments when made."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """Any tensor, as it is."""
        return input


class GELU(Module):
    """x·Φ(x), or its tanh approximation."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class ELU(Module):
    """x above 0, α(exp(x) − 1) below."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.elu(input, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class LeakyReLU(Module):
    """x above 0, slope · x below."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class Softplus(Module):
    """log(1 + exp(βx))/β."""

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = beta

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.softplus(input, self.beta)

    def extra_repr(self) -> str:
        return f"beta={self.beta}"


class Squareplus(Module):
    """(x + √(x² + b))/2, a smooth ReLU of algebraic operations alone (Barron 2021)."""

    def __init__(self, b: float = 4.0) -> None:
        super().__init__()
        self.b = b

    def forward(self, input: Tensor) -> Tensor:
        """Elementwise."""
        return F.squareplus(input, self.b)

    def extra_repr(self) -> str:
        return f"b={self.b}"


class Softmax(Module):
    """exp(x)/Σ exp(x) along `dim`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Any shape, to the same."""
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """x − log Σ exp(x) along `dim`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Any shape, to the same."""
        return F.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
