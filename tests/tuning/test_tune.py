"""A study: the same trials for the same seed, also after a stop; nothing is learned from test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import linrec as package
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.recommender import Recommender, load
from linrec.runs.run import Run
from linrec.tuning import driver, study, trial
from linrec.tuning.driver import TuningCallback
from linrec.tuning.results import Tuned
from linrec.tuning.trial import Outcome
from linrec.tuning.tune import tune
from linrec.types import InputError
from tests.training.cases import cycle_events, flags_of
from tests.tuning.cases import FIXED, SPACE, comparable, space_file

pytest.importorskip("optuna")


def search(data: Any, out: Path, **options: Any) -> Tuned:
    return tune(data, out, **{"space": SPACE, "trials": 4, "final": False, **FIXED, **options})


@pytest.fixture(scope="module")
def tuned(store: SequenceStore, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    return search(store, tmp_path_factory.mktemp("tuned") / "study", trials=8, final=True)


def test_the_best_of_all_trials_wins(tuned: Tuned) -> None:
    complete = tuned.trials.filter(end="complete")
    assert len(tuned.trials) == 8
    assert tuned.trials["trial"].to_list() == list(range(8))
    assert tuned.value == complete["ndcg@10"].max()
    assert tuned.trials["learning_rate"].n_unique() == 8
    assert set(tuned.trials["width"]) == {8, 16}
    # it learns the cycle better than the worst of the space
    assert tuned.value > 1.5 * tuned.trials["ndcg@10"].min()


def test_the_recipe_trains_the_winner(
    tuned: Tuned, store: SequenceStore, linrec: Any, tmp_path: Path, dataset: Path
) -> None:
    """In Python and by `train --recipe`; to the figure of the trial, bit by bit."""
    assert tuned.run is not None
    assert Run.open(tuned.run).progress.best == tuned.value
    again = Recommender(recipe=str(tuned.recipe)).fit(store)
    assert again.trained is not None
    assert again.trained.progress.best == tuned.value
    result = linrec("train", dataset, "--out", tmp_path / "run", "--recipe", tuned.recipe)
    assert result.code == 0, result
    assert Run.open(tmp_path / "run").progress.best == tuned.value


def test_the_winner_is_tested_once(
    tuned: Tuned, store: SequenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tuned.run is not None
    assert tuned.evaluation == load(tuned.run).evaluate(store)
    monkeypatch.setattr(Recommender, "evaluate_users", None)  # a second look would fail
    again = search(store, tuned.folder, trials=8, final=True)
    assert again.evaluation == tuned.evaluation
    assert again.trials.equals(tuned.trials)


def test_files_of_a_study(tuned: Tuned) -> None:
    for name in ("history.png", "importance.png"):
        assert (tuned.folder / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    table = pl.read_csv(tuned.folder / "trials.csv")
    assert table.columns == tuned.trials.columns
    assert table["ndcg@10"].to_list() == pytest.approx(tuned.trials["ndcg@10"].to_list())
    assert sum(tuned.importances.values()) == pytest.approx(1)
    assert tuned.importances.keys() <= SPACE.keys()


def test_the_same_seed_gives_the_same_trials(tuned: Tuned, store: SequenceStore, tmp_path: Path):
    again = search(store, tmp_path / "again", trials=8)
    assert comparable(again).equals(comparable(tuned))
    other = search(store, tmp_path / "other", seed=1, trials=2)
    assert not comparable(other).equals(comparable(tuned)[:2])


class Stop(TuningCallback):
    """Acts as Ctrl-C in some epoch of some trial."""

    def __init__(self, place: int, epoch: int) -> None:
        self.at = place, epoch

    def on_epoch_end(self, place: int, epoch: int, epochs: int, value: float) -> None:
        del epochs, value
        if (place, epoch) == self.at:
            raise KeyboardInterrupt


def test_a_stopped_study_continues_to_the_same_trials(
    tuned: Tuned, store: SequenceStore, tmp_path: Path
) -> None:
    for place, epoch in ((0, 1), (3, 2), (6, 1)):
        stopped = search(store, tmp_path / "study", trials=8, callbacks=[Stop(place, epoch)])
        assert stopped.interrupted
        assert len(stopped.trials) == place
    whole = search(store, tmp_path / "study", trials=8)
    assert not whole.interrupted
    assert comparable(whole).equals(comparable(tuned))


@pytest.mark.slow
def test_a_killed_study_continues_to_the_same_trials(
    tuned: Tuned, dataset: Path, store: SequenceStore, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    words = ["tune", dataset, "--out", out, "--space", space_file(tmp_path / "space.toml"),
             "--trials", 8, "--no-final", *flags_of(FIXED)]  # fmt: skip
    command = [sys.executable, "-m", "linrec", *map(str, words)]
    process = subprocess.Popen(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("trial   2"):
            break
    time.sleep(0.05)  # into the next trial
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    whole = search(store, out, trials=8)
    assert comparable(whole).equals(comparable(tuned))


def test_trials_see_nothing_of_the_test_split(tmp_path: Path) -> None:
    """Other last events: the same trials to the last bit, and another figure of the winner."""
    newest = pl.col("time") == pl.col("time").max().over("user")
    # at the end of the log: items are numbered as they come up
    events = cycle_events().with_columns(last=newest).sort("last", maintain_order=True)
    events, last = events.drop("last"), events["last"]
    items = events["item"].to_numpy().copy()
    rng, names = np.random.default_rng(1), np.unique(items)
    seen = events.group_by("user").agg("item").rows()
    taken = {user: set(had) for user, had in seen}
    for row in np.flatnonzero(last.to_numpy()):  # unseen, as they were
        free = [name for name in names if name not in taken[events["user"][int(row)]]]
        items[row] = rng.choice(free)
    changed = prepare(events.with_columns(item=pl.Series(items)))
    same = prepare(events)
    assert changed.item_table["item"].equals(same.item_table["item"])
    found, before = (
        search(data, tmp_path / name, trials=8, final=True)
        for data, name in ((changed, "changed"), (same, "same"))
    )
    assert comparable(found).equals(comparable(before))
    assert found.best == before.best
    assert found.evaluation is not None
    assert before.evaluation is not None
    assert found.evaluation["ndcg@10"] != before.evaluation["ndcg@10"]


def test_budgets(store: SequenceStore, tmp_path: Path) -> None:
    out = tmp_path / "study"
    assert len(search(store, out, trials=1).trials) == 1
    more = search(store, out, trials=None, total_epochs=4)
    assert len(more.trials) == 2  # 3 epochs, and a trial that began before the fourth
    assert len(search(store, out, trials=2).trials) == 2  # nothing is left to do
    assert len(search(store, out, trials=3).trials) == 3
    with pytest.raises(InputError, match=r"no trial of .* was completed \(none had the time\)"):
        search(store, tmp_path / "short", trials=None, hours=1e-9)


def test_hours_stop_a_trial_which_is_repeated(
    store: SequenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, left = tmp_path / "study", iter([3600.0, 3600.0, 1e-6, 1e-6, 1e-6])
    monkeypatch.setattr(driver.Driver, "seconds_left", property(lambda _: next(left, 0.0)))
    cut = search(store, out, trials=4, hours=1)
    assert len(cut.trials) == 1
    monkeypatch.undo()
    whole = search(store, out, trials=4, hours=1)
    assert comparable(whole).equals(comparable(search(store, tmp_path / "whole")))
    assert 0 < study.Study(out, json.loads((out / "study.json").read_text()), {}).seconds < 3600


def test_the_recipe_is_the_first_trial(store: SequenceStore, tmp_path: Path) -> None:
    space = {"learning_rate": {"low": 1e-4, "high": 0.1, "log": True}}
    found = search(store, tmp_path / "study", space=space, recipe="small", trials=1, width=16)
    assert found.trials["learning_rate"].to_list() == [0.004]
    outside = {"learning_rate": {"low": 0.01, "high": 0.1, "log": True}}
    found = search(store, tmp_path / "other", space=outside, recipe="small", trials=1, width=16)
    assert found.trials["learning_rate"][0] > 0.01


def test_bad_trials_are_pruned(
    store: SequenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that stays behind the median ends early; one that diverges or is impossible, too."""
    space = {"learning_rate": {"choices": [0.03, 1e-7]}}
    settings = {"space": space, "trials": 12, "epochs": 4, "width": 16, "dropout": 0.0}
    found = search(store, tmp_path / "pruned", **settings).trials
    behind = found.filter(pl.col("end") == "pruned")
    assert len(behind)
    assert set(behind["learning_rate"]) == {1e-7}
    assert behind["epochs"].max() < 4
    whole = search(store, tmp_path / "whole", pruning=False, **settings).trials
    assert set(whole["end"]) == {"complete"}

    space = {"learning_rate": {"choices": [0.01, 1e30]}}
    found = search(store, tmp_path / "diverged", **settings | {"space": space}).trials
    assert set(found.filter(learning_rate=1e30)["end"]) == {"diverged"}
    space = {"heads": {"low": 1, "high": 4}}
    found = search(store, tmp_path / "heads", heads=None, **settings | {"space": space}).trials
    assert set(found.filter(heads=3)["end"]) <= {"impossible"}
    assert "impossible" not in set(found.filter(pl.col("heads") != 3)["end"])

    def out_of_memory(*_: Any, **__: Any) -> None:
        raise trial.torch.OutOfMemoryError

    monkeypatch.setattr(Recommender, "fit", out_of_memory)
    with pytest.raises(InputError, match=r"was completed \(2 out of memory\)"):
        search(store, tmp_path / "memory", trials=2)


