"""The picture of a tensor in memory: golden drawings, and what must hold for every layout."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.errors import IndexRangeError, InputError, LayoutError, ShapeError
from chainrule.layout import Layout
from chainrule.show import Picture, memory


class Block:
    """The least that `memory` asks of a tensor."""

    def __init__(self, layout, values):
        self.layout = layout
        self.values = values

    def storage(self):
        return self

    def tolist(self):
        return self.values


X = Layout.contiguous((3, 4))
ALL = slice(None)
COLUMNS = X.index((ALL, slice(None, None, 2)))
REVERSED = X.index((ALL, slice(None, None, -1)))


def arange(layout, size=12):
    return Block(layout, list(range(size)))


COLUMNS_TEXT = """\
     x[:, ::2]

        0    1
     ┌────┬────┐   shape       (3, 2)
   0 │  0 │  2 │   stride      (4, 2)
   1 │  4 │  6 │   offset      0
   2 │  8 │ 10 │   address     0 + i·4 + j·2
     └────┴────┘   contiguous  no: dimension 1 has stride 2, not 1
                   .view(-1)   yes, stride 2

     memory: 12 elements, 6 reached
        0    1    2    3    4    5    6    7    8    9   10   11
     ┌────┬────┬────┬────┬────┬────┬────┬────┬────┬────┬────┬────┐
     │  0 │  1 │  2 │  3 │  4 │  5 │  6 │  7 │  8 │  9 │ 10 │ 11 │
     └────┴────┴────┴────┴────┴────┴────┴────┴────┴────┴────┴────┘
        ▲         ▲         ▲         ▲         ▲         ▲
       0,0       0,1       1,0       1,1       2,0       2,1"""

WHOLE_TEXT = """\
        0    1    2    3
     ┌────┬────┬────┬────┐   shape       (3, 4)
   0 │  0 │  1 │  2 │  3 │   stride      (4, 1)
   1 │  4 │  5 │  6 │  7 │   offset      0
   2 │  8 │  9 │ 10 │ 11 │   address     0 + i·4 + j·1
     └────┴────┴────┴────┘   contiguous  yes
                             .view(-1)   yes, stride 1

     memory: 12 elements, 12 reached
        0    1    2    3    4    5    6    7    8    9   10   11
     ┌────┬────┬────┬────┬────┬────┬────┬────┬────┬────┬────┬────┐
     │  0 │  1 │  2 │  3 │  4 │  5 │  6 │  7 │  8 │  9 │ 10 │ 11 │
     └────┴────┴────┴────┴────┴────┴────┴────┴────┴────┴────┴────┘
        ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲
       0,0  0,1  0,2  0,3  1,0  1,1  1,2  1,3  2,0  2,1  2,2  2,3"""

TRANSPOSED_TEXT = """\
        0    1    2
     ┌────┬────┬────┐   shape       (4, 3)
   0 │  0 │  4 │  8 │   stride      (1, 4)
   1 │  1 │  5 │  9 │   offset      0
   2 │  2 │  6 │ 10 │   address     0 + i·1 + j·4
   3 │  3 │  7 │ 11 │   contiguous  no: dimension 1 has stride 4, not 1
     └────┴────┴────┘   .view(-1)   no: dimensions 0 and 1 do not merge
                                    (stride 1 is not 3·4)

     memory: 12 elements, 12 reached
        0    1    2    3    4    5    6    7    8    9   10   11
     ┌────┬────┬────┬────┬────┬────┬────┬────┬────┬────┬────┬────┐
     │  0 │  1 │  2 │  3 │  4 │  5 │  6 │  7 │  8 │  9 │ 10 │ 11 │
     └────┴────┴────┴────┴────┴────┴────┴────┴────┴────┴────┴────┘
        ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲
       0,0  1,0  2,0  3,0  0,1  1,1  2,1  3,1  0,2  1,2  2,2  3,2"""

ROWS_TEXT = """\
        0    1    2    3
     ┌────┬────┬────┬────┐   shape       (2, 4)
   0 │  4 │  5 │  6 │  7 │   stride      (4, 1)
   1 │  8 │  9 │ 10 │ 11 │   offset      4
     └────┴────┴────┴────┘   address     4 + i·4 + j·1
                             contiguous  yes
                             .view(-1)   yes, stride 1

     memory: 12 elements, 8 reached
        0    1    2    3    4    5    6    7    8    9   10   11
     ┌────┬────┬────┬────┬────┬────┬────┬────┬────┬────┬────┬────┐
     │  0 │  1 │  2 │  3 │  4 │  5 │  6 │  7 │  8 │  9 │ 10 │ 11 │
     └────┴────┴────┴────┴────┴────┴────┴────┴────┴────┴────┴────┘
                            ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲
                           0,0  0,1  0,2  0,3  1,0  1,1  1,2  1,3"""

REVERSED_TEXT = """\
        0    1    2    3
     ┌────┬────┬────┬────┐   shape       (3, 4)
   0 │  3 │  2 │  1 │  0 │   stride      (4, −1)
   1 │  7 │  6 │[ 5]│  4 │   offset      3
   2 │ 11 │ 10 │  9 │  8 │   address     3 + i·4 + j·(−1)
     └────┴────┴────┴────┘   contiguous  no: dimension 1 has stride −1, not 1
                             .view(-1)   no: dimensions 0 and 1 do not merge
                                         (stride 4 is not 4·(−1))

     memory: 12 elements, 12 reached
        0    1    2    3    4    5    6    7    8    9   10   11
     ┌────┬────┬────┬────┬────┬────┬────┬────┬────┬────┬────┬────┐
     │  0 │  1 │  2 │  3 │  4 │[ 5]│  6 │  7 │  8 │  9 │ 10 │ 11 │
     └────┴────┴────┴────┴────┴────┴────┴────┴────┴────┴────┴────┘
        ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲
       0,3  0,2  0,1  0,0  1,3  1,2  1,1  1,0  2,3  2,2  2,1  2,0

     [1, 2] is at offset 3 + 1·4 + 2·(−1) = 5"""

OVERLAP_TEXT = """\
       0   1   2
     ┌───┬───┬───┐   shape       (2, 3)
   0 │ 0 │ 1 │ 2 │   stride      (1, 1)
   1 │ 1 │ 2 │ 3 │   offset      0
     └───┴───┴───┘   address     0 + i·1 + j·1
                     contiguous  no: dimension 0 has stride 1, not 3
                     .view(-1)   no: dimensions 0 and 1 do not merge
                                 (stride 1 is not 3·1)
                     overlap     yes: some addresses belong to several indices

     memory: 4 elements, reached by 6 indices
     ┌────┬────┬────┬────┐
     │  0 │  1 │  2 │  3 │
     └────┴────┴────┴────┘
        ▲    ▲    ▲    ▲
       0,0  ×2   ×2   1,2"""

SCALAR_TEXT = """\

     ┌───┐   shape       ()
     │[9]│   stride      ()
     └───┘   offset      2
             contiguous  yes
             .view(-1)   yes

     memory: 4 elements, 1 reached
       0   1   2   3
     ┌───┬───┬───┬───┐
     │ 7 │ 8 │[9]│ 0 │
     └───┴───┴───┴───┘
               ▲
               ()

     the element is at offset 2"""

EMPTY_TEXT = """\

     (empty: no elements)   shape       (2, 0)
                            stride      (1, 1)
                            offset      0
                            address     0 + i·1 + j·1
                            contiguous  yes
                            .view(-1)   yes

     memory: 0 elements, none reached"""

GOLDEN = [
    (memory(arange(COLUMNS), title="x[:, ::2]"), COLUMNS_TEXT),
    (memory(arange(X)), WHOLE_TEXT),
    (memory(arange(X.transpose(0, 1))), TRANSPOSED_TEXT),
    (memory(arange(X.index(slice(1, None)))), ROWS_TEXT),
    (memory(arange(REVERSED), highlight=(1, -2)), REVERSED_TEXT),
    (memory(Layout.contiguous((4,)).unfold(0, 3, 1)), OVERLAP_TEXT),
    (memory(Block(Layout((), (), 2), [7, 8, 9, 0]), ()), SCALAR_TEXT),
    (memory(Block(Layout.contiguous((2, 0)), [])), EMPTY_TEXT),
]


@pytest.mark.parametrize(("picture", "text"), GOLDEN)
def test_the_drawing_is_exactly_this(picture, text):
    assert str(picture) == text


def test_three_dimensions_stand_side_by_side():
    text = str(memory(Layout.contiguous((2, 3, 4)), highlight=(1, 0, 2)))
    assert text.startswith(
        "     [0, :, :]                   [1, :, :]\n"
        "        0    1    2    3            0    1    2    3\n"
        "     ┌────┬────┬────┬────┐       ┌────┬────┬────┬────┐\n"
        "   0 │  0 │  1 │  2 │  3 │     0 │ 12 │ 13 │[14]│ 15 │\n"
    )
    assert text.endswith("[1, 0, 2] is at offset 0 + 1·12 + 0·4 + 2·1 = 14")


def test_an_expanded_dimension_says_how_many_share_an_address():
    text = str(memory(Layout.contiguous((2,)).expand((3, 2))))
    assert text.endswith("  ▲   ▲\n       ×3  ×3")
    assert "memory: 2 elements, reached by 6 indices" in text
    assert "×99+" in str(memory(Layout.contiguous((2,)).expand((10**9, 2))))


def test_a_large_tensor_is_elided_and_the_numbers_are_said():
    big = Layout.contiguous((100, 200))
    text = str(memory(big.transpose(0, 1), highlight=(150, 50)))
    assert "│[10150]│" in text
    assert "(19,991 of 20,000 elements not shown)" in text
    shown = [int(n) for n in re.findall(r"[│\[] *(\d+) *(?=[│\]])", text.split("memory:")[1])]
    hidden = [int(n.replace(",", "")) for n in re.findall(r"⋮  ([\d,]+) not shown", text)]
    assert len(shown) + sum(hidden) == 20_000
    assert 10150 in shown
    assert len(shown) < 48
    # A small view far inside a large storage: the memory is drawn around it.
    text = str(memory(Block(Layout((2,), (3,), 5000), list(range(10_000)))))
    assert "⋮  4,999 not shown" in text
    assert "│ 5000 │ 5001 │ 5002 │ 5003 │" in text
    blocks = str(memory(Layout.contiguous((10, 10, 2, 2)), highlight=(5, 5, 1, 0)))
    assert re.findall(r"\[\d, \d, :, :\]", blocks) == [
        "[0, 0, :, :]",
        "[5, 5, :, :]",
        "[9, 9, :, :]",
    ]


def test_values_are_short():
    values = [1 / 3, -2.5, float("nan"), float("-inf"), 1e-30, 123456789.0]
    text = str(memory(Block(Layout.contiguous((6,)), values)))
    for shown in ("0.3333", "−2.5", "nan", "−inf", "1e−30", "1.235e+08"):
        assert f" {shown} │" in text
    text = str(memory(Block(Layout.contiguous((2,)), [123456789012345, 1 + 2j])))
    assert "│ 123456789… │" in text
    assert "1+2j │" in text
    assert "│ False │" in str(memory(Block(Layout.contiguous((2,)), [True, False])))


def test_errors_say_what_to_do():
    with pytest.raises(IndexRangeError, match="index 4 is out of range for dimension 1 of size 4"):
        memory(X, highlight=(0, 4))
    with pytest.raises(ShapeError, match="has 1 numbers"):
        memory(X, highlight=(0,))
    with pytest.raises(InputError, match="memory draws a tensor or a Layout, got list"):
        memory([1, 2])
    with pytest.raises(InputError, match="width 39 is too narrow"):
        memory(X, width=39)
    with pytest.raises(LayoutError, match="needs a storage of 12 elements, this one has 5"):
        memory(arange(X, 5))


@st.composite
def pictures(draw):
    shape = draw(st.lists(st.integers(0, 12), max_size=5))
    strides = [draw(st.integers(-40, 40)) for _ in shape]
    below = sum((n - 1) * -s for n, s in zip(shape, strides, strict=True) if n > 1 and s < 0)
    layout = Layout(shape, strides, below + draw(st.integers(0, 99)))
    highlight = None
    if layout.numel and draw(st.booleans()):
        highlight = [draw(st.integers(0, n - 1)) for n in shape]
    span = layout.bounds() or (0, layout.offset)
    with_values = draw(st.booleans())
    values = [a * 1.25 for a in range(span[1] + 1 + draw(st.integers(0, 60)))]
    return memory(Block(layout, values) if with_values else layout, highlight), layout, highlight


@settings(max_examples=150, deadline=None)
@given(pictures())
def test_every_layout_can_be_drawn(made):
    picture, layout, highlight = made
    text = str(picture)
    assert max(map(len, text.split("\n"))) <= 80
    assert not any(line.endswith(" ") for line in text.split("\n"))
    grid, _, line = text.partition("memory: ")
    if highlight is not None:
        address = layout.address(highlight)
        assert text.split()[-1] == str(address)
        # Marked once in the grid and once in memory.
        assert len(re.findall(r"\[ *[\d.]+\]", grid.replace("−", ""))) == 1
        assert len(re.findall(r"\[ *[\d.]+\]", line.partition("\n     [")[0])) == 1
    # One arrow under every reached cell that is shown.
    cells = sum(row.count("│") - 1 for row in line.split("\n") if row.startswith("     │"))
    if cells and "not shown" not in line:
        assert line.count("▲") == len(set(layout.addresses()))


SVG = "{http://www.w3.org/2000/svg}"


@settings(max_examples=100, deadline=None)
@given(pictures())
def test_every_svg_is_well_formed_and_stays_inside_its_box(made):
    root = ElementTree.fromstring(made[0].svg())
    _, _, width, height = map(float, root.get("viewBox").split())
    assert width == 360
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
    for text in root.iter(f"{SVG}text"):
        assert 0 < float(text.get("y")) <= height


def test_the_svg_says_in_words_what_it_shows():
    svg = memory(arange(REVERSED), (1, 2), title="x[:, ::-1] & <more>").svg()
    root = ElementTree.fromstring(svg)
    title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert root.get("role") == "img"
    assert root.get("aria-labelledby").split() == [title.get("id"), desc.get("id")]
    assert title.text == "x[:, ::-1] & <more>"
    assert "stride (4, −1); offset 3" in desc.text
    assert desc.text.endswith("[1, 2] is at offset 3 + 1·4 + 2·(−1) = 5.")
    assert "prefers-color-scheme:dark" in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    hits = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "hit"]
    assert len(hits) == 2


def test_the_svg_marks_what_is_reached():
    root = ElementTree.fromstring(memory(arange(COLUMNS)).svg())
    cells = [rect.get("class") for rect in root.iter(f"{SVG}rect")]
    assert cells == ["reached"] * 6 + ["reached", None] * 6


def test_two_pictures_in_a_page_have_ids_of_their_own():
    first, second = memory(X).svg(), memory(COLUMNS).svg()
    assert first != second
    assert not set(re.findall(r'id="([^"]+)"', first)) & set(re.findall(r'id="([^"]+)"', second))
    assert memory(X).svg() == first


def test_notebooks_and_the_prompt_show_the_picture():
    picture = memory(X)
    assert isinstance(picture, Picture)
    assert repr(picture) == str(picture)
    assert picture._repr_svg_() == picture.svg()
    assert picture.svg() in picture._repr_html_()


def test_a_tensor_says_who_shares_its_memory_and_what_a_warp_reads():
    import chainrule as cr

    x = cr.zeros(64, 64)
    y, z = x.T, x[::2, 1:]
    text = str(memory(y))
    assert re.search(r"aliases +\(64, 64\) stride \(64, 1\)\n +\(32, 63\) stride \(128, 1\)", text)
    assert re.search(
        r"by row +a warp of 32 reads 32 × 32 B\n +by column +a warp of 32 reads 4 ×", text
    )
    del y, z
    text = str(memory(x))
    assert "aliases" not in text
    assert re.search(
        r"by row +a warp of 32 reads 4 × 32 B\n +by column +a warp of 32 reads 32 ×", text
    )
    many = [x[i] for i in range(5)]
    assert "and 2 more" in str(memory(x)) and len(many) == 5
    assert "by row" in memory(x).svg() and "by " not in str(memory(X))
