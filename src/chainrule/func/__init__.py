"""Derivatives of functions, under `torch.func`'s names: they take a function and give one.

`grad`, `vjp` and `jacrev` walk the tape backward; `jvp`, `linearize` and `jacfwd` push tangents
along the same tape with the same rules. All of them nest in any order.
"""

from chainrule.func.forward import jvp, linearize
from chainrule.func.jacobian import hessian, hvp, jacfwd, jacrev
from chainrule.func.reverse import grad, grad_and_value, value_and_grad, vjp

__all__ = [
    "grad",
    "grad_and_value",
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "value_and_grad",
    "vjp",
]
