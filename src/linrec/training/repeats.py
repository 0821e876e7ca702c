"""Whether a model gets a repeat head: a short training with it and one without decide."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import torch

from linrec.backbones import build
from linrec.backbones.config import ModelConfig, RepeatHeadChoice
from linrec.data.dataset.splits import Split
from linrec.runs.config import RunConfig
from linrec.runs.run import Run
from linrec.training.callbacks import Callback, CallbackList
from linrec.training.loop import DivergedError, Trainer
from linrec.training.plan import Plan
from linrec.types import InputError, LinrecError, argument

Warn = Callable[[str], None]

# epochs of the trial: a tenth of what is planned, but no fewer and no more than these
MIN_EPOCHS, MAX_EPOCHS = 2, 5


class TrialStoppedError(LinrecError):
    """A callback has set `stop_training` before the training itself began."""

    exit_code = 130

    def __init__(self) -> None:
        super().__init__(
            "stopped while a short training tried a repeat head, so there is no model yet; "
            f"{argument('repeat_head', 'on')} or {argument('repeat_head', 'off')} decides without "
            "a trial"
        )


class Trial(Callback):
    """What those who watch a training see of the short ones before it: how far they are."""

    def __init__(self, watching: CallbackList, trainings: int) -> None:
        self.watching, self.trainings = watching, trainings
        self.ended = self.done = self.total = 0  # trainings, targets of this one and of each

    def on_epoch_start(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        del done
        self.done, self.total = (epoch - 1) * targets, epochs * targets

    def on_batch_end(self, loss: float, targets: int) -> None:
        del loss
        self.done = min(self.done + targets, self.total)
        self._report()

    def on_validation_batch_end(self, done: int, total: int) -> None:
        del done, total
        self._report()

    def on_train_end(self) -> None:
        self.ended, self.done = self.ended + 1, 0

    def _report(self) -> None:
        done = self.ended * self.total + self.done
        self.watching.on_trial_batch_end(done, self.trainings * self.total)
        self.stop_training = self.watching.stop_training


def with_repeat_head(
    plan: Plan,
    split: Split,
    warn: Warn,
    requested: Collection[str],
    resumed: Path | None,
    callbacks: CallbackList | None = None,
) -> Plan:
    """The plan with "auto" replaced: by what a resumed run was begun with, or by a trial.

    requested: the settings that were given by name; a head that only a recipe has is left out with
    a warning where seen items are hidden.
    """
    model = plan.config.model
    if not isinstance(model, ModelConfig):
        return plan  # a baseline
    if model.repeat_head == "auto" and resumed is not None:
        begun = Run.open(resumed).config.model
        assert isinstance(begun, ModelConfig)
        return _with(plan, begun.repeat_head)
    if plan.config.seen_in() == "hide":
        return _with(plan, _off_where_hidden(model, warn, "repeat_head" in requested))
    if model.repeat_head != "auto":
        return plan
    if not model.causal:
        return _with(plan, "off")
    return _with(plan, _tried(plan, split, warn, callbacks or CallbackList()))


def _off_where_hidden(model: ModelConfig, warn: Warn, requested: bool) -> RepeatHeadChoice:
    if model.repeat_head == "on":
        trouble = "seen items are hidden, so a repeat head has nothing to add to"
        if requested:
            raise InputError(
                f"{trouble}; leave {argument('repeat_head')} out, or keep them with "
                f"{argument('seen', 'keep')}"
            )
        warn(f"{trouble}: the model has none")
    return "off"


def _with(plan: Plan, choice: RepeatHeadChoice) -> Plan:
    model = replace(_backbone(plan), repeat_head=choice)
    return replace(plan, config=replace(plan.config, model=model))


def _backbone(plan: Plan) -> ModelConfig:
    assert isinstance(plan.config.model, ModelConfig), "a baseline has no head"
    return plan.config.model


def _tried(plan: Plan, split: Split, warn: Warn, callbacks: CallbackList) -> RepeatHeadChoice:
    """The better of two short trainings that differ in nothing else."""
    training = plan.config.training
    epochs = min(training.epochs, max(MIN_EPOCHS, min(training.epochs // 10, MAX_EPOCHS)))
    # which float type is faster is decided later, for the model that is trained
    precision = "float32" if training.precision == "auto" else training.precision
    short = replace(training, epochs=epochs, precision=precision)
    plan = replace(plan, config=replace(plan.config, training=short))
    choices: tuple[RepeatHeadChoice, ...] = ("on", "off")
    trial = Trial(callbacks, len(choices))
    with torch.random.fork_rng():
        with_head, without = (_validated(_with(plan, choice), split, trial) for choice in choices)
    chosen: RepeatHeadChoice = "on" if with_head > without else "off"
    effect = "the model has one" if chosen == "on" else "the model has none"
    warn(
        f"validation NDCG@10 after {epochs} epochs is {with_head:.4f} with a repeat head and "
        f"{without:.4f} without: {effect}"
    )
    return chosen


def _validated(plan: Plan, split: Split, trial: Trial) -> float:
    """The best validation NDCG@10 of a training of which nothing is kept."""
    config: RunConfig = plan.config
    torch.manual_seed(config.training.seed)
    model = build(_backbone(plan), plan.features)
    try:
        trained = Trainer(model, plan.store, split, config, CallbackList([trial])).fit()
    except DivergedError:  # not worse than a model that recommends nothing
        return 0.0
    if trained.interrupted:
        raise TrialStoppedError if trial.stop_training else KeyboardInterrupt
    return trained.validated
