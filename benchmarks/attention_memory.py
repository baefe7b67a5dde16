"""How the peak memory of attention grows with the sequence length: ours, and the naive form.

Counts NumPy's own allocations with tracemalloc, inputs left out. Needs the base package; a plot
needs matplotlib (`pip install chainrule[plot]`). Run: `python benchmarks/attention_memory.py`.
"""

from __future__ import annotations

import argparse
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

from chainrule.backends import parallel
from chainrule.backends.attention import Tile, attention_backward, attention_forward
from chainrule.bench import subject

LENGTHS = (512, 1024, 2048)
HEADS, HEAD_DIM = 8, 32
# The default tile is a constant of about 1 MiB a thread; a small one lets the slope be seen at
# lengths that take a second instead of a minute.
TILE = Tile(1, 64, 64)


def naive(q, k, v, d_out):
    """The textbook forward and, where `d_out` is given, backward, with the weights kept."""
    scale = q.shape[-1] ** -0.5
    weights = q @ k.swapaxes(1, 2)
    weights *= scale
    weights -= weights.max(axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=-1, keepdims=True)
    out = weights @ v
    if d_out is None:
        return out
    d_scores = d_out @ v.swapaxes(1, 2)
    d_scores -= (d_out * out).sum(axis=-1, keepdims=True)
    d_scores *= weights
    d_scores *= scale
    d_k, d_v = d_scores.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ d_out
    return out, d_scores @ k, d_k, d_v


def tiled(q, k, v, d_out):
    """Ours."""
    out, lse = attention_forward(q, k, v, tile=TILE)
    if d_out is None:
        return out
    return out, *attention_backward(q, k, v, out, lse, d_out, tile=TILE)


PROVIDERS: dict[str, Callable[..., object]] = {"chainrule": tiled, "naive": naive}


def peak_bytes(provider: str, length: int, *, backward: bool) -> int:
    """Peak bytes that one call has alive beyond its inputs, its results and scratch included.

    Runs on one thread, and on a fresh one: scratch outlives a call on the thread that made it,
    and would otherwise not be counted.
    """
    rng = np.random.default_rng(0)
    shape = (HEADS, length, HEAD_DIM)
    operands = [rng.standard_normal(shape, dtype=np.float32) for _ in range(4)]
    if not backward:
        operands[3] = None
    peaks: list[int] = []

    def measured() -> None:
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            result = PROVIDERS[provider](*operands)
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
            del result
        finally:
            tracemalloc.stop()

    threads = parallel.get_num_threads()
    parallel.set_num_threads(1)
    try:
        thread = threading.Thread(target=measured)
        thread.start()
        thread.join()
    finally:
        parallel.set_num_threads(threads)
    return peaks[0]


def exponent(lengths: tuple[int, ...], values: list[int]) -> float:
    """The slope of log(value) against log(length), by least squares."""
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])


def measure(lengths: tuple[int, ...] = LENGTHS) -> dict[tuple[str, str], list[int]]:
    """Peak bytes by (provider, direction), one a length."""
    return {
        (provider, direction): [
            peak_bytes(provider, n, backward=direction == "both") for n in lengths
        ]
        for provider in PROVIDERS
        for direction in ("forward", "both")
    }


def plot(lengths: tuple[int, ...], table: dict[tuple[str, str], list[int]], path: Path) -> None:
    """Both axes logarithmic, so that a power law is a straight line with its exponent as slope."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SystemExit("a plot needs matplotlib: pip install 'chainrule[plot]'") from error
    mpl.rcParams["svg.hashsalt"] = "chainrule"  # the same figures give the same file
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    colours = {"chainrule": "tab:blue", "naive": "tab:red"}
    for (provider, direction), values in table.items():
        axes.loglog(
            lengths,
            [v / 2**20 for v in values],
            color=colours[provider],
            linestyle="-" if direction == "both" else "--",
            marker="o",
            label=f"{provider}, {direction}: length^{exponent(lengths, values):.2f}",
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.minorticks_off()
    axes.set_xlabel("sequence length")
    axes.set_ylabel("peak MiB beyond the inputs")
    axes.set_title(f"Attention, {HEADS} heads of {HEAD_DIM}, float32: peak memory")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def fill(rows: subject.Subject) -> None:
    """A row for every peak, and the exponent of its growth."""
    rows.use_threads(1)
    with rows.watching():
        peak_bytes("chainrule", 128, backward=True)
    for (provider, direction), values in measure().items():
        for length, value in zip(LENGTHS, values, strict=True):
            case = f"peak memory of attention, {HEADS}x{length}x{HEAD_DIM}"
            rows.put(case, direction, provider, value, "B")
        growth = exponent(LENGTHS, values)
        case = "peak memory of attention, growth with length"
        rows.put(case, direction, provider, growth, "exponent")


def main() -> None:
    """Print the rows, or draw the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], add_help=False)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a .svg or .png instead")
    options, _ = parser.parse_known_args()
    if options.plot:
        plot(LENGTHS, measure(), options.plot)
        print(f"wrote {options.plot}")
    else:
        subject.main(fill, __file__)


if __name__ == "__main__":
    main()
