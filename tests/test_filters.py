"""Filters leave of each list what they allow, in its order, from every interface alike."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linrec
from linrec.cli import main
from linrec.data.preparing.prepare import prepare
from linrec.serving import Engine, open_store
from linrec.types import InputError
from tests.serving.cases import make_run
from tests.serving.serving_process import client, within
from tests.training.cases import N_ITEMS, cycle_events

IDS = [f"i{n:02d}" for n in range(N_ITEMS)]
GENRES = [["Comedy"], ["Comedy", "Drama"], ["Drama"], []]
MAKERS = ["Acme", "Apex", None]
FEATURES = {
    item: {"genre": GENRES[n % 4], "maker": MAKERS[n % 3], "year": float(1990 + n % 5)}
    for n, item in enumerate(IDS)
}
HISTORY = ["i00", "i01", "i02"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filters")
    rows = [{"item": item, **features} for item, features in FEATURES.items()]
    kinds = {"genre": "multi", "maker": "categorical", "year": "numeric"}
    data = prepare(cycle_events(), folder / "data", items=pl.DataFrame(rows), feature_kinds=kinds)
    return make_run(folder / "run", data)


@pytest.fixture(scope="module")
def model(run: Path) -> linrec.Recommender:
    return linrec.load(run)


@pytest.fixture(scope="module")
def http(run: Path) -> Iterator[httpx.Client]:
    with within(Engine(run, open_store("memory"))) as url, client(url) as opened:
        yield opened


def fits(item: str, where: dict[str, list[Any]]) -> bool:
    """The meaning of `where`, item by item."""
    for name, values in where.items():
        own = FEATURES[item][name]
        if not set(own if isinstance(own, list) else [own]) & set(values):
            return False
    return True


def python(model: linrec.Recommender, **filters: Any) -> list[str]:
    return model.recommend([HISTORY], k=N_ITEMS, **filters).table["item"].to_list()


def over_http(http: httpx.Client, **filters: Any) -> list[str]:
    body = {"history": HISTORY, "k": N_ITEMS, **filters}
    answer = http.post("/v1/recommendations", json=body)
    assert answer.status_code == 200, answer.text
    return [item["item"] for item in answer.json()["items"]]


SOME = st.lists(st.sampled_from([*IDS, "nonsense"]), max_size=12)
WHERE = st.fixed_dictionaries(
    {},
    optional={
        "genre": st.lists(st.sampled_from(["Comedy", "Drama"]), min_size=1),
        "maker": st.lists(st.sampled_from(["Acme", "Apex"]), min_size=1),
        "year": st.lists(st.sampled_from([1990.0, 1992.0, 2024.0]), min_size=1),
    },
)


@settings(max_examples=40, deadline=None)
@given(only=st.none() | SOME, exclude=SOME, where=WHERE)
def test_what_is_left_is_what_they_allow(
    model: linrec.Recommender,
    http: httpx.Client,
    only: list[str] | None,
    exclude: list[str],
    where: dict[str, list[Any]],
) -> None:
    expected = [
        item
        for item in python(model)
        if (only is None or item in only) and item not in exclude and fits(item, where)
    ]
    assert python(model, only=only, exclude=exclude, where=where) == expected
    assert over_http(http, only=only, exclude=exclude, where=where) == expected


def test_a_feature_named_twice_must_hold_twice(model: linrec.Recommender) -> None:
    both = python(model, where=[("genre", "Comedy"), ("genre", "Drama")])
    assert sorted(both) == [item for item in IDS[3:] if FEATURES[item]["genre"] == GENRES[1]]
    assert python(model, where={"genre": "Comedy", "year": 1991}) == python(
        model, where=[("genre", ["Comedy"]), ("year", ["1991"])]
    )


def test_users_without_a_past_are_filtered_too(model: linrec.Recommender) -> None:
    found = model.recommend([[], HISTORY], k=N_ITEMS, where={"maker": ["Acme"]})
    assert set(found.table["item"]) <= {item for item in IDS if fits(item, {"maker": ["Acme"]})}
    assert set(found.table["source"]) == {"cold-start", "model"}


@pytest.mark.parametrize(
    ("filters", "notes"),
    [
        (
            {"where": {"genre": ["comedies"]}},
            ["no item has genre 'comedies'; did you mean 'Comedy'?", "no item passes the filters"],
        ),
        ({"where": {"year": [2024]}}, ["no item has year 2024", "no item passes the filters"]),
        (
            {"only": ["nonsense", "rubbish"]},
            ["2 of the 2 items of only are not known to the model", "no item passes the filters"],
        ),
        ({"only": HISTORY[:1]}, ["the only item that may be recommended had been seen"]),
        ({"only": HISTORY}, ["all 3 items that may be recommended had been seen"]),
    ],
)
def test_an_empty_list_says_why(
    model: linrec.Recommender, http: httpx.Client, filters: dict[str, Any], notes: list[str]
) -> None:
    found = model.recommend([HISTORY], **filters)
    assert len(found) == 0
    body = {"history": HISTORY, **filters}
    answer = http.post("/v1/recommendations", json=body).json()
    assert answer["items"] == []
    for note, shown, sent in zip(notes, found.notes, answer["notes"], strict=True):
        assert note in shown
        assert note in sent
    assert http.post("/v1/recommendations", json={"history": HISTORY}).json()["notes"] == []


def test_only_empty_lists_are_explained(model: linrec.Recommender) -> None:
    found = model.recommend([HISTORY, ["i05"], ["i05"]], only=["i05", "i05"])
    assert found.notes == (
        "2 of 3 lists are empty: the only item that may be recommended had been seen, and seen "
        "items are hidden",
    )
    assert model.recommend([["i05"]], only=["i05"], seen="keep").notes == ()


@pytest.mark.parametrize(
    ("filters", "sentence"),
    [
        ({"where": {"gender": ["x"]}}, "no item feature 'gender'; choose from genre, maker, year"),
        ({"where": {"events": [3]}}, "no item feature 'events'"),
        ({"where": {"year": ["old"]}}, "'year' holds numbers, and 'old' is not one"),
    ],
)
def test_mistakes(
    model: linrec.Recommender, http: httpx.Client, filters: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=f"where=: .*{sentence}"):
        model.recommend([HISTORY], **filters)
    answer = http.post("/v1/recommendations", json={"history": HISTORY, **filters})
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]


@pytest.mark.parametrize("where", ["genre", ["genre"], {"genre": None}, 3])
def test_where_of_another_shape(model: linrec.Recommender, http: httpx.Client, where: Any) -> None:
    with pytest.raises(InputError, match="where= takes features with their values"):
        model.recommend([HISTORY], where=where)
    assert http.post("/v1/recommendations", json={"history": [], "where": where}).status_code == 422


@pytest.mark.parametrize("wrong", [{"only": "i05"}, {"only": 5}, {"exclude": 5}, {"exclude": None}])
def test_lists_must_be_lists(model: linrec.Recommender, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}= takes a list of items"):
        model.recommend([HISTORY], **wrong)


def shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["linrec", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), capsys.readouterr().err


def test_the_command_line(
    run: Path,
    model: linrec.Recommender,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "r.jsonl"
    words = ["recommend", run, "--history", ",".join(HISTORY), "-k", N_ITEMS, "--out", out]
    flags = ["--where", "genre=Comedy,Drama", "--where", "maker=Acme", "--exclude", "i03, i06"]
    assert shell(monkeypatch, capsys, *words, *flags)[0] == 0
    found = [json.loads(line)["item"] for line in out.read_text().splitlines()]
    where = {"genre": ["Comedy", "Drama"], "maker": ["Acme"]}
    assert found == python(model, exclude=["i03", "i06"], where=where)
    assert found
    assert shell(monkeypatch, capsys, *words, "--only", "i05,i07")[0] == 0
    assert len(out.read_text().splitlines()) == 2
    flag = 'maker="Acme, Sons & Co", "Acme"'
    code, error = shell(monkeypatch, capsys, *words, "--where", flag)
    assert code == 0
    assert "no item has maker 'Acme, Sons & Co'" in error
    assert len(out.read_text().splitlines()) == len(python(model, where={"maker": ["Acme"]}))
    code, error = shell(monkeypatch, capsys, *words, "--where", "genre")
    assert (code, error) == (
        2, "linrec: --where genre is not FEATURE=VALUE, such as genre=Comedy\n"
    )  # fmt: skip
    code, error = shell(monkeypatch, capsys, *words, "--where", "maker=Acne")
    assert code == 0
    assert "no item has maker 'Acne'; did you mean 'Acme'?" in error
    assert "1 of 1 lists are empty: no item passes the filters" in error
