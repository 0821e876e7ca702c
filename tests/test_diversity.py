"""Lists re-ranked for diversity: the same from every interface, and each says so."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import linrec
from linrec.data.preparing.prepare import prepare
from linrec.serving import Engine, EngineSettings, open_store
from linrec.types import InputError
from tests.serving.cases import make_run
from tests.serving.serving_process import client, within
from tests.training.cases import N_ITEMS, cycle, cycle_events

HISTORY = ["i00", "i01", "i02"]
NOTE = "re-ranked for diversity 0.8 by genre; scores are those of the model"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diversity")
    genres = [["Comedy"], ["Comedy", "Drama"], ["Drama"], ["Horror"]]
    rows = [{"item": f"i{n:02d}", "genre": genres[n // 4]} for n in range(N_ITEMS)]
    kinds = {"genre": "multi"}
    data = prepare(cycle_events(), folder / "data", items=pl.DataFrame(rows), feature_kinds=kinds)
    return make_run(folder / "run", data)


@pytest.fixture(scope="module")
def featureless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("featureless")
    return make_run(folder / "run", cycle(folder / "data"))


def test_a_list_is_reranked_and_says_so(run: Path) -> None:
    model = linrec.load(run)
    plain, diverse = (model.recommend([HISTORY], k=5, diversity=each) for each in (0.0, 0.8))
    before, after = (each.to_polars()["item"].to_list() for each in (plain, diverse))
    assert before != after
    assert before[0] == after[0]
    assert plain.notes == ()
    assert diverse.notes == (NOTE,)
    whole = model.recommend([HISTORY], k=N_ITEMS).to_polars()
    own = dict(zip(whole["item"], whole["score"], strict=True))
    assert diverse.to_polars()["score"].to_list() == [own[item] for item in after]


def test_served_as_recommended(run: Path) -> None:
    """By a request, or by the setting of the server, which a request can switch off."""
    model = linrec.load(run)
    lists = {
        each: model.recommend([HISTORY], k=5, diversity=each).to_polars()["item"].to_list()
        for each in (0.0, 0.8)
    }
    for default in (0.0, 0.8):
        engine = Engine(run, open_store("memory"), EngineSettings(diversity=default))
        with within(engine) as url, client(url) as http:
            for requested in (None, 0, 0.8):
                body = {"history": HISTORY, "k": 5}
                if requested is not None:
                    body["diversity"] = requested
                response = http.post("/v1/recommendations", json=body).json()
                expected = default if requested is None else requested
                assert [each["item"] for each in response["items"]] == lists[expected]
                assert response["notes"] == ([NOTE] if expected else [])
            for given in (2, "0.5", True):
                wrong = http.post("/v1/recommendations", json={**body, "diversity": given})
                assert wrong.status_code == 422
                assert "diversity" in wrong.json()["error"]


def test_filters_hold_in_a_reranked_list(run: Path) -> None:
    engine = Engine(run, open_store("memory"))
    found = engine.recommend(history=HISTORY, k=4, where={"genre": ["Drama"]}, diversity=0.8)
    assert {item.item for item in found.items} <= {f"i{n:02d}" for n in range(4, 12)}
    assert len(found.items) == 4
    assert engine.recommend(history=HISTORY, only=[], diversity=0.8).items == ()
    engine.close()


def test_without_features_one_sentence(featureless: Path) -> None:
    with pytest.raises(InputError, match=r"diversity=0\.3 needs items that can be compared"):
        linrec.load(featureless).recommend([HISTORY], diversity=0.3)
    with pytest.raises(InputError, match=r"diversity=0\.3 needs"):
        Engine(featureless, open_store("memory"), EngineSettings(diversity=0.3))
    engine = Engine(featureless, open_store("memory"))
    with pytest.raises(InputError, match=r"diversity=0\.3 needs"):
        engine.recommend(history=HISTORY, diversity=0.3)
    engine.close()
