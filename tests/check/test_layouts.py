"""The forms of a sweep: where they put elements, and that everything else is poison."""

from __future__ import annotations

import numpy as np
import pytest

from chainrule.check.layouts import Form, contiguous, forms, transposed

SHAPES = [(), (1,), (5,), (3, 4), (1, 4), (2, 3, 4), (2, 1, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_form_holds_the_values_and_poison_elsewhere(shape):
    values = np.arange(1.0, 1.0 + np.prod(shape, dtype=int)).reshape(shape)
    for form in forms(shape, negative=True, expand=True):
        held = form.settle(values)
        buffer = form.place(held)
        assert np.array_equal(form.window(buffer), held)
        reached = np.unique(form.window(np.arange(form.length)))
        rest = np.setdiff1d(np.arange(form.length), reached)
        assert np.isnan(buffer[rest]).all()
        assert np.isfinite(buffer[reached]).all()
        # a flat read from the start stays inside the buffer
        assert form.misread(buffer).shape == shape


def test_the_layouts_of_a_matrix():
    found = {f.name: (f.strides, f.offset) for f in forms((3, 4), negative=True, expand=True)}
    assert found == {
        "contiguous": ((4, 1), 0),
        "offset": ((4, 1), 5),
        "transposed": ((1, 3), 0),
        "sliced": ((9, 2), 3),
        "flipped": ((-4, -1), 13),
        "expanded": ((0, 0), 0),
        "rows repeated": ((0, 1), 0),
        "last repeated": ((1, 0), 0),
    }


def test_strides_are_pytorchs_own_for_the_same_views():
    torch = pytest.importorskip("torch")
    x = torch.zeros(2, 3, 4)
    assert contiguous((2, 3, 4)).strides == x.stride()
    assert transposed((4, 3, 2)).strides == x.permute(2, 1, 0).stride()
    swapped = next(f for f in forms((2, 4, 3), negative=False, expand=False) if "swapped" in f.name)
    assert swapped.strides == x.transpose(1, 2).stride()


def test_no_layout_twice_and_none_of_nothing():
    for shape in SHAPES:
        found = forms(shape, negative=True, expand=True)
        keys = {
            (f.offset, tuple(s for n, s in zip(shape, f.strides, strict=False) if n > 1))
            for f in found
        }
        assert len(keys) == len(found)
    assert forms((0, 3), negative=True, expand=True) == []


def test_misread_is_what_flat_code_sees():
    form = transposed((2, 3))
    values = np.arange(6.0).reshape(2, 3)
    assert form.misread(form.place(values)).tolist() == [[0, 3, 1], [4, 2, 5]]
    moved = Form("offset", (2,), (1,), 2)
    assert np.isnan(moved.misread(moved.place(np.ones(2)), use_offset=False)).all()


def test_poison_of_an_integer_array_is_one_of_its_values():
    assert set(contiguous((3,)).place(np.array([4, 7, 5]))[3:]) == {7}
