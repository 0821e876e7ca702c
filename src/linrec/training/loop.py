"""The training loop: epochs of batches, validation, early stopping, the best model kept.

Every step draws its randomness from (seed, epoch, step) alone. So a run that was killed and resumed
from any checkpoint goes on exactly as the uninterrupted one would have.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from linrec.backbones import Backbone
from linrec.backbones.saving import RESULTS, WEIGHTS, read_tensors, write_weights
from linrec.data.dataset.batches import (
    Masking,
    TrainingBatches,
    all_position_batches,
    cloze_batches,
    last_position_batches,
    prefixes,
    windows,
)
from linrec.data.dataset.splits import Split
from linrec.data.dataset.store import SequenceStore
from linrec.evaluation.metrics import means
from linrec.evaluation.ranks import Progress as ToldUsers
from linrec.evaluation.ranks import RankOptions, rank_targets
from linrec.evaluation.scorer import model_scorer
from linrec.runs.config import RunConfig
from linrec.training import checkpoint
from linrec.training.checkpoint import Progress
from linrec.training.history import write_history
from linrec.training.interrupt import CtrlC
from linrec.training.step import Step
from linrec.training.watch import Watch
from linrec.types import PAD, LinrecError, SequenceBatch, argument

CHECKPOINT_SECONDS = 300.0


@dataclass(frozen=True)
class Trained:
    """How a training ended. The model itself holds its best weights."""

    progress: Progress
    interrupted: bool


class DivergedError(LinrecError):
    """The loss left the finite numbers, and no later step could bring it back."""

    exit_code = 3

    def __init__(self, epoch: int, loss: float) -> None:
        remedy = f"try a smaller {argument('learning_rate')}"
        super().__init__(f"the loss became {loss} in epoch {epoch}; {remedy}")
        self.epoch = epoch


class Trainer:
    """One run: a model, the data it learns from and, if its results are to stay, a folder."""

    def __init__(
        self, model: Backbone, store: SequenceStore, split: Split, config: RunConfig, watch: Watch
    ) -> None:
        self.store, self.split, self.config, self.watch = store, split, config, watch
        self.model = model
        self.step = Step(model, config, split.train.item_counts(store.n_items))
        self.best_weights = _copy(model)
        self.ctrl_c = CtrlC()

    def run(self, folder: Path | None = None, *, resume: bool = False) -> Trained:
        """Train to early stopping, the last epoch or Ctrl-C; then load the best weights."""
        progress = Progress()
        if folder is not None and resume:
            progress = checkpoint.load(folder, self.model, self.step.optimizers)
        interrupted = False
        try:
            with self.ctrl_c:
                while not self._finished(progress):
                    self._epoch(progress, folder)
                    self.ctrl_c.heed()
        except KeyboardInterrupt:
            if self.ctrl_c.hurried:
                raise
            interrupted = True
            self._keep_something(progress, folder)
        finally:
            self.watch.close()
        if folder is not None:  # again: a run may have been killed right after its last checkpoint
            write_history(folder, progress.history)
        self._load_best(folder)
        return Trained(progress, interrupted)

    def _finished(self, progress: Progress) -> bool:
        training = self.config.training
        if progress.epoch >= training.epochs:
            return True
        return progress.epoch - progress.best_epoch >= training.patience

    def _epoch(self, progress: Progress, folder: Path | None) -> None:
        batches = epoch_batches(self.model, self.split, self.config, progress.epoch)
        self.watch.begin(
            progress.epoch + 1, self.config.training.epochs, batches.n_targets, progress.targets
        )
        self.step.module.train()
        began = saved = time.monotonic()
        before = progress.seconds
        for index in range(progress.step, len(batches)):
            self.ctrl_c.heed()
            loss, targets = self._step(batches[index], progress.epoch, index)
            progress.step, progress.seconds = index + 1, before + time.monotonic() - began
            progress.loss_sum, progress.targets = (
                progress.loss_sum + loss * targets, progress.targets + targets
            )  # fmt: skip
            self.watch.step(loss, targets)
            if folder is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                checkpoint.save(folder, progress, self.model, self.step.optimizers)
                saved = time.monotonic()
        self._close_epoch(progress, folder)

    def _step(self, batch: SequenceBatch, epoch: int, index: int) -> tuple[float, int]:
        loss = self.step(batch, step_seed(self.config.training.seed, epoch, index))
        if not np.isfinite(loss):
            raise DivergedError(epoch + 1, loss)
        return loss, int((batch.targets != PAD).sum())

    def _close_epoch(self, progress: Progress, folder: Path | None) -> None:
        began = time.monotonic()
        scores = self._validate()
        progress.epoch += 1
        row = {
            "epoch": progress.epoch, "loss": progress.loss_sum / max(progress.targets, 1), **scores,
            "seconds": round(progress.seconds, 1),
            "valid_seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip
        progress.history.append(row)
        better = row["ndcg@10"] > progress.best
        if better:
            progress.best, progress.best_epoch = row["ndcg@10"], progress.epoch
            self.best_weights = _copy(self.model)
        progress.step = progress.targets = 0
        progress.loss_sum = progress.seconds = 0.0
        if folder is not None:
            if better:
                self._replace_weights(folder)
            checkpoint.save(folder, progress, self.model, self.step.optimizers)
            write_history(folder, progress.history)
        self.watch.end(row, best=better)

    def _validate(self) -> dict[str, float]:
        def progress(done: int, total: int) -> None:
            self.ctrl_c.heed()
            self.watch.validate(done, total)

        return validate(self.model, self.store, self.split, progress)

    def _keep_something(self, progress: Progress, folder: Path | None) -> None:
        """Stopped before the first validation, the weights as they are are the best there are."""
        if progress.best_epoch == 0:
            self.best_weights = _copy(self.model)
        if folder is not None:
            checkpoint.save(folder, progress, self.model, self.step.optimizers)
            if progress.best_epoch == 0:
                self._replace_weights(folder)

    def _replace_weights(self, folder: Path) -> None:
        write_weights(folder / WEIGHTS, self.model)
        shutil.rmtree(folder / RESULTS, ignore_errors=True)  # figures of a model that is no more

    def _load_best(self, folder: Path | None) -> None:
        if folder is not None:
            self.best_weights = read_tensors(folder / WEIGHTS)
        self.model.load_state_dict(self.best_weights)
        self.model.eval()


def epoch_batches(model: Backbone, split: Split, config: RunConfig, epoch: int) -> TrainingBatches:
    rng = np.random.default_rng([config.training.seed, epoch])
    tokens = config.training.batch_tokens
    if model.mask_token is None:
        make = all_position_batches if model.config.causal else last_position_batches
        return make(split.train, window=config.window, tokens=tokens, rng=rng)
    if model.config.objective == "cloze":
        rows = windows(split.train, config.window, rng, cut_all=True)
    else:
        rows = prefixes(split.train, config.window)
    masking = Masking(model.mask_token, model.mask_ratio)
    return cloze_batches(rows, masking, tokens=tokens, rng=rng)


def step_seed(seed: int, epoch: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, epoch, step]).generate_state(1, np.uint64)[0] >> 1)


def validate(
    model: Backbone, store: SequenceStore, split: Split, progress: ToldUsers | None = None
) -> dict[str, float]:
    """NDCG@10 and Recall@10 on the validation events, full ranking, seen items hidden."""
    options = RankOptions(part="valid", reads=model.config.max_length, progress=progress)
    ranking = rank_targets(model_scorer(model), store, split.valid, options=options)
    found = means(ranking.ranks, (10,))
    return {name: found[name] for name in ("ndcg@10", "recall@10")}


def _copy(model: Backbone) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