def test_another_study_is_refused_with_the_difference(tuned: Tuned, store: SequenceStore) -> None:
    before = (tuned.folder / "study.json").read_bytes()
    for changes, words in (
        ({"inner": 8}, "inner was 16 and now is 8"),
        ({"seed": 3}, "seed was 0 and now is 3"),
        ({"pruning": False}, "pruning was True and now is False"),
        ({"space": SPACE | {"width": {"choices": [8]}}},
         r"the space of width was choices \[8, 16\] and now is choices \[8\]"),
        ({"space": {"width": SPACE["width"]}, "dropout": 0.1, "learning_rate": 0.1},
         "dropout was left out and now is 0.1"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            search(store, tuned.folder, **changes)
    with pytest.raises(InputError, match="was begun on another dataset"):
        search(prepare(cycle_events(seed=5)), tuned.folder)
    assert (tuned.folder / "study.json").read_bytes() == before


def test_one_process_at_a_time(tuned: Tuned, store: SequenceStore) -> None:
    content = json.loads((tuned.folder / "study.json").read_text())
    from linrec.tuning.space import parse_space

    held = study.Study.open(tuned.folder, content, parse_space(SPACE, ""))
    try:
        with pytest.raises(InputError, match="another process is tuning in"):
            search(store, tuned.folder, trials=8)
    finally:
        held.close()


def test_a_study_of_another_format(store: SequenceStore, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match="has format 99, and this version of linrec reads 1"):
        search(store, tmp_path)
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(InputError, match=r"cannot read .*study\.json"):
        search(store, tmp_path)


def test_an_error_of_a_trial_leaves_the_study_in_order(
    store: SequenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise InputError("the device is gone")

    monkeypatch.setattr(Recommender, "fit", broken)
    with pytest.raises(InputError, match="the device is gone"):
        search(store, tmp_path / "study")
    monkeypatch.undo()
    whole = search(store, tmp_path / "study")
    assert comparable(whole).equals(comparable(search(store, tmp_path / "whole")))


def test_callbacks_hear_of_everything(store: SequenceStore, tmp_path: Path) -> None:
    heard: list[Any] = []

    class Listener(TuningCallback):
        def on_trial_start(self, place: int, values: dict[str, Any]) -> None:
            heard.append((place, sorted(values)))

        def on_epoch_end(self, place: int, epoch: int, epochs: int, value: float) -> None:
            heard.append((place, epoch, epochs, value))

        def on_trial_end(self, place: int, outcome: Outcome, study: Any) -> None:
            assert study.best.value >= (outcome.value or 0)
            heard.append((place, outcome.end))

    found = search(store, tmp_path / "study", trials=1, callbacks=[Listener()])
    assert heard[0] == (0, sorted(SPACE))
    assert [event[:3] for event in heard[1:-1]] == [(0, 1, 3), (0, 2, 3), (0, 3, 3)]
    assert max(event[3] for event in heard[1:-1]) == found.value
    assert heard[-1] == (0, "complete")


def test_optuna_may_be_missing(
    store: SequenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"needs optuna.*pip install 'linrec\[tune\]'"):
        search(store, tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_nothing_is_imported_unless_asked_for() -> None:
    code = (
        "import sys, linrec, linrec.cli, linrec.recommender, linrec.tuning.tune;"
        "sys.exit(any(name in sys.modules for name in ('optuna', 'ray', 'sqlalchemy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_package_has_it() -> None:
    assert package.tune is tune
