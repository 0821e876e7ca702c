"""Which baselines an evaluation shows, and with which settings."""

from __future__ import annotations

import numpy as np
import pytest

from linrec.baselines import BASELINES
from linrec.baselines.config import LIMITS, PersonalDecayConfig, PersonalLastItemConfig
from linrec.data.dataset.splits import leave_one_out
from linrec.evaluation import EvaluationOptions, chosen_baselines, evaluate, fit_baseline
from linrec.evaluation.baselines import some_of, validation_ndcg
from linrec.types import InputError

QUICK = ["popularity", "last-item", "personal", "personal-decay", "personal-last-item"]


def test_names_are_chosen_in_the_order_of_the_catalogue() -> None:
    assert chosen_baselines(True, hidden=False) == QUICK
    assert chosen_baselines("quick", hidden=True) == QUICK[:2], "the others would only repeat them"
    assert chosen_baselines("all", hidden=False) == list(BASELINES)
    assert chosen_baselines("all", hidden=True) == [*QUICK[:2], "item-knn", "ease"]
    assert chosen_baselines(False, hidden=False) == chosen_baselines("none", hidden=False) == []
    assert chosen_baselines("ease, personal", hidden=True) == ["personal", "ease"]
    assert chosen_baselines(["last-item"], hidden=True) == ["last-item"]


@pytest.mark.parametrize("wrong", ["", "personl", ["all"], "all,ease", 5, None])
def test_unknown_names_are_refused_with_the_known_ones(wrong) -> None:
    with pytest.raises(InputError, match=r"unknown baseline .* baselines= .*personal-decay"):
        EvaluationOptions(baselines=wrong)


def habits(make_store, old: int, new: int, users: int = 30):
    """Each user comes back to one item `old` times, to another `new` times, then to that one."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(users):
        a, b = rng.choice(np.arange(1, 41), 2, replace=False).tolist()
        rows.append([a] * old + [b] * new)
    return make_store(rows, 40)


def test_the_decay_is_the_one_with_the_best_validation_figure(make_store) -> None:
    store = habits(make_store, old=8, new=5)
    split = leave_one_out(store.sequences())
    chosen = fit_baseline(PersonalDecayConfig(), store, split)
    kind = BASELINES["personal-decay"]
    figures = {
        decay: validation_ndcg(
            kind.fit(split.train, store.n_items, PersonalDecayConfig(decay=decay)), store, split
        )
        for decay in PersonalDecayConfig.grids["decay"]
    }
    best = max(figures.values())
    assert best == 1.0 > min(figures.values()), "short memories follow the new habit"
    assert figures[chosen.config.decay] == best


def test_settings_are_chosen_on_validation_never_on_test(make_store) -> None:
    """The validation events need a short memory; the test events would need a long one."""
    rows = [[a] * 8 + [b] * 4 + [a] for a, b in zip(range(1, 21), range(21, 41), strict=True)]
    store = make_store(rows, 40)
    split = leave_one_out(store.sequences())
    chosen = fit_baseline(PersonalDecayConfig(), store, split)
    assert validation_ndcg(chosen, store, split) == 1.0
    # the test target is the old habit, which the chosen memory has left behind
    scores = chosen(split.test.histories)
    assert (scores.argmax(1).numpy() != split.test.targets).all()


def test_settings_that_are_given_are_kept(make_store) -> None:
    store = habits(make_store, old=8, new=5)
    split = leave_one_out(store.sequences())
    given = PersonalLastItemConfig(decay=0.99)
    chosen = fit_baseline(given, store, split).config
    assert chosen.decay == 0.99
    assert chosen.transition_share in PersonalLastItemConfig.grids["transition_share"]
    assert fit_baseline(chosen, store, split).config == chosen


def test_the_evaluation_says_what_was_chosen_and_what_was_left_out(make_store, monkeypatch) -> None:
    monkeypatch.setitem(LIMITS, "ease", 39)
    store = habits(make_store, old=8, new=5)
    split = leave_one_out(store.sequences())
    scorer = BASELINES["popularity"].fit(split.train, store.n_items)
    options = EvaluationOptions(seen="keep", baselines="all", own="popularity")
    evaluation, _ = evaluate(scorer, store, split, options)
    assert list(evaluation.baselines) == [*QUICK[1:], "item-knn"]
    assert evaluation.baseline_settings.keys() == {
        "personal-decay", "personal-last-item", "item-knn",
    }  # fmt: skip
    assert evaluation.baseline_settings["personal-decay"].keys() == {"decay"}
    assert any(note.startswith("ease is left out: 40 items are more") for note in evaluation.notes)


def test_a_run_of_personal_says_that_hidden_items_leave_only_popularity(make_store) -> None:
    store = habits(make_store, old=8, new=5)
    split = leave_one_out(store.sequences())
    scorer = BASELINES["personal"].fit(split.train, store.n_items)
    notes = evaluate(scorer, store, split, EvaluationOptions(own="personal"))[0].notes
    assert any("what is left is popularity" in note for note in notes)
    options = EvaluationOptions(own="personal", seen="keep")
    assert not any(
        "what is left" in note for note in evaluate(scorer, store, split, options)[0].notes
    )


def test_some_rows_are_evenly_spread(random_store) -> None:
    holdout = leave_one_out(random_store(1).sequences()).valid
    few = some_of(holdout, 5)
    assert len(few) == len(few.histories) == len(few.targets) == 5
    assert few.users[0] == holdout.users[0]
    assert few.users[-1] == holdout.users[-1]
    assert some_of(holdout, 1_000) is holdout
