"""`tune`: from a dataset to the best settings that a budget finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linrec.recommender import Recommender
from linrec.runs.evaluations import evaluation_name
from linrec.runs.run import Run
from linrec.settings import parse, settings_of
from linrec.training.callbacks import Callback
from linrec.training.world import World
from linrec.tuning.driver import Driver, TuningCallback, run_here
from linrec.tuning.options import TuneOptions
from linrec.tuning.ray_engine import cluster, run_on_ray
from linrec.tuning.results import Tuned, needs_more, write_results
from linrec.tuning.search import Search
from linrec.tuning.study import Study, optuna
from linrec.types import InputError, argument

if TYPE_CHECKING:
    from linrec.recommender import Data


def tune(
    data: Data,
    out: str | Path,
    *,
    recipe: str = "default",
    space: str | Path | Mapping[str, Any] | None = None,
    callbacks: Sequence[TuningCallback] = (),
    final_callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> Tuned:
    """Search for settings by their validation NDCG@10, within a budget; needs `linrec[tune]`.

    The same call continues a study that was stopped. Only the winner is evaluated on test.

    Args:
        data: A prepared dataset or its folder, a file of events, or a frame of them.
        out: The STUDY folder.
        recipe: Where settings come from that are neither given nor searched.
        space: A TOML file or its content: for each setting `low` and `high` (and `log` or `step`),
            or `choices`. By default a space around the recipe, for its backbone and attention.
        callbacks: Called as trials begin, validate and end.
        final_callbacks: Of the winner's training.
        settings: A budget (`trials=`, `hours=`, `total_epochs=`) and the other fields of
            `linrec.tuning.options.TuneOptions`, and settings of a run, which are then not searched.

    Examples:
        >>> found = linrec.tune(
        ...     "data", "study", recipe="small", epochs=1, width=16, trials=2, final=False,
        ...     space={"learning_rate": {"low": 0.001, "high": 0.01, "log": True}},
        ... )
        >>> len(found.trials)
        2
        >>> linrec.Recommender(recipe=str(found.recipe)).config.model.width
        16
    """
    own = {name: settings.pop(name) for name in settings_of(TuneOptions) if name in settings}
    options = parse(TuneOptions, {name: own[name] for name in own if own[name] is not None})
    optuna()
    if World.of_environment().count > 1:
        raise InputError(
            "one process owns a study; start it without torchrun, and with "
            f"{argument('engine', 'ray')} for several trials at once"
        )

    def warn(message: str) -> None:
        for callback in callbacks:
            callback.on_message(message)

    search, folder = Search.of(data, recipe, space, settings, warn), Path(out)
    identity = search.identity(options.pruning)
    Study.check(folder, identity)
    with ExitStack() as open_now:
        seen = None
        if options.engine == "ray":
            seen = open_now.enter_context(cluster(options, search.store))
        study = Study.open(folder, identity, search.space)
        open_now.callback(study.close)
        study.try_first(search.settings)
        driver = Driver(study, search.config, search.store, options, callbacks)
        _run(driver, seen)
        tuned = write_results(study, search.config)
    if driver.interrupted:
        return replace(tuned, interrupted=True)
    if tuned.best is None:
        raise needs_more(tuned)
    return _finish(tuned, search, final_callbacks) if options.final else tuned


def _run(driver: Driver, seen: Path | None) -> None:
    """seen: the dataset as the workers of a cluster see it; None runs here."""
    try:
        if seen is None:
            run_here(driver)
        else:
            run_on_ray(driver, seen)
    except KeyboardInterrupt:
        driver.interrupted = True
    finally:
        driver.abandon()


def _finish(tuned: Tuned, search: Search, callbacks: Sequence[Callback]) -> Tuned:
    """Train the winner again, to the same weights, and evaluate it on test, once."""
    complete = tuned.trials.filter(end="complete")
    place = complete.sort("ndcg@10", descending=True, maintain_order=True)["trial"][0]
    folder = tuned.folder / f"winner-{place}"
    if Run.exists(folder):
        run = Run.open(folder)
        name = evaluation_name("test", "full", hide_seen=run.config.seen_in() == "hide")
        if run.has_evaluation(name):
            return replace(tuned, run=folder, evaluation=run.load_evaluation(name)[0])
    recommender = Recommender(recipe=str(tuned.recipe))
    recommender.fit(search.store, folder, resume=Run.exists(folder), callbacks=callbacks)
    assert recommender.trained is not None
    return replace(
        tuned, run=folder, evaluation=recommender.test_evaluation,
        interrupted=recommender.trained.interrupted,
    )  # fmt: skip
