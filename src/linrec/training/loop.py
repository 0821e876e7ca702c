"""The training loop: epochs of batches, validation, early stopping, the best model kept.

Every step draws its randomness from (seed, epoch, step) alone, so a run that was killed and resumed
from any checkpoint continues exactly as the uninterrupted one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from linrec.backbones import Backbone
from linrec.backbones.prefixes import one_pass
from linrec.data.dataset.baskets import Baskets
from linrec.data.dataset.batches import (
    Masking,
    TrainingBatches,
    all_position_batches,
    cloze_batches,
    last_position_batches,
    prefixes,
    share_of,
    windows,
)
from linrec.data.dataset.repeat_index import RepeatIndex
from linrec.data.dataset.seen import SeenIndex
from linrec.data.dataset.splits import Split
from linrec.data.dataset.store import SequenceStore
from linrec.evaluation.metrics import means
from linrec.evaluation.ranks import ProgressCallback, RankOptions, rank_targets
from linrec.evaluation.scorer import model_scorer
from linrec.layers.repeats import RepeatHead
from linrec.runs.checkpoint import Progress, load_checkpoint, pack_checkpoint
from linrec.runs.config import RunConfig
from linrec.runs.run import Run
from linrec.runs.tensors import pack_tensors, read_tensors
from linrec.training.calibration import calibrate
from linrec.training.callbacks import CallbackList
from linrec.training.interrupt import DelayedInterrupt
from linrec.training.running_loss import Losses, RunningLoss
from linrec.training.schedule import Schedule
from linrec.training.step import Step
from linrec.training.transfer import Sent
from linrec.training.workers import Workers
from linrec.training.world import World
from linrec.types import LinrecError, Seen, argument

CHECKPOINT_SECONDS = 300.0


@dataclass(frozen=True)
class Trained:
    """How a training ended. The model itself holds its best weights."""

    progress: Progress
    interrupted: bool  # by Ctrl-C or a callback, so that it can be resumed
    validated: float = 0.0  # NDCG@10 of the model as it is kept


class DivergedError(LinrecError):
    """The loss is no longer finite, and no later step can recover from that."""

    exit_code = 3

    def __init__(self, epoch: int, loss: float) -> None:
        remedy = f"try a smaller {argument('learning_rate')}"
        super().__init__(f"the loss became {loss} in epoch {epoch}; {remedy}")
        self.epoch = epoch


class Stopped(Exception):  # noqa: N818 - not an error
    """A callback has set `stop_training`."""


class Trainer:
    """Trains a model on the training part of a split and validates it after every epoch."""

    def __init__(
        self,
        model: Backbone,
        store: SequenceStore,
        split: Split,
        config: RunConfig,
        callbacks: CallbackList | None = None,
    ) -> None:
        """The processes that torchrun or `linrec train --workers` started share each step."""
        self.model, self.store, self.split, self.config = model, store, split, config
        self.callbacks = callbacks or CallbackList()
        counts = split.train.item_counts(store.n_items)
        self.step = Step(model, config, counts, World.of_environment())
        self.workers = self.step.workers
        self.schedule = Schedule.of(config.training)
        self.seen = SeenIndex.of(split.train) if config.loss.seen_aware else None
        self.past = None if model.repeat is None else repeat_index(model, split)
        weight = config.training.weight
        self.weights = None if weight is None else store.weights(weight)
        self.best_weights = _copy(model)
        self.losses = RunningLoss(self.step.fabric.device)
        self.interrupt = DelayedInterrupt()

    def fit(self, run: Run | None = None, *, resume: bool = False) -> Trained:
        """Train to early stopping, the last epoch or an interrupt; then load the best weights.

        run: where to keep checkpoints, history and the best weights; None keeps them in memory, as
        do all workers but the first.
        """
        progress = Progress()
        if run is not None and resume:
            progress = run.load_checkpoint(self.model, self.step.optimizers, self.step.average)
        if resume:
            progress = self._same_state(progress)
        over = self.workers.any(run is not None and run.validated)
        try:
            with self.interrupt:
                interrupted = not over and not self._train(progress, run)
            self._load_best(run)
            validated = progress.best
            if self.model.repeat is not None and not over and not interrupted:
                validated = self._calibrate(self.model.repeat, run)
        finally:
            self.callbacks.on_train_end()
        if run is not None:  # again: a run may have been killed right after its last checkpoint
            run.write_history(progress.history)
        return Trained(progress, interrupted, validated)

    def _train(self, progress: Progress, run: Run | None) -> bool:
        """Run epochs to the end, which is True, or to an interrupt."""
        try:
            while not self._finished(progress):
                self._epoch(progress, run)
                self._check_stop()
        except (KeyboardInterrupt, Stopped):
            if self.interrupt.pressed_twice:
                raise
            self._save_interrupted(progress, run)
            return False
        return True

    def _same_state(self, progress: Progress) -> Progress:
        """Continue where the first worker does, which has read the checkpoint."""
        if not self.workers.several:
            return progress
        parts = self.model, self.step.optimizers, self.step.average
        content = self.workers.from_first(pack_checkpoint(progress, *parts))
        return load_checkpoint(Path("checkpoint"), content, *parts)

    def _check_stop(self) -> None:
        """Leave the loop if Ctrl-C was pressed or a callback wants to stop.

        Several workers stop after the same step, so they agree, as often as losses are read.
        """
        if self.workers.several:
            wants = self.interrupt.pressed or self.callbacks.stop_training
            if not self.losses.steps and self.workers.any(wants):
                raise Stopped
            return
        self.interrupt.check()
        if self.callbacks.stop_training:
            raise Stopped

    def _finished(self, progress: Progress) -> bool:
        training = self.config.training
        if progress.epoch >= training.epochs:
            return True
        return progress.epoch - progress.best_epoch >= training.patience

    def _epoch(self, progress: Progress, run: Run | None) -> None:
        batches = epoch_batches(self.model, self.split, self.config, progress.epoch)
        batches = self._divided(batches.with_seen(self.seen, self.past, self.weights))
        self.callbacks.on_epoch_start(
            progress.epoch + 1, self.config.training.epochs, batches.n_targets, progress.targets
        )
        self.step.module.train()
        began = saved = time.monotonic()
        before = progress.seconds
        rest = ((index, batches[index]) for index in range(progress.step, len(batches)))
        for index, sent in self.step.transfer.ahead(rest):
            self._check_stop()
            share = self.schedule.share(progress.epoch, index, len(batches))
            self._step(sent, progress.epoch, index, share)
            progress.step, progress.seconds = index + 1, before + time.monotonic() - began
            if self.losses.is_due:
                self._read_losses(progress)
            if run is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                self._save_checkpoint(progress, run)
                saved = time.monotonic()
        self._check_stop()
        share = self.schedule.share(progress.epoch, len(batches) - 1, len(batches))
        self._end_epoch(progress, run, share * self.config.training.learning_rate)

    def _divided(self, batches: TrainingBatches) -> TrainingBatches:
        world = self.workers.world
        return batches.divided(world.rank, world.count)

    def _step(self, sent: Sent, epoch: int, index: int, share: float) -> None:
        loss = self.step(sent, step_seed(self.config.training.seed, epoch, index), share)
        part = sent.batch.part
        self.losses.add(loss, sent.n_targets if part is None else part.targets, epoch)

    def _read_losses(self, progress: Progress) -> None:
        """What was trained since the last time enters the progress, if all of it was finite."""
        read = self._finite_losses()
        if read is not None:
            progress.loss_sum += read.total
            progress.targets += read.targets
            self.callbacks.on_batch_end(read.mean, read.targets)

    def _finite_losses(self) -> Losses | None:
        read = self.losses.read()
        if read is not None and not np.isfinite(read.mean):
            raise DivergedError(read.epoch + 1, read.mean)
        return read

    def _end_epoch(self, progress: Progress, run: Run | None, learning_rate: float) -> None:
        """learning_rate: of its last step."""
        self._read_losses(progress)  # before the weights count for anything
        began = time.monotonic()
        scores = self._validate()
        progress.epoch += 1
        row = {
            "epoch": progress.epoch, "loss": progress.loss_sum / max(progress.targets, 1), **scores,
            "seconds": round(progress.seconds, 1),
            "valid_seconds": round(time.monotonic() - began, 1),
            "learning_rate": learning_rate,
        }  # fmt: skip
        progress.history.append(row)
        better = row["ndcg@10"] > progress.best
        if better:
            progress.best, progress.best_epoch = row["ndcg@10"], progress.epoch
            self.best_weights = _copy(self.step.evaluated)
        progress.step = progress.targets = 0
        progress.loss_sum = progress.seconds = 0.0
        if run is not None:
            if better:
                run.save_weights(self.step.evaluated)
            self._save_checkpoint(progress, run)
            run.write_history(progress.history)
        self.callbacks.on_epoch_end(row, best=better)

    def _save_checkpoint(self, progress: Progress, run: Run) -> None:
        self._read_losses(progress)  # weights that are not finite are never saved
        run.save_checkpoint(progress, self.model, self.step.optimizers, self.step.average)

    def _validate(self) -> dict[str, float]:
        def progress(done: int, total: int) -> None:
            if not self.workers.several:  # they have different numbers of batches
                self._check_stop()
            self.callbacks.on_validation_batch_end(done, total)

        seen, model = self.config.seen_in(), self.step.evaluated
        return validate(model, self.store, self.split, seen, progress, self.workers)

    def _calibrate(self, head: RepeatHead, run: Run | None) -> float:
        """Choose how much the repeat head counts; the validation figure with it."""
        known = float(head.scale)  # of a run that is resumed after its end

        def validated() -> float:
            seen = self.config.seen_in()
            figures = validate(self.model, self.store, self.split, seen, workers=self.workers)
            return figures["ndcg@10"]

        plain, best = calibrate(head, validated)
        scale = float(head.scale)
        if scale != 1.0:
            self.callbacks.on_message(
                f"the repeat head counts {scale:.3g} times as much as in training: validation "
                f"NDCG@10 {best:.4f} instead of {plain:.4f}"
            )
        if run is not None and scale != known:
            run.save_weights(self.model)
        self.best_weights = _copy(self.model)
        return best

    def _save_interrupted(self, progress: Progress, run: Run | None) -> None:
        """Before the first validation, the current weights count as the best."""
        self._read_losses(progress)
        if progress.best_epoch == 0:
            self.best_weights = _copy(self.step.evaluated)
        if run is not None:
            self._save_checkpoint(progress, run)
            if progress.best_epoch == 0:
                run.save_weights(self.step.evaluated)

    def _load_best(self, run: Run | None) -> None:
        if run is not None:
            self.best_weights = run.load_weights()
        if self.workers.several:
            content = self.workers.from_first(pack_tensors(self.best_weights))
            self.best_weights = read_tensors(Path("weights"), content)
        self.model.load_state_dict(self.best_weights)
        self.model.eval()


def repeat_index(model: Backbone, split: Split) -> RepeatIndex:
    return RepeatIndex.of(split.train if model.config.time_gaps else split.train.without_times())


def epoch_batches(model: Backbone, split: Split, config: RunConfig, epoch: int) -> TrainingBatches:
    rng = np.random.default_rng([config.training.seed, epoch])
    tokens, unknown = config.training.batch_tokens, config.training.unknown_time
    train = split.train if model.config.time_gaps else split.train.without_times()
    if model.mask_token is None:
        make = all_position_batches if model.config.causal else last_position_batches
        baskets = None if split.begins is None else Baskets.of(split.begins, train)
        return make(
            train, window=config.window, tokens=tokens, rng=rng, unknown_time=unknown,
            baskets=baskets, eligible=split.eligible,
        )  # fmt: skip
    if model.config.objective == "cloze":
        rows = windows(train, config.window, rng, cut_all=True)
    else:
        rows = prefixes(train, config.window)
    masking = Masking(model.mask_token, model.mask_ratio, unknown, split.eligible)
    return cloze_batches(rows, masking, tokens=tokens, rng=rng)


def step_seed(seed: int, epoch: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, epoch, step]).generate_state(1, np.uint64)[0] >> 1)


def validate(
    model: Backbone,
    store: SequenceStore,
    split: Split,
    seen: Seen = "hide",
    progress: ProgressCallback | None = None,
    workers: Workers | None = None,
) -> dict[str, float]:
    """NDCG@10 and Recall@10 on the validation events, full ranking.

    workers: each ranks some of the users and gets the ranks of all.
    """
    options = RankOptions(
        part="valid",
        hide_seen=seen == "hide",
        reads=model.config.max_length,
        shares=one_pass(model),
        progress=progress,
    )
    rows = slice(0, len(split.valid))
    if workers is not None and workers.several:
        lengths = split.valid.histories.lengths + 1  # a user without a history takes time, too
        rows = share_of(lengths, workers.world.rank, workers.world.count)
    own = split.valid if len(split.valid) == rows.stop - rows.start else split.valid.rows(rows)
    ranks = rank_targets(model_scorer(model), store, own, options=options).ranks
    if workers is not None:
        before = int(split.valid.target_counts[: rows.start].sum())
        ranks = workers.joined(ranks, before, len(split.valid.targets))
    metrics = means(ranks, (10,), split.valid.owners)
    return {name: metrics[name] for name in ("ndcg@10", "recall@10")}


def _copy(model: Backbone) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
