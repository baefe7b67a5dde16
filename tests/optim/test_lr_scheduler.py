"""Learning-rate schedules against torch.optim's and against their own formulas."""

from __future__ import annotations

import math

import pytest
import torch

import chainrule as cr
from chainrule.errors import CheckpointError, InputError


def optimizers(lrs=(0.5, 2.0)):
    def build(module):
        return module.optim.SGD(
            [{"params": [module.zeros(1, requires_grad=True)], "lr": lr} for lr in lrs], lr=1.0
        )

    return build(cr), build(torch)


SCHEDULES = [
    ("LambdaLR", {"lr_lambda": lambda t: 0.9**t}),
    ("LambdaLR", {"lr_lambda": [lambda t: 1 / (1 + t), lambda t: 1.0 + t]}),
    ("CosineAnnealingLR", {"T_max": 7}),
    ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.1}),
]


@pytest.mark.filterwarnings("ignore:Detected call of:UserWarning")
@pytest.mark.parametrize(("name", "options"), SCHEDULES, ids=lambda x: str(x)[:30])
def test_every_rate_is_pytorchs(name, options):
    a, b = optimizers()
    ours = getattr(cr.optim.lr_scheduler, name)(a, **options)
    theirs = getattr(torch.optim.lr_scheduler, name)(b, **options)
    for _ in range(options.get("T_max", 12) + 1):
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-12, abs=1e-15)
        assert [g["lr"] for g in a.param_groups] == ours.get_last_lr()
        ours.step()
        theirs.step()


def test_cosine_with_warmup_rises_falls_and_stays():
    a, _ = optimizers((2.0,))
    schedule = cr.optim.lr_scheduler.CosineWithWarmup(a, 4, 12, final=0.25)
    rates = []
    for _ in range(15):
        rates += schedule.get_last_lr()
        schedule.step()
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[4] == 2.0
    assert rates[8] == pytest.approx(2.0 * (0.25 + 0.75 / 2))
    assert rates[10] == pytest.approx(2.0 * (0.25 + 0.75 * (1 + math.cos(math.pi * 0.75)) / 2))
    assert rates[12:] == [0.5] * 3


def test_a_schedule_goes_on_where_it_stopped():
    a, _ = optimizers()
    one = cr.optim.lr_scheduler.CosineWithWarmup(a, 3, 20)
    for _ in range(6):
        one.step()
    b, _ = optimizers()
    two = cr.optim.lr_scheduler.CosineWithWarmup(b, 3, 20)
    two.load_state_dict(one.state_dict())
    assert two.get_last_lr() == one.get_last_lr()
    one.step()
    two.step()
    assert two.get_last_lr() == one.get_last_lr()
    c, _ = optimizers((1.0,))
    with pytest.raises(CheckpointError, match="schedule has 2 groups, the optimiser 1"):
        cr.optim.lr_scheduler.CosineWithWarmup(c, 3, 20).load_state_dict(one.state_dict())


def test_schedules_say_what_is_wrong():
    a, _ = optimizers()
    with pytest.raises(InputError, match="T_max is at least 1, got 0"):
        cr.optim.lr_scheduler.CosineAnnealingLR(a, 0)
    with pytest.raises(InputError, match="CosineWithWarmup needs"):
        cr.optim.lr_scheduler.CosineWithWarmup(a, -1, 5)
    with pytest.raises(InputError, match="1 functions for 2 groups"):
        cr.optim.lr_scheduler.LambdaLR(a, [lambda t: 1.0])
    with pytest.raises(InputError, match="group 0 has no 'initial_lr'"):
        cr.optim.lr_scheduler.CosineAnnealingLR(optimizers()[0], 5, last_epoch=3)
