"""The one object behind the library and the command line: fit, evaluate, recommend, save, load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

import linrec
from linrec.backbones import Backbone, build
from linrec.backbones.catalogue import completed, takes_features
from linrec.backbones.saving import (
    CONFIG,
    WEIGHTS,
    Catalogue,
    RunDescription,
    check_free_for_run,
    read_description,
    read_features,
    read_model,
    write_config,
    write_description,
    write_weights,
)
from linrec.data.atomic import write_folder
from linrec.data.histories import Histories, of_items, of_users
from linrec.data.item_features import ITEM, Field, ItemFeatures, choose_fields
from linrec.data.prepare import prepare
from linrec.data.sequences import IntArray
from linrec.data.splits import EVENTS_TO_SPLIT, Split, leave_one_out
from linrec.data.store import SequenceStore
from linrec.evaluation import Evaluation, EvaluationOptions, RankOptions
from linrec.evaluation import evaluate as evaluate_scorer
from linrec.evaluation.ranks import Progress, batches
from linrec.evaluation.scorer import model_scorer
from linrec.scoring import hide_seen as hide
from linrec.scoring import top_k
from linrec.training.config import RunConfig, parse
from linrec.training.config import recipe as find_recipe
from linrec.training.history import write_history
from linrec.training.loop import Trained, Trainer
from linrec.training.watch import Watch
from linrec.types import PAD, InputError, Recommendations

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    Data = SequenceStore | str | Path | pl.DataFrame | pl.LazyFrame | pd.DataFrame
    Who = Sequence[Any] | pl.Series | pl.DataFrame | pd.DataFrame | None


class Recommender:
    """A sequential recommender of any backbone with any attention.

    `Recommender()` is SASRec with linrec-decay on whole histories; any setting of a recipe can be
    given by name, e.g. `Recommender(attention="softmax", max_length=200, epochs=20)`.
    """

    def __init__(self, *, recipe: str = "default", **settings: Any) -> None:
        config = find_recipe(recipe).with_settings(settings)
        self.config: RunConfig = replace(config, model=completed(config.model))
        self._asked_features = self.config.model.features
        self.trained: Trained | None = None
        self._model: Backbone | None = None
        self._catalogue: Catalogue | None = None
        self._store: SequenceStore | None = None
        self._dataset: dict[str, Any] = {}
        self._fields: tuple[Field, ...] = ()

    def fit(
        self,
        data: Data,
        out: str | Path | None = None,
        *,
        resume: bool = False,
        overwrite: bool = False,
        watch: Watch | None = None,
    ) -> Recommender:
        """Train to early stopping and keep the best weights.

        data: a prepared dataset or its folder, a file of events, or a frame of them. out: the run
        folder; without one nothing is written. A run that was cut short goes on with `resume`.
        """
        folder = None if out is None else Path(out)
        if folder is None and resume:
            raise InputError("nothing to resume without a run folder; say which one it is")
        if resume and overwrite:
            raise InputError("a run can be resumed or overwritten, not both; choose one")
        if folder is not None and not resume:
            check_free_for_run(folder, overwrite=overwrite)  # before the long read, not after
        store = open_data(data)
        split = leave_one_out(store.sequences())
        _check_trainable(split)
        watch = watch or Watch()
        self._choose_features(store, watch)
        torch.manual_seed(self.config.training.seed)
        model = build(self.config.model, self._features(store))
        trainer = Trainer(model, store, split, self.config, watch)
        # only now: nothing is written or replaced before all that was asked for can be
        if folder is not None:
            self._open_run(folder, store, resume=resume, overwrite=overwrite)
        self.trained = trainer.run(folder, resume=resume)
        self._model, self._store, self._dataset = model.cpu(), store, _dataset(store)
        self._catalogue = catalogue_of(store)
        return self

    def _choose_features(self, store: SequenceStore, watch: Watch) -> None:
        """What the model will read of its items; from now on the settings name it."""
        model = self.config.model
        if not takes_features(model):
            return
        asked = self._asked_features  # not those of an earlier fit on other data
        self._fields = choose_fields(store.item_table, store.features, asked)
        names = tuple(field.name for field in self._fields)
        self.config = replace(self.config, model=replace(model, features=names))
        if asked is None and names == (ITEM,):
            watch.say(
                f"{_named(store)} has no item features: {model.backbone} takes the item's own id "
                "for one; `linrec prepare EVENTS --items FILE` adds features"
            )

    def _features(self, store: SequenceStore) -> ItemFeatures:
        return ItemFeatures.of(store.item_table, self._fields)

    def _open_run(
        self, folder: Path, store: SequenceStore, *, resume: bool, overwrite: bool
    ) -> None:
        if resume:
            self._check_same_run(folder, store)
            write_config(folder, self._describe(store))  # epochs and patience may be new
            return
        if store.path is not None and store.path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{folder} holds the dataset {store.path}; choose another place")
        with write_folder(folder, overwrite, marker=CONFIG) as draft:
            write_description(draft, self._describe(store), catalogue_of(store))

    def _check_same_run(self, folder: Path, store: SequenceStore) -> None:
        description, catalogue = read_description(folder)
        if description.dataset.get("fingerprint") != store.fingerprint:
            raise InputError(
                f"{folder} was begun on another dataset ({description.dataset.get('path')}); "
                "resume it with that one, or choose another place"
            )
        before = parse(
            {"model": asdict(description.model), "training": description.training}, CONFIG
        )
        free = {"epochs": self.config.training.epochs, "patience": self.config.training.patience}
        if before.with_training(**free).as_dict() | {"description": ""} != self.config.as_dict() | {
            "description": ""
        }:
            raise InputError(
                f"{folder} was begun with other settings than these; only epochs and patience may "
                "change when a run is resumed"
            )
        if not self._features(store).same_as(read_features(folder, description, catalogue)):
            raise InputError(
                f"the item features of {_named(store)} are no longer those that {folder} was begun "
                "with; train without --resume in another place"
            )

    def _describe(self, store: SequenceStore) -> RunDescription:
        return RunDescription(
            linrec=linrec.__version__, model=self.config.model,
            training=asdict(self.config.training), n_items=store.n_items, dataset=_dataset(store),
            features=self._fields,
        )  # fmt: skip

    def evaluate(self, data: Data | None = None, **options: Any) -> Evaluation:
        """Figures on the held-out events; options are those of `EvaluationOptions`."""
        return self.evaluate_users(data, **options)[0]

    def evaluate_users(
        self, data: Data | None = None, **options: Any
    ) -> tuple[Evaluation, pl.DataFrame]:
        """The same, and one row a user with the rank of what really came next."""
        model, store = self.model, self._data(data)
        if store.fingerprint != self._dataset.get("fingerprint"):
            raise InputError(
                f"{_named(store)} is not the dataset of this run ({_place(self._dataset)}): it may "
                "hold out events that the model was trained on; evaluate it on its own dataset"
            )
        chosen = EvaluationOptions(reads=self.config.model.max_length, **options)
        split = leave_one_out(store.sequences())
        return evaluate_scorer(model_scorer(model), store, split, chosen)

    def recommend(
        self,
        who: Who = None,
        k: int = 10,
        *,
        data: Data | None = None,
        hide_seen: bool = True,
        progress: Progress | None = None,
    ) -> Recommendations:
        """The k items each will most likely want next.

        who: ids of users of the dataset, lists of item ids (oldest first), a frame of events, or
        None for all users. Items in a history that the model does not know are skipped and
        counted; who has no known item gets the most popular ones, marked as such.
        """
        if k < 1:
            raise InputError(f"k must be at least 1, not {k}")
        k = min(k, len(self.catalogue))
        histories = self._histories(who, data)
        nobody, nothing = np.empty(0, np.int64), np.empty((0, k), np.float32)
        tables = [self._table(histories, nobody, nothing.astype(np.int64), nothing)]
        options = RankOptions(reads=self.config.model.max_length)
        done = 0
        for rows in batches(histories.sequences.lengths, len(self.catalogue), options):
            tables.append(self._top(histories, rows, k, hide_seen))
            done += len(rows)
            if progress is not None:
                progress(done, len(histories))
        table = pl.concat(tables).sort("row", "rank").drop("row")
        return Recommendations(table, _notes(histories))

    def _histories(self, who: Who, data: Data | None) -> Histories:
        ids = self.catalogue.ids
        if _is_frame(who):
            return of_users(None, prepare(who), ids)
        if who is None or (isinstance(who, pl.Series) and not who.dtype.is_nested()):
            return of_users(who, self._data(data), ids)
        if not _is_list(who):
            raise InputError(f"give users as a list of ids, not as the single value {who!r}")
        asked = list(who)
        histories = [_is_list(one) for one in asked]
        if any(histories) and not all(histories):
            raise InputError("give either ids of users or lists of items, not some of each")
        return of_items(asked, ids) if any(histories) else of_users(asked, self._data(data), ids)

    def _top(self, histories: Histories, rows: IntArray, k: int, hidden: bool) -> pl.DataFrame:
        chosen = histories.sequences.take(rows)
        with torch.inference_mode():
            scores = model_scorer(self.model)(chosen)
            empty = torch.from_numpy(chosen.lengths == 0)
            scores[empty] = self._popularity()
            items, best = top_k(hide(scores, chosen) if hidden else scores, k)
        return self._table(histories, rows, items.numpy(), best.numpy())

    def _table(
        self, histories: Histories, rows: IntArray, items: IntArray, scores: NDArray[np.float32]
    ) -> pl.DataFrame:
        """What was found for some of the histories: rows [R], items and scores [R, k]."""
        place, rank = np.nonzero(items != PAD)
        row, index = rows[place], items[place, rank]
        empty = histories.sequences.lengths[row] == 0
        columns = {
            "row": row,
            "user": histories.names.gather(row),
            "rank": rank + 1,
            "item": self.catalogue.ids.ids_of(index),
            "score": scores[place, rank],
            "source": pl.Series(np.where(empty, "popularity", "model"), dtype=pl.String),
        }
        if "title" in self.catalogue.table.columns:
            columns["title"] = self.catalogue.table["title"].gather(index - 1)
        return pl.DataFrame(columns)

    def _popularity(self) -> Tensor:
        counts = self.catalogue.table["events"].to_numpy()
        return torch.from_numpy(np.concatenate([[-np.inf], counts])).float()

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a run folder: weights, config, items; in one step."""
        folder, model = Path(path), self.model
        description = RunDescription(
            linrec=linrec.__version__, model=self.config.model,
            training=asdict(self.config.training), n_items=len(self.catalogue),
            dataset=self._dataset, features=self._fields,
        )  # fmt: skip
        check_free_for_run(folder, overwrite=overwrite)
        with write_folder(folder, overwrite, marker=CONFIG) as draft:
            write_description(draft, description, self.catalogue)
            write_weights(draft / WEIGHTS, model)
            if self.trained is not None:
                write_history(draft, self.trained.progress.history)

    @classmethod
    def load(cls, path: str | Path) -> Recommender:
        """Open a run folder. Nothing in it is ever executed."""
        folder = Path(path)
        description, catalogue = read_description(folder)
        found = cls()
        found.config = parse(
            {"model": asdict(description.model), "training": description.training},
            str(folder / CONFIG),
        )
        found._model, found._catalogue = read_model(folder, description, catalogue), catalogue
        found._dataset, found._fields = description.dataset, description.features
        return found

    @property
    def model(self) -> Backbone:
        if self._model is None:
            raise InputError("this recommender is not trained yet; call fit, or linrec.load a run")
        return self._model

    @property
    def catalogue(self) -> Catalogue:
        if self._catalogue is None:
            raise InputError("this recommender is not trained yet; call fit, or linrec.load a run")
        return self._catalogue

    @property
    def store(self) -> SequenceStore:
        """The dataset it was trained on."""
        return self._data(None)

    def _data(self, data: Data | None) -> SequenceStore:
        """What was given, else what the model was trained on, if it is still where it was."""
        if data is not None:
            return open_data(data)
        if self._store is None:
            place = self._dataset.get("path")
            if place is None or not Path(place).is_dir():
                where = "was only in memory" if place is None else f"is no longer at {place}"
                raise InputError(f"the dataset of this run {where}; say where it is with --data")
            self._store = SequenceStore.open(Path(place))
        return self._store


