"""A training before its first step: every setting decided, and its run folder made or opened."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from linrec.backbones.config import FeatureConfig, ModelConfig
from linrec.data.dataset.item_features import ITEM, Field, ItemFeatures, choose_fields
from linrec.data.dataset.store import SequenceStore, named
from linrec.runs.catalogue import Catalogue
from linrec.runs.config import RunConfig
from linrec.runs.description import RunDescription
from linrec.runs.run import Run
from linrec.training.seen import with_seen
from linrec.types import InputError, argument


@dataclass(frozen=True)
class Plan:
    config: RunConfig
    store: SequenceStore
    features: ItemFeatures  # the item features that the model reads

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
        features = ItemFeatures.of(store.item_table, fields)
        return cls(replace(config, model=model), store, features)

    @property
    def description(self) -> RunDescription:
        path = None if self.store.path is None else str(self.store.path.resolve())
        return RunDescription(
            linrec=version("linrec"), model=self.config.model,
            training=self.config.as_dict()["training"], n_items=self.store.n_items,
            dataset={"fingerprint": self.store.fingerprint, "path": path},
            features=self.features.fields,
        )  # fmt: skip

    def open(self, folder: Path, *, resume: bool, overwrite: bool) -> Run:
        """Make the run folder, or open it to continue the same training."""
        if resume:
            return Run.resume(folder, self.description, self.features)
        data = self.store.path
        if data is not None and data.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{folder} holds the dataset {data}; choose another path")
        catalogue = Catalogue.of(self.store)
        return Run.create(folder, self.description, catalogue, overwrite=overwrite)


def _with_possible_times(
    model: ModelConfig, store: SequenceStore, warn: Callable[[str], None], requested: bool
) -> ModelConfig:
    """Without time_gaps where the times are only an order."""
    if not model.time_gaps or store.times_kind.kind == "real":
        return model
    trouble = f"the times of {named(store)} are only an order ({store.times_kind.reason})"
    if requested:
        raise InputError(
            f"{trouble}, so {argument('time_gaps')} has nothing to read; leave it out, or prepare "
            f"the data with real times ({argument('times', 'real')} if they are)"
        )
    warn(f"{trouble}, so the model reads no times")
    return replace(model, time_gaps=False)


def check_folder(folder: Path | None, *, resume: bool, overwrite: bool) -> None:
    """Refuse a run folder that cannot be resumed, or must not be replaced."""
    if folder is None and resume:
        raise InputError(f"nothing to resume without a run folder; give it as {argument('out')}")
    if resume and overwrite:
        raise InputError("a run can be resumed or overwritten, not both; choose one")
    if folder is not None and not resume:
        Run.check_free(folder, overwrite=overwrite)
