"""Trainings with a repeat head: what it learns, who decides that a model has one, and resuming."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console

from linrec.backbones import BACKBONES, build, model_config
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.splits import leave_one_out
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.evaluation.scorer import model_scorer
from linrec.losses import full_softmax
from linrec.losses.config import CONFIGS as LOSS_CONFIGS
from linrec.recommender import Recommender, load
from linrec.runs.config import RunConfig, TrainingConfig
from linrec.runs.recipes import recipes
from linrec.training import callbacks
from linrec.training.callbacks import ConsoleProgress, TimeLimit
from linrec.training.loop import epoch_batches, repeat_index
from linrec.training.repeats import TrialStoppedError
from linrec.training.step import Step
from linrec.types import InputError
from tests.training.cases import SMALL, cycle
from tests.training.test_seen import Messages, habits

CAUSAL = [name for name, kind in BACKBONES.items() if "all-positions" in kind.Config.objectives]
ON = {"repeat_head": "on", "seen": "keep"}


def fit(store: SequenceStore, out: Path | None = None, **settings: Any) -> tuple[Any, list[str]]:
    messages = Messages()
    given = SMALL | {"epochs": 2, "learning_rate": 0.01} | settings
    made = Recommender(**given).fit(store, out, callbacks=[messages])
    return made, messages.said


@cache
def favourites(items: int = 300, users: int = 60) -> SequenceStore:
    """Everybody goes round three items of their own, which nobody shares: only counts tell."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(users):
        own = rng.choice(items, 3, replace=False)
        clock = np.cumsum(rng.integers(60, 90_000, 12))
        rows += [
            (user, f"i{int(rng.choice(own)):03d}", 1.7e9 + float(time)) for time in clock.tolist()
        ]
    return prepare(pl.DataFrame(rows, schema=["user", "item", "time"], orient="row"), times="real")


@pytest.mark.parametrize("backbone", CAUSAL)
@pytest.mark.parametrize("loss", list(LOSS_CONFIGS))
def test_it_learns_that_users_come_back(backbone: str, loss: str) -> None:
    settings = SMALL | {"backbone": backbone, "loss": loss, "epochs": 2} | ON
    settings |= {} if loss == "softmax" else {"negatives": 32}
    settings |= {"time_gaps": True, "learning_rate": 0.01}
    figures = {
        choice: Recommender(**settings | {"repeat_head": choice})
        .fit(favourites())
        .evaluate(baselines=False)["ndcg@10"]
        for choice in ("on", "off")
    }
    if backbone == "core":  # a history is the mean of its items there, so it repeats by itself
        assert figures["on"] > 0.4
    else:
        assert figures["on"] > figures["off"] + 0.05


def test_what_is_trained_is_what_is_scored() -> None:
    """The loss of a training batch follows from the scores that an evaluation computes."""
    store = favourites()
    split = leave_one_out(store.sequences())
    config = RunConfig(
        model=model_config(repeat_head="on", time_gaps=True, dropout=0.0, width=16),
        training=TrainingConfig(unknown_time=0.0, batch_tokens=128),
    )
    torch.manual_seed(0)
    model = build(config.model, ItemFeatures.of(store.item_table, ()))
    with torch.no_grad():
        model.repeat.weight.normal_()
        model.repeat.bias.normal_()
    batches = epoch_batches(model, split, config, 0).with_seen(None, repeat_index(model, split))
    step = Step(model, config, split.train.item_counts(store.n_items))
    found = step.compute_loss(model(*batches[0].events), batches[0])
    inputs, events = batches.inputs.take(batches.rows[0]), []
    for start, end in zip(inputs.starts, inputs.ends, strict=True):
        events += [(start, event) for event in range(start + 1, end + 1)]
    starts, targets = np.array(events).T
    histories = replace(inputs, starts=starts).before(targets)
    scores, target = model_scorer(model)(histories), split.train.items[targets]
    right = F.cross_entropy(scores[:, 1:], torch.from_numpy(target.astype(np.int64)) - 1)
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


def test_a_new_head_changes_nothing() -> None:
    """It begins as zero, and draws nothing from torch's generator."""
    store = favourites()
    models = []
    for choice in ("on", "off"):
        torch.manual_seed(3)
        chosen = model_config(repeat_head=choice, width=16)
        models.append(build(chosen, ItemFeatures.of(store.item_table, ())))
    histories = leave_one_out(store.sequences()).test.histories
    with_head, without = (model_scorer(model)(histories) for model in models)
    assert torch.equal(with_head, without)
    hidden, targets = torch.randn(4, 16), torch.tensor([1, 2, 3, 4])
    assert torch.equal(*(full_softmax(hidden, model.item_vectors(), targets) for model in models))


def test_a_trial_decides_and_the_run_says_so(tmp_path: Path) -> None:
    made, said = fit(favourites(), tmp_path / "run", time_gaps=True)
    assert made.config.model.repeat_head == "on"
    (decision,) = (line for line in said if line.endswith(": the model has one"))
    assert decision.startswith("validation NDCG@10 after 2 epochs is 0.")
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["model"]["repeat_head"]
    assert stored == "on"
    assert load(tmp_path / "run").model.repeat is not None
    again = load(tmp_path / "run").evaluate(favourites(), baselines=False)["ndcg@10"]
    assert again == pytest.approx(made.test_evaluation["ndcg@10"])


