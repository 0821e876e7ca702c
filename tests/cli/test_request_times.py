"""A recommender that reads times: trained, evaluated and queried at a time."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import polars as pl
import pytest
import torch

from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.evaluation import evaluation_table
from linrec.recommender import Recommender, load
from linrec.runs.recipes import recipe
from linrec.runs.run import EVALUATIONS
from linrec.types import InputError
from tests.cli.conftest import Command
from tests.training.cases import SMALL, cycle, cycle_events

TIMED = SMALL | {"time_gaps": True, "epochs": 2}
START = 1_600_000_000


def clock() -> SequenceStore:
    seconds = START + 60 * pl.col("time") ** 2 + pl.col("user")
    return prepare(cycle_events().with_columns(time=seconds))


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Recommender:
    folder = tmp_path_factory.mktemp("timed")
    store = clock().write(folder / "data")
    return Recommender(**TIMED).fit(store, folder / "run")


def folder_of(timed: Recommender) -> Path:
    return timed.store.path.with_name("run")


def scores(found: Recommender, who, **options) -> list[float]:
    return found.recommend(who, k=16, **options).table["score"].to_list()


def test_the_recipe_reads_times() -> None:
    assert recipe("default").model.time_gaps
    assert not recipe("paper-ml-1m").model.time_gaps


def test_an_order_is_refused_where_times_were_requested() -> None:
    with pytest.raises(InputError, match=r"are only an order .*, so time_gaps= has nothing") as no:
        Recommender(**TIMED).fit(cycle())
    assert "\n" not in str(no.value)


def test_an_order_is_left_out_where_only_the_recipe_reads_times() -> None:
    small = {name: value for name, value in TIMED.items() if name != "time_gaps"}
    with pytest.warns(UserWarning, match="are only an order .* reads no times"):
        found = Recommender(recipe="default", **small).fit(cycle())
    assert not found.config.model.time_gaps
    assert found.evaluate().request_time is None


def test_the_request_time_is_known_or_not(timed: Recommender) -> None:
    known = timed.evaluate(baselines=False)
    unknown = timed.evaluate(baselines=False, request_time="unknown")
    assert (known.request_time, unknown.request_time) == ("known", "unknown")
    assert known.metrics != unknown.metrics
    assert "request time unknown" in evaluation_table(unknown).title
    with pytest.raises(InputError, match="unknown request_time 'soon'; choose known or unknown"):
        timed.evaluate(request_time="soon")


def test_a_model_without_times_is_told_no_request_time() -> None:
    plain = Recommender(**SMALL | {"epochs": 1}).fit(clock())
    first, second = (plain.evaluate(request_time=time) for time in ("known", "unknown"))
    assert first == second
    assert "request time" not in evaluation_table(first).title


def test_every_user_is_in_one_of_the_gaps(timed: Recommender) -> None:
    found = timed.evaluate(baselines=False)
    assert sum(part.n_users for part in found.by_gap.values()) == found.n_users
    assert json.loads(found.to_json())["by_gap"].keys() == found.by_gap.keys()
    assert type(found).from_json(found.to_json()) == found


def test_each_request_time_has_its_own_file(timed: Recommender, linrec: Command) -> None:
    run = folder_of(timed)
    result = linrec("evaluate", str(run), "--request-time", "unknown")
    assert "request time unknown" in " ".join(result.out.split())
    assert "up to an hour" in result.out
    assert (run / EVALUATIONS / "test-full.json").is_file()
    assert (run / EVALUATIONS / "test-full-unknown-time.json").is_file()
    assert "up to an hour" in (run / "report.html").read_text()


def test_the_time_of_the_request_matters(timed: Recommender) -> None:
    user = [timed.store.users.ids[0]]
    newest = float(timed.store.times.max())
    assert scores(timed, user) == scores(timed, user, at=newest)
    day = datetime.fromtimestamp(newest, tz=timezone.utc).isoformat()
    assert scores(timed, user, at=day) == scores(timed, user, at=newest)
    unknown = scores(timed, user, at="unknown")
    assert unknown != scores(timed, user, at=newest)
    assert unknown == scores(timed, user, at=START - 5_000)  # before the last event
    with pytest.raises(InputError, match="at='soon' is not a time"):
        timed.recommend(user, at="soon")


def test_pairs_and_frames_carry_times(timed: Recommender) -> None:
    pairs = [("i02", START), ("i03", START + 60), ("i04", START + 120)]
    items = [item for item, _ in pairs]
    frame = pl.DataFrame({"user": [1] * 3, "item": items, "time": [time for _, time in pairs]})
    at = START + 500
    assert scores(timed, [pairs], at=at) == scores(timed, frame, at=at)
    assert scores(timed, [pairs], at=at) != scores(timed, [items], at=at)
    assert scores(timed, [pairs]) == scores(timed, [pairs], at=START + 120)
    assert scores(timed, [[(item, None) for item in items]]) == scores(timed, [items])
    with pytest.raises(
        InputError, match=r"as items, as .item, time. pairs or as .* triples, all alike"
    ):
        timed.recommend([[("i02", 5), "i03"]])


def test_unknown_items_take_their_times_along(timed: Recommender) -> None:
    known = [("i02", START), ("i04", START + 120)]
    with_unknown = [known[0], ("nothing", START + 60), known[1]]
    assert scores(timed, [with_unknown], at=START + 500) == scores(timed, [known], at=START + 500)


def test_streaming_gives_what_recommend_gives(timed: Recommender) -> None:
    model, sequences = timed.model, timed.store.sequences()
    items, times = torch.from_numpy(sequences.padded()), torch.from_numpy(sequences.padded_times())
    state = model.advance(items, model.start(len(items)), times)
    at = float(timed.store.times.max())
    hidden = model.request(state, at)
    user = 7
    best = (hidden[user] @ model.item_vectors()[1:].T).sort(descending=True).values[:16]
    shown = scores(timed, [timed.store.users.ids[user]], seen="keep")
    torch.testing.assert_close(best, torch.tensor(shown), rtol=1e-4, atol=1e-5)


def test_a_saved_run_reads_times(timed: Recommender) -> None:
    again = load(folder_of(timed))
    user = [timed.store.users.ids[3]]
    assert scores(again, user) == scores(timed, user)


def test_without_times_the_time_of_a_request_is_noted() -> None:
    plain = Recommender(**SMALL | {"epochs": 1}).fit(cycle())
    notes = plain.recommend([["i02"]], at=5).notes
    assert "the model reads no times, so the time of the request changes nothing" in notes


def test_the_command_takes_a_time(timed: Recommender, linrec: Command) -> None:
    user = str(timed.store.users.ids[0])
    ask = ("recommend", str(folder_of(timed)), "--user", user)
    newest = str(float(timed.store.times.max()))
    assert linrec(*ask).out == linrec(*ask, "--at", newest).out
    assert linrec(*ask).out != linrec(*ask, "--at", "unknown").out
    assert linrec(*ask, "--at", "soon").code == 2
