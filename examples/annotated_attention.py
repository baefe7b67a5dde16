"""The attention layer of a transformer, written out in plain tensor operations.

Run it: it prints the shape and stride of each intermediate, and how far the layer is from
`cr.nn.CausalSelfAttention` and, where PyTorch is installed, from `torch.nn.MultiheadAttention`.
"""

from __future__ import annotations

import math

import numpy as np

import chainrule as cr

BATCH, TIME, WIDTH, HEADS = 2, 10, 24, 3


def attention_layer(x, in_weight, in_bias, out_weight, out_bias, heads, watch=lambda name, t: t):
    """Each position mixes what it and the positions before it have to say.

    x is (batch, time, width). `watch(name, tensor)` sees every intermediate on the way.
    """
    batch, time, width = x.shape
    head = width // heads

    # One product makes three things of each position: what it looks for (query), what it offers
    # to be found by (key), and what it hands over when found (value).
    packed = watch("packed", x @ in_weight.T + in_bias)

    # Heads are independent smaller attentions over parts of the width. To split them, and to bring
    # time next to the head's own width, no number moves: the same memory gets other strides.
    split = packed.view(batch, time, 3, heads, head).permute(2, 0, 3, 1, 4)
    query, key, value = split.unbind(0)
    watch("query", query)

    # How well each position's query fits each position's key. A sum of `head` products of unit
    # variance has variance `head`: dividing by its root keeps softmax away from 0 and 1.
    scores = watch("scores", query @ key.mT / math.sqrt(head))

    # A position must not see what comes after it: −∞ becomes the weight exp(−∞) = 0.
    future = cr.ones(time, time, dtype=x.dtype).triu(1) > 0
    masked = scores.masked_fill(future, -math.inf)

    # Each row becomes shares that add up to 1, and the values are mixed by these shares.
    shares = watch("shares", masked.softmax(-1))
    mixed = watch("mixed", shares @ value)

    # Heads side by side again. Here the numbers do move: no strides describe this order.
    joined = watch("joined", mixed.transpose(1, 2).reshape(batch, time, width))
    return joined @ out_weight.T + out_bias


def parameters(seed=0):
    """Weights of the input and output projections, as the module names them."""
    rng = np.random.default_rng(seed)
    made = {
        "in_proj_weight": rng.standard_normal((3 * WIDTH, WIDTH)) / math.sqrt(WIDTH),
        "in_proj_bias": rng.standard_normal(3 * WIDTH),
        "out_proj.weight": rng.standard_normal((WIDTH, WIDTH)) / math.sqrt(WIDTH),
        "out_proj.bias": rng.standard_normal(WIDTH),
    }
    x = rng.standard_normal((BATCH, TIME, WIDTH))
    return x, made


def written_out(x, made, watch=lambda name, t: t):
    """Output, and the gradient of the sum of its squares by the input and each parameter."""
    leaves = [cr.tensor(a, requires_grad=True) for a in (x, *made.values())]
    out = attention_layer(*leaves, HEADS, watch)
    (out * out).sum().backward()
    return out.detach().numpy(), [t.grad.numpy() for t in leaves]


def by_module(x, made):
    """The same from `cr.nn.CausalSelfAttention`, which never holds the scores."""
    layer = cr.nn.CausalSelfAttention(WIDTH, HEADS, dtype=cr.float64)
    layer.load_state_dict({name: cr.tensor(a) for name, a in made.items()})
    leaf = cr.tensor(x, requires_grad=True)
    out = layer(leaf)
    (out * out).sum().backward()
    grads = [leaf.grad, *[p.grad for _, p in layer.named_parameters()]]
    return out.detach().numpy(), [g.numpy() for g in grads]


def by_pytorch(x, made):
    """The same from `torch.nn.MultiheadAttention`; None where PyTorch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    layer = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64)
    layer.load_state_dict({name: torch.tensor(a) for name, a in made.items()})
    leaf = torch.tensor(x, requires_grad=True)
    future = torch.ones(TIME, TIME, dtype=torch.bool).triu(1)
    out = layer(leaf, leaf, leaf, attn_mask=future, need_weights=False)[0]
    (out * out).sum().backward()
    grads = [leaf.grad, *[p.grad for p in layer.parameters()]]
    return out.detach().numpy(), [g.numpy() for g in grads]


def apart(ours, theirs):
    """The largest difference of the outputs, and of any gradient."""
    gradients = max(np.abs(a - b).max() for a, b in zip(ours[1], theirs[1], strict=True))
    return np.abs(ours[0] - theirs[0]).max(), gradients


def main() -> None:
    """Print the intermediates, and the differences."""
    x, made = parameters()
    print(f"batch {BATCH}, time {TIME}, width {WIDTH}, {HEADS} heads")

    def show(name, t):
        print(f"  {name:<7} shape {t.shape!s:<15} stride {t.stride()}")
        return t

    ours = written_out(x, made, show)
    value, gradient = apart(ours, by_module(x, made))
    print(f"from nn.CausalSelfAttention: output {value:.1e}, gradients {gradient:.1e}")
    theirs = by_pytorch(x, made)
    if theirs is None:
        print("PyTorch is not installed: not compared with its MultiheadAttention")
        return
    value, gradient = apart(ours, theirs)
    print(f"from PyTorch's MultiheadAttention: output {value:.1e}, gradients {gradient:.1e}")


if __name__ == "__main__":
    main()
