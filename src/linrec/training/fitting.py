"""From a plan to a model: a backbone is trained, a baseline counts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from linrec.backbones import ModelConfig
from linrec.data.dataset.splits import Split
from linrec.runs.catalogue import Catalogue
from linrec.runs.run import Run
from linrec.runs.weights import AnyModel
from linrec.training.callbacks import CallbackList, TensorBoardLogger
from linrec.training.counting import count
from linrec.training.loop import Trained, Trainer
from linrec.training.loss_advice import advise_loss
from linrec.training.plan import Plan, check_folder
from linrec.training.precision import with_precision
from linrec.training.workers import Workers
from linrec.training.world import World
from linrec.types import InputError, argument


@dataclass(frozen=True)
class Place:
    """Where a run is written; nowhere without a folder."""

    folder: Path | None
    resume: bool = False
    overwrite: bool = False
    writes: bool = True  # only the first of several workers does

    @property
    def resumed(self) -> Path | None:
        """The run that is continued."""
        return self.folder if self.resume else None

    def check(self) -> None:
        if self.writes:
            check_folder(self.folder, resume=self.resume, overwrite=self.overwrite)


@dataclass(frozen=True)
class Fitted:
    plan: Plan  # with every setting decided
    model: AnyModel
    trained: Trained
    run: Run | None
    workers: Workers | None = None  # None for a baseline


def fit(
    plan: Plan,
    split: Split,
    catalogue: Catalogue,
    place: Place,
    callbacks: CallbackList,
    advise: Callable[[str], None] | None = None,
) -> Fitted:
    """advise: told of a loss that would be faster."""
    if not isinstance(plan.config.model, ModelConfig):
        return _count(plan, split, catalogue, place, callbacks)
    model = plan.build()
    model.untrained = catalogue.untrained
    model.place_by_vector(catalogue.cold)
    plan = replace(plan, config=with_precision(plan.config, model, split, place.resumed))
    if advise is not None and not place.resume and place.writes:
        advise_loss(plan.config, model, split, advise)
    trainer = Trainer(model, plan.store, split, plan.config, callbacks)
    # only now: nothing is written or replaced before everything that was requested is possible,
    # which a tracker decides when it begins; one of a resumed training begins once that is possible
    if not place.resume:
        callbacks.on_train_start(plan.config)
    run = None
    if place.folder is not None and place.writes:
        run = plan.open(place.folder, catalogue, resume=place.resume, overwrite=place.overwrite)
        if TensorBoardLogger.is_installed():
            callbacks.callbacks.append(TensorBoardLogger(run.tensorboard))
    if place.resume:
        callbacks.on_train_start(plan.config)
    with nullcontext() if run is None else run.kept_with_a_model():
        trained = trainer.fit(run, resume=place.resume)
    return Fitted(plan, model, trained, run, trainer.workers)


def _count(
    plan: Plan, split: Split, catalogue: Catalogue, place: Place, callbacks: CallbackList
) -> Fitted:
    name = plan.config.model.backbone
    if World.of_environment().count > 1:
        raise InputError(
            f"the baseline {name} is counted in one pass, which several workers would only repeat; "
            f"leave {argument('workers')} out"
        )
    if place.resume:
        raise InputError(
            f"the baseline {name} is counted in one pass, so there is nothing to resume; leave "
            f"{argument('resume', True)} out"
        )
    plan, baseline, trained = count(plan, split)
    callbacks.on_train_start(plan.config)
    callbacks.on_train_end()
    run = None
    if place.folder is not None:
        run = plan.open(
            place.folder, catalogue, resume=False, overwrite=place.overwrite, model=baseline
        )
    return Fitted(plan, baseline, trained, run)
