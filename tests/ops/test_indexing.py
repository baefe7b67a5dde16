"""Reading and writing through any index, and its relatives, against PyTorch and NumPy."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
import torch
from tests.ops.harness import DEVICES, SAME_DATA, check_half, check_op, check_same, laid_out

import chainrule as cr
from chainrule.errors import (
    DeviceError,
    DTypeError,
    GradError,
    IndexRangeError,
    InputError,
    LayoutError,
    ShapeError,
    StaleTensorError,
)
from chainrule.ops import gathering

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((3, 4, 5))
MASK = RANDOM.random((3, 4, 5)) > 0.5
ROWS = np.array([True, False, True])

# Keys for shape (3, 4, 5). Arrays become index tensors of the library under test.
KEYS = {
    "one list": ([0, 2],),
    "a repeated place": ([1, 1, 0, 1],),
    "negative places": ([-1, 0, -3],),
    "a matrix of places": (np.array([[0, 2], [1, 1]]),),
    "int32 places": (np.array([2, 0], np.int32),),
    "no places": (np.zeros(0, np.int64),),
    "an empty list": ([],),
    "nested lists": ([[0, 1], [2, 0]],),
    "second dimension": (slice(None), [3, 0, 3]),
    "last dimension": (..., [4, 0]),
    "neighbours": ([0, 2], [1, 3]),
    "neighbours that broadcast": (np.array([[0], [2]]), [1, 3, 0]),
    "neighbours in the back": (slice(None), [1, 1, 3], [0, 4, 2]),
    "apart": ([0, 2], slice(None), [1, 1]),
    "apart with a matrix": (np.array([[0], [1]]), slice(1, 3), [1, 4, 1]),
    "all three": ([0, 0, 1], [1, 1, 3], [2, 2, -1]),
    "with a slice": (slice(None, None, 2), [3, 1]),
    "with a slice and ...": ([2, 1], ..., slice(1, 4, 2)),
    "with None": (None, [0, 1]),
    "None between": ([0, 1], None, [3, 2]),
    "an integer first": (1, [0, 3, 3]),
    "an integer between": (slice(None), 2, [0, 3]),
    "an integer, then apart": (0, slice(None), [1, 2]),
    "0-d place": (np.array(1), [2, 2]),
    "a mask of everything": (MASK,),
    "a mask of rows": (ROWS,),
    "a mask of the first two": (MASK[:, :, 0],),
    "a mask in the back": (0, MASK[0]),
    "a mask of columns": (slice(None), slice(None), np.array([True, False, True, True, False])),
    "a mask and places": (ROWS, [0, 3]),
    "a list of bools": ([True, False, True],),
    "a mask that holds nowhere": (np.zeros(3, bool),),
    "True": (True,),
    "False": (False,),
    "True and places": (True, [0, 1]),
    "a 0-d mask": (np.array(True), slice(0, 2)),
}


def made(module, key, device):
    """The key with its arrays as tensors of `module`; lists stay lists."""
    found = []
    for item in key:
        if isinstance(item, np.ndarray):
            kind = {"device": device} if module is cr else {}
            item = module.tensor(item, **kind)
        if isinstance(item, list) and item and isinstance(item[0], list) and module is torch:
            item = torch.tensor(item)  # PyTorch warns of nested lists
        found.append(item)
    return tuple(found) if len(found) > 1 else found[0]


@pytest.mark.parametrize("name", KEYS)
def test_reading_agrees_with_pytorch_to_second_order(name):
    key = KEYS[name]
    check_op(lambda m, x: x[made(m, key, str(x.device))], None, [X])


@pytest.mark.parametrize("name", [k for k in KEYS if k != "an integer, then apart"])
def test_reading_agrees_with_numpy_except_where_an_integer_is_set_apart(name):
    key = KEYS[name]
    np.testing.assert_array_equal(cr.tensor(X)[key if len(key) > 1 else key[0]].numpy(), X[key])


def test_an_integer_selects_before_places_are_found_as_in_pytorch():
    assert cr.tensor(X)[0, :, [1, 2]].shape == (4, 2) == tuple(torch.tensor(X)[0, :, [1, 2]].shape)
    assert X[0, :, [1, 2]].shape == (2, 4)


@pytest.mark.parametrize("seed", range(40))
def test_random_keys_agree_with_pytorch(seed):
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 5, random.integers(1, 5)))
    x = random.standard_normal(shape)
    joint = tuple(random.integers(0, 4, random.integers(1, 3)))
    key, d = [], 0
    while d < len(shape) and random.random() < 0.85:
        kind = random.integers(0, 5)
        if kind == 0:
            key.append(slice(*sorted(random.integers(0, shape[d] + 1, 2).tolist())))
        elif kind == 1:
            key.append(int(random.integers(-shape[d], shape[d])))
        elif kind == 2:
            key.append(None)
            continue
        else:
            places = tuple(n if random.random() < 0.7 else 1 for n in joint)
            key.append(random.integers(-shape[d], shape[d], places))
        d += 1
    key = tuple(key) or (...,)
    check_op(
        lambda m, t: t[made(m, key, str(t.device))],
        None,
        [x],
        layouts=("sliced", "flipped"),
        second=False,
    )


def test_half_gradients_add_up_in_float32():
    many = np.zeros(3000, np.int64)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = cr.tensor(np.ones((2, 3), dtype), requires_grad=True)
        x[many].backward(cr.tensor(np.ones((3000, 3), dtype)))
        assert x.grad.double().tolist()[0] == pytest.approx([3000] * 3, rel=1e-2)
    check_half(lambda m, x: x[[0, 2, 0, 0]], None, [X])


def test_places_are_kept_as_they_were():
    x = cr.tensor([1.0, 2.0, 3.0], requires_grad=True)
    at = np.array([0, 0, 2])
    y = x[at].sum()
    at[:] = 1
    y.backward()
    assert x.grad.tolist() == [2, 0, 1]
    at = cr.tensor([0, 0, 2])
    y = x[at].sum()
    at[0] = 1
    with pytest.raises(StaleTensorError):
        y.backward()


@pytest.mark.parametrize("device", DEVICES)
def test_a_copy_is_read_where_an_index_tensor_is_used(device):
    x = cr.zeros(3, 2, device=device)
    x[[0, 1]].fill_(1.0)
    assert x.tolist() == [[0, 0], [0, 0], [0, 0]]
    assert x[cr.tensor(1)].storage() is x.storage()  # a 0-d integer is an integer: a view


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ([0, 3], IndexRangeError, "index 3 is out of range for dimension 0 of size 3: use -3 to 2"),
        ((0, [1, -5]), IndexRangeError, "index -5 is out of range for dimension 1 of size 4"),
        ((..., [5]), IndexRangeError, "index 5 is out of range for dimension 2 of size 5"),
        (([0, 1], [0, 1, 2]), IndexRangeError, r"\(2,\) and \(3,\) do not broadcast"),
        (([0], [0], [0], [0]), IndexRangeError, "too many indices: 4 for 3 dimensions"),
        ((MASK, 0), IndexRangeError, "too many indices"),
        (([0], ..., ...), IndexRangeError, r"one Ellipsis \(...\), got 2"),
        (MASK[:2], IndexRangeError, r"a mask of shape \(2, 4, 5\) does not fit dimensions 0 to 2"),
        ([1.0, 2.0], DTypeError, "must be of integers or bools, not float64"),
        (np.array([0.5]), DTypeError, "not float64"),
        (np.array([1, 0], np.uint8), DTypeError, "uint8 index could be a mask or places"),
        ("a", DTypeError, "'a' of type str is not an index"),
        ((0, 1.5), DTypeError, "1.5 of type float is not an index"),
        ([[0], [1, 2]], ShapeError, "ragged"),
        (["a"], DTypeError, "must be of integers or bools"),
    ],
)
def test_a_wrong_key_is_refused_in_words(key, error, message):
    for device in DEVICES:
        x = cr.tensor(X, device=device)
        with pytest.raises(error, match=message):
            x[key]
        with pytest.raises(error, match=message):
            x[key] = 0.0
        assert x.tolist() == X.tolist()


# Writing.


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", SAME_DATA)
def test_writing_agrees_with_pytorch(name, device, layout):
    key = KEYS[name]
    selected = torch.tensor(X)[made(torch, key, None)]
    distinct = not _repeats(key)
    values = [2.5, np.array(7.0), RANDOM.standard_normal(selected.shape[-1:])]
    if distinct:
        values.append(RANDOM.standard_normal(tuple(selected.shape)))
    for value in values:
        ours, theirs = laid_out(cr, X, layout, device), torch.tensor(X)
        try:
            theirs[made(torch, key, None)] = (
                value if isinstance(value, float) else torch.tensor(value)
            )
        except RuntimeError:  # PyTorch does not broadcast into some empty selections
            continue
        before = ours.storage().version
        ours[made(cr, key, device)] = (
            value if isinstance(value, float) else cr.tensor(value, device=device)
        )
        check_same(ours, theirs, name)
        assert ours.storage().version == before + 1


def _repeats(key):
    places = np.arange(X.size).reshape(X.shape)[key]
    return len(np.unique(places)) < places.size


@pytest.mark.parametrize("device", DEVICES)
def test_of_repeated_places_the_last_stays(device):
    x = cr.zeros(3, 2, device=device)
    x[[1, 0, 1, 1]] = cr.tensor([[1.0, 1], [2, 2], [3, 3], [4, 5]], device=device)
    assert x.tolist() == [[2, 2], [4, 5], [0, 0]]
    y = np.zeros(3)
    many = np.random.default_rng(0).integers(0, 3, 5000)
    y[many] = np.arange(5000.0)
    z = cr.zeros(3, device=device, dtype=cr.float64)
    z[many] = cr.tensor(np.arange(5000.0), device=device)
    assert z.tolist() == y.tolist()


@pytest.mark.parametrize("name", [k for k in KEYS if not _repeats(KEYS[k])])
def test_recorded_writing_agrees_with_pytorch_to_second_order(name):
    key = KEYS[name]
    shape = tuple(torch.tensor(X)[made(torch, key, None)].shape)

    def write(m, x, value):
        y = x * x
        y[made(m, key, str(x.device))] = value * value
        return y * y

    for value in (RANDOM.standard_normal(shape), RANDOM.standard_normal(shape[-1:])):
        check_op(write, None, [X, value], layouts=("contiguous", "transposed", "flipped"))


def test_recorded_writing_passes_gradients_only_to_what_stays():
    x = cr.ones(3, dtype=cr.float64)
    v = cr.tensor([1.0, 2.0, 3.0], dtype=cr.float64, requires_grad=True)
    y = x * 1
    y[[1, 1, 0]] = v
    (y * cr.tensor([10.0, 100.0, 1000.0])).sum().backward()
    assert v.grad.tolist() == [0, 100, 10]  # PyTorch gives the overwritten 1.0 a gradient as well
    s = cr.tensor(2.0, dtype=cr.float64, requires_grad=True)
    y = x * 1
    y[[1, 1, 0]] = s
    (y * cr.tensor([10.0, 100.0, 1000.0])).sum().backward()
    assert s.grad.item() == 110


def test_the_value_is_converted_and_an_infinite_gradient_stays_out():
    x = cr.tensor([1.0, 2.0, 3.0], dtype=cr.float64, requires_grad=True)
    y = x * 1
    y[cr.tensor([True, False, False])] = 0.0
    y.sqrt().sum().backward()  # the derivative is infinite where 0 was written
    assert x.grad.tolist() == pytest.approx([0, 0.5 / 2**0.5, 0.5 / 3**0.5])
    i = cr.zeros(3, dtype=cr.int64)
    i[[0, 2]] = cr.tensor([1.9, -1.9])
    assert i.tolist() == [1, 0, -1]


def test_writing_is_refused_where_it_would_be_wrong():
    leaf = cr.ones(3, requires_grad=True)
    with pytest.raises(GradError, match="leaf"):
        leaf[[0, 1]] = 0.0
    with cr.no_grad():
        leaf[[0, 1]] = 0.0
    assert leaf.tolist() == [0, 0, 1]
    wide = cr.zeros(3, 1).expand(3, 2)
    with pytest.raises(LayoutError, match="several elements share"):
        wide[[0, 1]] = 1.0
    with pytest.raises(ShapeError, match=r"\(3,\) does not broadcast into shape \(2,\)"):
        cr.zeros(4)[[0, 1]] = cr.ones(3)
    y = cr.ones(4, requires_grad=True) * 1
    with cr.no_grad():
        view = y[:2]
    with pytest.raises(GradError, match="made under no_grad"):
        view[[0, 1]] = 0.0
    with pytest.raises(DeviceError):
        cr.zeros(4)[[0, 1]] = cr.ones(2, device="torch")


def test_a_value_of_the_same_memory_is_read_before_it_is_written():
    x = cr.arange(5)
    x[[0, 1, 2, 3, 4]] = x.flip(0)
    assert x.tolist() == [4, 3, 2, 1, 0]


def test_a_saved_tensor_notices_the_write():
    x = cr.tensor([1.0, 2.0], requires_grad=True)
    w = cr.tensor([3.0, 4.0])
    y = (x * w).sum()
    w[[0]] = 5.0
    with pytest.raises(StaleTensorError, match=r"w\[\[0\]\] = 5.0"):
        y.backward()


# gather and its relatives.

PLACES = RANDOM.integers(0, 4, (3, 6, 5))


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_gather(dim):
    index = RANDOM.integers(0, X.shape[dim], (3, 4, 5))
    check_op(lambda m, x, i: m.gather(x, dim, i), None, [X, index], layouts=SAME_DATA)
    check_op(lambda m, x, i: x.gather(dim, i[:2, :3, :1]), None, [X, index], layouts=SAME_DATA)


def test_gather_of_more_places_than_there_are_and_of_scalars():
    check_op(lambda m, x, i: m.gather(x, 1, i), None, [X, PLACES], layouts=SAME_DATA)
    check_op(lambda m, x, i: m.gather(x, 0, i), None, [X[0, 0], np.array([0, 4, 4])])
    check_op(lambda m, x, i: m.gather(x, 0, i), None, [X[0, 0, 0], np.array([0, 0])])
    check_op(lambda m, x, i: m.gather(x, 0, i), None, [X[0, 0], np.array(3)])


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scatter_add(dim):
    index = RANDOM.integers(0, X.shape[dim], (3, 4, 5))
    src = RANDOM.standard_normal((3, 6, 5))
    arrays = [X, index, src]
    check_op(lambda m, x, i, s: m.scatter_add(x, dim, i, s[:, :4]), None, arrays, layouts=SAME_DATA)
    check_op(
        lambda m, x, i, s: x.scatter_add(dim, i[:2], s if m is cr else s[:2, :4]),
        None,
        arrays,
        layouts=SAME_DATA,
    )
    check_op(
        lambda m, x, i, s: (x * 1).scatter_add_(dim, i, s[:, :4]), None, arrays, layouts=SAME_DATA
    )
    for device in DEVICES:
        x = cr.tensor(X, device=device)
        given = cr.tensor(src, device=device)
        x.scatter_add_(dim, cr.tensor(index, device=device), given)
        wanted = torch.tensor(X).scatter_add_(dim, torch.tensor(index), torch.tensor(src))
        check_same(x, wanted, "in place")


def test_half_scatter_and_gather():
    at = np.array([[0, 0, 0, 1, 1]] * 3)[:, None, :].repeat(4, 1)
    check_half(lambda m, x: m.gather(x, 2, m.tensor(at, **_on(m, x))), None, [X])


def _on(module, x):
    return {"device": x.device} if module is cr else {}


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_select(dim):
    index = np.array([1, 0, 1, 1])
    check_op(lambda m, x, i: m.index_select(x, dim, i), None, [X, index], layouts=SAME_DATA)
    check_op(lambda m, x: x.index_select(dim, m.tensor(2, **_on(m, x))), None, [X])
    check_op(lambda m, x, i: m.index_select(x, 0, i), None, [X[0, 0, 0], np.array([0])])


def test_take_along_dim():
    order = np.argsort(X, 1)
    check_op(lambda m, x, i: m.take_along_dim(x, i, 1), None, [X, order], layouts=SAME_DATA)
    check_op(lambda m, x, i: m.take_along_dim(x, i, 1), None, [X, order[:1]], layouts=SAME_DATA)
    check_op(lambda m, x, i: m.take_along_dim(x[:, :, :1], i, 1), None, [X, order])
    check_op(lambda m, x, i: x.take_along_dim(i), None, [X, np.array([3, 59])], layouts=False)


@pytest.mark.parametrize("shape", [(), (0,), (6,), (2, 3), (2, 0, 3)])
@pytest.mark.parametrize("padding", [None, 1, -1])
def test_embedding(shape, padding):
    index = RANDOM.integers(0, 7, shape)
    weight = RANDOM.standard_normal((7, 3))
    check_op(
        lambda m, w, i: gathering.embedding(i, w, padding),
        lambda w, i: torch.nn.functional.embedding(i, w, padding),
        [weight, index],
        layouts=SAME_DATA,
        second=0 not in shape,  # PyTorch's own fails there
    )


def test_embedding_of_half_types_and_of_many_equal_rows():
    at = np.array([0, 0, 1, 0])
    check_half(
        lambda m, w: (
            gathering.embedding(cr.tensor(at, device=w.device), w)
            if m is cr
            else torch.nn.functional.embedding(torch.tensor(at), w)
        ),
        None,
        [RANDOM.standard_normal((3, 4))],
    )


@pytest.mark.parametrize("device", DEVICES)
def test_places_out_of_range_are_named(device):
    w = cr.zeros(7, 3, device=device)

    def at(*places):
        return cr.tensor(places, device=device)

    with pytest.raises(IndexRangeError, match="index 7 is out of range for a table of 7 rows"):
        gathering.embedding(at(0, 7), w)
    with pytest.raises(IndexRangeError, match="index -1 is out of range for a table of 7 rows"):
        gathering.embedding(at(0, -1), w)
    with pytest.raises(IndexRangeError, match="index 7 is out of range for dimension 0 of size 7"):
        w.index_select(0, at(7))
    for call in (
        lambda: cr.gather(w, 1, at(0, 3).view(1, 2)),
        lambda: cr.scatter_add(w, 1, at(0, 3).view(1, 2), cr.ones(1, 2, device=device)),
        lambda: cr.take_along_dim(w, at(3).view(1, 1), 1),
    ):
        with pytest.raises(IndexRangeError, match="index 3 is out of range for dimension 1 of"):
            call()
    with pytest.raises(IndexRangeError, match="index -1 is out of range for dimension 1 of size 3"):
        cr.gather(w, 1, at(0, -1).view(1, 2))
    with pytest.raises(IndexRangeError, match="class 4 is out of range: use 0 to 3"):
        cr.one_hot(at(0, 4), 4)
    with pytest.raises(IndexRangeError, match="class -1"):
        cr.one_hot(at(-1, 2))


def test_what_does_not_fit_is_refused():
    w, at = cr.zeros(7, 3), cr.tensor([[0, 1]])
    with pytest.raises(DTypeError, match="must be int64 or int32, not float32"):
        cr.gather(w, 0, w)
    with pytest.raises(DTypeError, match="must be a tensor, not list"):
        cr.gather(w, 0, [[0]])
    with pytest.raises(ShapeError, match=r"index has shape \(2,\), the input \(7, 3\)"):
        cr.gather(w, 0, at[0])
    with pytest.raises(ShapeError, match="size 4 in dimension 1, the input only 3"):
        cr.gather(w, 0, cr.zeros(1, 4, dtype=cr.int64))
    with pytest.raises(ShapeError, match="size 2 in dimension 1, the source only 1"):
        cr.scatter_add(w, 0, at, cr.ones(1, 1))
    with pytest.raises(DTypeError, match="float64 into float32"):
        cr.scatter_add(w, 0, at, cr.ones(1, 2, dtype=cr.float64))
    with pytest.raises(ShapeError, match="1-D index"):
        cr.index_select(w, 0, at)
    with pytest.raises(DeviceError):
        cr.gather(w, 0, cr.tensor([[0]], device="torch"))
    with pytest.raises(ShapeError, match=r"must be \(rows, features\)"):
        gathering.embedding(at, cr.zeros(3))


def test_one_hot():
    classes = np.array([[0, 3], [2, 2]])
    theirs = torch.nn.functional.one_hot
    check_op(lambda m, i: m.one_hot(i), lambda i: theirs(i), [classes])
    check_op(lambda m, i: m.one_hot(i, 6), lambda i: theirs(i, 6), [classes])
    check_op(lambda m, i: m.one_hot(i, 6), lambda i: theirs(i, 6), [classes[:0]])
    check_op(lambda m, i: m.one_hot(i, 6), lambda i: theirs(i, 6), [classes[0, 0]])
    with pytest.raises(InputError, match="no class to count"):
        cr.one_hot(cr.tensor(classes[:0]))
    with pytest.raises(InputError, match="num_classes is 0"):
        cr.one_hot(cr.tensor(classes), 0)
    with pytest.raises(DTypeError, match="int64 classes, not float32"):
        cr.one_hot(cr.zeros(2))


# Masks, triangles and bounds.


@pytest.mark.parametrize("diagonal", [-5, 0, 2])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 3), (0, 3)])
def test_triangles(diagonal, shape):
    x = RANDOM.standard_normal(shape)
    check_op(lambda m, t: m.tril(t, diagonal), None, [x])
    check_op(lambda m, t: t.triu(diagonal), None, [x])


def test_triangles_need_a_matrix_and_take_half_types():
    with pytest.raises(ShapeError, match="at least 2 dimensions, this has 1"):
        cr.tril(cr.zeros(3))
    check_half(lambda m, x: m.triu(x, 1), None, [X])


def test_masked_fill():
    check_op(lambda m, x, k: m.masked_fill(x, k, -np.inf), None, [X, MASK], layouts=SAME_DATA)
    check_op(lambda m, x, k: x.masked_fill(k, 2), None, [X, MASK[:1]], layouts=SAME_DATA)
    check_op(lambda m, x, k: x[:1].masked_fill(k, 2.0), None, [X, MASK])
    check_op(lambda m, x, k, v: x.masked_fill(k, v), None, [X, MASK, np.array(3.0)])
    check_op(lambda m, x, k: (x * 1).masked_fill_(k, 0.5), None, [X, MASK], layouts=SAME_DATA)
    check_half(lambda m, x: x.masked_fill(m.tensor(MASK, **_on(m, x)), -np.inf), None, [X])
    check_op(lambda m, x, k: x.masked_fill(k, 7), None, [np.arange(60).reshape(3, 4, 5), MASK])
    with pytest.raises(DTypeError, match="bool tensor, not float32"):
        cr.zeros(2).masked_fill(cr.zeros(2), 1.0)
    with pytest.raises(DTypeError, match=r"0.5 has no place in a int64 tensor"):
        cr.zeros(2, dtype=cr.int64).masked_fill(cr.tensor([True, False]), 0.5)
    with pytest.raises(ShapeError, match="number or a 0-d tensor"):
        cr.zeros(2).masked_fill(cr.tensor([True, False]), cr.zeros(2))


def test_masked_select():
    check_op(lambda m, x, k: m.masked_select(x, k), None, [X, MASK], layouts=SAME_DATA)
    check_op(lambda m, x, k: x.masked_select(k), None, [X, MASK[0]], layouts=SAME_DATA)
    check_op(lambda m, x, k: x[:1].masked_select(k), None, [X, MASK], layouts=SAME_DATA)
    check_op(lambda m, x, k: x.masked_select(k), None, [X[0, 0, 0], np.array(True)])
    with pytest.raises(ShapeError, match="do not broadcast"):
        cr.zeros(3).masked_select(cr.tensor([True, False]))


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 0, 3), (2, 3, 4)])
@pytest.mark.parametrize("as_tuple", [False, True])
def test_nonzero(shape, as_tuple):
    x = np.random.default_rng(1).integers(0, 2, shape).astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_op(
            lambda m, t: m.nonzero(t.detach(), as_tuple=as_tuple), None, [x], layouts=SAME_DATA
        )


def test_where_is_there():
    check_op(lambda m, k, x, y: m.where(k, x, y), None, [MASK, X, X * 2], layouts=SAME_DATA)


LOW, HIGH = RANDOM.standard_normal((4, 1)) - 0.5, RANDOM.standard_normal(5)


@pytest.mark.parametrize("bounds", [(-0.5, 0.5), (None, 0.3), (-0.2, None), (0, 1), (1.0, -1.0)])
def test_clamp_by_numbers(bounds):
    check_op(lambda m, x: m.clamp(x, *bounds), None, [X])
    check_op(lambda m, x: x.clamp(min=bounds[0], max=bounds[1]), None, [X], second=False)
    check_op(lambda m, x: x.clip(*bounds), None, [np.arange(-3, 4)], second=False)
    check_half(lambda m, x: m.clamp(x, *bounds), None, [X])


def test_clamp_by_tensors_and_at_the_bounds():
    check_op(lambda m, x, a, b: m.clamp(x, a, b), None, [X, LOW, HIGH])
    check_op(lambda m, x, a: m.clamp(x, max=a), None, [X, LOW])
    check_op(lambda m, x, a: x.clamp(min=a), None, [X, HIGH])
    edges = np.array([-1.0, 0, 1, 2, np.nan])
    check_op(lambda m, x: m.clamp(x, -1, 1), None, [edges])
    check_op(lambda m, x, a, b: m.clamp(x, a, b), None, [edges, edges * 0 - 1, edges * 0 + 1])
    x = cr.tensor(edges)
    assert x.clamp_(0, 1) is x
    assert x.tolist()[:4] == [0, 0, 1, 1]
    with pytest.raises(InputError, match="clamp needs min, max or both"):
        cr.clamp(cr.zeros(2))
