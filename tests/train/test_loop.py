"""A run learns, repeats itself to the last bit, and goes on exactly after Ctrl-C or a kill."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.errors import ChainruleError, CheckpointError, InputError
from chainrule.train import TrainConfig, checkpoint, config, measure, run
from chainrule.train.stopping import Stopping

TINY = {"steps": 24, "batch": 4, "context": 16, "warmup": 4}


@pytest.fixture(autouse=True)
def small_nano(monkeypatch):
    size = config.Size(layers=1, heads=2, width=16, batch=4, context=16, lr=1e-2)
    monkeypatch.setitem(config.SIZES, "nano", size)
    monkeypatch.setattr(measure, "SAMPLE_BYTES", 20)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """20 kB in which every second byte follows from the one before it."""
    rng = random.Random(0)
    pairs = [first + first.upper() for first in "abcdefgh"]
    path = tmp_path_factory.mktemp("text") / "pairs.txt"
    path.write_text("".join(rng.choice(pairs) for _ in range(10_000)))
    return str(path)


def train(out, text, **options):
    return run(TrainConfig(**{**TINY, "text": text, "out": str(out), **options}))


def files(folder, *names):
    return {name: (Path(folder) / name).read_bytes() for name in names}


def metrics(folder):
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


SAME = ("metrics.jsonl", "model.safetensors", "scores.json", "checkpoint.safetensors")


def test_a_run_leaves_everything_it_promises(tmp_path, text):
    outcome = train(tmp_path / "run", text)
    assert outcome.exit_code == 0
    assert sorted(p.name for p in outcome.folder.iterdir()) == [
        "checkpoint.safetensors",
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "report.html",
        "run.lock",
        "scores.json",
    ]
    records = metrics(outcome.folder)
    assert [r["step"] for r in records] == list(range(1, 25))
    assert records[-1]["layers"].keys() == {
        "tokens",
        "positions",
        "blocks.0.norm1",
        "blocks.0.attention",
        "blocks.0.attention.out_proj",
        "blocks.0.norm2",
        "blocks.0.mlp.0",
        "blocks.0.mlp.2",
        "norm",
        "head",
    }
    kept = json.loads((outcome.folder / "config.json").read_text())["train"]
    assert (kept["steps"], kept["seed"], kept["text"]) == (24, 0, text)
    assert "this model" in (outcome.folder / "report.html").read_text()


def test_it_learns_what_can_be_learned_and_no_more(tmp_path, text):
    # 3 bits a pair: the first byte is one of eight, the second follows from it.
    scores = {s.name: s for s in train(tmp_path / "run", text, steps=300).scores}
    assert scores["order-2 entropy"].held_out == pytest.approx(1.5, abs=0.02)
    assert 1.45 < scores["this model"].held_out < 1.7
    assert scores["order-0 entropy"].held_out == pytest.approx(4.0, abs=0.01)


def test_the_same_seed_gives_the_same_files_and_another_seed_does_not(tmp_path, text):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(tmp_path / name, text, seed=seed)
    assert files(tmp_path / "a", *SAME) == files(tmp_path / "b", *SAME)
    assert files(tmp_path / "a", *SAME) != files(tmp_path / "c", *SAME)


def test_the_first_loss_and_gradient_norm_are_pytorchs(tmp_path, text):
    """The same weights and the same batch through a GPT written in PyTorch."""
    outcome = train(tmp_path / "run", text, steps=1, dtype="float64")
    (record,) = metrics(outcome.folder)
    cr.manual_seed(0)
    start = cr.nn.GPT(256, 16, 1, 2, 16, dtype=cr.float64, init_std=0.25).state_dict()
    w = {name: torch.tensor(t.numpy(), requires_grad=True) for name, t in start.items()}
    from chainrule.train.batches import Batches
    from chainrule.train.corpus import load_corpus

    rows = torch.tensor(Batches(load_corpus(text).train, batch=4, context=16, seed=0).next())
    F = torch.nn.functional

    def linear(x, name):
        return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    def norm(x, name):
        return F.layer_norm(x, (16,), w[f"{name}.weight"], w[f"{name}.bias"])

    x = w["tokens.weight"][rows[:, :-1]] + w["positions.weight"]
    a = "blocks.0.attention"
    packed = F.linear(norm(x, "blocks.0.norm1"), w[f"{a}.in_proj_weight"], w[f"{a}.in_proj_bias"])
    q, k, v = (part.view(4, 16, 2, 8).transpose(1, 2) for part in packed.split(16, -1))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    x = x + linear(mixed.reshape(4, 16, 16), f"{a}.out_proj")
    hidden = linear(norm(x, "blocks.0.norm2"), "blocks.0.mlp.0")
    x = x + linear(F.gelu(hidden, approximate="tanh"), "blocks.0.mlp.2")
    loss = F.cross_entropy(linear(norm(x, "norm"), "head").flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    total = math.sqrt(sum(float((p.grad**2).sum()) for p in w.values()))
    assert record["loss"] == pytest.approx(loss.item(), rel=1e-12)
    assert record["gradient_norm"] == pytest.approx(total, rel=1e-10)
    layers = record["layers"]
    assert layers["head"]["gradient_norm"] == pytest.approx(
        float(w["head.weight"].grad.norm()), rel=1e-10
    )


def test_measuring_does_not_disturb_training(tmp_path, text, monkeypatch):
    train(tmp_path / "a", text)
    monkeypatch.setattr(measure, "loss_on", lambda *arguments: 0.0)
    train(tmp_path / "b", text)
    losses = [[record["loss"] for record in metrics(tmp_path / name)] for name in "ab"]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_dtypes_train(tmp_path, text, dtype):
    outcome = train(tmp_path / "run", text, dtype=dtype)
    losses = [record["loss"] for record in metrics(outcome.folder)]
    assert losses[-1] < losses[0] - 1
    model = cr.load(outcome.folder / "model.safetensors")
    assert {t.dtype for t in model.values()} == {getattr(cr, dtype)}


# --- stopping and going on --------------------------------------------------------------------


def test_a_stop_saves_says_where_and_resuming_is_exact(tmp_path, text, monkeypatch, capsys):
    # Dropout, so that the generator takes part.
    train(tmp_path / "whole", text, dropout=0.2)
    seen = []

    def stop_at_seven(self):
        seen.append(1)
        if len(seen) == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self)

    from chainrule.train.batches import Batches

    real = Batches.next
    with monkeypatch.context() as patch:
        patch.setattr(Batches, "next", stop_at_seven)
        outcome = train(tmp_path / "cut", text, dropout=0.2)
    assert (outcome.exit_code, outcome.step) == (130, 7)
    said = capsys.readouterr().out
    assert f"Stopped after step 7 of 24, saved in {tmp_path / 'cut'}." in said
    assert f"chainrule train --resume --out {tmp_path / 'cut'}" in said
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    cr.manual_seed(99)  # what else the process did makes no difference
    assert run(TrainConfig(out=str(tmp_path / "cut"), resume=True)).exit_code == 0
    assert files(tmp_path / "cut", *SAME) == files(tmp_path / "whole", *SAME)


def test_a_killed_process_goes_on_exactly(tmp_path, text):
    options = [
        sys.executable, "-m", "chainrule", "train", "--text", text, "--batch", "2",
        "--context", "16", "--steps", "40", "--warmup", "4", "--out",
    ]  # fmt: skip
    environment = {
        **os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    subprocess.run([*options, str(tmp_path / "whole")], env=environment, check=True, timeout=300)
    killed = subprocess.Popen([*options, str(tmp_path / "cut")], env=environment)
    metrics = tmp_path / "cut" / "metrics.jsonl"
    until = time.monotonic() + 200
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < 11:
        assert time.monotonic() < until
        time.sleep(0.005)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    resume = [*options[:4], "--resume", "--out", str(tmp_path / "cut")]
    subprocess.run(resume, env=environment, check=True, timeout=300)
    assert files(tmp_path / "cut", *SAME) == files(tmp_path / "whole", *SAME)


def test_a_kill_before_the_first_checkpoint_starts_again(tmp_path, text):
    train(tmp_path / "run", text)
    whole = files(tmp_path / "run", *SAME)
    for name in ("checkpoint.safetensors", "model.safetensors", "scores.json"):
        (tmp_path / "run" / name).unlink()
    with open(tmp_path / "run" / "metrics.jsonl", "r+") as file:
        file.truncate(300)
    run(TrainConfig(out=str(tmp_path / "run"), resume=True))
    assert files(tmp_path / "run", *SAME) == whole


def test_a_full_disk_while_saving_keeps_the_previous_checkpoint(
    tmp_path, text, monkeypatch, capsys
):
    train(tmp_path / "whole", text)
    real = os.replace
    saved = []

    def full(source, target):
        if str(target).endswith("checkpoint.safetensors"):
            saved.append(target)
            if len(saved) == 3:
                raise OSError(28, os.strerror(28))
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(CheckpointError, match="No space left on device; the previous one is"):
            train(tmp_path / "cut", text)
    state = checkpoint.load(tmp_path / "cut" / "checkpoint.safetensors")
    assert state["step"] == 4
    run(TrainConfig(out=str(tmp_path / "cut"), resume=True))
    assert (
        "Going on after step 4, the last checkpoint; what metrics.jsonl has beyond it, up to step 6, "
        "is made again."
    ) in capsys.readouterr().out
    assert files(tmp_path / "cut", *SAME) == files(tmp_path / "whole", *SAME)


def test_a_finished_run_says_so_and_does_nothing(tmp_path, text, monkeypatch, capsys):
    train(tmp_path / "run", text)
    before = files(tmp_path / "run", *SAME, "report.html")
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(measure, "loss_on", None)
        outcome = run(TrainConfig(out=str(tmp_path / "run"), resume=True))
    assert (outcome.exit_code, outcome.step) == (0, 24)
    said = capsys.readouterr().out
    assert f"is complete: all 24 steps are done; report at {tmp_path / 'run'}" in said
    assert "Going on" not in said
    assert files(tmp_path / "run", *SAME, "report.html") == before
    # Killed while it measured: only that is left to do.
    (tmp_path / "run" / "report.html").unlink()
    run(TrainConfig(out=str(tmp_path / "run"), resume=True))
    assert files(tmp_path / "run", *SAME) == {name: before[name] for name in SAME}
    assert (tmp_path / "run" / "report.html").exists()


def test_a_lost_checkpoint_is_said(tmp_path, text, capsys):
    train(tmp_path / "run", text)
    whole = files(tmp_path / "run", *SAME)
    for name in ("checkpoint.safetensors", "report.html"):
        (tmp_path / "run" / name).unlink()
    capsys.readouterr()
    run(TrainConfig(out=str(tmp_path / "run"), resume=True))
    assert (
        f"There is no checkpoint in {tmp_path / 'run'}: the run starts again at step 1; what "
        "metrics.jsonl has beyond it, up to step 24, is made again."
    ) in capsys.readouterr().out
    assert files(tmp_path / "run", *SAME) == whole


def test_a_second_signal_does_not_wait():
    def twice():
        with Stopping() as stopping:
            os.kill(os.getpid(), signal.SIGINT)
            assert (stopping.signal, stopping.exit_code) == (signal.SIGINT, 130)
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        twice()
    assert signal.getsignal(signal.SIGINT) is before


# --- what goes wrong --------------------------------------------------------------------------


def test_a_run_that_diverges_stops_before_it_spoils_the_weights(tmp_path, text):
    # Weights this large overflow float32 at the second step.
    with pytest.raises(ChainruleError, match=r"At step \d+ the loss is .*try a --lr below 1e\+30"):
        train(tmp_path / "run", text, lr=1e30, warmup=0)
    last = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1]
    assert "nan" in last or "inf" in last


def test_options_that_differ_from_the_stored_runs_are_refused(tmp_path, text):
    train(tmp_path / "run", text)
    asked = TrainConfig(out=str(tmp_path / "run"), resume=True, steps=99, lr=0.5)
    with pytest.raises(InputError, match=r"--lr 0\.5 \(the run has 0\.01\); --steps 99"):
        run(asked, given=frozenset({"out", "resume", "steps", "lr"}))


def test_a_text_that_changed_is_refused(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat. " * 100)
    train(tmp_path / "run", str(path))
    (tmp_path / "run" / "report.html").unlink()
    path.write_text("the dog sat on the mat. " * 100)
    with pytest.raises(CheckpointError, match=r"is not the one that the run in .* started with"):
        run(TrainConfig(out=str(tmp_path / "run"), resume=True))


def test_a_text_shorter_than_the_context_makes_no_folder(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("too short")
    with pytest.raises(InputError, match=r"context \+ 1 = 17"):
        train(tmp_path / "run", str(path))
    assert not (tmp_path / "run").exists()


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "one byte":
        content[len(content) * 3 // 4] ^= 0x40
        path.write_bytes(content)
    elif how == "garbage":
        path.write_bytes(b"garbage" * 100)
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "weights only":
        path.write_bytes((path.parent / "model.safetensors").read_bytes())
    elif how == "another size":
        state = checkpoint.load(path)
        state["model"]["head.weight"] = cr.zeros(256, 8)
        checkpoint.save(path, state)
    elif how == "a part missing":
        state = checkpoint.load(path)
        del state["optimizer"]
        checkpoint.save(path, state)


DAMAGED = {
    "cut": "damaged safetensors file",
    "garbage": "is not a safetensors file",
    "empty": "is empty",
    "weights only": "is not a training checkpoint",
    "another size": "does not fit the run's config.json",
    "one byte": "checkpoint.safetensors is damaged: it was changed after it was written",
    "a part missing": r"does not fit the run's config.json \('optimizer'\)",
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_or_foreign_checkpoint_is_said_and_nothing_is_lost(tmp_path, text, how):
    train(tmp_path / "run", text)
    (tmp_path / "run" / "report.html").unlink()
    damage(tmp_path / "run" / "checkpoint.safetensors", how)
    before = files(tmp_path / "run", *SAME)
    with pytest.raises(CheckpointError, match=DAMAGED[how]):
        run(TrainConfig(out=str(tmp_path / "run"), resume=True))
    assert files(tmp_path / "run", *SAME) == before


def test_numbers_that_overflow_anywhere_in_the_run_give_no_warnings(tmp_path, text, recwarn):
    """The held-out loss after the step that spoiled the weights, and the measuring at the end."""
    with pytest.raises(ChainruleError, match="At step 2 the loss"):
        train(tmp_path / "run", text, lr=1e30, warmup=0, steps=12)
    train(tmp_path / "end", text, lr=1e30, warmup=0, steps=1)
    assert [str(warning.message) for warning in recwarn] == []


# --- what is measured -------------------------------------------------------------------------


def test_layers_measure_the_step_that_was_made():
    layer = cr.nn.Linear(3, 2, dtype=cr.float64)
    layer(cr.ones(1, 3, dtype=cr.float64)).sum().backward()
    old = {name: p.detach().numpy().copy() for name, p in layer.named_parameters()}
    layers = measure.Layers((f"a.{name}", p) for name, p in layer.named_parameters())
    layers.before()
    with cr.no_grad():
        for p in layer.parameters():
            p -= 0.1 * p.grad
    got = layers.after()["a"]
    weights = math.sqrt(sum(float((v**2).sum()) for v in old.values()))
    # The gradient is 1 everywhere: eight ones.
    assert got["gradient_norm"] == pytest.approx(math.sqrt(8), rel=1e-12)
    assert got["update_ratio"] == pytest.approx(0.1 * math.sqrt(8) / weights, rel=1e-9)


def test_loss_on_is_the_mean_over_all_windows():
    cr.manual_seed(0)
    model = cr.nn.GPT(256, 8, 1, 2, 16, dtype=cr.float64)
    windows = np.random.default_rng(0).integers(0, 256, (7, 9))
    whole = model.loss(cr.tensor(windows[:, :-1]), cr.tensor(windows[:, 1:])).item()
    assert measure.loss_on(model, windows, batch=3) == pytest.approx(whole, rel=1e-12)
    assert model.training


def test_samples_leave_the_generator_as_it_was():
    model = cr.nn.GPT(256, 8, 1, 2, 16)
    cr.manual_seed(5)
    expected = cr.rand(4).tolist()
    cr.manual_seed(5)
    first = measure.write_samples(model, [b"ab"], seed=1)
    assert cr.rand(4).tolist() == expected
    assert measure.write_samples(model, [b"ab"], seed=1) == first
    assert first[0].prompt == "ab"


def test_samples_of_all_prompts_are_written_together_and_progress_is_told(monkeypatch):
    monkeypatch.setattr(measure, "SAMPLE_BYTES", 50)
    model = cr.nn.GPT(256, 8, 1, 2, 16)
    shapes, told = [], []
    forward = model.forward

    def counted(tokens):
        shapes.append(tokens.shape[0])
        assert not cr.is_grad_enabled()
        return forward(tokens)

    monkeypatch.setattr(model, "forward", counted)
    samples = measure.write_samples(
        model, [b"ab", b"longer"], 1, lambda done, total: told.append((done, total))
    )
    assert shapes == [2] * 50
    assert told == [(0, 50), (20, 50), (40, 50)]
    assert [s.prompt for s in samples] == ["ab", "longer"]
    assert all(s.text for s in samples)
