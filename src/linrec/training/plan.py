"""A training before its first step: every setting decided, and its run folder made or opened."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import torch

from linrec.backbones import Backbone, build
from linrec.backbones.config import FeatureConfig, ModelConfig
from linrec.baselines import Baseline, BaselineConfig
from linrec.data.dataset.item_features import ITEM, Field, ItemFeatures, choose_fields
from linrec.data.dataset.splits import Split
from linrec.data.dataset.store import SequenceStore, named
from linrec.data.dataset.ties import is_sorted
from linrec.runs.catalogue import Catalogue
from linrec.runs.config import AnyConfig, RunConfig
from linrec.runs.description import RunDescription
from linrec.runs.run import Run
from linrec.runs.vectors import reads_vectors
from linrec.training.seen import with_seen
from linrec.training.warm_start import WarmStart
from linrec.types import InputError, argument


@dataclass(frozen=True)
class Plan:
    config: RunConfig
    store: SequenceStore
    features: ItemFeatures  # the item features that the model reads
    start: WarmStart | None = None  # whose weights the model begins with

    @classmethod
    def of(
        cls,
        config: RunConfig,
        store: SequenceStore,
        warn: Callable[[str], None],
        requested: Collection[str] = (),
        resumed: Path | None = None,
    ) -> Plan:
        """The features to read and what to do with seen items, if left open, follow from the data.

        requested: the settings that were given by name. One of them that the data cannot fulfil is
        an error; one that only a recipe has is left out with a warning. resumed: the run that is
        continued, which keeps what it decided.
        """
        _warn_of_sorted_baskets(config, store, warn)
        config = with_seen(config, store, warn, requested, resumed)
        model = _with_possible_times(config.model, store, warn, "time_gaps" in requested)
        fields: tuple[Field, ...] = ()
        if isinstance(model, FeatureConfig):
            names = None if model.features is None else tuple(model.features)
            fields = choose_fields(store.item_table, store.features, names, warn)
            model = replace(model, features=tuple(field.name for field in fields))
            if names is None and model.features == (ITEM,):
                warn(
                    f"{named(store)} has no item features to learn from: {model.backbone} takes "
                    "the item's own id for one; `linrec prepare` with a file of items adds some"
                )
        model = _with_possible_vectors(model, store, warn, "id_dropout" in requested)
        vectors = store.item_vectors if reads_vectors(model) else None
        features = ItemFeatures.of(store.item_table, fields, store.read_context, vectors)
        return cls(replace(config, model=model), store, features)

    def started_from(self, start: WarmStart) -> Plan:
        """The same training, beginning with the weights of a run."""
        assert isinstance(self.config.model, ModelConfig)
        start.check(self.config.model, self.features)
        fields = start.with_bounds(self.features.fields)
        known = self.features
        features = ItemFeatures.of(self.store.item_table, fields, known.context, known.vectors)
        return replace(self, features=features, start=start)

    @property
    def fields(self) -> tuple[Field, ...]:
        """All vocabularies: of the items, and of the context of events."""
        return self.features.fields + self.features.context

    def build(self) -> Backbone:
        """The model before its first step, which follows from the seed and the start."""
        assert isinstance(self.config.model, ModelConfig), "a baseline counts"
        torch.manual_seed(self.config.training.seed)
        model = build(self.config.model, self.features)
        if self.start is not None:
            self.start.fill(model)
        return model

    @property
    def description(self) -> RunDescription:
        path = None if self.store.path is None else str(self.store.path.resolve())
        newest = float(self.store.times.max())
        return RunDescription(
            linrec=version("linrec"), model=self.config.model,
            training=self.config.as_dict()["training"], n_items=self.store.n_items,
            dataset={"fingerprint": self.store.fingerprint, "path": path, "newest": newest},
            features=self.features.fields, context=self.features.context,
            start=None if self.start is None else self.start.record(self.fields),
        )  # fmt: skip

    def open(
        self,
        folder: Path,
        catalogue: Catalogue,
        *,
        resume: bool,
        overwrite: bool,
        model: Baseline | None = None,
    ) -> Run:
        """Make the run folder, or open it to continue the same training.

        model: one that is complete already.
        """
        if resume:
            return Run.resume(folder, self.description, self.features)
        data = self.store.path
        if data is not None and data.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{folder} holds the dataset {data}; choose another path")
        return Run.create(folder, self.description, catalogue, overwrite=overwrite, model=model)


def _with_possible_times(
    model: AnyConfig, store: SequenceStore, warn: Callable[[str], None], requested: bool
) -> AnyConfig:
    """Without time_gaps where the times are only an order."""
    if isinstance(model, BaselineConfig) or not model.time_gaps or store.times_kind.kind == "real":
        return model
    trouble = f"the times of {named(store)} are only an order ({store.times_kind.reason})"
    if requested:
        raise InputError(
            f"{trouble}, so {argument('time_gaps')} has nothing to read; leave it out, or prepare "
            f"the data with real times ({argument('times', 'real')} if they are)"
        )
    warn(f"{trouble}, so the model reads no times")
    return replace(model, time_gaps=False)


def _with_possible_vectors(
    model: AnyConfig, store: SequenceStore, warn: Callable[[str], None], requested: bool
) -> AnyConfig:
    """With "auto" decided: item vectors are read where the data has them.

    requested: id_dropout was, which is of no use without.
    """
    if isinstance(model, BaselineConfig):
        return model
    has_vectors = store.item_vectors is not None
    if model.item_vectors == "on" and not has_vectors:
        raise InputError(
            f"the model reads item vectors and {named(store)} has none; prepare the data with "
            f"{argument('item_vectors')} set to a file of them"
        )
    if model.item_vectors == "auto":
        model = replace(model, item_vectors="on" if has_vectors else "off")
    if model.item_vectors == "on" or not model.id_dropout:
        return model
    if requested:
        raise InputError(
            "the model reads no item vectors, so it has no use for "
            f"{argument('id_dropout', model.id_dropout)}; leave it out, or train on data with item "
            "vectors"
        )
    warn("the model reads no item vectors, so all ids are kept (id_dropout)")
    return replace(model, id_dropout=0.0)


def _warn_of_sorted_baskets(
    config: RunConfig, store: SequenceStore, warn: Callable[[str], None]
) -> None:
    if config.split.targets == "basket" and is_sorted(store.summary.get("ties_ascending")):
        warn(
            f"the events of a basket in {named(store)} are sorted by item id, which a model of "
            "baskets learns; prepare the data with ties shuffle"
        )


def catalogue_of(plan: Plan, split: Split, warn: Callable[[str], None]) -> Catalogue:
    """The items with their training events; items without any are counted in a warning."""
    n_items = plan.store.n_items
    catalogue = Catalogue.of(plan.store, split.train.item_counts(n_items), plan.features.vectors)
    cold, untrained = (
        0 if mask is None else int(mask.sum()) for mask in (catalogue.cold, catalogue.untrained)
    )
    if untrained:
        warn(
            f"{untrained:,} of {n_items:,} items occur in held-out "
            "events only: the model learns nothing about them and does not recommend them (a "
            "training with final learns them too)"
        )
    if cold > untrained:
        warn(
            f"{cold - untrained:,} of {n_items:,} items have no training event and are recommended "
            "by their vectors alone"
        )
    return catalogue


def trainable(split: Split) -> Split:
    """The split, if there is anything to learn from."""
    if not (split.train.lengths > 1).any():
        raise InputError(
            "no user has two events that are not held out, the minimum to learn from; give a "
            "longer log, loosen the filters of `linrec prepare` or hold out fewer"
        )
    return split


def check_folder(folder: Path | None, *, resume: bool, overwrite: bool) -> None:
    """Refuse a run folder that cannot be resumed, or must not be replaced."""
    if folder is None and resume:
        raise InputError(f"nothing to resume without a run folder; give it as {argument('out')}")
    if resume and overwrite:
        raise InputError("a run can be resumed or overwritten, not both; choose one")
    if folder is not None and not resume:
        Run.check_free(folder, overwrite=overwrite)
