"""Backpropagation through time: an Elman network unrolled, and where its gradient goes.

Run it: the gradient by hand, by the tape and by `cr.nn.RNN` agree; then the norm of the gradient,
carried back step by step, falls or grows by a factor that the recurrent matrix decides.
"""

from __future__ import annotations

import numpy as np

import chainrule as cr

STEPS, BATCH, INPUTS, HIDDEN = 30, 4, 3, 16
NAMES = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def weights(radius, seed=0):
    """The four arrays of an Elman layer; the recurrent one is `radius` times a rotation.

    A rotation keeps every length, so all the eigenvalues of the result have absolute value `radius`
    and it stretches every vector by exactly that.
    """
    rng = np.random.default_rng(seed)
    into = rng.standard_normal((HIDDEN, INPUTS)) / np.sqrt(INPUTS)
    rotation = np.linalg.qr(rng.standard_normal((HIDDEN, HIDDEN)))[0]
    return [into, radius * rotation, np.zeros(HIDDEN), np.zeros(HIDDEN)]


def inputs(scale, seed=1):
    """(time, batch, input), and a target for the last state."""
    rng = np.random.default_rng(seed)
    x = scale * rng.standard_normal((STEPS, BATCH, INPUTS))
    return x, rng.standard_normal((BATCH, HIDDEN))


def by_hand(x, target, params):
    """Loss, the gradients of the four arrays, and the norm of the gradient by each state.

    The network is one layer used once a step, so each step's share is *added* to the same four
    gradients, and the gradient by the state is handed to the step before.
    """
    into, across, bias_in, bias_across = params
    states = [np.zeros((x.shape[1], HIDDEN))]
    for step in x:
        states.append(np.tanh(step @ into.T + bias_in + states[-1] @ across.T + bias_across))
    error = states[-1] - target

    by_into, by_across, by_bias = np.zeros_like(into), np.zeros_like(across), np.zeros(HIDDEN)
    by_state, norms = error, []
    for t in reversed(range(len(x))):
        norms.append(np.linalg.norm(by_state))
        by_sum = by_state * (1.0 - states[t + 1] ** 2)  # through tanh
        by_into += by_sum.T @ x[t]
        by_across += by_sum.T @ states[t]
        by_bias += by_sum.sum(axis=0)
        by_state = by_sum @ across  # to the state one step earlier
    loss = 0.5 * np.sum(error * error)
    return loss, [by_into, by_across, by_bias, by_bias], norms[::-1]


def by_tape(x, target, params):
    """The same, with the steps written out in tensors; `retain_grad` keeps each state's gradient."""
    into, across, bias_in, bias_across = leaves = [cr.tensor(p, requires_grad=True) for p in params]
    h, states = cr.zeros(x.shape[1], HIDDEN, dtype=cr.float64), []
    for step in cr.tensor(x):
        h = cr.tanh(step @ into.T + bias_in + h @ across.T + bias_across)
        h.retain_grad()
        states.append(h)
    error = h - cr.tensor(target)
    loss = 0.5 * (error * error).sum()
    loss.backward()
    norms = [np.linalg.norm(s.grad.numpy()) for s in states]
    return loss.item(), [p.grad.numpy() for p in leaves], norms


def by_module(x, target, params):
    """The same by `cr.nn.RNN`."""
    rnn = cr.nn.RNN(INPUTS, HIDDEN, dtype=cr.float64)
    rnn.load_state_dict(dict(zip(NAMES, map(cr.tensor, params), strict=True)))
    error = rnn(cr.tensor(x))[0][-1] - cr.tensor(target)
    loss = 0.5 * (error * error).sum()
    loss.backward()
    return loss.item(), [getattr(rnn, name).grad.numpy() for name in NAMES]


def factor_a_step(norms):
    """By what the gradient's norm is multiplied on its way back, a step, on average."""
    return (norms[0] / norms[-1]) ** (1.0 / (len(norms) - 1))


def main() -> None:
    """Print the agreement, then the norms for three radii and two sizes of input."""
    x, target = inputs(1.0)
    params = weights(1.0)
    loss, hand, norms = by_hand(x, target, params)
    tape_loss, tape, tape_norms = by_tape(x, target, params)
    module_loss, module = by_module(x, target, params)

    def apart(ours):
        return max(np.abs(a - b).max() for a, b in zip(ours, hand, strict=True))

    print(f"{STEPS} steps, {HIDDEN} units; loss {loss:.4f}, {tape_loss:.4f}, {module_loss:.4f}")
    print(f"gradients by the tape, from by hand: {apart(tape):.1e}")
    print(f"gradients by nn.RNN, from by hand:   {apart(module):.1e}")
    print(
        f"norms by state, from by hand:        {np.abs(np.subtract(norms, tape_norms)).max():.1e}"
    )

    print("\nnorm of the gradient by the state, at step")
    shown = (30, 25, 20, 15, 10, 5, 1)
    print("radius  inputs " + "".join(f"{t:>9}" for t in shown) + "   a step")
    for scale, size in ((1e-6, "tiny"), (1.0, "usual")):
        for radius in (0.5, 1.0, 1.5):
            x, target = inputs(scale)
            norms = by_hand(x, target, weights(radius))[2]
            row = "".join(f"{norms[t - 1]:9.1e}" for t in shown)
            print(f"{radius:6.1f}  {size:<7}{row}  × {factor_a_step(norms):.2f}")
    print(
        "\nWith tiny inputs tanh is a straight line and each step multiplies by the radius. With\n"
        "usual ones its slope is below 1 and takes more away."
    )


if __name__ == "__main__":
    main()
