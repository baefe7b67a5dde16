"""Layout against the libraries that define it: NumPy's and PyTorch's views, on random chains.

Strides of dimensions of size 0 or 1 are never stepped and libraries fill them differently, so they
are not compared; neither is the offset of an empty view, which reaches nothing.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy._core._multiarray_tests import internal_overlap
from numpy.lib.stride_tricks import as_strided

from chainrule.errors import ChainruleError, IndexRangeError, LayoutError
from chainrule.layout import Layout

ITEM = np.dtype(np.int16).itemsize
sizes = st.integers(0, 5)
shapes = st.lists(sizes, max_size=4).map(tuple)


def storage(layout: Layout) -> np.ndarray:
    span = layout.bounds()
    return np.arange(span[1] + 1 if span else layout.offset, dtype=np.int16)


def as_numpy(layout: Layout) -> np.ndarray:
    strides = [s * ITEM for s in layout.strides]
    return np.ndarray(layout.shape, np.int16, storage(layout), layout.offset * ITEM, strides)


def as_torch(layout: Layout) -> torch.Tensor:
    block = torch.empty(len(storage(layout)))
    return block.as_strided(layout.shape, layout.strides, layout.offset)


def assert_same_geometry(layout: Layout, array: np.ndarray, base: np.ndarray) -> None:
    assert layout.shape == array.shape
    assert (layout.numel, layout.ndim) == (array.size, array.ndim)
    if array.size:
        assert layout.offset * ITEM == array.ctypes.data - base.ctypes.data
        moving = [dim for dim, size in enumerate(array.shape) if size > 1]
        assert [layout.strides[i] * ITEM for i in moving] == [array.strides[i] for i in moving]
    assert layout.is_contiguous == array.flags.c_contiguous
    assert (layout.why_not_contiguous() is None) == layout.is_contiguous
    # The values of the base are its addresses.
    assert list(layout.addresses()) == array.ravel().tolist()
    span = (int(array.min()), int(array.max())) if array.size else None
    assert layout.bounds() == span


# One random view, applied to both. A draw that both must refuse returns None.

slices = st.slices(6) | st.builds(
    slice,
    st.none() | st.integers(-8, 8),
    st.none() | st.integers(-8, 8),
    st.none() | st.integers(-4, 4).filter(bool),
)


def dim_of(draw: Any, array: np.ndarray) -> int:
    return draw(st.integers(-array.ndim, array.ndim - 1))


def basic_key(draw: Any, array: np.ndarray) -> Any:
    """A valid key: items for the first few dimensions, perhaps `...` and items for the last few."""
    first = draw(st.integers(0, array.ndim))
    last = draw(st.integers(first, array.ndim))
    picked = [
        draw(st.integers(-size, size - 1) | slices if size else slices)
        for size in (*array.shape[:first], *array.shape[last:])
    ]
    items: list[Any] = picked if last == array.ndim else [*picked[:first], ..., *picked[first:]]
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    return items[0] if len(items) == 1 else tuple(items)


def random_view(draw: Any, layout: Layout, array: np.ndarray) -> tuple[Layout, np.ndarray]:
    ndim = array.ndim
    names = ["index", "index", "unsqueeze", "squeeze", "expand", "permute", "flip_none"]
    if ndim:
        names += ["transpose", "flip", "slice", "unfold"]
    if ndim > 1:
        names += ["diagonal"]
    if array.size:
        names += ["view"]
    match draw(st.sampled_from(names)):
        case "index":
            key = basic_key(draw, array)
            view = array[key]
            if not isinstance(view, np.ndarray):  # a NumPy scalar: ask for the 0-d view
                view = array[(*key, ...) if isinstance(key, tuple) else (key, ...)]
            return layout.index(key), view
        case "unsqueeze":
            dim = draw(st.integers(-ndim - 1, ndim))
            return layout.unsqueeze(dim), np.expand_dims(array, dim)
        case "squeeze":
            ones = [dim for dim, size in enumerate(array.shape) if size == 1]
            some = draw(st.lists(st.sampled_from(ones), unique=True)) if ones else []
            return layout.squeeze(some), np.squeeze(array, tuple(some))
        case "expand":
            lead = draw(st.lists(st.integers(0, 3), max_size=1))
            target = [*lead, *(draw(st.integers(0, 3)) if n == 1 else n for n in array.shape)]
            return layout.expand(target), np.broadcast_to(array, target)
        case "permute":
            order = draw(st.permutations(range(ndim)))
            return layout.permute(order), np.transpose(array, order)
        case "flip_none":
            return layout.flip(()), array
        case "transpose":
            d0, d1 = dim_of(draw, array), dim_of(draw, array)
            return layout.transpose(d0, d1), np.swapaxes(array, d0, d1)
        case "flip":
            dims = draw(st.lists(st.integers(0, ndim - 1), unique=True))
            return layout.flip(dims), np.flip(array, dims)
        case "slice":
            dim, key = draw(st.integers(0, ndim - 1)), draw(slices)
            picked = (slice(None),) * dim + (key,)
            return layout.slice(dim, key.start, key.stop, key.step), array[picked]
        case "unfold":
            dim = draw(st.integers(0, ndim - 1))
            assume(array.shape[dim])
            size, step = draw(st.integers(1, array.shape[dim])), draw(st.integers(1, 3))
            windows = np.lib.stride_tricks.sliding_window_view(array, size, dim)
            return layout.unfold(dim, size, step), windows[(slice(None),) * dim + (slice(None, None, step),)]  # fmt: skip
        case "diagonal":
            d0, d1 = draw(st.permutations(range(ndim)))[:2]
            offset = draw(st.integers(-4, 4))
            return layout.diagonal(offset, d0, d1), np.diagonal(array, offset, d0, d1)
        case _:
            target = regrouped(draw, array.size)
            view = layout.can_view(target)
            assume(view is not None)
            return view, numpy_view(array, target)


def regrouped(draw: Any, count: int) -> tuple[int, ...]:
    """A shape of `count` elements (`count` > 0), with a few sizes of 1."""
    shape: list[int] = []
    rest = count
    for _ in range(draw(st.integers(0, 3))):
        size = draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0]))
        shape.append(size)
        rest //= size
    return (*shape, rest) if rest > 1 or draw(st.booleans()) else tuple(shape)


def numpy_view(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """`array` under another shape without a copy, or None where NumPy cannot."""
    try:
        return np.reshape(array, shape, copy=False)
    except ValueError:
        return None


@st.composite
def chains(draw: Any, longest: int = 5) -> tuple[Layout, np.ndarray, np.ndarray]:
    """A layout and the array that the same random chain of views made, and their base."""
    shape = draw(shapes)
    offset = draw(st.integers(0, 3))
    layout = Layout.contiguous(shape, offset)
    base = np.arange(offset + layout.numel, dtype=np.int16)
    array = base[offset:].reshape(shape)
    for _ in range(draw(st.integers(0, longest))):
        layout, array = random_view(draw, layout, array)
        assume(array.size <= 2000 and array.ndim <= 7)
    return layout, array, base


@settings(max_examples=600, deadline=None)
@given(chains())
def test_a_chain_of_views_has_numpys_geometry(chain):
    layout, array, base = chain
    assert_same_geometry(layout, array, base)
    # What is left of the storage is enough for NumPy's own bounds check, empty or not.
    rebuilt = np.ndarray(layout.shape, np.int16, base, layout.offset * ITEM, [s * ITEM for s in layout.strides])  # fmt: skip
    np.testing.assert_array_equal(rebuilt, array)
    layout.check_fits(base.size)
    # The runs that merge are the same walk.
    assert list(layout.merge().addresses()) == list(layout.addresses())


@settings(max_examples=400, deadline=None)
@given(chains(), st.data())
def test_a_view_exists_exactly_where_numpy_and_torch_have_one(chain, data):
    layout, array, base = chain
    if array.size:
        target = regrouped(data.draw, array.size)
    else:
        target = tuple(data.draw(st.permutations([0, *data.draw(st.lists(sizes, max_size=2))])))
    ours = layout.can_view(target)
    theirs = numpy_view(array, target)
    assert (ours is None) == (theirs is None)
    if ours is None:
        assert "do not merge" in layout.why_not_view(target)
        with pytest.raises(LayoutError, match="use reshape"):
            layout.view(target)
    else:
        assert layout.why_not_view(target) is None
        assert list(ours.addresses()) == theirs.ravel().tolist()
        assert_same_geometry(ours, theirs, base)
    if min(layout.strides, default=0) >= 0:
        assert_torch_agrees(layout, ours, target)


def assert_torch_agrees(layout: Layout, ours: Layout | None, target: tuple[int, ...]) -> None:
    block = as_torch(layout)
    try:
        theirs = block.view(target)
    except RuntimeError:
        assert ours is None
        return
    assert ours is not None
    moving = [dim for dim, size in enumerate(target) if size > 1]
    assert [ours.strides[i] for i in moving] == [theirs.stride(i) for i in moving]
    if 1 not in layout.shape:  # then torch has one answer for new sizes of 1 too
        assert ours.strides == theirs.stride()


@settings(max_examples=400, deadline=None)
@given(chains())
def test_contiguity_is_torchs(chain):
    layout = chain[0]
    assume(min(layout.strides, default=0) >= 0)
    block = as_torch(layout)
    assert layout.is_contiguous == block.is_contiguous()
    if layout.ndim == 4:
        assert layout.is_channels_last == block.is_contiguous(memory_format=torch.channels_last)


@settings(max_examples=300, deadline=None)
@given(st.tuples(*[st.integers(0, 3)] * 4), st.booleans(), st.permutations(range(4)))
def test_channels_last_is_torchs(shape, nhwc, order):
    block = torch.empty(shape)
    if nhwc:
        block = block.contiguous(memory_format=torch.channels_last)
    layout = Layout(shape, block.stride())
    for made, theirs in ((layout, block), (layout.permute(order), block.permute(order))):
        assert made.is_channels_last == theirs.is_contiguous(memory_format=torch.channels_last)
        assert made.is_contiguous == theirs.is_contiguous()
        assert made.is_dense == torch.ops.aten.is_non_overlapping_and_dense(theirs)


@pytest.mark.parametrize("target", [(1, 4, 1, 3, 1), (4, 1, 1, 3), (2, 1, 2, 3), (1, 1, 4, 3)])
def test_new_dimensions_of_size_one_have_torchs_strides(target):
    transposed = Layout.contiguous((3, 4)).transpose(0, 1)
    assert transposed.view(target).strides == as_torch(transposed).view(target).stride()


def test_contiguous_strides_are_torchs():
    for shape in [(), (0,), (2, 0, 3), (0, 0), (4, 1, 5), (1, 1)]:
        assert Layout.contiguous(shape).strides == torch.empty(shape).stride()


# torch's own view functions, with the strides it gives dimensions that do move.

TORCH_VIEWS = [
    ("unfold", (1, 2, 2)),
    ("unfold", (0, 0, 1)),
    ("diagonal", (1, 0, 2)),
    ("diagonal", (-5, 0, 1)),
    ("narrow", (2, 1, 2)),
    ("narrow", (2, -2, 1)),
    ("select", (1, -1)),
    ("transpose", (0, -1)),
    ("permute", ((2, 0, 1),)),
    ("unsqueeze", (1,)),
    ("squeeze", (1,)),
    ("expand", ((2, 3, -1, 4),)),
]


@pytest.mark.parametrize(("name", "args"), TORCH_VIEWS)
def test_view_functions_are_torchs(name, args):
    layout = Layout.contiguous((3, 5, 4), 2)
    ours, theirs = getattr(layout, name)(*args), getattr(as_torch(layout), name)(*args)
    assert ours.shape == tuple(theirs.shape)
    if ours.numel:
        assert (ours.strides, ours.offset) == (theirs.stride(), theirs.storage_offset())


def test_scalars_take_dimension_zero_where_torchs_do():
    scalar, ours = torch.tensor(1.0), Layout.contiguous(())
    for name, args in [("transpose", (0, -1)), ("squeeze", (0,)), ("flip", ((0,),)), ("unfold", (0, 1, 1)), ("unsqueeze", (-1,))]:  # fmt: skip
        assert getattr(ours, name)(*args).shape == tuple(getattr(scalar, name)(*args).shape), name
    for name, args in [("select", (0, 0)), ("narrow", (0, 0, 1)), ("unsqueeze", (2,)), ("transpose", (0, 1))]:  # fmt: skip
        with pytest.raises(IndexRangeError):
            getattr(ours, name)(*args)
        with pytest.raises((IndexError, RuntimeError)):
            getattr(scalar, name)(*args)


# Errors: whatever NumPy refuses, we refuse, and the other way round.


@settings(max_examples=400, deadline=None)
@given(
    shapes,
    st.lists(st.integers(-6, 6) | slices | st.none() | st.just(...), max_size=5),
    st.booleans(),
)
def test_an_index_is_refused_exactly_where_numpy_refuses_it(shape, items, bare):
    array = np.zeros(shape, np.int16)
    key = items[0] if bare and len(items) == 1 else tuple(items)
    try:
        expected = array[key].shape
    except IndexError:
        with pytest.raises(IndexRangeError):
            Layout.contiguous(shape).index(key)
    else:
        assert Layout.contiguous(shape).index(key).shape == expected


@settings(max_examples=300, deadline=None)
@given(shapes, st.lists(st.integers(-2, 8), max_size=4))
def test_a_shape_is_refused_exactly_where_torch_refuses_it(shape, target):
    try:
        expected = tuple(torch.empty(shape).view(target).shape)
    except RuntimeError:
        with pytest.raises(ChainruleError):
            Layout.contiguous(shape).view(target)
    else:
        assert Layout.contiguous(shape).view(target).shape == expected


@settings(max_examples=300, deadline=None)
@given(shapes, st.lists(st.integers(-1, 5), max_size=5))
def test_an_expand_is_refused_exactly_where_torch_refuses_it(shape, target):
    try:
        expected = torch.empty(shape).expand(target)
        if -1 in expected.shape:  # of a 0-d tensor with (0, -1), torch makes a size of -1
            raise RuntimeError
    except RuntimeError:
        with pytest.raises(ChainruleError):
            Layout.contiguous(shape).expand(target)
    else:
        ours = Layout.contiguous(shape).expand(target)
        assert ours.shape == tuple(expected.shape)
        moving = [dim for dim, size in enumerate(ours.shape) if size > 1]
        assert [ours.strides[i] for i in moving] == [expected.stride(i) for i in moving]


# Overlap. NumPy's solver is exact when asked without a limit on its work.


@st.composite
def strided(draw: Any, most: int = 40) -> Layout:
    """Any layout, with strides of every kind and the offset that keeps it above address 0."""
    shape = draw(st.lists(st.integers(0, 6), max_size=4))
    strides = [draw(st.integers(-most, most)) for _ in shape]
    below = sum((n - 1) * -s for n, s in zip(shape, strides, strict=True) if n > 1 and s < 0)
    return Layout(shape, strides, below + draw(st.integers(0, 30)))


def block_for(*layouts: Layout) -> np.ndarray:
    high = [span[1] + 1 if (span := layout.bounds()) else layout.offset for layout in layouts]
    return np.zeros(max(high), np.int8)


def placed(layout: Layout, block: np.ndarray) -> np.ndarray:
    return np.ndarray(layout.shape, np.int8, block, layout.offset, layout.strides)


@settings(max_examples=600, deadline=None)
@given(strided())
def test_self_overlap_is_numpys(layout):
    assert layout.self_overlaps == bool(internal_overlap(placed(layout, block_for(layout))))
    reached = list(layout.addresses())
    assert layout.self_overlaps == (len(set(reached)) < len(reached))


@settings(max_examples=600, deadline=None)
@given(strided(), strided())
def test_overlap_is_numpys(a, b):
    block = block_for(a, b)
    shared = np.shares_memory(placed(a, block), placed(b, block))
    assert a.overlaps(b) == b.overlaps(a) == shared
    assert shared == (not set(a.addresses()).isdisjoint(b.addresses()))


@settings(max_examples=200, deadline=None)
@given(strided(12))
def test_indices_at_an_address_are_all_those_that_lead_there(layout):
    lead_to: dict[int, set[tuple[int, ...]]] = {}
    for index in np.ndindex(layout.shape):
        lead_to.setdefault(layout.address(index), set()).add(index)
    for address in range(-1, 40):
        found = list(layout.indices_at(address))
        assert len(found) == len(set(found))
        assert set(found) == lead_to.get(address, set())


@settings(max_examples=300, deadline=None)
@given(strided(), strided())
def test_the_search_and_the_bit_set_give_one_answer(a, b):
    from chainrule.layout import reach

    limit = reach.MAX_BITS
    exact = (a.self_overlaps, a.overlaps(b))
    try:
        reach.MAX_BITS = 0  # everything by the search
        assert (a.self_overlaps, a.overlaps(b)) == exact
    finally:
        reach.MAX_BITS = limit


@settings(max_examples=200, deadline=None)
@given(chains(3), st.data())
def test_overlap_of_two_views_of_one_array_is_numpys(chain, data):
    layout, array, _ = chain
    views = []
    for _ in range(2):
        views.append(random_view(data.draw, layout, array))
    (a, first), (b, second) = views
    assert a.overlaps(b) == np.shares_memory(first, second)


@settings(max_examples=100, deadline=None)
@given(strided(10**9), strided(10**9))
def test_overlap_far_apart_is_numpys(a, b):
    # Too far to allocate: NumPy only looks at addresses, and never touches what is there.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        block = np.zeros(1, np.int8)
        first, second = (
            as_strided(block[0:1], x.shape, x.strides) if x.numel else block[:0] for x in (a, b)
        )
    if a.numel and b.numel:
        moved_a, moved_b = (Layout(x.shape, x.strides, 10**12) for x in (a, b))
        assert moved_a.overlaps(moved_b) == np.shares_memory(first, second)
    assert a.self_overlaps == bool(internal_overlap(first))
