"""Writes into saved tensors are noticed, with both versions and both lines."""

from __future__ import annotations

import pytest

import chainrule as cr
from chainrule.errors import StaleTensorError


def leaf(*values: float) -> cr.Tensor:
    return cr.tensor(list(values), dtype=cr.float64, requires_grad=True)


def test_a_saved_output_written_to() -> None:
    y = cr.exp(leaf(1.0, 2.0))
    with cr.no_grad():
        y *= 2.0
    with pytest.raises(StaleTensorError) as caught:
        y.sum().backward()
    message = str(caught.value)
    assert "the output of 'exp'" in message
    assert "at version 0, but is now at version 1" in message
    assert "y *= 2.0" in message and message.count(__file__) == 2


@pytest.mark.parametrize("way", ["view", "detach", "numpy index", "self"])
def test_a_saved_input_written_to_through_any_alias(way: str) -> None:
    x, w = leaf(1.0, 2.0), cr.tensor([3.0, 4.0], dtype=cr.float64)
    y = x * w
    if way == "view":
        w[0:1].fill_(9.0)
    elif way == "detach":
        w.detach().fill_(9.0)
    elif way == "numpy index":
        w[0] = 9.0
    else:
        w.fill_(9.0)
    with pytest.raises(StaleTensorError, match="value 0 saved by 'mul'"):
        y.sum().backward()


def test_what_was_not_saved_may_be_written_to() -> None:
    x = leaf(1.0, 2.0)
    y = x * 3.0
    y += 1.0
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3.0, 3.0]


def test_an_overwritten_element_has_gradient_zero() -> None:
    a = leaf(1.0, 2.0, 3.0)
    b = a * 2.0
    b[1] = 5.0
    b.sum().backward()
    assert a.grad is not None and a.grad.tolist() == [2.0, 0.0, 2.0]


def test_a_recorded_write_passes_the_gradient_to_the_value() -> None:
    base, v = leaf(1.0, 2.0, 3.0), leaf(7.0)
    x = base * 1.0
    x[0:2] = v * 2.0  # broadcast into two places
    (x * x).sum().backward()
    assert base.grad is not None and base.grad.tolist() == [0.0, 0.0, 6.0]
    assert v.grad is not None and v.grad.tolist() == [2 * 14.0 * 2.0 * 2]


def test_a_recorded_write_to_second_order() -> None:
    v = leaf(3.0)
    x = cr.zeros(2, dtype=cr.float64)
    x[1] = (v * v).sum()
    (g,) = cr.autograd.grad((x * x).sum(), v, create_graph=True)  # d v⁴
    (h,) = cr.autograd.grad(g.sum(), v)
    assert g.tolist() == [4 * 27.0] and h.tolist() == [12 * 9.0]


def test_a_self_overlapping_target_is_refused() -> None:
    with pytest.raises(cr.ChainruleError, match="share an address"):
        cr.zeros(1).expand(3).fill_(1.0)


def test_versions_far_apart_are_still_noticed() -> None:
    x, w = leaf(1.0), cr.tensor([3.0], dtype=cr.float64)
    y = x * w
    for i in range(40):
        w.fill_(float(i))
    with pytest.raises(StaleTensorError, match="or earlier, but is now at version 40"):
        y.sum().backward()
