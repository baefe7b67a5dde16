"""A two-layer network and its backward pass: by hand in NumPy, in tensors, and as a Function.

Run it: every line it prints is a difference between two ways to the same gradient.
"""

from __future__ import annotations

import numpy as np

import chainrule as cr

ROWS, INPUTS, HIDDEN, OUTPUTS = 32, 3, 8, 1
B = 4.0


def data(seed=0):
    """Inputs, targets and the two weight matrices: normal, the weights with variance 1/inputs."""
    rng = np.random.default_rng(seed)
    x, target = rng.standard_normal((ROWS, INPUTS)), rng.standard_normal((ROWS, OUTPUTS))
    w1 = rng.standard_normal((INPUTS, HIDDEN)) / np.sqrt(INPUTS)
    w2 = rng.standard_normal((HIDDEN, OUTPUTS)) / np.sqrt(HIDDEN)
    return x, target, w1, w2


# By hand. --------------------------------------------------------------------------------------


def squareplus(h):
    """A smooth ramp: 0 far to the left, h far to the right."""
    return 0.5 * (h + np.sqrt(h * h + B))


def squareplus_slope(h):
    """Its derivative, between 0 and 1."""
    return 0.5 + 0.5 * h / np.sqrt(h * h + B)


def loss_by_hand(x, target, w1, w2):
    """The mean squared error of squareplus(x w1) w2, and what its backward pass will need."""
    hidden = x @ w1
    active = squareplus(hidden)
    error = active @ w2 - target
    return np.mean(error * error), (hidden, active, error)


def gradients_by_hand(x, w2, kept):
    """The loss by w1 and by w2. Read it from the last line of `loss_by_hand` upwards.

    Each line turns the gradient by one value into the gradient by the values it was made of. For
    p = a w the two are aᵀ g and g wᵀ: the shapes leave no other choice.
    """
    hidden, active, error = kept
    by_output = error * (2.0 / error.size)
    by_w2 = active.T @ by_output
    by_active = by_output @ w2.T
    by_hidden = by_active * squareplus_slope(hidden)
    by_w1 = x.T @ by_hidden
    return by_w1, by_w2


def finite_differences(f, w, step=1e-6):
    """(f(w + step) − f(w − step)) / (2 step) for each element of `w` in turn."""
    slopes = np.zeros_like(w)
    for place in np.ndindex(*w.shape):
        up, down = w.copy(), w.copy()
        up[place] += step
        down[place] -= step
        slopes[place] = (f(up) - f(down)) / (2.0 * step)
    return slopes


def difference_from_finite_differences(x, target, w1, w2):
    """The largest difference over every weight of both layers."""
    by_w1, by_w2 = gradients_by_hand(x, w2, loss_by_hand(x, target, w1, w2)[1])
    rough1 = finite_differences(lambda w: loss_by_hand(x, target, w, w2)[0], w1)
    rough2 = finite_differences(lambda w: loss_by_hand(x, target, w1, w)[0], w2)
    return max(np.abs(by_w1 - rough1).max(), np.abs(by_w2 - rough2).max())


# In tensors: the forward pass is the same, and the backward pass is the tape's. ------------------


def gradients_by_tape(x, target, w1, w2, activation):
    """The same two gradients from `loss.backward()`."""
    w1, w2 = (cr.tensor(w, requires_grad=True) for w in (w1, w2))
    error = activation(cr.tensor(x) @ w1) @ w2 - cr.tensor(target)
    (error * error).mean().backward()
    return w1.grad.numpy(), w2.grad.numpy()


class Squareplus(cr.autograd.Function):
    """The activation as an operation of our own, with the derivative worked out above.

    It saves its input and recomputes the root. Saving the root would be faster by one square root,
    but the second derivative would lose what flows through it, and so would be refused.
    """

    @staticmethod
    def forward(ctx, h, b=B):
        ctx.save_for_backward(h)
        ctx.b = b
        return 0.5 * (h + cr.sqrt(h * h + b))

    @staticmethod
    def backward(ctx, g):
        (h,) = ctx.saved_tensors
        return g * (0.5 + 0.5 * h / cr.sqrt(h * h + ctx.b)), None  # b is a number: no gradient


def largest_difference(pairs, others):
    """Over two lists of arrays."""
    return max(np.abs(a - b).max() for a, b in zip(pairs, others, strict=True))


def main() -> None:
    """Print how far the three ways are from each other."""
    x, target, w1, w2 = data()
    loss, kept = loss_by_hand(x, target, w1, w2)
    hand = gradients_by_hand(x, w2, kept)
    print(f"{ROWS} rows, {INPUTS} → {HIDDEN} → {OUTPUTS}, squareplus; loss {loss:.4f}")
    print(
        "by hand, from finite differences:  "
        f"{difference_from_finite_differences(x, target, w1, w2):.1e}"
    )
    tape = gradients_by_tape(x, target, w1, w2, cr.squareplus)
    print(f"by the tape, from by hand:         {largest_difference(tape, hand):.1e}")
    own = gradients_by_tape(x, target, w1, w2, Squareplus.apply)
    print(f"with our Function, from by hand:   {largest_difference(own, hand):.1e}")
    points = cr.randn(8, dtype=cr.float64, requires_grad=True)
    print(f"gradcheck of the Function:         {cr.gradcheck(Squareplus.apply, (points,))}")
    print(f"gradgradcheck of the Function:     {cr.gradgradcheck(Squareplus.apply, (points,))}")


if __name__ == "__main__":
    main()
