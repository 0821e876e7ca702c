"""A training before its first step: nothing left open, and its folder made or recognised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from linrec.backbones.config import FeatureConfig
from linrec.backbones.saving import (
    CONFIG,
    Catalogue,
    RunDescription,
    read_description,
    read_features,
    write_config,
    write_description,
)
from linrec.data.dataset.item_features import ITEM, Field, ItemFeatures, choose_fields
from linrec.data.dataset.store import SequenceStore
from linrec.files.atomic import write_folder
from linrec.runs.config import RunConfig, parse
from linrec.types import InputError, argument

MAY_CHANGE = ("epochs", "patience")
"""When a run is resumed; any other change would make it another run."""


@dataclass(frozen=True)
class Plan:
    config: RunConfig
    store: SequenceStore
    features: ItemFeatures  # what the model will read of its items

    @classmethod
    def of(cls, asked: RunConfig, store: SequenceStore, say: Callable[[str], None]) -> Plan:
        """The features to read, if left open, follow from the data."""
        model = asked.model
        fields: tuple[Field, ...] = ()
        if isinstance(model, FeatureConfig):
            names = None if model.features is None else tuple(model.features)
            fields = choose_fields(store.item_table, store.features, names, say)
            model = replace(model, features=tuple(field.name for field in fields))
            if names is None and model.features == (ITEM,):
                say(
                    f"{named(store)} has no item features to learn from: {model.backbone} takes "
                    "the item's own id for one; `linrec prepare` with a file of items adds some"
                )
        features = ItemFeatures.of(store.item_table, fields)
        return cls(replace(asked, model=model), store, features)

    @property
    def description(self) -> RunDescription:
        place = None if self.store.path is None else str(self.store.path.resolve())
        return RunDescription(
            linrec=version("linrec"), model=self.config.model,
            training=self.config.as_dict()["training"], n_items=self.store.n_items,
            dataset={"fingerprint": self.store.fingerprint, "path": place},
            features=self.features.fields,
        )  # fmt: skip

    def open(self, folder: Path, *, resume: bool, overwrite: bool) -> None:
        """Make the run folder, or make sure that it holds the beginning of this run."""
        if resume:
            self._check_same_run(folder)
            write_config(folder, self.description)  # epochs and patience may be new
            return
        place = self.store.path
        if place is not None and place.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{folder} holds the dataset {place}; choose another place")
        with write_folder(folder, overwrite, marker=CONFIG) as draft:
            write_description(draft, self.description, Catalogue.of(self.store))

    def _check_same_run(self, folder: Path) -> None:
        description, catalogue = read_description(folder)
        if description.dataset.get("fingerprint") != self.store.fingerprint:
            raise InputError(
                f"{folder} was begun on another dataset ({description.dataset.get('path')}); "
                "resume it with that one, or choose another place"
            )
        self._check_same_settings(folder, recorded(description, CONFIG))
        if not self.features.same_as(read_features(folder, description, catalogue)):
            raise InputError(
                f"the item features of {named(self.store)} are no longer those that {folder} was "
                f"begun with; train without {argument('resume')} in another place"
            )

    def _check_same_settings(self, folder: Path, before: RunConfig) -> None:
        for part in ("model", "training"):
            old, new = before.as_dict()[part], self.config.as_dict()[part]
            for name in old:
                if name not in MAY_CHANGE and old[name] != new[name]:
                    raise InputError(
                        f"{folder} was begun with other settings than these: {name} was "
                        f"{_shown(old[name])} and now is {_shown(new[name])}; only "
                        f"{' and '.join(MAY_CHANGE)} may change when a run is resumed"
                    )


def recorded(description: RunDescription, source: str) -> RunConfig:
    """The settings that a run was made with."""
    content = {"model": asdict(description.model), "training": description.training}
    return parse(content, source)


def named(store: SequenceStore) -> str:
    return "the given data" if store.path is None else str(store.path)


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
