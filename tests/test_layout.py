"""Layout by itself: the course's examples, every view, every error's sentence, addresses."""

import copy
from fractions import Fraction
from itertools import product

import pytest

from chainrule.errors import DTypeError, IndexRangeError, InputError, LayoutError, ShapeError
from chainrule.layout import Layout, contiguous_strides

X = Layout.contiguous((3, 4))
ALL = slice(None)


def fields(layout):
    return layout.shape, layout.strides, layout.offset


COURSE = [
    (X, (3, 4), (4, 1), 0),
    (X.transpose(0, 1), (4, 3), (1, 4), 0),
    (X.index((ALL, slice(None, None, 2))), (3, 2), (4, 2), 0),
    (X.index(slice(1, None)), (2, 4), (4, 1), 4),
    (X.index((ALL, slice(None, None, -1))), (3, 4), (4, -1), 3),
    (X.view(12), (12,), (1,), 0),
]


@pytest.mark.parametrize(("layout", "shape", "strides", "offset"), COURSE)
def test_the_course_examples(layout, shape, strides, offset):
    assert fields(layout) == (shape, strides, offset)


VIEWS = [
    ("permute", ((1, 0),), (4, 3), (1, 4), 0),
    ("select", (1, -1), (3,), (4,), 3),
    ("slice", (1, None, None, -2), (3, 2), (4, -2), 3),
    ("slice", (0, 5, 9), (0, 4), (4, 1), 0),
    ("narrow", (0, 1, 2), (2, 4), (4, 1), 4),
    ("narrow", (0, -1, 1), (1, 4), (4, 1), 8),
    ("narrow", (0, 3, 0), (0, 4), (4, 1), 0),
    ("expand", ((2, -1, 4),), (2, 3, 4), (0, 4, 1), 0),
    ("flip", ((0, 1),), (3, 4), (-4, -1), 11),
    ("flip", (0,), (3, 4), (-4, 1), 8),
    ("unfold", (1, 2, 1), (3, 3, 2), (4, 1, 1), 0),
    ("unfold", (0, 0, 2), (2, 4, 0), (8, 1, 4), 0),
    ("unsqueeze", (0,), (1, 3, 4), (12, 4, 1), 0),
    ("unsqueeze", (-1,), (3, 4, 1), (4, 1, 1), 0),
    ("diagonal", (), (3,), (5,), 0),
    ("diagonal", (1,), (3,), (5,), 1),
    ("diagonal", (-2,), (1,), (5,), 8),
    ("diagonal", (9,), (0,), (5,), 0),
    ("view", ((2, -1),), (2, 6), (6, 1), 0),
    ("merge", (), (12,), (1,), 0),
    ("as_strided", ((2, 2), (1, 1), None, 12), (2, 2), (1, 1), 0),
    ("index", ((None, 1, ..., None, 2),), (1, 1), (12, 4), 6),
    ("index", ((1, 2),), (), (), 6),
    ("index", (...,), (3, 4), (4, 1), 0),
    ("index", ((),), (3, 4), (4, 1), 0),
]


@pytest.mark.parametrize(("view", "args", "shape", "strides", "offset"), VIEWS)
def test_every_view_of_a_3_by_4(view, args, shape, strides, offset):
    result = getattr(X, view)(*args)
    assert (result.shape, result.offset) == (shape, offset)
    moving = [i for i, size in enumerate(shape) if size > 1]
    assert [result.strides[i] for i in moving] == [strides[i] for i in moving]


def test_the_offset_of_an_empty_view_stays_inside_the_storage():
    empty = Layout.contiguous((3, 0, 2), 7)
    views = [
        empty.index(2),
        empty.select(0, -1),
        empty.index((2, ..., 1)),
        empty.index(slice(1, None)),
        X.index(slice(-9, None, -1)),
        X.index((slice(2, None), slice(4, None))),
        empty.flip((0, 1, 2)),
        empty.diagonal(1, 2, 0),
        empty.narrow(0, 2, 1),
    ]
    assert [view.offset for view in views] == [7, 7, 7, 7, 0, 0, 7, 7, 7]


def test_squeeze_drops_sizes_of_one_that_are_named():
    x = Layout.contiguous((1, 3, 1, 4))
    assert x.squeeze().shape == (3, 4)
    assert x.squeeze(2).shape == (1, 3, 4)
    assert x.squeeze((0, 1)).shape == (3, 1, 4)
    assert Layout.contiguous(()).squeeze(-1).shape == ()


