"""Batches: real windows of the text, fixed by a seed and a counter, resumed from two numbers."""

import json

import numpy as np
import pytest
import scipy.stats

from chainrule.errors import CheckpointError, InputError
from chainrule.train.batches import Batches, fixed_windows

TEXT = bytes(np.random.default_rng(0).integers(0, 256, 500).astype(np.uint8))


def test_a_batch_is_windows_of_the_text():
    batch = Batches(TEXT, batch=32, context=7, seed=1).next()
    assert batch.shape == (32, 8)
    assert batch.dtype == np.int64
    for row in batch:
        assert bytes(row.astype(np.uint8)) in TEXT


def test_the_same_seed_draws_the_same_and_another_seed_does_not():
    def draw(seed):
        batches = Batches(TEXT, batch=8, context=16, seed=seed)
        return np.stack([batches.next() for _ in range(5)])

    np.testing.assert_array_equal(draw(3), draw(3))
    assert not np.array_equal(draw(3), draw(4))
    assert len({row.tobytes() for row in draw(3).reshape(40, 17)}) > 30


def test_the_draw_is_philoxs_raw_bits():
    # The stream is part of the file format: a run started today resumes with tomorrow's version.
    starts = np.random.Philox(key=9, counter=[0, 0, 0, 2]).random_raw(4) % np.uint64(500 - 16)
    batches = Batches(TEXT, batch=4, context=16, seed=9)
    third = [batches.next() for _ in range(3)][2]
    expected = [list(TEXT[int(s) : int(s) + 17]) for s in starts]
    np.testing.assert_array_equal(third, expected)


def test_a_saved_state_goes_on_exactly():
    batches = Batches(TEXT, batch=4, context=16, seed=5)
    for _ in range(7):
        batches.next()
    state = json.loads(json.dumps(batches.state_dict()))
    resumed = Batches(TEXT, batch=4, context=16, seed=0)
    resumed.load_state_dict(state)
    for _ in range(3):
        np.testing.assert_array_equal(batches.next(), resumed.next())


def test_every_window_is_drawn_and_equally_often():
    text = bytes(range(20))
    batches = Batches(text, batch=1000, context=10, seed=2)
    starts = np.concatenate([batches.next()[:, 0] for _ in range(20)])
    counts = np.bincount(starts, minlength=10)
    assert len(counts) == 10
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_a_text_of_exactly_one_window_is_enough():
    batch = Batches(b"abcd", batch=2, context=3, seed=0).next()
    np.testing.assert_array_equal(batch, [[97, 98, 99, 100]] * 2)


@pytest.mark.parametrize("count", [1, 3, 7, 100])
def test_fixed_windows_share_no_target(count):
    windows = fixed_windows(bytes(range(101)), context=10, count=count)
    assert windows.shape == (min(count, 10), 11)
    targets = windows[:, 1:].ravel()
    assert len(set(targets.tolist())) == targets.size
    np.testing.assert_array_equal(windows[0], range(11))


def test_bad_arguments_are_said():
    with pytest.raises(InputError, match=r"has 500 bytes, and one window takes context \+ 1 = 501"):
        Batches(TEXT, batch=1, context=500, seed=0)
    with pytest.raises(InputError, match="A batch of 0 windows"):
        Batches(TEXT, batch=0, context=5, seed=0)
    with pytest.raises(InputError, match="The seed is -1"):
        Batches(TEXT, batch=1, context=5, seed=-1)
    with pytest.raises(InputError, match="context"):
        fixed_windows(b"abc", context=3, count=1)
    with pytest.raises(CheckpointError, match="without seed and drawn"):
        Batches(TEXT, batch=1, context=5, seed=0).load_state_dict({"seed": 1})