def load(path: str | Path) -> Recommender:
    """Open a run folder that `linrec train` or `Recommender.save` made."""
    return Recommender.load(path)


def open_data(data: Data) -> SequenceStore:
    """A dataset, its folder, or events to be prepared now."""
    if isinstance(data, SequenceStore):
        return data
    if (
        isinstance(data, str | Path)
        and Path(data).is_dir()
        and (Path(data) / "dataset.json").exists()
    ):
        return SequenceStore.open(Path(data))
    return prepare(data)


def catalogue_of(store: SequenceStore) -> Catalogue:
    """The items with their features and how often each occurs, for a run to carry along."""
    return Catalogue(store.item_table.with_columns(events=pl.Series(store.popularity()[1:])))


def _dataset(store: SequenceStore) -> dict[str, Any]:
    place = None if store.path is None else str(store.path.resolve())
    return {"fingerprint": store.fingerprint, "path": place}


def _check_trainable(split: Split) -> None:
    if not (split.train.lengths > 1).any():
        raise InputError(
            f"no user has {EVENTS_TO_SPLIT + 1} events, the fewest from which two can be held out "
            "and something be learned; give a longer log or loosen the filters of `linrec prepare`"
        )


def _named(store: SequenceStore) -> str:
    return "the given data" if store.path is None else str(store.path)


def _place(dataset: dict[str, Any]) -> str:
    return dataset.get("path") or "which was only in memory"


def _is_frame(value: object) -> TypeGuard[pl.DataFrame]:
    """pandas is recognised without being imported; its Series has no columns."""
    return isinstance(value, pl.DataFrame | pl.LazyFrame) or hasattr(value, "columns")


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | dict)


def _notes(histories: Histories) -> tuple[str, ...]:
    notes = []
    if histories.skipped:
        notes.append(f"skipped {histories.skipped:,} events with items the model does not know")
    if histories.unknown_users:
        notes.append(f"{histories.unknown_users:,} of the users asked for are not in the dataset")
    empty = int((histories.sequences.lengths == 0).sum())
    if empty:
        notes.append(f"{empty:,} without any known item got the most popular items instead")
    return tuple(notes)
