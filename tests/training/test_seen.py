"""What a run does with seen items: decided once, stored, and obeyed by everything."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.recommender import Recommender, load
from linrec.runs.recipes import recipes
from linrec.training.callbacks import Callback
from linrec.types import InputError
from tests.training.cases import SMALL, cycle

QUICK = SMALL | {"epochs": 2, "repeat_head": "off"}  # no trial: tests/training/test_repeats.py


@cache
def habits(users: int = 40) -> SequenceStore:
    """Everybody has three items, round and round: what comes next was always seen before."""
    rows = [
        (user, f"i{(user + step % 3) % 12:02d}", step)
        for user in range(users)
        for step in range(8 + user % 3)
    ]
    return prepare(pl.DataFrame(rows, schema=["user", "item", "time"], orient="row"))


class Messages(Callback):
    def __init__(self) -> None:
        self.said: list[str] = []

    def on_message(self, message: str) -> None:
        self.said.append(message)


def fit(store: SequenceStore, out: Path | None = None, **settings: Any) -> tuple[Any, list[str]]:
    messages = Messages()
    made = Recommender(**QUICK | settings).fit(store, out, callbacks=[messages])
    return made, messages.said


def test_the_data_decides_and_the_run_says_so(tmp_path: Path) -> None:
    made, said = fit(habits(), tmp_path / "run")
    reason = "100.0% of last events are items the user had before, more than 5%"
    assert said == [f"in the given data, {reason}: seen items are kept"]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["training"]["seen"] == "keep"
    assert load(tmp_path / "run").config.training == made.config.training
    made, said = fit(cycle())
    assert made.config.training.seen == "hide"
    assert said == []


@pytest.mark.parametrize("seen", ["hide", "keep"])
def test_what_is_given_is_not_decided(seen: str) -> None:
    for store in (habits(), cycle()):
        made, said = fit(store, seen=seen)
        assert made.config.training.seen == seen
        assert said == []


def test_everything_obeys_the_run(tmp_path: Path) -> None:
    """Validation, the test, figures and lists; a call may say otherwise."""
    kept, _ = fit(habits(), tmp_path / "kept", epochs=6)
    hidden, _ = fit(habits(), tmp_path / "hidden", epochs=6, seen="hide")
    for made, hides in ((kept, False), (hidden, True)):
        best = max(row["ndcg@10"] for row in made.trained.progress.history)
        assert best == pytest.approx(made.evaluate(split="valid", baselines=False)["ndcg@10"])
        assert made.test_evaluation.hide_seen == hides
        assert made.evaluate(baselines=False).hide_seen == hides
        assert made.evaluate(baselines=False, seen="hide").hide_seen
        assert not made.evaluate(baselines=False, seen="keep").hide_seen
        assert not set(listed(made, seen="hide")) & {"i00", "i01"}
        assert {"i00", "i01"} <= set(listed(made, seen="keep"))
        assert listed(made) == listed(made, seen="hide" if hides else "keep")
    assert kept.test_evaluation["ndcg@10"] > 0.5
    assert hidden.test_evaluation["ndcg@10"] == 0  # every target was hidden
    assert (tmp_path / "kept" / "evaluation" / "test-full-seen.json").is_file()
    assert "seen items kept" in (tmp_path / "kept" / "report.html").read_text()


def listed(made: Recommender, **options: Any) -> list[str]:
    return made.recommend([["i00", "i01"]], k=12, **options).table["item"].to_list()


@pytest.mark.parametrize("wrong", ["auto", "", True])
def test_a_call_says_hide_or_keep(wrong: Any) -> None:
    made, _ = fit(habits(), epochs=1)
    for call in (made.evaluate, lambda **given: made.recommend([["i00"]], **given)):
        with pytest.raises(InputError, match=f"seen={wrong} must be hide or keep"):
            call(seen=wrong)


def test_a_wrong_setting_is_one_sentence() -> None:
    with pytest.raises(InputError, match=r"seen.*'hide', 'keep' or 'auto'"):
        Recommender(seen="show")


@pytest.mark.parametrize("stored", ["keep", None])
def test_a_resumed_run_keeps_its_decision(stored: str | None, tmp_path: Path) -> None:
    """A run of before there was the setting hid seen items, whatever its data would decide."""
    fit(habits(), tmp_path / "run", epochs=1, seen="keep" if stored else "hide")
    if stored is None:
        config = tmp_path / "run" / "config.json"
        content = json.loads(config.read_text())
        del content["training"]["seen"]
        config.write_text(json.dumps(content))
        (tmp_path / "run" / "manifest.json").unlink()
    more = Recommender(**QUICK).fit(habits(), tmp_path / "run", resume=True)
    assert more.config.training.seen == load(tmp_path / "run").config.seen_in()
    assert more.config.training.seen == (stored or "hide")
    other = "hide" if stored else "keep"
    with pytest.raises(InputError, match=f"seen was {stored or 'hide'} and now is {other}"):
        Recommender(**QUICK, seen=other).fit(habits(), tmp_path / "run", resume=True)


def test_a_loss_without_seen_items_goes_with_lists_that_hide_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "aware.toml"
    recipe.write_text("[training]\nseen_aware = true\n")
    monkeypatch.delitem(QUICK, "seen_aware")  # given by name it would be no recipe's
    made, said = fit(habits(), recipe=str(recipe))
    assert made.config.training.seen == "keep"
    assert not made.config.loss.seen_aware
    assert said[1:] == ["seen items are kept, so the loss does not leave them out (seen_aware)"]
    made, said = fit(cycle(), recipe=str(recipe))
    assert made.config.loss.seen_aware
    assert said == []
    made, said = fit(habits(), seen_aware=True)  # who names it wants lists that hide
    assert made.config.training.seen == "hide"
    assert made.config.loss.seen_aware
    assert "hidden because seen_aware leaves them out of the loss" in said[0]
    with pytest.raises(InputError, match=r"seen=keep ranks .*; leave one of the two out"):
        fit(habits(), seen="keep", seen_aware=True)


def test_recipes_of_a_dataset_hide_as_their_figures_were_measured() -> None:
    chosen = {name: recipe.training.seen for name, recipe in recipes().items()}
    of_data = ("paper-ml-1m", "paper-gowalla", "ml-1m", "ml-1m-last-200")
    assert {chosen.pop(name) for name in of_data} == {"hide"}
    assert set(chosen.values()) == {"auto"}
