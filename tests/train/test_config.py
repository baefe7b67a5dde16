"""Options: what makes no sense is said, what is stored comes back, what conflicts is named."""

import json

import pytest

from chainrule.errors import CheckpointError, InputError
from chainrule.train.config import SIZES, TrainConfig, conflicts

BAD = {
    "size": ({"size": "huge"}, "There is no size 'huge': choose one of nano, micro, small"),
    "steps": ({"steps": 0}, "--steps is 0: it has to be at least 1"),
    "batch": ({"batch": 0}, "--batch is 0"),
    "context": ({"context": -5}, "--context is -5"),
    "warmup": ({"warmup": -1}, "--warmup is -1"),
    "lr zero": ({"lr": 0.0}, "--lr is 0.0: it has to be a positive number"),
    "lr nan": ({"lr": float("nan")}, "--lr is nan"),
    "lr inf": ({"lr": float("inf")}, "--lr is inf"),
    "seed": ({"seed": -1}, "--seed is -1"),
    "dtype": ({"dtype": "int8"}, "Training in 'int8' is not offered: choose one of float32"),
    "half": ({"dtype": "float16"}, "gradients vanish without loss scaling"),
    "dropout": ({"dropout": 1.0}, "dropout is 1.0"),
    "clip": ({"clip": 0.0}, "clip is 0.0"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD)
def test_what_makes_no_sense_is_said(options, message):
    with pytest.raises(InputError, match=message):
        TrainConfig(**options)


def test_what_was_left_out_comes_from_the_size():
    config = TrainConfig(size="micro", context=32).resolved()
    micro = SIZES["micro"]
    assert (config.batch, config.context, config.lr) == (micro.batch, 32, micro.lr)


def test_a_short_run_has_a_short_warmup():
    assert TrainConfig(steps=10, warmup=50).resolved().warmup == 5
    assert TrainConfig(steps=1000, warmup=50).resolved().warmup == 50


def test_width_is_a_multiple_of_heads():
    assert all(size.width % size.heads == 0 for size in SIZES.values())


def test_a_config_comes_back_from_json():
    config = TrainConfig(text="a.txt", lr=0.1, seed=7, out="x", resume=True).resolved()
    back = TrainConfig.from_json(json.loads(json.dumps(config.to_json())))
    assert back.to_json() == config.to_json()
    assert back.betas == config.betas
    assert (back.out, back.resume) == (None, False)


@pytest.mark.parametrize(
    "change", [{"steps": "many"}, {"steps": 0}, {"betas": 3}, {"unknown": 1}, {"seed": None}]
)
def test_a_config_that_does_not_fit_is_said(change):
    with pytest.raises(CheckpointError, match=r"config\.json"):
        TrainConfig.from_json({**TrainConfig().to_json(), **change})


def test_options_that_contradict_the_stored_run_are_named():
    stored = TrainConfig(steps=100, seed=1).resolved()
    asked = TrainConfig(steps=200, seed=1, lr=0.5)
    given = frozenset({"steps", "seed", "lr", "out"})
    assert conflicts(asked, stored, given) == [
        f"--lr 0.5 (the run has {stored.lr})",
        "--steps 200 (the run has 100)",
    ]
    assert conflicts(asked, stored, frozenset()) == []