def test_split_by_size_and_by_sizes():
    assert [part.shape for part in X.split(3, 1)] == [(3, 3), (3, 1)]
    assert [part.offset for part in X.split([1, 0, 3], 1)] == [0, 0, 1]
    assert [part.shape for part in Layout.contiguous((0, 2)).split(2)] == [(0, 2)]


ERRORS = [
    (lambda: X.index(5), IndexRangeError, "index 5 is out of range for dimension 0 of size 3: use -3 to 2"),
    (lambda: X.select(1, -5), IndexRangeError, "index -5 is out of range for dimension 1 of size 4: use -4 to 3"),
    (lambda: X.narrow(0, 3, 0).index(0), IndexRangeError, "index 0 is out of range for dimension 0 of size 0: it has no elements to select"),
    (lambda: X.index((0, 0, 0)), IndexRangeError, "too many indices: 3 for 2 dimensions of shape (3, 4)"),
    (lambda: Layout.contiguous(()).index(0), IndexRangeError, "too many indices: 1 for 0 dimensions of shape ()"),
    (lambda: X.index((..., ...)), IndexRangeError, "an index may hold one Ellipsis (...), got 2"),
    (lambda: X.index(True), DTypeError, "True of type bool is not a basic index: use integers, slices, None and ... here"),
    (lambda: X.index([0, 1]), DTypeError, "[0, 1] of type list is not a basic index: use integers, slices, None and ... here"),
    (lambda: X.index(slice(0.5)), DTypeError, "slice(None, 0.5, None): start, stop and step must be integers or None"),
    (lambda: X.slice(0, step=0), InputError, "slice step is 0: use a positive or a negative step"),
    (lambda: X.select(2, 0), IndexRangeError, "dimension 2 is out of range for 2 dimensions: use -2 to 1"),
    (lambda: X.index(0).select(1, 0), IndexRangeError, "dimension 1 is out of range for 1 dimension: use -1 to 0"),
    (lambda: Layout.contiguous(()).select(0, 0), IndexRangeError, "dimension 0 is out of range: the tensor is 0-d"),
    (lambda: X.permute((0, 0)), ShapeError, "permute(0, 0) of shape (3, 4): name each of the 2 dimensions exactly once"),
    (lambda: X.narrow(1, 2, 3), LayoutError, "narrow of dimension 1: start 2 and length 3 do not fit its size 4"),
    (lambda: X.flip((0, -2)), ShapeError, "flip(0, 0) names a dimension twice: name each once"),
    (lambda: X.diagonal(0, 1, -1), ShapeError, "diagonal of dimension 1 with itself: name two dimensions"),
    (lambda: X.unfold(1, 5, 1), LayoutError, "unfold of dimension 1 with size 5 and step 1: the size must be 0 to 4 (the dimension's size), the step at least 1"),
    (lambda: X.expand((3, 5)), ShapeError, "cannot expand shape (3, 4) to (3, 5): dimension 1 has size 4, and only size 1 can become 5"),
    (lambda: X.expand((4,)), ShapeError, "cannot expand shape (3, 4) to (4,): it has 2 dimensions and the target 1"),
    (lambda: X.expand((-1, 3, 4)), ShapeError, "cannot expand shape (3, 4) to (-1, 3, 4): dimension 0 is new, so its size cannot be -1"),
    (lambda: X.split(0), LayoutError, "split of dimension 0 into pieces of 0: use at least 1"),
    (lambda: X.split([1, 1]), LayoutError, "split sizes [1, 1] of dimension 0 sum to 2: they must be at least 0 and sum to its size 3"),
    (lambda: X.view(5), ShapeError, "shape (5,) holds 5 elements, the tensor of shape (3, 4) has 12"),
    (lambda: X.view((5, -1)), ShapeError, "shape (5, -1) does not fit 12 elements of shape (3, 4): 12 is not a multiple of 5"),
    (lambda: X.view((-1, -1)), ShapeError, "shape (-1, -1) is invalid: sizes are at least 0, and one may be -1"),
    (lambda: X.view((-3, -4)), ShapeError, "shape (-3, -4) is invalid: sizes are at least 0, and one may be -1"),
    (lambda: X.narrow(0, 0, 0).view((0, -1)), ShapeError, "shape (0, -1) leaves -1 open: beside a size of 0 any number fits, so write it out"),
    (lambda: X.view("ab"), ShapeError, "shape 'ab' must be a sequence of integers"),
    (lambda: X.transpose(0, 1).view(-1), LayoutError, "cannot view shape (4, 3), strides (1, 4) as (12,): dimensions 0 and 1 do not merge (dimension 0 has stride 1, merging needs 3·4 = 12); use reshape, which copies"),
    (lambda: X.slice(1, 0, 2).unsqueeze(1).view(6), LayoutError, "cannot view shape (3, 1, 2), strides (4, 2, 1) as (6,): dimensions 0 and 2 do not merge (dimension 0 has stride 4, merging needs 2·1 = 2); use reshape, which copies"),
    (lambda: X.as_strided((3, 3), (4, 1), 2, 12), LayoutError, "shape (3, 3), strides (4, 1), offset 2 needs a storage of 13 elements, this one has 12"),
    (lambda: X.as_strided((3,), (-2,), 3, 12), LayoutError, "shape (3,), strides (-2,), offset 3 reaches address -1: addresses start at 0"),
    (lambda: X.as_strided((0,), (1,), 13, 12), LayoutError, "shape (0,), strides (1,), offset 13 needs a storage of 13 elements, this one has 12"),
    (lambda: Layout((2,), (1, 1)), ShapeError, "shape (2,) has 1 dimensions but strides (1, 1) has 2: give one stride a dimension"),
    (lambda: Layout((-2,), (1,)), ShapeError, "shape (-2,) has a negative size: sizes are at least 0"),
    (lambda: Layout.contiguous((2, -2)), ShapeError, "shape (2, -2) has a negative size: sizes are at least 0"),
    (lambda: Layout.contiguous((2,), -1), LayoutError, "offset -1 is negative: addresses start at 0"),
    (lambda: X.address((1,)), ShapeError, "index (1,) has 1 numbers, shape (3, 4) needs 2"),
    (lambda: X.address((1, 4)), IndexRangeError, "index 4 is out of range for dimension 1 of size 4: use -4 to 3"),
    (lambda: X.transactions(0, warp=0), InputError, "warp 0, itemsize 4 and segment 32 must be at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("broken", "kind", "sentence"), ERRORS)
def test_an_error_says_what_happened_with_the_numbers(broken, kind, sentence):
    with pytest.raises(kind) as caught:
        broken()
    assert str(caught.value) == sentence


def test_errors_are_the_builtins_a_user_would_catch():
    with pytest.raises(IndexError):
        X.index(5)
    with pytest.raises(RuntimeError):
        X.transpose(0, 1).view(-1)
    with pytest.raises(ValueError, match="holds 5"):
        X.view(5)


def test_can_view_answers_without_raising():
    assert X.transpose(0, 1).can_view(-1) is None
    assert X.transpose(0, 1).can_view((2, 2, 3)) == Layout((2, 2, 3), (2, 1, 4))
    assert X.transpose(0, 1).why_not_view((2, 2, 3)) is None


def test_a_layout_is_immutable_hashable_and_can_be_copied():
    with pytest.raises(AttributeError, match="a Layout is immutable: cannot set 'offset'"):
        X.offset = 3
    with pytest.raises(AttributeError, match="a Layout is immutable: cannot delete 'shape'"):
        del X.shape
    with pytest.raises(AttributeError):
        X.colour = "red"
    assert {X: 1}[Layout((3, 4), (4, 1))] == 1
    assert Layout((3, 4), (4, 1), 1) != X
    assert (X.shape, X.strides, X.offset) != X
    # Rebuilt through __reduce__, as pickling and other processes do.
    assert copy.deepcopy(X) == X
    assert Layout.contiguous([3, 4]) is Layout.contiguous((3, 4))


def test_fields_are_python_ints_whatever_came_in():
    numpy = pytest.importorskip("numpy")
    two = numpy.int64(2)
    made = [
        Layout((two, two), (two, 1), two),
        X.select(numpy.int64(0), two),
        X.index((slice(two), numpy.int64(1))),
        X.narrow(0, numpy.int64(1), two),
        X.unfold(1, two, two),
        X.diagonal(numpy.int64(1)),
        X.view((two, -1)),
        X.expand((two, 3, 4)),
    ]
    for layout in made:
        assert all(type(n) is int for n in (*layout.shape, *layout.strides, layout.offset))


def test_contiguity_ignores_sizes_of_one_and_empty_layouts():
    assert Layout((3, 1, 4), (4, 77, 1)).is_contiguous
    assert Layout((3, 0), (5, 9)).is_contiguous
    assert Layout.contiguous(()).is_contiguous
    assert not X.transpose(0, 1).is_contiguous
    assert X.why_not_contiguous() is None
    assert X.transpose(0, 1).why_not_contiguous() == (
        "dimension 1 has stride 4, contiguous needs 1"
    )
    assert X.slice(1, 0, 2).why_not_contiguous() == "dimension 0 has stride 4, contiguous needs 2"


def test_merge_keeps_the_order_of_addresses():
    for layout in (X, X.transpose(0, 1), X.unsqueeze(1), X.index(slice(None, None, 2)), X.expand((2, 3, 4))):  # fmt: skip
        assert list(layout.merge().addresses()) == list(layout.addresses())
    assert Layout.contiguous((2, 3, 4)).slice(2, 0, 2).merge() == Layout((6, 2), (4, 1))
    assert Layout.contiguous((1, 1), 5).merge() == Layout((), (), 5)
    assert Layout.contiguous((2, 0, 3)).merge().shape == (0,)


def test_addresses_bounds_and_address_agree():
    layout = X.flip(1).slice(1, 0, None, 2)
    walked = [layout.address(index) for index in product(range(3), range(2))]
    assert walked == list(layout.addresses()) == [3, 1, 7, 5, 11, 9]
    assert layout.bounds() == (1, 11)
    assert layout.address((-1, -1)) == 9
    assert Layout.contiguous((2, 0)).bounds() is None
    assert list(Layout.contiguous((2, 0)).addresses()) == []
    assert list(Layout.contiguous((), 7).addresses()) == [7]


def test_dense_means_as_many_consecutive_addresses_as_elements():
    assert X.is_dense
    assert X.transpose(0, 1).flip(0).is_dense
    assert Layout.contiguous(()).is_dense
    assert Layout.contiguous((0, 3)).is_dense
    assert not X.slice(1, 0, 2).is_dense
    assert not X.unfold(1, 2, 1).is_dense
    # Every small layout: dense exactly when its addresses are so.
    for shape in product(range(1, 4), repeat=3):
        for strides in product((0, 1, 2, 3, 4, 6, 9), repeat=3):
            layout = Layout(shape, strides)
            reached = sorted(layout.addresses())
            assert layout.is_dense == (reached == list(range(layout.numel))), layout


def test_overlap_in_huge_layouts_is_decided_without_visiting_them():
    big = Layout.contiguous((10**6, 10**6))
    left, right = big.split(5 * 10**5, 1)
    assert not left.overlaps(right)
    assert left.overlaps(right.slice(1, 0, 1).as_strided((2, 2), (10**6, -1), 10**6, 10**12))
    assert not big.slice(1, 0, None, 2).overlaps(big.slice(1, 1, None, 2))
    assert not big.self_overlaps
    assert big.unfold(1, 3, 1).self_overlaps
    # 7·10^9·i = 9·10^9·j + k has only far solutions: not within these sizes, then just within.
    assert not Layout((9, 7), (7 * 10**9, 9 * 10**9)).self_overlaps
    assert Layout((10, 8, 2), (7 * 10**9, 9 * 10**9, 10**12)).self_overlaps


def test_beyond_both_limits_overlap_is_assumed():
    # Strides of no structure: 2**40 sums, none nested. Deciding it is a subset-sum problem.
    strides = [(10**9 * k * k + 7919 * k) | 1 for k in range(11, 51)]
    hard = Layout((2,) * 40, strides)
    assert hard.self_overlaps
    assert hard.overlaps(hard)


def test_transactions_of_a_warp():
    row = Layout.contiguous((64, 64))
    assert row.transactions(1) == 4  # 128 bytes in a row
    assert row.transactions(0) == 32  # 256 bytes apart: a segment each
    assert row.slice(1, 0, None, 2).transactions(1) == 8
    assert row.flip(1).transactions(1) == 4
    assert row.expand((32, 64, 64)).transactions(0) == 1
    assert row.slice(1, 1, 33).transactions(1) == 5  # the offset breaks alignment
    assert row.transactions(1, itemsize=2) == 2
    assert row.transactions(1, itemsize=8, segment=128) == 2
    assert Layout.contiguous((5,)).transactions(0) == 1
    assert Layout.contiguous((5,)).transactions(0, itemsize=64) == 10
    assert Layout.contiguous(()).transactions(-1) == 1
    assert Layout.contiguous((0, 3)).transactions(1) == 0
    # By definition, at the edges of a segment.
    for stride, offset in product(range(-9, 10), (0, 3, 300)):
        layout = Layout((32,), (stride,), offset + 32 * 9)
        segments = {Fraction(4 * a, 32).__floor__() for a in layout.addresses()}
        assert layout.transactions(0) == len(segments)


def test_contiguous_strides_count_a_size_of_zero_as_one():
    assert contiguous_strides((2, 0, 3)) == (3, 3, 1)
    assert contiguous_strides(()) == ()
