"""Charts as inline SVG and HTML: lines over steps, and a heat map of layers over steps.

The picture stretches with the page while every word stays HTML, so that it can be read at 360
pixels as well as at 1,600. Colours come from the page's own CSS. No script; standard library only.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

BINS = 400
"""A curve has at most this many points; more steps than that are averaged, their range shaded."""


@dataclass(frozen=True)
class Curve:
    """One curve: its name, its CSS class, steps and values of the same length."""

    name: str
    style: str
    steps: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with."""

    name: str
    value: float


@dataclass
class _Bins:
    """Means and ranges of a curve over equal stretches of steps; what is not finite is left out."""

    x: list[float] = field(default_factory=list[float])
    mean: list[float] = field(default_factory=list[float])
    low: list[float] = field(default_factory=list[float])
    high: list[float] = field(default_factory=list[float])


def _binned(curve: Curve) -> _Bins:
    pairs = [(s, v) for s, v in zip(curve.steps, curve.values, strict=True) if math.isfinite(v)]
    size = max(1, math.ceil(len(pairs) / BINS))
    bins = _Bins()
    for start in range(0, len(pairs), size):
        part = pairs[start : start + size]
        values = [v for _, v in part]
        bins.x.append(sum(s for s, _ in part) / len(part))
        bins.mean.append(sum(values) / len(values))
        bins.low.append(min(values))
        bins.high.append(max(values))
    return bins


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between `low` and `high`, about as many as asked for.

    >>> ticks(1.7, 8.2)
    [2.0, 4.0, 6.0, 8.0]
    """
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / about))
    for factor in (1, 2, 5, 10):
        if (high - low) / (step * factor) <= about:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def _log_ticks(bottom: float, top: float) -> list[float]:
    """Powers of ten from 10**bottom to 10**top; where they are too few, 2 and 5 times them too."""
    decades = range(math.floor(bottom), math.ceil(top) + 1)
    factors = (1.0,) if top - bottom > 2.5 else (1.0, 2.0, 5.0)
    marks = [factor * 10.0**k for k in decades for factor in factors]
    return [mark for mark in marks if bottom <= math.log10(mark) <= top]


def line_chart(
    title: str,
    caption: str,
    curves: Sequence[Curve],
    *,
    levels: Sequence[Level] = (),
    log: bool = False,
) -> str:
    """A figure with curves over steps. With `log` the y axis is in powers of ten."""
    shape = math.log10 if log else float
    drawn: list[tuple[Curve, _Bins]] = []
    for curve in curves:
        positive = [v if v > 0 or not log else math.nan for v in curve.values]
        bins = _binned(Curve(curve.name, curve.style, curve.steps, positive))
        if bins.x:
            drawn.append((curve, bins))
    if not drawn:
        return _figure(title, caption, '<p class="empty">No finite value was recorded.</p>')
    kept = [
        level for level in levels if math.isfinite(level.value) and (level.value > 0 or not log)
    ]
    ends = [shape(v) for _, bins in drawn for v in (*bins.low, *bins.high)]
    ends += [shape(level.value) for level in kept]
    bottom, top = _padded(min(ends), max(ends))
    left = min(step for curve, _ in drawn for step in curve.steps)
    right = max(step for curve, _ in drawn for step in curve.steps)

    def x_of(step: float) -> float:
        return 1000 * (step - left) / (right - left) if right > left else 500.0

    def y_of(value: float) -> float:
        return 1000 * (top - shape(value)) / (top - bottom)

    marks: list[str] = []
    labels: list[str] = []
    for tick in _log_ticks(bottom, top) if log else ticks(bottom, top):
        y = y_of(tick)
        marks.append(f'<line class="grid" x1="0" x2="1000" y1="{y:.1f}" y2="{y:.1f}"/>')
        labels.append(f'<span class="y" style="top:{y / 10:.1f}%">{number(tick)}</span>')
    below = 0.0
    for level in sorted(kept, key=lambda level: -level.value):
        y = y_of(level.value)
        marks.append(f'<line class="level" x1="0" x2="1000" y1="{y:.1f}" y2="{y:.1f}"/>')
        name = html.escape(level.name)
        # Labels stand on their line, and never closer to each other than a line of text.
        y = below = max(y, below + 70)
        labels.append(
            f'<span class="level" style="top:{y / 10:.1f}%">{name} {number(level.value)}</span>'
        )
    for curve, bins in drawn:
        if any(high > low for low, high in zip(bins.low, bins.high, strict=True)):
            there = [f"{x_of(x):.1f},{y_of(v):.1f}" for x, v in zip(bins.x, bins.high, strict=True)]
            back = [f"{x_of(x):.1f},{y_of(v):.1f}" for x, v in zip(bins.x, bins.low, strict=True)]
            points = " ".join([*there, *reversed(back)])
            marks.append(f'<polygon class="band {curve.style}" points="{points}"/>')
        points = " ".join(
            f"{x_of(x):.1f},{y_of(v):.1f}" for x, v in zip(bins.x, bins.mean, strict=True)
        )
        marks.append(f'<polyline class="{curve.style}" points="{points}"/>')
        if len(bins.x) <= 60:
            # A round-capped stroke of no length is a dot that stays round when the chart stretches.
            dots = "".join(
                f"M{x_of(x):.1f} {y_of(v):.1f}h0" for x, v in zip(bins.x, bins.mean, strict=True)
            )
            marks.append(f'<path class="dots {curve.style}" d="{dots}"/>')
    legend = "".join(
        f'<span class="key {curve.style}">{html.escape(curve.name)}</span>' for curve, _ in drawn
    )
    return _figure(
        title,
        caption,
        f'<div class="legend">{legend}</div><div class="plot"><div class="ylabels">'
        f"{''.join(labels)}</div>{_svg(title, 1000, 1000, marks)}</div>{_x_labels(left, right)}",
    )


def heat_map(
    title: str,
    caption: str,
    steps: Sequence[float],
    rows: Sequence[tuple[str, Sequence[float]]],
) -> str:
    """A figure with one row a layer and one column a step, coloured by the logarithm of the value.

    A value that is zero or not finite has a colour of its own. Hovering a cell shows its number.
    """
    logs = [math.log10(v) for _, values in rows for v in values if math.isfinite(v) and v > 0]
    if not logs:
        return _figure(title, caption, '<p class="empty">No finite value was recorded.</p>')
    low, high = min(logs), max(logs)
    columns = _chosen(len(steps))
    body: list[str] = []
    for name, values in rows:
        label = html.escape(name)
        cells: list[str] = []
        for place, column in enumerate(columns):
            value = values[column]
            if math.isfinite(value) and value > 0:
                share = (math.log10(value) - low) / (high - low) if high > low else 0.5
                paint = f'fill="{colour(share)}"'
            else:
                paint = 'class="odd"'
            said = f"{label}, step {steps[column]:g}: {number(value)}"
            cells.append(
                f'<rect x="{place}" width="1.02" height="1" {paint}><title>{said}</title></rect>'
            )
        body.append(f'<div class="layer">{label}</div>{_svg(name, len(columns), 1, cells)}')
    stops = ",".join(colour(k / 8) for k in range(9))
    scale = (
        f'<div class="scale"><span>{number(10**low)}</span>'
        f'<i style="background:linear-gradient(to right,{stops})"></i>'
        f"<span>{number(10**high)}</span></div>"
    )
    axis = f"<div></div>{_x_labels(steps[0], steps[-1])}"
    return _figure(title, caption, f'{scale}<div class="heat">{"".join(body)}{axis}</div>')


def number(value: float) -> str:
    """A number as short as a label needs: four significant digits at most.

    >>> number(2.0), number(0.00123456), number(12345.6), number(float("nan"))
    ('2', '0.001235', '1.235e+04', 'nan')
    """
    return f"{value:.4g}"


def colour(share: float) -> str:
    """Dark blue at 0, over violet and orange, to pale yellow at 1: told apart on any background."""
    stops = ((24, 32, 110), (126, 42, 142), (214, 74, 92), (248, 156, 58), (252, 240, 160))
    place = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    k = min(int(place), len(stops) - 2)
    mixed = (a + (b - a) * (place - k) for a, b in zip(stops[k], stops[k + 1], strict=True))
    return "#" + "".join(f"{round(c):02x}" for c in mixed)


def _chosen(n: int, most: int = 80) -> list[int]:
    """At most `most` of n columns, evenly spread, the last one among them."""
    if n <= most:
        return list(range(n))
    return [round(k * (n - 1) / (most - 1)) for k in range(most)]


def _padded(low: float, high: float) -> tuple[float, float]:
    room = 0.05 * (high - low) or 0.5
    return low - room, high + room


def _svg(label: str, width: float, height: float, marks: Sequence[str]) -> str:
    return (
        f'<svg role="img" aria-label="{html.escape(label)}" viewBox="0 0 {width:g} {height:g}" '
        f'preserveAspectRatio="none">{"".join(marks)}</svg>'
    )


def _x_labels(left: float, right: float) -> str:
    middle = (left + right) / 2
    return (
        f'<div class="xlabels"><span>step {left:,.0f}</span><span>{middle:,.0f}</span>'
        f"<span>{right:,.0f}</span></div>"
    )


def _figure(title: str, caption: str, body: str) -> str:
    return (
        f"<figure><h2>{html.escape(title)}</h2>{body}"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )
