"""The report is one well-formed page, shows the numbers it was given, and loads nothing."""

import math
import re
from html.parser import HTMLParser

import pytest

from chainrule.train.charts import BINS, Curve, colour, heat_map, line_chart, ticks
from chainrule.train.report import Report, Sample, Score, render

VOID = {"meta"}


class Page(HTMLParser):
    """Checks that tags nest, and collects text, attributes and rows of tables."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data + "\n"

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


LAYERS = ("wte", "h.0.attn", "h.0.mlp", "lm_head")


def records(n=50, loss=lambda step: 5.0 / step):
    made = []
    for step in range(1, n + 1):
        record = {"step": step, "loss": loss(step), "gradient_norm": 1.0 / step, "lr": 1e-3}
        if step % 10 == 0:
            record["held_out"] = loss(step) + 0.1
            record["layers"] = {
                name: {"gradient_norm": 10.0**-k, "update_ratio": 1e-3 * (k + 1)}
                for k, name in enumerate(LAYERS)
            }
        made.append(record)
    return made


def report(**changes):
    given = {
        "title": "nano on <my> text",
        "records": records(),
        "scores": [
            Score("this model", 1.25, 2.125),
            Score("order-2", 2.5, 2.75),
            Score("gzip -9", 1.75, None),
        ],
        "samples": [Sample("def ", "f(x):\n    return x")],
        "facts": {"steps": "50"},
        "notes": ["One file was left out."],
    }
    return render(Report(**{**given, **changes}))


def test_the_page_nests_and_loads_nothing():
    source = report()
    page = Page(source)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not re.search(r"https?:|//|url\(|@import", source)
    for _, attributes in page.tags:
        assert not {"src", "href", "onload", "onclick"} & set(attributes)
    assert page.all("meta")[1]["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_the_page_fits_a_phone_and_follows_light_and_dark():
    source = report()
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in source
    assert "prefers-color-scheme:dark" in source
    assert "color-scheme:light dark" in source


def test_text_from_outside_is_escaped():
    evil = '<script>alert("x")</script>'
    source = report(
        title=evil,
        notes=[evil],
        facts={evil: evil},
        samples=[Sample(evil, evil)],
        scores=[Score(evil, 1.0, 1.0, evil)],
        records=[{"step": 1, "loss": 1.0, "layers": {evil: {"gradient_norm": 1.0}}}],
    )
    page = Page(source)
    assert not page.all("script")
    assert page.text.count(evil) >= 7


def test_control_characters_of_a_sample_are_shown_and_not_obeyed():
    page = Page(report(samples=[Sample("a", "\x1b[31mred\x00\r\x7f")]))
    assert "␛[31mred␀␍\ufffd" in page.text


def test_the_table_shows_the_scores():
    text = Page(report()).text
    for shown in ("1.250", "2.125", "2.500", "2.750", "1.750", "–"):
        assert shown in text


def test_the_loss_is_drawn_in_bits_where_the_numbers_say():
    chart = line_chart("t", "c", [Curve("a", "one", [0, 1, 2], [8.0, 4.0, 0.0])])
    (points,) = re.findall(r'<polyline class="one" points="([^"]*)"', chart)
    places = [tuple(map(float, point.split(","))) for point in points.split()]
    assert [x for x, _ in places] == [0, 500, 1000]
    # 5 % of the range is left free above and below: 0.4 of 8.8.
    assert [y for _, y in places] == pytest.approx(
        [1000 * k / 8.8 for k in (0.4, 4.4, 8.4)], abs=0.1
    )


def test_the_page_draws_the_losses_in_bits_per_byte():
    whole = report(records=[{"step": s, "loss": v * math.log(2)} for s, v in ((1, 8.0), (2, 3.0))])
    assert "order-2 2.75" in whole  # the level to compare with
    (points,) = re.findall(r'<polyline class="one" points="([^"]*)"', whole)
    y = [float(p.split(",")[1]) for p in points.split()]
    low, high = 2.75, 8.0
    room = 0.05 * (high - low)
    assert y[0] == pytest.approx(1000 * room / (high - low + 2 * room), abs=0.1)


def test_a_long_run_is_averaged_and_its_range_shaded():
    n = 10 * BINS
    chart = line_chart("t", "c", [Curve("a", "one", range(n), [s % 2 for s in range(n)])])
    (points,) = re.findall(r'<polyline class="one" points="([^"]*)"', chart)
    assert len(points.split()) == BINS
    assert "polygon" in chart


def test_the_heat_map_has_a_cell_a_layer_and_step():
    page = Page(report())
    titles = re.findall(r"<title>(\S+), step (\d+): (\S+)</title>", report())
    assert [t for t in titles if t[0] == "h.0.mlp"] == [
        ("h.0.mlp", str(step), "0.01") for step in (10, 20, 30, 40, 50)
    ]
    assert len(page.all("rect")) == 4 * 5


def test_the_heat_maps_colour_is_the_logarithm():
    chart = heat_map("t", "c", [1, 2, 3], [("a", [1e-4, 1e-2, 1.0]), ("b", [0.0, math.nan, 1.0])])
    fills = re.findall(r'fill="([^"]*)"', chart)
    assert fills == [colour(0.0), colour(0.5), colour(1.0), colour(1.0)]
    assert chart.count('class="odd"') == 2


def test_the_update_ratio_names_the_layers_that_move_most_and_least():
    text = Page(report()).text
    assert "lm_head moves most (0.004), wte least (0.001)" in text


def test_a_run_that_diverged_still_has_a_page():
    page = Page(report(records=records(loss=lambda step: math.nan if step > 20 else 1.0)))
    assert "At 30 of 50 steps the loss was not finite." in page.text
    page = Page(report(records=records(loss=lambda step: math.inf)))
    assert "No finite value was recorded." in page.text


def test_a_run_of_no_steps_still_has_a_page():
    page = Page(report(records=[], scores=[], samples=[], facts={}, notes=[]))
    assert "nano on <my> text" in page.text


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (1.9, 2.4, [1.9, 2.0, 2.1, 2.2, 2.3, 2.4]), (3, 3, [3])],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)
