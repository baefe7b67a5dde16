"""`chainrule train`, from text to report: the steps, the checkpoints between them, the end.

The same configuration and machine give the same losses to the last bit, and a run that was stopped
or killed goes on as if nothing had happened: all that decides the next step is in the checkpoint.
Relies on `chainrule.nn`, `optim` and `save`; the other files of this package hold the parts.
"""

from __future__ import annotations

import dataclasses
import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import chainrule as cr
from chainrule.errors import ChainruleError, CheckpointError, InputError
from chainrule.train import checkpoint, measure
from chainrule.train.atomic import write_bytes
from chainrule.train.batches import Batches, fixed_windows
from chainrule.train.config import TrainConfig, conflicts
from chainrule.train.corpus import Corpus, load_corpus
from chainrule.train.progress import Progress, clock
from chainrule.train.report import Report, Sample, Score, render
from chainrule.train.rundir import RunDir, latest, next_free
from chainrule.train.stopping import Stopped, Stopping

RUNS = Path("runs")

HELD_OUT_BATCHES = 4
"""Batches of held-out windows measured now and then while training."""

FINAL_BATCHES = 20
"""Batches of windows of either text that the final bits per byte are measured on."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: 0 for finished, 130 for Ctrl-C; where it is; the scores, if measured now."""

    exit_code: int
    folder: Path
    step: int
    scores: tuple[Score, ...] = ()


def run(config: TrainConfig, *, given: frozenset[str] = frozenset()) -> Outcome:
    """Train as `config` says, or go on with the run in its folder if `config.resume`.

    `given` names the options that the user stated: on resuming they must agree with the stored run.
    Raises `InputError` for options or text that make no sense and `CheckpointError` for a folder
    or checkpoint that cannot be used.
    """
    started = time.perf_counter()
    with Stopping() as stopping:
        if config.resume:
            folder = Path(config.out) if config.out else latest(RUNS)
            with RunDir.open(folder) as place:
                config = dataclasses.replace(_stored(place, config, given), resume=True)
                if _complete(place, config.steps):
                    bar = Progress(config.steps)
                    bar.say(
                        f"The run in {folder} is complete: all {config.steps:,} steps are done; "
                        f"report at {place.report_path}"
                    )
                    return Outcome(0, folder, config.steps)
                corpus = load_corpus(config.text)
                if corpus.digest != place.config()["corpus"]["sha256"]:
                    raise CheckpointError(
                        f"The text of {corpus.name} is not the one that the run in {folder} "
                        "started with: bring it back, or start a new run."
                    )
                return _Training(config, corpus, place, stopping).run(started)
        config = config.resolved()
        corpus = load_corpus(config.text)
        corpus.require(config.context or 0)
        folder = Path(config.out) if config.out else next_free(RUNS)
        with RunDir.create(folder, _description(config, corpus)) as place:
            return _Training(config, corpus, place, stopping).run(started)


def _complete(place: RunDir, steps: int) -> bool:
    """Whether nothing is left to do: the report is written last, after every step."""
    if not (place.report_path.exists() and place.model_path.exists()):
        return False
    return any(record.get("step") == steps for record in place.metrics()[-1:])