def test_what_does_not_pay_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = iter([0.2, 0.2])  # a tie: the simpler model
    monkeypatch.setattr("linrec.training.repeats._validated", lambda *_: next(figures))
    made, said = fit(habits())
    assert made.config.model.repeat_head == "off"
    assert made.model.repeat is None
    assert said[-1] == (
        "validation NDCG@10 after 2 epochs is 0.2000 with a repeat head and 0.2000 without: the "
        "model has none"
    )


def test_a_trial_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[int, int]] = []

    class Listener(Messages):
        def on_trial_batch_end(self, done: int, total: int) -> None:
            heard.append((done, total))

    monkeypatch.setattr(callbacks, "LINE_SECONDS", 0.0)
    shown = io.StringIO()
    progress = ConsoleProgress(Console(file=shown, width=100))
    settings = SMALL | {"epochs": 2, "time_gaps": True}
    Recommender(**settings).fit(favourites(), callbacks=[Listener(), progress])
    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1]
    assert len({total for _, total in heard}) == 1
    lines = [line for line in shown.getvalue().splitlines() if line.startswith("trying a repeat")]
    assert lines[-1].split() == ["trying", "a", "repeat", "head", "100", "%"]


def test_a_time_limit_ends_a_trial(tmp_path: Path) -> None:
    settings = SMALL | {"epochs": 2, "time_gaps": True}
    with pytest.raises(TrialStoppedError, match=r"no model yet.*repeat_head=off") as found:
        Recommender(**settings).fit(
            favourites(), tmp_path / "run", callbacks=[TimeLimit(minutes=1e-9)]
        )
    assert found.value.exit_code == 130
    assert not (tmp_path / "run").exists()


def test_the_trial_leaves_the_training_as_it_was() -> None:
    decided, _ = fit(favourites(), time_gaps=True)
    given, said = fit(favourites(), time_gaps=True, repeat_head="on")
    # what is said of the data and of the scale, and nothing of a trial
    assert [line for line in said if "counts" not in line] == said[:1]
    for mine, other in zip(
        decided.model.state_dict().values(), given.model.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, other)


def test_where_seen_items_are_hidden_there_is_none(tmp_path: Path) -> None:
    made, said = fit(cycle())
    assert made.config.model.repeat_head == "off"
    assert said == []
    with pytest.raises(InputError, match=r"seen items are hidden.*leave repeat_head= out"):
        fit(cycle(), repeat_head="on")
    recipe = tmp_path / "repeats.toml"
    recipe.write_text('[model]\nrepeat_head = "on"\n')
    made, said = fit(cycle(), recipe=str(recipe))
    assert made.config.model.repeat_head == "off"
    assert "seen items are hidden" in said[0]


@pytest.mark.parametrize(
    "settings", [{"objective": "last-position"}, {"backbone": "bert4rec"}], ids=str
)
def test_only_causal_models_have_one(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="repeat_head=on needs a causal model"):
        Recommender(repeat_head="on", **settings)
    made, said = fit(habits(), epochs=1, **settings)
    assert made.config.model.repeat_head == "off"
    assert len(said) == 1


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    whole, _ = fit(favourites(), epochs=3, time_gaps=True)
    fit(favourites(), tmp_path / "run", epochs=2, time_gaps=True)
    messages = Messages()
    settings = SMALL | {"learning_rate": 0.01, "epochs": 3, "time_gaps": True}
    more = Recommender(**settings).fit(
        favourites(), tmp_path / "run", resume=True, callbacks=[messages]
    )
    assert more.config.model.repeat_head == "on"
    assert not any("with a repeat head" in said for said in messages.said)  # decided before
    for mine, other in zip(
        more.model.state_dict().values(), whole.model.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, other)


def test_a_run_from_before_there_were_heads_is_resumed_without(tmp_path: Path) -> None:
    fit(habits(), tmp_path / "run", epochs=1, repeat_head="off", seen="keep")
    config = tmp_path / "run" / "config.json"
    content = json.loads(config.read_text())
    del content["model"]["repeat_head"]
    config.write_text(json.dumps(content))
    (tmp_path / "run" / "manifest.json").unlink()
    assert load(tmp_path / "run").model.repeat is None
    settings = SMALL | {"epochs": 2, "seen": "keep", "learning_rate": 0.01}
    more = Recommender(**settings).fit(habits(), tmp_path / "run", resume=True)
    assert more.model.repeat is None


def test_bfloat16_learns_too() -> None:
    made, _ = fit(favourites(), precision="bfloat16", epochs=4, **ON)
    assert made.evaluate(baselines=False)["ndcg@10"] > 0.3


def test_the_recipes_of_a_dataset_have_none() -> None:
    chosen = {name: recipe.model.repeat_head for name, recipe in recipes().items()}
    of_data = ("paper-ml-1m", "paper-gowalla", "ml-1m", "ml-1m-last-200")
    assert {chosen.pop(name) for name in of_data} == {"off"}
    assert set(chosen.values()) == {"auto"}
