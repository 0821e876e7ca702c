"""Whether the model beats the best baseline: the test, the sentence, the colour."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from linrec.baselines import BASELINES
from linrec.data.dataset.splits import leave_one_out
from linrec.evaluation import Evaluation, EvaluationOptions, evaluate, evaluation_table
from linrec.evaluation.metrics import ndcg
from linrec.evaluation.verdict import against_best

RNG = np.random.default_rng(5)
POOR, FAIR, GOOD = (RNG.integers(0, top, 300) for top in (400, 60, 8))


def test_the_best_baseline_is_tested_user_by_user() -> None:
    against = against_best(GOOD, {"popularity": POOR, "personal": FAIR}, (5, 10), seed=0)
    assert against is not None
    assert (against.baseline, against.metric) == ("personal", "ndcg@10")
    ours, theirs = ndcg(GOOD, 10), ndcg(FAIR, 10)
    assert against.difference.mean == pytest.approx((ours - theirs).mean())
    assert against.p == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    assert against.beaten
    assert "beats the best baseline, personal (NDCG@10" in against.sentence
    assert "p < 1e-4" in against.sentence


def test_without_ten_in_the_cuts_the_longest_list_decides() -> None:
    against = against_best(GOOD, {"personal": FAIR}, (3, 20), seed=0)
    assert against is not None
    assert against.metric == "ndcg@20"


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (FAIR, "does not beat the best baseline: personal"),
        (POOR, "does not beat the best baseline: personal"),
    ],
)
def test_level_and_worse_models_do_not_beat_it(model, sentence) -> None:
    against = against_best(model, {"personal": FAIR}, (10,), seed=0)
    assert against is not None
    assert not against.beaten
    assert sentence in against.sentence


def test_a_lead_that_may_be_chance_does_not_beat_it() -> None:
    model = FAIR.copy()
    first = np.flatnonzero(FAIR > 20)[0]
    model[first] = 0  # one user of 300
    against = against_best(model, {"personal": FAIR}, (10,), seed=0)
    assert against is not None
    assert against.difference.mean > 0
    assert not against.beaten
    assert "does not beat the best baseline significantly: personal" in against.sentence


def test_nothing_is_said_without_a_baseline_or_with_one_user() -> None:
    assert against_best(GOOD, {}, (10,), seed=0) is None
    assert against_best(GOOD[:1], {"personal": FAIR[:1]}, (10,), seed=0) is None


@pytest.fixture
def repeats(make_store):
    """Users come back to one item of their own."""
    rows = [[item, item, 41, item, item, item] for item in range(1, 41)]
    store = make_store(rows, 41)
    return store, leave_one_out(store.sequences())


def evaluated(repeats, name: str, **options) -> Evaluation:
    store, split = repeats
    scorer = BASELINES[name].fit(split.train, store.n_items)
    return evaluate(scorer, store, split, EvaluationOptions(seen="keep", **options))[0]


def rendered(evaluation: Evaluation, width: int = 80) -> str:
    console = Console(width=width, force_terminal=True, color_system="standard", file=io.StringIO())
    console.print(evaluation_table(evaluation, "shop"))
    return console.file.getvalue()


def test_losing_is_red_and_winning_is_green(repeats) -> None:
    lost = evaluated(repeats, "popularity")
    assert lost.against is not None
    assert lost.against.baseline.startswith("personal")
    assert lost.against.sentence in lost.notes
    won = evaluated(repeats, "personal", baselines="popularity,last-item")
    assert won.against is not None
    assert won.against.beaten
    assert won.against.sentence in won.notes
    red, green = ("\x1b[1;3;31m", "\x1b[3;32m")
    assert red in rendered(lost)
    assert green not in rendered(lost)
    assert green in rendered(won)
    assert red not in rendered(won)


def test_it_is_in_the_json_and_files_without_it_are_read(repeats) -> None:
    lost = evaluated(repeats, "popularity")
    content = json.loads(lost.to_json())
    assert content["against"]["baseline"] == lost.against.baseline
    assert content["against"]["p"] == lost.against.p
    assert content["against"]["difference"]["mean"] < 0
    assert Evaluation.from_json(lost.to_json()) == lost
    for name in ("against", "own", "baseline_settings", "left_out"):
        del content[name]
    earlier = Evaluation.from_json(json.dumps(content))
    assert earlier.against is None
    assert earlier.metrics == lost.metrics


def test_five_baselines_fit_into_a_terminal_of_80(repeats) -> None:
    evaluation = evaluated(repeats, "popularity")
    assert len(evaluation.baselines) == 5
    console = Console(width=80, file=io.StringIO())
    console.print(evaluation_table(evaluation, "shop"))
    shown = console.file.getvalue()
    assert "Miscalibration@10 " in shown
    assert "…" not in shown
    lines = shown.splitlines()
    row = next(number for number, line in enumerate(lines) if "NDCG@10" in line)
    figures = [evaluation["ndcg@10"], *(each["ndcg@10"] for each in evaluation.baselines.values())]
    assert lines[row].split()[1:] == [f"{figure:.4f}" for figure in figures]
    interval = evaluation.metrics["ndcg@10"]
    assert lines[row + 1].strip() == f"{interval.low:.4f}-{interval.high:.4f}"
