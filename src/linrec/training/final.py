"""The second training of a run with `final`: on all events, for deployment.

It takes as many steps, at the same learning rates, as the validated training took to its best
epoch. So the events that were held out are learned from, and nothing is left to choose by them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np

from linrec.backbones import Backbone
from linrec.data.dataset.splits import Split
from linrec.data.dataset.store import SequenceStore
from linrec.runs.catalogue import Catalogue
from linrec.runs.checkpoint import Progress
from linrec.runs.config import RunConfig
from linrec.runs.run import Run
from linrec.training import loop
from linrec.training.callbacks import CallbackList
from linrec.training.loop import Stopped, Trained, Trainer, epoch_batches
from linrec.training.plan import Plan
from linrec.training.workers import Workers
from linrec.types import SequenceBatch


class FinalTrainer(Trainer):
    """Trains a new model on every event, without validation."""

    def __init__(
        self,
        model: Backbone,
        store: SequenceStore,
        validated: Split,
        config: RunConfig,
        callbacks: CallbackList | None = None,
        *,
        epochs: int,
    ) -> None:
        """validated: the split of the first training.  epochs: to its best one."""
        whole = replace(validated, train=store.sequences())
        super().__init__(model, store, whole, config, callbacks)
        # steps of each epoch of the first training, which its learning rates depend on
        self.lengths = [
            len(epoch_batches(model, validated, config, epoch)) for epoch in range(epochs)
        ]

    @property
    def steps(self) -> int:
        return sum(self.lengths)

    def fit_all(self, run: Run | None = None) -> bool:
        """Train to the last step, which is True, or to an interrupt; resumes what `run` has begun.

        The run keeps its validated model until the last step.
        """
        progress = Progress()
        if run is not None:
            progress = run.load_checkpoint(
                self.model, self.step.optimizers, self.step.average, final=True
            )
            self._save(progress, run)  # from now on the run has its figures, and no first training
        progress = self._same_state(progress)
        try:
            with self.interrupt:
                self._steps(progress, run)
        except (KeyboardInterrupt, Stopped):
            if self.interrupt.pressed_twice:
                raise
            self._save(progress, run)
            return False
        finally:
            self.callbacks.on_train_end()
        self.model.load_state_dict(self.step.evaluated.state_dict())
        self.model.eval()
        if run is not None:
            run.save_final(self.model)
        return True

    def _steps(self, progress: Progress, run: Run | None) -> None:
        self.callbacks.on_epoch_start(1, 1, self.steps, progress.step)
        self.step.module.train()
        saved = time.monotonic()
        for (epoch, index), sent in self.step.transfer.ahead(self._batches(progress.step)):
            self._check_stop()
            self._step(sent, epoch, index, self._share(progress.step))
            progress.step += 1
            if self.losses.is_due:
                self._read_losses(progress)
            if time.monotonic() - saved > loop.CHECKPOINT_SECONDS:
                self._save(progress, run)
                saved = time.monotonic()
        self._read_losses(progress)  # before the weights count for anything

    def _read_losses(self, progress: Progress) -> None:
        """The progress counts steps here, so that is what callbacks are told."""
        del progress
        read = self._finite_losses()
        if read is not None:
            self.callbacks.on_batch_end(read.mean, read.steps)

    def _batches(self, done: int) -> Iterator[tuple[tuple[int, int], SequenceBatch]]:
        """Epoch, index and batch of each step after the first `done`, to the last one."""
        first = 0  # the step that an epoch begins with
        for epoch in count():
            batches = epoch_batches(self.model, self.split, self.config, epoch)
            batches = self._divided(batches.with_seen(self.seen, self.past, self.weights))
            stop = min(len(batches), self.steps - first)
            for index in range(max(done - first, 0), stop):
                yield (epoch, index), batches[index]
            first += len(batches)
            if first >= self.steps:
                return

    def _share(self, step: int) -> float:
        """Of the learning rate: what the first training had in its step of the same number."""
        ends = np.cumsum(self.lengths)
        epoch = int(np.searchsorted(ends, step, side="right"))
        before = int(ends[epoch]) - self.lengths[epoch]
        return self.schedule.share(epoch, step - before, self.lengths[epoch])

    def _save(self, progress: Progress, run: Run | None) -> None:
        self._read_losses(progress)
        if run is not None:
            run.save_checkpoint(
                progress, self.model, self.step.optimizers, self.step.average, final=True
            )


def train_on_all(
    model: Backbone,
    plan: Plan,
    split: Split,
    trained: Trained,
    run: Run | None,
    callbacks: CallbackList,
    workers: Workers,
) -> Trained:
    """Give the validated model the weights of a second training, unless the run has them already.

    An interrupt leaves the validated ones.
    """
    catalogue = Catalogue.of(plan.store, vectors=plan.features.vectors)
    if workers.any(run is not None and run.finished):
        model.untrained = catalogue.untrained
        return trained
    new = plan.build()
    new.place_by_vector(catalogue.cold)
    if new.repeat is not None and model.repeat is not None:
        new.repeat.scale.copy_(model.repeat.scale)  # chosen by events that it now learns from
    epochs = trained.progress.best_epoch
    trainer = FinalTrainer(new, plan.store, split, plan.config, callbacks, epochs=epochs)
    callbacks.on_message(
        f"Training again on all {plan.store.n_events:,} events for {trainer.steps:,} steps, as "
        "many as the best epoch had taken; the figures stay those of the validated model"
    )
    if not trainer.fit_all(run):
        return replace(trained, interrupted=True)
    model.load_state_dict(new.state_dict())
    model.untrained = catalogue.untrained
    return trained
