"""report.html: one file that shows a whole run and needs no network, no script and no server.

It is drawn from the run folder's own records (`metrics.jsonl` and the final scores), nothing else.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chainrule._version import __version__
from chainrule.train.charts import Curve, Level, heat_map, line_chart, number

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Score:
    """One row of the table: who predicts, and bits per byte on either text (None: not measured)."""

    name: str
    train: float | None
    held_out: float | None
    explained: str = ""


@dataclass(frozen=True)
class Sample:
    """Text that the model wrote after `prompt`."""

    prompt: str
    text: str


@dataclass(frozen=True)
class Report:
    """What a page shows. `records` are the lines of metrics.jsonl, in order of steps.

    A record has `step`, `loss` (nats per byte), `gradient_norm` and `lr`; now and then also
    `held_out` (nats per byte) and `layers`: {name: {"gradient_norm": …, "update_ratio": …}}.
    """

    title: str
    records: Sequence[Record]
    scores: Sequence[Score] = ()
    samples: Sequence[Sample] = ()
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: Sequence[str] = ()


def render(report: Report) -> str:
    """The page, as HTML text."""
    parts = [
        f"<h1>{html.escape(report.title)}</h1>",
        "".join(f'<p class="note">{html.escape(note)}</p>' for note in report.notes),
        _scores(report.scores),
        _loss(report),
        *_layers(report.records),
        _samples(report.samples),
        _facts(report.facts),
        f"<footer>chainrule {__version__}</footer>",
    ]
    title = html.escape(report.title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        # The browser itself is told to load nothing.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _scores(scores: Sequence[Score]) -> str:
    if not scores:
        return ""

    def cell(value: float | None) -> str:
        return "<td>–</td>" if value is None else f"<td>{value:.3f}</td>"

    rows = "".join(
        f'<tr><th scope="row">{html.escape(s.name)}'
        f"{f'<small>{html.escape(s.explained)}</small>' if s.explained else ''}</th>"
        f"{cell(s.train)}{cell(s.held_out)}</tr>"
        for s in scores
    )
    return (
        "<h2>Bits per byte</h2><table><thead><tr><th></th><th>training text</th>"
        f"<th>held-out text</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _series(records: Sequence[Record], key: str) -> tuple[list[float], list[float]]:
    chosen = [record for record in records if key in record]
    return [float(r["step"]) for r in chosen], [float(r[key]) for r in chosen]


def _loss(report: Report) -> str:
    steps, losses = _series(report.records, "loss")
    held_steps, held = _series(report.records, "held_out")
    bits = 1 / math.log(2)
    odd = sum(not math.isfinite(loss) for loss in losses)
    caption = "Training loss of each step's batch, and the loss on fixed held-out windows."
    if odd:
        caption += f" At {odd} of {len(losses)} steps the loss was not finite."
    levels = [
        Level(score.name, score.held_out)
        for score in report.scores[1:]
        if score.held_out is not None
    ]
    loss = line_chart(
        "Loss in bits per byte",
        caption,
        [
            Curve("training", "one", steps, [v * bits for v in losses]),
            Curve("held-out", "two", held_steps, [v * bits for v in held]),
        ],
        levels=levels,
    )
    norm = line_chart(
        "Gradient norm",
        "Euclidean norm over all parameters, before clipping.",
        [Curve("gradient norm", "one", *_series(report.records, "gradient_norm"))],
        log=True,
    )
    return loss + norm


def _layers(records: Sequence[Record]) -> list[str]:
    detailed = [record for record in records if record.get("layers")]
    if not detailed:
        return []
    steps = [float(record["step"]) for record in detailed]
    names = list(detailed[-1]["layers"])

    def values(name: str, key: str) -> list[float]:
        return [float(r["layers"].get(name, {}).get(key, math.nan)) for r in detailed]

    norms = heat_map(
        "Gradient norm per layer",
        "One row a layer, in the order of the forward pass; one column a recorded step; the "
        "colour is the logarithm of the norm before clipping. A row that darkens to the right "
        "stops learning; grey is zero or not finite.",
        steps,
        [(name, values(name, "gradient_norm")) for name in names],
    )
    ratios = {name: values(name, "update_ratio") for name in names}
    at_step = [
        sorted(v for v in column if math.isfinite(v))
        for column in zip(*ratios.values(), strict=True)
    ]

    def ranked(share: float) -> list[float]:
        return [c[round(share * (len(c) - 1))] if c else math.nan for c in at_step]

    last = {name: series[-1] for name, series in ratios.items() if math.isfinite(series[-1])}
    said = ""
    if last:
        most, least = max(last, key=last.__getitem__), min(last, key=last.__getitem__)
        said = (
            f" At the last recorded step: {most} moves most ({number(last[most])}), {least} least "
            f"({number(last[least])})."
        )
    update = line_chart(
        "Update-to-weight ratio",
        "Norm of one step's change over the norm of the weights, by layer: the largest, the "
        "median and the smallest. About 0.001 is usual while the rate is high." + said,
        [
            Curve("largest", "two", steps, ranked(1.0)),
            Curve("median", "one", steps, ranked(0.5)),
            Curve("smallest", "three", steps, ranked(0.0)),
        ],
        levels=[Level("usual", 1e-3)],
        log=True,
    )
    return [norms, update]


def _samples(samples: Sequence[Sample]) -> str:
    if not samples:
        return ""
    blocks = "".join(
        f'<pre><span class="prompt">{html.escape(visible(s.prompt))}</span>'
        f"{html.escape(visible(s.text))}</pre>"
        for s in samples
    )
    return f"<h2>What the model writes</h2><p>The prompt is marked.</p>{blocks}"


def visible(text: str) -> str:
    r"""Show control characters instead of obeying them; line breaks and tabs stay.

    >>> visible("a\x1b[31m\tb")
    'a␛[31m\tb'
    """
    return "".join(
        character
        if character in "\n\t" or character.isprintable()
        else chr(0x2400 + ord(character))
        if ord(character) < 32
        else "\ufffd"
        for character in text
    )


def _facts(facts: Mapping[str, str]) -> str:
    if not facts:
        return ""
    rows = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>"
        for name, value in facts.items()
    )
    return f"<h2>The run</h2><dl>{rows}</dl>"


_STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#1c1e21;--soft:#5b6068;--rule:#d9dce1;
--panel:#f5f6f8;--one:#1f5fbf;--two:#c2410c;--three:#15803d;--level:#7c3aed}
@media(prefers-color-scheme:dark){:root{--page:#15171a;--ink:#e6e8eb;--soft:#a0a6ae;
--rule:#363a40;--panel:#1e2125;--one:#7fb0ff;--two:#ff9d66;--three:#6fd08c;--level:#b9a0ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem;line-height:1.25;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2rem 0 .5rem}
figure{margin:0}
figcaption,.note,footer,small{color:var(--soft);font-size:.9rem}
figcaption{margin-top:.5rem}
small{display:block;font-weight:400}
table{border-collapse:collapse;width:100%}
th,td{padding:.4rem .5rem;border-bottom:1px solid var(--rule);text-align:right;
vertical-align:top;font-variant-numeric:tabular-nums}
th[scope=row],th:first-child{text-align:left}
tbody tr:first-child{font-weight:700;background:var(--panel)}
.plot{position:relative;height:17rem;margin-left:3.4rem}
.plot svg{position:absolute;inset:0;width:100%;height:100%;background:var(--panel)}
.ylabels{position:absolute;inset:0;z-index:1;pointer-events:none;font-size:.8rem}
.ylabels span{position:absolute;transform:translateY(-50%)}
.ylabels .y{right:100%;padding-right:.4rem;color:var(--soft);white-space:nowrap}
.ylabels .level{right:.3rem;transform:translateY(-100%);color:var(--level);
text-shadow:0 0 3px var(--panel),0 0 3px var(--panel),0 0 3px var(--panel)}
.xlabels{display:flex;justify-content:space-between;font-size:.8rem;color:var(--soft)}
.plot+.xlabels{margin-left:3.4rem}
svg *{vector-effect:non-scaling-stroke}
polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}
.dots{stroke-width:6;stroke-linecap:round}
.band{stroke:none;opacity:.25}
.grid{stroke:var(--rule);stroke-width:1}
line.level{stroke:var(--level);stroke-width:1.2;stroke-dasharray:5 4}
polyline.one,.dots.one{stroke:var(--one)}.band.one{fill:var(--one)}
polyline.two,.dots.two{stroke:var(--two)}.band.two{fill:var(--two)}
polyline.three,.dots.three{stroke:var(--three)}.band.three{fill:var(--three)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.9rem;margin-bottom:.4rem}
.key::before{content:"";display:inline-block;width:1.2rem;height:.25rem;margin-right:.4rem;
vertical-align:middle;background:var(--one)}
.key.two::before{background:var(--two)}.key.three::before{background:var(--three)}
.heat{display:grid;grid-template-columns:minmax(0,max-content) minmax(0,1fr);gap:1px .6rem;
align-items:center}
.heat svg{width:100%;height:1.1rem;display:block}
.layer{font:.78rem ui-monospace,monospace;overflow-wrap:anywhere;line-height:1.2}
.scale{display:flex;align-items:center;gap:.5rem;font-size:.8rem;margin-bottom:.5rem}
.scale i{flex:0 1 12rem;height:.7rem}
.odd{fill:#888}
pre{background:var(--panel);padding:.8rem;overflow-wrap:anywhere;white-space:pre-wrap;
font:.85rem/1.45 ui-monospace,monospace}
.prompt{font-weight:700;text-decoration:underline}
dl{display:grid;grid-template-columns:minmax(6rem,max-content) minmax(0,1fr);gap:.2rem 1rem}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
footer{margin:2rem 0}
"""
