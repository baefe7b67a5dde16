"""What a run measures: bits per byte on fixed windows, norms by layer, and text it writes.

Measuring changes nothing that training depends on: no gradient, no generator, no batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import chainrule as cr
from chainrule.train.corpus import Corpus
from chainrule.train.entropy import cross_entropy, empirical_entropy, gzip_bits
from chainrule.train.report import Sample, Score

Raw = Any

PROMPTS = (b"def ", b"class ", b"import ", b"    return ")
SAMPLE_BYTES = 240
BYTES_AT_ONCE = 20


def _nothing(done: int, total: int) -> None:
    pass


def loss_on(
    model: Any, windows: Raw, batch: int, between: Callable[[int, int], None] = _nothing
) -> float:
    """Mean loss in nats per byte over windows of shape (n, context + 1).

    `between` is called before each batch with how many windows are done and how many there are;
    what it raises ends the measurement.
    """
    total = 0.0
    model.eval()
    try:
        with cr.no_grad():
            for start in range(0, len(windows), batch):
                between(start, len(windows))
                part = windows[start : start + batch]
                loss = model.loss(cr.tensor(part[:, :-1]), cr.tensor(part[:, 1:]))
                total += float(loss.item()) * len(part)
    finally:
        model.train()
    return total / len(windows)


def write_samples(
    model: Any, prompts: Sequence[bytes], seed: int, between: Callable[[int, int], None] = _nothing
) -> list[Sample]:
    """Let the model go on from each prompt; the same seed and weights give the same text.

    `between` is called now and then with how many bytes of each are written and how many it will
    be; what it raises ends the writing.
    """
    kept = cr.get_rng_state()
    cr.manual_seed(seed)
    # All at once, for one byte costs nearly as much as one byte of each: the shorter ones come
    # after empty lines.
    longest = max(len(prompt) for prompt in prompts)
    text = cr.tensor([list(prompt.rjust(longest, b"\n")) for prompt in prompts])
    model.eval()
    try:
        with cr.no_grad():
            for done in range(0, SAMPLE_BYTES, BYTES_AT_ONCE):
                between(done, SAMPLE_BYTES)
                count = min(BYTES_AT_ONCE, SAMPLE_BYTES - done)
                text = model.generate(text, count, temperature=0.8)
    finally:
        model.train()
        cr.set_rng_state(kept)
    written = np.asarray(text.numpy())[:, longest:].astype(np.uint8)
    return [
        Sample(prompt.decode("utf-8", "replace"), bytes(row).decode("utf-8", "replace"))
        for prompt, row in zip(prompts, written, strict=True)
    ]


def prompts_for(corpus: Corpus, default: bool) -> list[bytes]:
    """How samples begin: as Python does, or as a few lines of the held-out text do."""
    if default:
        return list(PROMPTS)
    lines = [line for line in corpus.held_out.splitlines() if len(line.strip()) >= 8]
    chosen = lines[:: max(1, len(lines) // 3)][:3]
    return [line[:12] for line in chosen] or [corpus.held_out[:8]]


def rivals(corpus: Corpus) -> list[Score]:
    """What plain statistics and gzip make of the same text, in bits per byte."""
    scores = [
        Score(
            f"order-{order} entropy",
            empirical_entropy(corpus.train, order),
            cross_entropy(corpus.train, corpus.held_out, order),
            ("no context" if not order else f"knows {order} bytes before")
            + "; counted on the training text",
        )
        for order in (0, 2)
    ]
    gzipped = Score("gzip -9", gzip_bits(corpus.train), gzip_bits(corpus.held_out), "whole text")
    return [*scores, gzipped]


def bits(nats: float) -> float:
    """Nats per byte as bits per byte."""
    return nats / math.log(2)


def norm(raw: Raw) -> float:
    """Euclidean norm in float64 of an array of any dtype."""
    return float(np.linalg.norm(np.asarray(raw).astype(np.float64).ravel()))


class Layers:
    """Gradient norm and update-to-weight ratio by layer, around one step of the optimiser.

    A layer is a module's own parameters, weight and bias together. `before` is called with the
    gradients in place and copies the weights; `after` is called when the step is made.
    """

    def __init__(self, parameters: Iterable[tuple[str, Any]]) -> None:
        self._parameters = list(parameters)
        self._old: dict[str, Raw] = {}
        self._gradients: dict[str, float] = {}

    def before(self) -> None:
        """Take the gradients' norms and the weights as they are."""
        self._old = {name: _values(p).copy() for name, p in self._parameters}
        self._gradients = {
            name: 0.0 if p.grad is None else norm(_values(p.grad)) for name, p in self._parameters
        }

    def after(self) -> dict[str, dict[str, float]]:
        """{layer: {"gradient_norm", "update_ratio"}}; the ratio is infinite from zero weights."""
        squares: dict[str, list[float]] = {}
        for name, parameter in self._parameters:
            old = self._old[name].astype(np.float64)
            change = norm(_values(parameter).astype(np.float64) - old)
            sums = squares.setdefault(name.rpartition(".")[0] or name, [0.0, 0.0, 0.0])
            for k, value in enumerate((self._gradients[name], change, norm(old))):
                sums[k] += value**2
        self._old = {}
        return {layer: _ratios(*sums) for layer, sums in squares.items()}


def _values(tensor: Any) -> Raw:
    return np.asarray(tensor.detach().numpy())


def _ratios(gradient: float, change: float, weight: float) -> dict[str, float]:
    ratio = math.sqrt(change / weight) if weight else math.inf if change else 0.0
    return {"gradient_norm": math.sqrt(gradient), "update_ratio": ratio}


def table(scores: Sequence[Score]) -> str:
    """The scores as plain lines of text."""
    width = max(len(score.name) for score in scores)

    def cell(value: float | None) -> str:
        return f"{value:>10.3f}" if value is not None else f"{'–':>10}"

    head = f"{'bits per byte':<{width}}{'training':>10}{'held-out':>10}"
    rows = [f"{s.name:<{width}}{cell(s.train)}{cell(s.held_out)}" for s in scores]
    return "\n".join([head, *rows])


def as_json(scores: Sequence[Score], samples: Sequence[Sample]) -> Mapping[str, Any]:
    """What scores.json keeps."""
    return {
        "bits_per_byte": {s.name: {"train": s.train, "held_out": s.held_out} for s in scores},
        "samples": [{"prompt": s.prompt, "text": s.text} for s in samples],
    }
