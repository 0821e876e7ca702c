"""The one object behind the library and the command line: fit, evaluate, recommend, save, load."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from linrec.backbones import Backbone, build
from linrec.data.dataset.histories import Histories
from linrec.data.dataset.sequences import IntArray
from linrec.data.dataset.splits import EVENTS_TO_SPLIT, Split, leave_one_out
from linrec.data.dataset.store import SequenceStore, named, same_dataset
from linrec.data.preparing.moments import Moment, requested_at
from linrec.data.preparing.prepare import prepare
from linrec.data.preparing.requests import histories_of
from linrec.evaluation import Evaluation, EvaluationOptions, RankOptions
from linrec.evaluation import evaluate as evaluate_scorer
from linrec.evaluation.ranks import ProgressCallback, Scorer, batches
from linrec.evaluation.report import LEARNED_NOTHING
from linrec.evaluation.scorer import model_scorer
from linrec.runs.catalogue import Catalogue
from linrec.runs.config import RunConfig
from linrec.runs.description import RunDescription
from linrec.runs.filters import Allowed, Filters
from linrec.runs.recipes import recipe as find_recipe
from linrec.runs.run import Run
from linrec.runs.samples import ITEMS as SAMPLE_ITEMS
from linrec.runs.samples import sample_users, samples_of
from linrec.scoring import HIDDEN, top_k
from linrec.scoring import hide_seen as hide
from linrec.training.callbacks import Callback, CallbackList, TensorBoardLogger
from linrec.training.loop import Trained, Trainer
from linrec.training.loss_advice import advise_loss
from linrec.training.plan import Plan, check_folder
from linrec.training.precision import with_precision
from linrec.training.repeats import with_repeat_head
from linrec.types import COLD_START, PAD, InputError, Recommendations, Seen, argument

Part = TypeVar("Part")

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Unpack

    from linrec.data.preparing.requests import Who
    from linrec.runs.filters import FilterArguments

    Data = SequenceStore | str | Path | pl.DataFrame | pl.LazyFrame | pd.DataFrame


class Recommender:
    """A sequential recommender of any backbone with any attention.

    `Recommender()` is SASRec with linrec-decay on whole histories and their times; any setting of a
    recipe can be given by name, e.g. `Recommender(attention="softmax", max_length=200, epochs=20)`.

    Examples:
        >>> model = linrec.Recommender(recipe="small", attention="softmax", max_length=50, epochs=1)
        >>> model.config.model.attention
        'softmax'
    """

    def __init__(self, *, recipe: str = "default", **settings: Any) -> None:
        self._requested: RunConfig = find_recipe(recipe, settings)
        self._named = frozenset(settings)  # what was asked for by name, not only by a recipe
        self.config = self._requested
        self.trained: Trained | None = None
        self.test_evaluation: Evaluation | None = None
        self._model: Backbone | None = None
        self._catalogue: Catalogue | None = None
        self._store: SequenceStore | None = None
        self._description: RunDescription | None = None

    def fit(
        self,
        data: Data,
        out: str | Path | None = None,
        *,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> Recommender:
        """Train to early stopping and keep the best weights.

        Args:
            data: A prepared dataset or its folder, a file of events, or a frame of them.
            out: The run folder, which gets all that `linrec train` writes: weights, history, the
                evaluation on test (`test_evaluation`) and a report. Without it nothing is written.
            resume: Continue a run that was interrupted.
            overwrite: Replace a run at `out`.
            callbacks: See `linrec.training.callbacks`.

        Examples:
            >>> model = linrec.Recommender(recipe="small", epochs=1).fit("data", out="my-run")
            >>> model.trained.progress.history[0]["epoch"]
            1
        """
        folder = None if out is None else Path(out)
        check_folder(folder, resume=resume, overwrite=overwrite)  # before the long read, not after
        store = open_data(data)
        split = leave_one_out(store.sequences())
        _check_trainable(split)
        listeners = CallbackList(callbacks)
        warn = listeners.on_message if callbacks else warnings.warn
        resumed = folder if resume else None
        plan = Plan.of(self._requested, store, warn, self._named, resumed)
        plan = with_repeat_head(plan, split, warn, self._named, resumed)
        torch.manual_seed(plan.config.training.seed)
        model = build(plan.config.model, plan.features)
        config = with_precision(plan.config, model, split, resumed)
        plan = replace(plan, config=config)
        if not resume and "loss" not in self._named:
            advise_loss(config, model, split, warn)
        trainer = Trainer(model, store, split, plan.config, listeners)
        # only now: nothing is written or replaced before everything that was requested is possible
        run = None if folder is None else plan.open(folder, resume=resume, overwrite=overwrite)
        if run is not None and TensorBoardLogger.is_installed():
            listeners.callbacks.append(TensorBoardLogger(run.tensorboard))
        with nullcontext() if run is None else run.kept_with_a_model():
            trained = trainer.fit(run, resume=resume)
        # together: a training that fails leaves the earlier one as it was
        self.trained, self.test_evaluation = trained, None
        self.config, self._description, self._store = plan.config, plan.description, store
        self._model, self._catalogue = model.cpu(), Catalogue.of(store)
        if run is not None and not trained.interrupted:
            self._test(run, listeners)
        return self

    def _test(self, run: Run, callbacks: CallbackList) -> None:
        """Evaluate on test and write figures, ranks and report."""
        evaluation, ranks = self.evaluate_users(progress=callbacks.on_test_batch_end)
        run.save_evaluation(evaluation, ranks)
        self.write_report(run, evaluation)
        self.test_evaluation = evaluation
        callbacks.on_test_end(evaluation)

    def write_report(self, run: Run, evaluation: Evaluation, data: Data | None = None) -> None:
        """Renew the report of a run with an evaluation, and what some users are recommended."""
        store = self._data(data)
        shown = self.recommend(sample_users(store), k=SAMPLE_ITEMS, data=store)
        run.write_report(evaluation, store, samples_of(store, shown))

    def evaluate(self, data: Data | None = None, **options: Any) -> Evaluation:
        """Figures on the held-out events; options are those of `EvaluationOptions`.

        Examples:
            >>> figures = linrec.load("run").evaluate(protocol="full", split="test")
            >>> 0 < figures["ndcg@10"] < 1
            True
            >>> figures.metrics["ndcg@10"].low < figures["ndcg@10"]  # of the 95 % interval
            True
        """
        return self.evaluate_users(data, **options)[0]

    def evaluate_users(
        self, data: Data | None = None, **options: Any
    ) -> tuple[Evaluation, pl.DataFrame]:
        """The same, and a frame with the rank of the held-out item, one row per user.

        Examples:
            >>> figures, users = linrec.load("run").evaluate_users()
            >>> len(users) == figures.n_users
            True
        """
        model, store = self.model, self._data(data)
        if not same_dataset(store.fingerprint, self.description.dataset.get("fingerprint")):
            raise InputError(
                f"{named(store)} is not the dataset of this run ({self._data_path()}): it may "
                "hold out events that the model was trained on; evaluate it on its own dataset"
            )
        config = self.config
        chosen = EvaluationOptions(
            reads=config.model.max_length,
            reads_time=config.model.time_gaps,
            seen_aware=config.loss.seen_aware,
            seen=config.seen_in(options.pop("seen", None)),
            **options,
        )
        split = leave_one_out(store.sequences())
        return evaluate_scorer(model_scorer(model), store, split, chosen)

    def recommend(
        self,
        who: Who = None,
        k: int = 10,
        *,
        data: Data | None = None,
        at: Moment | None = None,
        seen: Seen | None = None,
        progress: ProgressCallback | None = None,
        **filters: Unpack[FilterArguments],
    ) -> Recommendations:
        """The k items that each user will most likely want next.

        Items in a history that the model does not know are skipped and counted. Users without a
        known item get the most popular ones, with source "cold-start".

        Args:
            who: Ids of users of the dataset, lists of item ids or of (item, time) pairs (oldest
                first), a frame of events, or None for all users.
            k: Items per user.
            data: The dataset, if it has moved or grown.
            at: The time of the request, for models that read times: a number, a date or
                "unknown"; by default the time of the newest event in the log.
            seen: "hide" leaves out what the user has had, "keep" ranks it like all other items;
                by default what the run was trained for.
            progress: Called with the number of users done, and of all.
            filters: `only` and `exclude` with lists of item ids, `where` with features of the
                items and the values of which they must have one.

        Examples:
            >>> model = linrec.load("run")
            >>> len(model.recommend(["member-0007"], k=5))
            5
            >>> model.recommend([["film-001", "film-002"], []], k=1).to_polars()["source"].to_list()
            ['model', 'cold-start']
            >>> films = model.recommend(["member-0007"], k=2, where={"genre": ["Comedy", "Drama"]})
            >>> len(films)
            2
        """
        if k < 1:
            raise InputError(f"k must be at least 1, not {k}")
        k = min(k, len(self.catalogue))
        allowed = Filters(**filters).allowed(self.catalogue)
        found = histories_of(who, self.catalogue.ids, lambda: self._data(data))
        histories = requested_at(found, at)
        nobody, nothing = np.empty(0, np.int64), np.empty((0, k), np.float32)
        tables = [self._table(histories, nobody, nothing.astype(np.int64), nothing)]
        options = RankOptions(reads=self.config.model.max_length)
        scorer = model_scorer(self.model)
        done, hidden = 0, self.config.seen_in(seen) == "hide"
        for rows in batches(histories.sequences.lengths, len(self.catalogue), options):
            tables.append(self._top(scorer, histories, rows, k, hidden, allowed))
            done += len(rows)
            if progress is not None:
                progress(done, len(histories))
        table = pl.concat(tables).sort("row", "rank")
        notes = histories.notes + allowed.notes
        empty = len(histories) - table["row"].n_unique()
        if empty:
            notes += (f"{empty:,} of {len(histories):,} lists are empty: {allowed.why_nothing()}",)
        if self.config.loss.seen_aware and not hidden:
            notes += (f"seen items are recommended too, and {LEARNED_NOTHING}",)
        if at is not None and not self.config.model.time_gaps:
            notes += ("the model reads no times, so the time of the request changes nothing",)
        return Recommendations(table.drop("row"), notes)

    def _top(
        self,
        scorer: Scorer,
        histories: Histories,
        rows: IntArray,
        k: int,
        hidden: bool,
        allowed: Allowed,
    ) -> pl.DataFrame:
        chosen = histories.sequences.take(rows)
        with torch.inference_mode():
            scores = scorer(chosen)
            empty = torch.from_numpy(chosen.lengths == 0)
            scores[empty] = self.catalogue.cold_start_scores()
            if allowed.items is not None:
                scores[:, torch.from_numpy(~allowed.items)] = HIDDEN
            items, best = top_k(hide(scores, chosen) if hidden else scores, k)
        return self._table(histories, rows, items.numpy(), best.numpy())

    def _table(
        self, histories: Histories, rows: IntArray, items: IntArray, scores: NDArray[np.float32]
    ) -> pl.DataFrame:
        """The recommendations for some of the histories: rows [R], items and scores [R, k]."""
        position, rank = np.nonzero(items != PAD)
        row, index = rows[position], items[position, rank]
        empty = histories.sequences.lengths[row] == 0
        columns = {
            "row": row,
            "user": histories.names.gather(row),
            "rank": rank + 1,
            "item": self.catalogue.ids.ids_of(index),
            "score": scores[position, rank],
            "source": pl.Series(np.where(empty, COLD_START, "model"), dtype=pl.String),
        }
        if self.catalogue.titles is not None:
            columns["title"] = self.catalogue.titles.gather(index - 1)
        return pl.DataFrame(columns)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a run folder in one step: weights, settings, items and the history of training.

        Examples:
            >>> linrec.load("run").save("copy-of-run", overwrite=True)
        """
        rows = [] if self.trained is None else self.trained.progress.history
        Run.create(
            Path(path), self.description, self.catalogue,
            overwrite=overwrite, model=self.model, rows=rows,
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | Path, *, verify: bool = True) -> Recommender:
        """Open a run folder, with `verify` against its checksums. Nothing in it is ever executed.

        Examples:
            >>> linrec.Recommender.load("run").config.training.epochs
            1
        """
        run, model = Run.load(path, verify=verify)
        loaded = cls()
        loaded._requested = loaded.config = run.config
        loaded._model = model
        loaded._description, loaded._catalogue = run.description, run.catalogue
        return loaded

    @property
    def model(self) -> Backbone:
        return _trained(self._model)

    @property
    def catalogue(self) -> Catalogue:
        return _trained(self._catalogue)

    @property
    def description(self) -> RunDescription:
        """Settings, item features and the dataset of the run."""
        return _trained(self._description)

    @property
    def store(self) -> SequenceStore:
        """The dataset it was trained on."""
        return self._data(None)

    def _data_path(self) -> str:
        return self.description.dataset.get("path") or "which was only in memory"

    def _data(self, data: Data | None) -> SequenceStore:
        """The given dataset, else the one that the model was trained on."""
        if data is not None:
            return open_data(data)
        if self._store is None:
            path = self.description.dataset.get("path")
            if path is None or not Path(path).is_dir():
                where = "was only in memory" if path is None else f"is no longer at {path}"
                raise InputError(f"the dataset of this run {where}; give it as {argument('data')}")
            self._store = SequenceStore.open(Path(path))
        return self._store


def load(path: str | Path, *, verify: bool = True) -> Recommender:
    """Open a run folder that `linrec train` or `Recommender.save` made.

    verify: compare files with the run's checksums; False saves time where they are very large.

    Examples:
        >>> linrec.load("run").config.model.backbone
        'sasrec'
    """
    return Recommender.load(path, verify=verify)


def open_data(data: Data) -> SequenceStore:
    """Open a dataset or its folder, or prepare events now."""
    if isinstance(data, SequenceStore):
        return data
    if (
        isinstance(data, str | Path)
        and Path(data).is_dir()
        and (Path(data) / "dataset.json").exists()
    ):
        return SequenceStore.open(Path(data))
    return prepare(data)


def _check_trainable(split: Split) -> None:
    if not (split.train.lengths > 1).any():
        raise InputError(
            f"no user has {EVENTS_TO_SPLIT + 1} events, the minimum to hold out two and learn from "
            "the rest; give a longer log or loosen the filters of `linrec prepare`"
        )


def _trained(part: Part | None) -> Part:
    if part is None:
        raise InputError("this recommender is not trained yet; call fit, or linrec.load a run")
    return part
