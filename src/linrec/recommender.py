"""The one object behind the library and the command line: fit, evaluate, recommend, save, load."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from linrec.backbones import Backbone
from linrec.backbones.prefixes import one_pass
from linrec.baselines import BaselineConfig
from linrec.data.dataset.splits import Split
from linrec.data.dataset.store import SequenceStore, is_dataset, named, same_dataset
from linrec.data.preparing.moments import Moment, requested_at
from linrec.data.preparing.prepare import prepare
from linrec.data.preparing.requests import histories_of
from linrec.evaluation import Evaluation, EvaluationOptions, Reranker
from linrec.evaluation import evaluate as evaluate_scorer
from linrec.evaluation.baselines import hidden_note
from linrec.evaluation.ranks import ProgressCallback, Ranker, Scorer, rank_targets
from linrec.evaluation.report import LEARNED_NOTHING
from linrec.evaluation.scorer import model_scorer
from linrec.runs.catalogue import Catalogue
from linrec.runs.config import RunConfig
from linrec.runs.description import RunDescription
from linrec.runs.evaluations import evaluation_name
from linrec.runs.filters import Filters
from linrec.runs.lists import ListMaker
from linrec.runs.run import Run
from linrec.runs.samples import ITEMS as SAMPLE_ITEMS
from linrec.runs.samples import sample_users, samples_of
from linrec.runs.warm_settings import settings_for
from linrec.runs.weights import AnyModel
from linrec.training.callbacks import Callback, CallbackList
from linrec.training.context import with_context
from linrec.training.final import train_on_all
from linrec.training.fitting import Place, fit
from linrec.training.loop import Trained
from linrec.training.plan import Plan, catalogue_of, trainable
from linrec.training.repeats import with_repeat_head
from linrec.training.warm_start import WarmStart
from linrec.training.world import World
from linrec.types import InputError, Recommendations, Seen, argument

Part = TypeVar("Part")
NOT_TRAINED = "this recommender is not trained yet; call fit, or linrec.load a run"

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
    `Recommender(start="run")` has the settings of that run instead, for five epochs at most, and
    `fit` begins with its weights: items and feature values are matched by name.

    Examples:
        >>> model = linrec.Recommender(recipe="small", attention="softmax", max_length=50, epochs=1)
        >>> model.config.model.attention
        'softmax'
        >>> tomorrow = linrec.Recommender(start="run").fit("data")
        >>> tomorrow.description.start["changes"]["items"]["gone"]
        0
    """

    def __init__(
        self, *, recipe: str = "default", start: str | Path | None = None, **settings: Any
    ) -> None:
        self._start = None if start is None else Path(start)
        self._requested: RunConfig = settings_for(recipe, self._start, settings)
        self._named = frozenset(settings)  # what was asked for by name, not only by a recipe
        self.config = self._requested
        self.trained: Trained | None = None
        self.test_evaluation: Evaluation | None = None
        self._model: AnyModel | None = None
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
            callbacks: Called while it trains, see `linrec.training.callbacks.Callback`: progress,
                a time limit, loggers, or your own.

        Examples:
            >>> model = linrec.Recommender(recipe="small", epochs=1).fit("data", out="my-run")
            >>> model.trained.progress.history[0]["epoch"]
            1
        """
        first = World.of_environment().is_first  # of several workers, if there are any
        listeners = CallbackList(callbacks if first else [Callback()])
        place = Place(None if out is None else Path(out), resume, overwrite, writes=first)
        finished = False
        try:
            listeners.on_fit_start()
            self._fit(data, place, listeners)
            finished = self.trained is not None and not self.trained.interrupted
        finally:
            listeners.on_fit_end(finished=finished)
        return self

    def _fit(self, data: Data, place: Place, listeners: CallbackList) -> None:
        place.check()  # before the long read, not after
        store = open_data(data)
        split = trainable(self._requested.split.of(store))
        start = None
        if self._start is not None:
            start = WarmStart.open(self._start, store.catalogue, place.folder)
        known = () if start is None else start.run.description.context
        store = with_context(store, self._requested.model, split, known)
        split = self._requested.split.of(store) if store.read_context else split
        warn = listeners.on_message if listeners.callbacks else warnings.warn
        plan = Plan.of(self._requested, store, warn, self._named, place.resumed)
        if start is not None:
            plan = plan.started_from(start)
            listeners.on_message(start.table(plan.fields))
            start.warn_of_data(split, plan.config, self._named, warn)
        plan = with_repeat_head(plan, split, warn, self._named, place.resumed, listeners)
        catalogue = catalogue_of(plan, split, warn)
        advise = None if "loss" in self._named else warn
        fitted = fit(plan, split, catalogue, place, listeners, advise)
        # together: a training that fails leaves the earlier one as it was
        plan, self.trained, self.test_evaluation = fitted.plan, fitted.trained, None
        self.config, self._description, self._store = plan.config, plan.description, store
        self._model, self._catalogue, run = fitted.model.cpu(), catalogue, fitted.run
        if run is not None and not fitted.trained.interrupted:
            self._test(run, listeners)
        begun, workers = run is not None and run.validated, fitted.workers
        if workers is not None:  # waits for the first one, which tests
            begun = workers.any(begun)
        if (plan.config.training.final or begun) and not fitted.trained.interrupted:
            assert isinstance(fitted.model, Backbone)
            assert workers is not None
            self.trained = train_on_all(
                fitted.model, plan, split, fitted.trained, run, listeners, workers
            )
            final = not self.trained.interrupted
            self._description = self._description.model_copy(update={"final": final})
            self._catalogue = catalogue.after_all() if final else catalogue

    def _test(self, run: Run, callbacks: CallbackList) -> None:
        """Evaluate on test and write figures, ranks and report."""
        if run.validated:  # the model may have seen the test events since
            name = evaluation_name("test", "full", hide_seen=self.config.seen_in(None) == "hide")
            self.test_evaluation = run.load_evaluation(name)[0]
            return
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
        self, data: Data | None = None, *, rank: Ranker = rank_targets, **options: Any
    ) -> tuple[Evaluation, pl.DataFrame]:
        """The same, and a frame with the rank of the held-out item, one row per user.

        Examples:
            >>> figures, users = linrec.load("run").evaluate_users()
            >>> len(users) == figures.n_users
            True
        """
        return evaluate_scorer(*self.evaluated(data, **options), rank)

    def evaluated(
        self, data: Data | None = None, **options: Any
    ) -> tuple[Scorer, SequenceStore, Split, EvaluationOptions]:
        """What an evaluation is made of."""
        model, store = self.model, self.dataset(data)
        if self.description.final:
            raise InputError(
                "this run was trained on all events, the held-out ones too, so they say nothing "
                "about it; its folder `evaluation` has the figures of the validated model"
            )
        if not same_dataset(store.fingerprint, self.description.dataset.get("fingerprint")):
            raise InputError(
                f"{named(store)} is not the dataset of this run ({self._data_path()}): it may "
                "hold out events that the model was trained on; evaluate it on its own dataset"
            )
        config, where = self.config, options.get("targets_where")
        chosen = EvaluationOptions(
            reads=config.model.max_length,
            shares=isinstance(model, Backbone) and one_pass(model),
            reads_time=config.model.time_gaps,
            seen_aware=config.loss.seen_aware,
            splitting=config.split.words,
            targets=config.split.targets,
            own=config.model.backbone if isinstance(config.model, BaselineConfig) else None,
            seen=config.seen_in(options.pop("seen", None)),
            **options,
        )
        split = config.split.of(store)
        if where is not None:
            split = config.split.narrowed(store, chosen.split, where)
        return model_scorer(model), store, split, chosen

    def recommend(
        self,
        who: Who = None,
        k: int = 10,
        *,
        data: Data | None = None,
        at: Moment | None = None,
        seen: Seen | None = None,
        diversity: float = 0.0,
        progress: ProgressCallback | None = None,
        **filters: Unpack[FilterArguments],
    ) -> Recommendations:
        """The k items that each user will most likely want next.

        Items in a history that the model does not know are skipped and counted. Users without a
        known item get the most popular ones, with source "cold-start".

        Args:
            who: Ids of users of the dataset, lists of item ids, of (item, time) pairs or of
                (item, time, context) triples (oldest first; a context is a dict), a frame of
                events, or None for all users.
            k: Items per user.
            data: The dataset, if it has moved or grown.
            at: The time of the request, for models that read times: a number, a date or
                "unknown"; by default the time of the newest event in the log.
            seen: "hide" leaves out what the user has had, "keep" ranks it like all other items;
                by default what the run was trained for.
            diversity: Re-rank the lists for items that differ by their features, from 0 (off) to 1
                (`linrec.evaluation.reranking`).
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
        fields = self.description.context
        found = histories_of(who, self.catalogue.ids, lambda: self.dataset(data), fields)
        histories = requested_at(found, at)
        hidden = self.config.seen_in(seen) == "hide"
        reranker = Reranker.of(diversity, self.catalogue.similarity if diversity else None)
        reads = self.config.model.max_length
        maker = ListMaker(self.catalogue, k, hidden, allowed, reranker, reads)
        table = maker.lists(model_scorer(self.model), histories, progress)
        notes = histories.notes + allowed.notes + (() if reranker is None else (reranker.note,))
        empty = len(histories) - table["row"].n_unique()
        if empty:
            notes += (f"{empty:,} of {len(histories):,} lists are empty: {allowed.why_nothing()}",)
        if self.config.loss.seen_aware and not hidden:
            notes += (f"seen items are recommended too, and {LEARNED_NOTHING}",)
        if isinstance(self.config.model, BaselineConfig) and hidden:
            notes += hidden_note(self.config.model.backbone)
        if at is not None and not self.config.model.time_gaps:
            notes += ("the model reads no times, so the time of the request changes nothing",)
        return Recommendations(table.drop("row"), notes)

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
    def model(self) -> AnyModel:
        if self._model is None:
            raise InputError(NOT_TRAINED)
        return self._model

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

    def dataset(self, data: Data | None = None) -> SequenceStore:
        """The given dataset, or the one it was trained on, with the context that it reads."""
        return self._data(data).read_by(self.description.context)

    def _data_path(self) -> str:
        return self.description.dataset.get("path") or "which was only in memory"

    def _data(self, data: Data | None) -> SequenceStore:
        """The given dataset, else the one that the model was trained on."""
        if data is not None:
            return open_data(data)
        if self._store is None:
            path = self.description.dataset.get("path")
            if path is None or not is_dataset(path):
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
    if isinstance(data, str | Path) and is_dataset(data):
        return SequenceStore.open(Path(data))
    return prepare(data)


def _trained(part: Part | None) -> Part:
    if part is None:
        raise InputError(NOT_TRAINED)
    return part
