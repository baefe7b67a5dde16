"""What a gradient costs: reverse mode, forward mode and finite differences, for 10 to 10⁶ inputs.

Costs are counted in operations on single numbers, so that they do not depend on the machine, and
divided by the count for the function alone. Seconds are printed beside them.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np

import chainrule as cr

SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
FULL = 1_000  # up to here forward mode and finite differences are run in full


def f(x, m):
    """One number out of all inputs; `m` supplies tanh, exp and sum for the kind of array."""
    return m.sum(m.tanh(x) * x + m.exp(-(x * x)))


# Counting. ---------------------------------------------------------------------------------------


class Counted:
    """A NumPy array that counts the operations made on its elements."""

    operations = 0

    def __init__(self, values):
        self.values = values

    def done(self, values):
        """Count one operation an element."""
        Counted.operations += max(np.size(values), 1)
        return Counted(values)

    def __add__(self, other):
        return self.done(self.values + other.values)

    def __sub__(self, other):
        return self.done(self.values - other.values)

    def __mul__(self, other):
        return self.done(self.values * other.values)

    def __neg__(self):
        return self.done(-self.values)


class OnCounted:
    """tanh, exp and sum of counted arrays."""

    @staticmethod
    def tanh(x):
        return x.done(np.tanh(x.values))

    @staticmethod
    def exp(x):
        return x.done(np.exp(x.values))

    @staticmethod
    def sum(x):
        Counted.operations += x.values.size  # one addition an element
        return Counted(x.values.sum())


def operations_of(run):
    """How many operations on single numbers `run()` makes on counted arrays."""
    before = Counted.operations
    run()
    return Counted.operations - before


# Forward mode: numbers that carry their derivative along one direction. --------------------------


class Dual:
    """value + ε tangent with ε² = 0: arithmetic on it is the chain rule, from inputs to output."""

    def __init__(self, value, tangent):
        self.value, self.tangent = value, tangent

    def __add__(self, other):
        return Dual(self.value + other.value, self.tangent + other.tangent)

    def __mul__(self, other):
        product = self.value * other.value
        return Dual(product, self.tangent * other.value + self.value * other.tangent)

    def __neg__(self):
        return Dual(-self.value, -self.tangent)


class OnDual:
    """tanh, exp and sum of dual numbers over arrays of the kind `m` serves."""

    def __init__(self, m):
        self.m = m

    def tanh(self, x):
        y = self.m.tanh(x.value)
        return Dual(y, x.tangent - x.tangent * (y * y))

    def exp(self, x):
        y = self.m.exp(x.value)
        return Dual(y, x.tangent * y)

    def sum(self, x):
        return Dual(self.m.sum(x.value), self.m.sum(x.tangent))


def forward_pass(x, i):
    """∂f/∂xᵢ: one pass gives the derivative along one direction, here the i-th axis."""
    direction = np.zeros_like(x)
    direction[i] = 1.0
    return f(Dual(Counted(x), Counted(direction)), OnDual(OnCounted)).tangent.values


def forward_mode(x):
    """The gradient, one pass an input."""
    return np.array([forward_pass(x, i) for i in range(x.size)])


def finite_difference(x, i, step=1e-6):
    """∂f/∂xᵢ from two evaluations."""
    up, down = x.copy(), x.copy()
    up[i] += step
    down[i] -= step
    high, low = f(Counted(up), OnCounted), f(Counted(down), OnCounted)
    return (high.values - low.values) / (2.0 * step)


def finite_differences(x):
    """The gradient, two evaluations an input."""
    return np.array([finite_difference(x, i) for i in range(x.size)])


# Reverse mode: the tape. -------------------------------------------------------------------------


def reverse_mode(x):
    """The gradient from one walk back over the tape."""
    leaf = cr.tensor(x, requires_grad=True)
    f(leaf, cr).backward()
    return leaf.grad.numpy()


def operations_of_reverse_mode(x):
    """The function's own operations, and those of the walk, read off the tape.

    Elementwise rules are printed as Python, one statement an operation: `steps` is how many. The
    rule of `sum` makes a view: none. Where several paths meet, each but the first is added.
    """
    out = f(cr.tensor(x, requires_grad=True), cr)
    total = operations_of(lambda: f(Counted(x), OnCounted))
    arrivals, waiting, seen = {}, [out.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node.rule, "text"):
            total += node.rule.text.steps * int(np.prod(node.shape))
        for parent in node.parents:
            if parent is not None:
                arrivals[parent] = arrivals.get(parent, 0) + 1
                if parent.parents:
                    waiting.append(parent)
    return total + sum((n - 1) * int(np.prod(p.shape)) for p, n in arrivals.items())


def costs(n, seed=0):
    """Operations of each way to the gradient of n inputs, as multiples of the function's.

    Every forward pass costs the same, and so does every pair of evaluations: one is counted.
    """
    x = np.random.default_rng(seed).standard_normal(n)
    once = operations_of(lambda: f(Counted(x), OnCounted))
    return {
        "reverse": operations_of_reverse_mode(x) / once,
        "forward": n * operations_of(lambda: forward_pass(x, 0)) / once,
        "differences": n * operations_of(lambda: finite_difference(x, 0)) / once,
    }


def seconds(run, times=5):
    """The median of a few runs."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return median(taken)


def main() -> None:
    """Print the cost of a gradient as a multiple of the cost of the function."""
    print("the gradient's cost over the function's, in operations on single numbers")
    print("   inputs   reverse     forward   differences    seconds: function, reverse, forward")
    for n in SIZES:
        x = np.random.default_rng(0).standard_normal(n)
        cost = costs(n)
        plain, gradient = cr.tensor(x), cr.tensor(x, requires_grad=True)
        alone = seconds(lambda plain=plain: f(plain, cr))
        reverse = seconds(lambda leaf=gradient: f(leaf, cr).backward())
        if n <= FULL:
            forward, mark = seconds(lambda x=x: forward_mode(x), 1), ""
        else:
            forward, mark = (
                n * seconds(lambda x=x: forward_pass(x, 0)),
                "  (one pass, times inputs)",
            )
        print(
            f"{n:9,}{cost['reverse']:10.2f}{cost['forward']:12,.0f}{cost['differences']:14,.0f}"
            f"{alone:12.1e}{reverse:10.1e}{forward:10.1e}{mark}"
        )
    x = np.random.default_rng(0).standard_normal(FULL)
    want = reverse_mode(x)
    print(f"\nfrom reverse mode at {FULL:,} inputs: ", end="")
    print(f"forward mode {np.abs(forward_mode(x) - want).max():.1e}, ", end="")
    print(f"finite differences {np.abs(finite_differences(x) - want).max():.1e}")


if __name__ == "__main__":
    main()