def _description(config: TrainConfig, corpus: Corpus) -> dict[str, Any]:
    return {
        "train": config.to_json(),
        "corpus": {
            "name": corpus.name,
            "sha256": corpus.digest,
            "files": corpus.files,
            "train_bytes": len(corpus.train),
            "held_out_bytes": len(corpus.held_out),
        },
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _stored(place: RunDir, asked: TrainConfig, given: frozenset[str]) -> TrainConfig:
    stored = TrainConfig.from_json(place.config().get("train") or {})
    stated = {name: getattr(asked, name) for name in given}
    clash = conflicts(dataclasses.replace(stored, **stated).resolved(), stored, given)
    if clash:
        raise InputError(
            f"The run in {place.path} was started with other options: {'; '.join(clash)}. Leave "
            "them out to go on with it, or start a new run."
        )
    return stored


class _Training:
    """One run in progress: the model and all that moves with it."""

    def __init__(
        self, config: TrainConfig, corpus: Corpus, place: RunDir, stopping: Stopping
    ) -> None:
        assert config.batch
        assert config.context
        assert config.lr
        self.config, self.corpus, self.place, self.stopping = config, corpus, place, stopping
        self.batch, self.context = config.batch, config.context
        shape = config.shape
        cr.manual_seed(config.seed)
        self.model: Any = cr.nn.GPT(
            vocab_size=256,
            context=self.context,
            layers=shape.layers,
            heads=shape.heads,
            width=shape.width,
            dropout=config.dropout,
            dtype=getattr(cr, config.dtype),
            # Measured at widths 64 and 128 after 1,500 steps: 0.22 and 0.15 bits per byte better
            # than with GPT-2's 0.02.
            init_std=shape.width**-0.5,
        )
        self.named: list[tuple[str, Any]] = list(self.model.named_parameters())
        self.parameters = [parameter for _, parameter in self.named]
        # Decay pulls matrices towards zero; gains and biases have no reason to be small.
        groups = [
            {"params": [p for p in self.parameters if p.ndim >= 2]},
            {"params": [p for p in self.parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.optimizer: Any = cr.optim.AdamW(
            groups, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
        )
        self.schedule: Any = cr.optim.lr_scheduler.CosineWithWarmup(
            self.optimizer, warmup_steps=config.warmup, total_steps=config.steps
        )
        self.batches = Batches(
            corpus.train, batch=self.batch, context=self.context, seed=config.seed
        )
        self.layers = measure.Layers(self.named)
        self.held_out = fixed_windows(
            corpus.held_out, context=self.context, count=HELD_OUT_BATCHES * self.batch
        )
        self.step = 0
        self.forgotten = 0

    # --- the state ---------------------------------------------------------------------------

    def save(self) -> None:
        self.place.sync()
        checkpoint.save(
            self.place.checkpoint_path,
            {
                "step": self.step,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "generator": cr.get_rng_state(),
                "batches": self.batches.state_dict(),
            },
        )

    def restore(self) -> None:
        """Go to where the folder's checkpoint is; without one, to the start."""
        if self.place.checkpoint_path.exists():
            state = checkpoint.load(self.place.checkpoint_path)
            try:
                self.model.load_state_dict(state["model"])
                self.optimizer.load_state_dict(state["optimizer"])
                self.schedule.load_state_dict(state["schedule"])
                cr.set_rng_state(state["generator"])
                self.batches.load_state_dict(state["batches"])
                self.step = int(state["step"])
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise CheckpointError(
                    f"{self.place.checkpoint_path} does not fit the run's config.json ({error}): "
                    "start a new run."
                ) from error
        self.forgotten = sum(record.get("step", 0) > self.step for record in self.place.metrics())
        self.place.truncate_metrics(self.step)

    # --- the run -----------------------------------------------------------------------------

    def run(self, started: float) -> Outcome:
        # A number that overflows is looked for after each step, where it is said in words.
        with np.errstate(all="ignore"):
            return self._run(started)

    def _run(self, started: float) -> Outcome:
        self.restore()
        first, steps = self.step, self.config.steps
        first_step = time.perf_counter()
        with Progress(steps, first=first, tokens_per_step=self.batch * self.context) as bar:
            self._introduce(bar)
            try:
                while self.step < steps:
                    record = self._advance()
                    bar.update(
                        self.step, loss=record["loss"], gradient_norm=record["gradient_norm"]
                    )
                    if self.stopping.signal or self.step % self._every(10) == 0:
                        self.save()
                    self.stopping.check()
                training = time.perf_counter() - first_step
                tokens = (steps - first) * self.batch * self.context
                return self._finish(bar, started, training, tokens)
            except Stopped:
                bar.say(
                    f"Stopped after step {self.step} of {steps}, saved in {self.place.path}. Go on "
                    f"with: chainrule train --resume --out {self.place.path}"
                )
                return Outcome(self.stopping.exit_code, self.place.path, self.step)

    def _every(self, times: int) -> int:
        """So many steps apart that it happens about `times` times in the run."""
        return max(1, self.config.steps // times)

    def _introduce(self, bar: Progress) -> None:
        corpus, config = self.corpus, self.config
        count = sum(parameter.numel() for parameter in self.parameters)
        bar.say(
            f"{corpus.name}: {len(corpus.train):,} bytes to learn from, {len(corpus.held_out):,} "
            f"held out, {corpus.files:,} files"
        )
        for note in corpus.notes:
            bar.say(f"Note: {note}")
        bar.say(
            f"GPT {config.size}: {count:,} parameters, {config.dtype}; {config.steps:,} steps of "
            f"{self.batch} × {self.context} bytes; run folder {self.place.path}"
        )
        if self.config.resume:
            bar.say(self._where())

    def _where(self) -> str:
        """Where a resumed run goes on, and what of it is made again."""
        if self.step:
            where = f"Going on after step {self.step}, the last checkpoint"
        else:
            where = f"There is no checkpoint in {self.place.path}: the run starts again at step 1"
        if self.forgotten:
            last = self.step + self.forgotten
            where += f"; what metrics.jsonl has beyond it, up to step {last}, is made again"
        return where + "."

    def _advance(self) -> dict[str, Any]:
        """One step of the optimiser, and its line of metrics."""
        rows = self.batches.next()
        loss = self.model.loss(cr.tensor(rows[:, :-1]), cr.tensor(rows[:, 1:]))
        self.optimizer.zero_grad()
        loss.backward()
        step = self.step + 1
        detailed = step % self._every(60) == 0
        if detailed:
            self.layers.before()
        gradient_norm = float(cr.nn.utils.clip_grad_norm_(self.parameters, self.config.clip))
        record: dict[str, Any] = {
            "step": step,
            "loss": float(loss.item()),
            "gradient_norm": gradient_norm,
            "lr": self.optimizer.param_groups[0]["lr"],
        }
        if not (math.isfinite(record["loss"]) and math.isfinite(gradient_norm)):
            self.place.append(record)
            raise ChainruleError(
                f"At step {step} the loss is {record['loss']} and the gradient norm "
                f"{gradient_norm}, so the run stops before it spoils the weights: try a --lr below "
                f"{self.config.lr}. The steps before it are in {self.place.path}."
            )
        self.optimizer.step()
        self.schedule.step()
        self.step = step
        if detailed:
            record["layers"] = self.layers.after()
        if step % self._every(12) == 0:
            record["held_out"] = measure.loss_on(self.model, self.held_out, self.batch)
        self.place.append(record)
        return record

    # --- the end -----------------------------------------------------------------------------

    def _finish(self, bar: Progress, started: float, training: float, tokens: int) -> Outcome:
        self.save()
        cr.save(self.model.state_dict(), self.place.model_path)
        bar.say("Measuring bits per byte.")
        model_score = Score(
            "this model",
            self._bits(bar, "on the training text", self.corpus.train),
            self._bits(bar, "on the held-out text", self.corpus.held_out),
            f"{self.config.size}, {self.step:,} steps",
        )
        bar.say("Counting entropies, and packing the text with gzip.")
        scores = [model_score, *measure.rivals(self.corpus)]
        self.stopping.check()
        bar.say("Writing samples.")
        prompts = measure.prompts_for(self.corpus, default=self.config.text is None)
        samples = measure.write_samples(
            self.model, prompts, self.config.seed, self._between(bar, "samples")
        )
        self.stopping.check()
        kept = json.dumps(measure.as_json(scores, samples), indent=2, ensure_ascii=False) + "\n"
        write_bytes(self.place.path / "scores.json", kept.encode())
        page = render(self._report(scores, samples, training, tokens))
        write_bytes(self.place.report_path, page.encode())
        bar.say("\n" + measure.table(scores))
        bar.say(f"\n{samples[0].prompt}{samples[0].text}\n")
        whole = time.perf_counter() - started
        bar.say(
            f"Done in {clock(whole)}, {clock(training)} of it for the steps. Report: "
            f"{self.place.report_path}"
        )
        return Outcome(0, self.place.path, self.step, tuple(scores))

    def _between(self, bar: Progress, what: str) -> Callable[[int, int], None]:
        def between(done: int, total: int) -> None:
            self.stopping.check()
            bar.measuring(what, done, total)

        return between

    def _bits(self, bar: Progress, what: str, text: bytes) -> float:
        windows = fixed_windows(text, context=self.context, count=FINAL_BATCHES * self.batch)
        loss = measure.loss_on(self.model, windows, self.batch, self._between(bar, what))
        return measure.bits(loss)

    def _report(
        self, scores: list[Score], samples: list[Sample], seconds: float, tokens: int
    ) -> Report:
        corpus, config = self.corpus, self.config
        speed = (
            f"{tokens / seconds:,.0f} tokens/s, {clock(seconds)} for the steps" if tokens else "–"
        )
        facts = {
            "text": f"{corpus.name}: {len(corpus.train):,} bytes to learn from, "
            f"{len(corpus.held_out):,} held out, {corpus.files:,} files",
            "model": f"GPT {config.size}: {config.shape.layers} layers, {config.shape.heads} "
            f"heads, width {config.shape.width}; "
            f"{sum(p.numel() for p in self.parameters):,} parameters, {config.dtype}",
            "training": f"{config.steps:,} steps of {self.batch} × {self.context} bytes, AdamW, "
            f"rate {config.lr:g} after {config.warmup} steps, cosine; seed {config.seed}",
            "speed": speed,
            "measured on": f"{FINAL_BATCHES * self.batch:,} windows of {self.context} bytes at "
            "most, spread evenly over each text; entropies and gzip on the whole of it. Entropy "
            "on the training text is the text's own; on the held-out text it is what a model "
            "counted on the training text needs (Witten-Bell smoothing)",
            "versions": f"Python {platform.python_version()}, NumPy {np.__version__}",
        }
        return Report(
            f"GPT {config.size} on {corpus.name}",
            self.place.metrics(),
            scores,
            samples,
            facts,
            corpus.notes,
        )
