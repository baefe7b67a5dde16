"""Entropy against scipy and against counting by hand with exact fractions; gzip against its file."""

import gzip
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.errors import InputError
from chainrule.train.entropy import (
    byte_probabilities,
    cross_entropy,
    empirical_entropy,
    gzip_bits,
)

short_texts = st.lists(st.sampled_from(b"abc\x00\xff"), min_size=3, max_size=40).map(bytes)


def entropy_by_hand(text: bytes, order: int) -> float:
    pairs = [(text[i - order : i], text[i]) for i in range(order, len(text))]
    joint, context = Counter(pairs), Counter(c for c, _ in pairs)
    return -sum(n * math.log2(n / context[c]) for (c, _), n in joint.items()) / len(pairs)


def witten_bell_by_hand(train: bytes, context: bytes, byte: int) -> Fraction:
    order = len(context)
    shorter = witten_bell_by_hand(train, context[1:], byte) if order else Fraction(1, 256)
    after = [train[i] for i in range(order, len(train)) if train[i - order : i] == context]
    if not after:
        return shorter
    distinct = len(set(after))
    return (after.count(byte) + distinct * shorter) / (len(after) + distinct)


def test_order_0_is_scipys_entropy():
    text = np.random.default_rng(0).integers(0, 256, 10_000).astype(np.uint8)
    counts = np.bincount(text, minlength=256)
    assert empirical_entropy(text.tobytes(), 0) == pytest.approx(
        scipy.stats.entropy(counts, base=2), rel=1e-13
    )


@pytest.mark.parametrize("order", [0, 1, 2])
@settings(deadline=None)
@given(text=short_texts)
def test_empirical_entropy_is_what_counting_gives(order, text):
    assert empirical_entropy(text, order) == pytest.approx(entropy_by_hand(text, order), abs=1e-12)


def test_a_text_that_repeats_itself_has_no_entropy_once_two_bytes_are_known():
    text = b"abac" * 100
    assert empirical_entropy(text, 0) == pytest.approx(1.5)
    # After "a" come b and c in turn (1 bit, half of the time); after "ca" always b.
    assert empirical_entropy(text, 1) == pytest.approx(200 / 399, abs=1e-4)
    assert empirical_entropy(text, 2) == 0.0


@pytest.mark.parametrize("order", [0, 1, 2])
@settings(deadline=None)
@given(train=short_texts, held_out=short_texts)
def test_held_out_probabilities_are_witten_and_bells(order, train, held_out):
    got = byte_probabilities(train, held_out, order)
    for i, byte in enumerate(held_out):
        exact = witten_bell_by_hand(train, held_out[max(0, i - order) : i], byte)
        assert got[i] == pytest.approx(float(exact), rel=1e-13)


@settings(max_examples=20, deadline=None)
@given(train=short_texts, context=st.binary(min_size=2, max_size=2))
def test_the_probabilities_after_any_context_sum_to_one(train, context):
    # Every byte in turn as the third byte of a text of its own.
    total = sum(byte_probabilities(train, context + bytes([byte]), 2)[2] for byte in range(256))
    assert total == pytest.approx(1.0, abs=1e-12)


def test_cross_entropy_is_the_mean_code_length():
    train, held_out = b"the cat sat on the mat. " * 20, b"the rat sat on the hat. "
    probabilities = byte_probabilities(train, held_out, 2)
    assert cross_entropy(train, held_out, 2) == pytest.approx(-np.log2(probabilities).mean())


def test_a_byte_never_seen_costs_bits_but_not_infinitely_many():
    assert math.isfinite(cross_entropy(b"aaaa", b"z", 2))
    assert cross_entropy(b"aaaa", b"z", 0) > 8


def test_held_out_is_dearer_than_in_sample_on_random_bytes():
    rng = np.random.default_rng(3)
    train, held_out = rng.bytes(20_000), rng.bytes(2_000)
    # Two-byte contexts seen once each look certain in sample and say nothing out of it.
    assert empirical_entropy(train, 2) < 1
    assert 8 <= cross_entropy(train, held_out, 2) < 9


def test_gzip_is_the_size_of_the_file():
    text = b"the cat sat on the mat. " * 50
    assert gzip_bits(text) == 8 * len(gzip.compress(text, 9)) / len(text)
    assert gzip.decompress(gzip.compress(text, 9)) == text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: empirical_entropy(b"abc", 3), "The order is 3: contexts of 0 to 2 bytes"),
        (lambda: empirical_entropy(b"ab", 2), "has 2 bytes: an order-2 count needs at least 3"),
        (lambda: cross_entropy(b"", b"a", 0), "The training text is empty"),
        (lambda: cross_entropy(b"a", b"", 0), "The held-out text is empty"),
        (lambda: gzip_bits(b""), "The text is empty"),
    ],
)
def test_what_cannot_be_measured_is_said(call, message):
    with pytest.raises(InputError, match=message):
        call()
