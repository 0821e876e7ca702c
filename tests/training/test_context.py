"""Trainings with context: settings, runs, warm starts, targets and weights, end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from linrec.backbones import BACKBONES
from linrec.data.dataset.item_features import UNKNOWN
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.export.folder import export_onnx
from linrec.recommender import Recommender, load
from linrec.runs import history
from linrec.types import InputError

SMALL: dict[str, Any] = {
    "width": 16, "heads": 2, "layers": 1, "inner": 16, "epochs": 2, "seen": "keep",
    "repeat_head": "off", "precision": "float32", "dropout": 0.0, "batch_tokens": 256,
    "time_gaps": False, "warmup": 0, "schedule": "constant",
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A curve takes longer to draw than such a model to train."""
    monkeypatch.setattr(history, "learning_curve", lambda _: b"")


def log(
    users: int = 30, types: tuple[str, ...] = ("next", "back"), length: int = 12
) -> pl.DataFrame:
    """Each event's type says which item follows: the next or the one before."""
    rng, rows = np.random.default_rng(0), []
    for user in range(users):
        item = int(rng.integers(10))
        for place in range(length):
            kind = types[int(rng.integers(len(types)))]
            rows.append((user, f"i{item}", float(place), kind, float(place % 2)))
            item = (item + (1 if kind == "next" else -1)) % 10
    names = ["user", "item", "time", "type", "price"]
    return pl.DataFrame(rows, schema=names, orient="row")


def data(**changes: Any) -> SequenceStore:
    return prepare(log(**changes), context="type,price=numeric")


def test_context_tells_what_items_alone_cannot() -> None:
    settings = SMALL | {"epochs": 25, "learning_rate": 0.01, "patience": 25}
    scores = {
        context: Recommender(**settings, context=context).fit(data(users=80)).evaluate()["ndcg@5"]
        for context in (None, "type")
    }
    assert scores["type"] > 0.9
    assert scores[None] < 0.85


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_a_run_means_the_same_without_its_data(backbone: str, tmp_path: Path) -> None:
    settings = SMALL | {"epochs": 1, "backbone": backbone, "context": "type,price"}
    made = Recommender(**settings).fit(data(), tmp_path / "run")
    opened = load(tmp_path / "run")
    assert [field.name for field in opened.description.context] == ["type", "price"]
    given = [[("i1", 1.0, {"type": "next"}), ("i2", 2.0, {"type": "back", "price": 1})]]
    tables = [each.recommend(given, k=5).to_polars() for each in (made, opened)]
    assert tables[0].equals(tables[1])
    other = opened.recommend([[("i1", 1.0, {"type": "next"}), ("i2", 2.0, None)]], k=5)
    assert not other.to_polars().equals(tables[1])
    frame = pl.DataFrame(
        {
            "user": [7, 7], "item": ["i1", "i2"], "time": [1.0, 2.0], "type": ["next", "back"],
            "price": [None, 1.0],
        }
    )  # fmt: skip
    assert opened.recommend(frame, k=5).to_polars()["score"].equals(tables[1]["score"])
    assert opened.evaluate(data()).n_users == 30


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (("i1", 1.0, "view"), "is a dict such as"),
        (("i1", 1.0, {"type": ["next"]}), r"the context 'type' .* one text or number, not .'next'"),
        (("i1", 1.0, {"type": {"of": 1}}), "the context 'type'"),
        ({"item": "i1", "context": {"type": "next"}}, "as items, as .item, time. pairs"),
        (("i1", 1.0, {}, 2), "as items, as .item, time. pairs"),
    ],
)
def test_histories_of_no_known_form_are_refused(event: object, message: str) -> None:
    made = Recommender(**SMALL | {"epochs": 1}, context="type").fit(data())
    with pytest.raises(InputError, match=message):
        made.recommend([[event]])


def test_resuming_and_other_vocabularies(tmp_path: Path) -> None:
    run = Recommender(**SMALL, context="type").fit(data(), tmp_path / "run")
    more = Recommender(**SMALL | {"epochs": 3}, context="type")
    assert len(more.fit(data(), tmp_path / "run", resume=True).trained.progress.history) == 3
    with pytest.raises(InputError, match="context was type and now is price"):
        Recommender(**SMALL, context="price").fit(data(), tmp_path / "run", resume=True)
    assert run.config.model.context == ("type",)


def test_a_warm_start_keeps_the_vocabulary_and_adds_to_it(tmp_path: Path) -> None:
    first = Recommender(**SMALL, context="type,price").fit(data(), tmp_path / "run")
    newer = data(types=("next", "leap"))
    second = Recommender(start=tmp_path / "run", epochs=1, learning_rate=1e-9).fit(newer)
    assert second.description.context[0].values == ("back", "next", "leap")
    assert second.description.context[1] == first.description.context[1]
    assert second.description.start["changes"]["values of type"] == {"old": 2, "new": 1, "gone": 0}
    old, new = (
        each.model.state_dict()["stack.context.fields.0.value.weight"] for each in (first, second)
    )
    torch.testing.assert_close(new[:5], old, atol=1e-5, rtol=0)
    torch.testing.assert_close(new[5], old[UNKNOWN], atol=1e-5, rtol=0)
    with pytest.raises(InputError, match="a warm start keeps"):
        Recommender(start=tmp_path / "run", context="price")
    other = prepare(log(), context="type,price=categorical")
    with pytest.raises(InputError, match="was numeric in the run and is categorical now"):
        Recommender(start=tmp_path / "run").fit(other)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": "colour"}, "no context column 'colour'; choose from type, price"),
        ({"weight": "type"}, "holds categories"),
        ({"weight": "colour"}, "no context column"),
        ({"targets_where": "type=leap"}, "choose from back, next"),
        ({"weight": "price", "targets": "basket"}, "no use for weight"),
    ],
)
def test_what_the_data_cannot_give_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recommender(**SMALL | settings).fit(data())


def test_a_column_that_says_nothing_is_refused() -> None:
    plain = prepare(log().with_columns(type=pl.lit("x") + pl.int_range(pl.len()).cast(pl.String)),
                    context="type=categorical")  # fmt: skip
    with pytest.raises(InputError, match="tells no training event from another"):
        Recommender(**SMALL, context="type").fit(plain)


def test_targets_and_weights_reach_the_figures(tmp_path: Path) -> None:
    made = Recommender(**SMALL, targets_where="type=next", weight="price", final=True)
    made.fit(data(), tmp_path / "run")
    assert made.test_evaluation.splitting == "leave-one-out of type=next"
    plain = Recommender(**SMALL).fit(data(), tmp_path / "plain")
    narrowed = plain.evaluate(targets_where="type=next")
    assert narrowed.targets_where == "type=next"
    assert 0 < narrowed.n_users < plain.evaluate().n_users == 30
    assert any("type=next" in note for note in narrowed.notes)


def test_a_weight_of_nothing_teaches_nothing() -> None:
    """Only odd places have a weight, so only they move the item that is asked for there."""
    settings = SMALL | {"epochs": 1, "weight": "price"}
    nothing = prepare(log().with_columns(price=0.0), context="price=numeric")
    with_weights = Recommender(**settings).fit(data())
    without = Recommender(**settings).fit(nothing)
    assert with_weights.trained.progress.history[0]["loss"] > 0.5
    assert without.trained.progress.history[0]["loss"] == 0


def test_an_export_says_that_it_cannot(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    Recommender(**SMALL | {"epochs": 1}, context="type").fit(data(), tmp_path / "run")
    with pytest.raises(InputError, match=r"reads the context of events \(type\)"):
        export_onnx(tmp_path / "run", tmp_path / "onnx")
