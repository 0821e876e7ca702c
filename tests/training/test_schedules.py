"""Schedules, clipping, averages of the weights and losses without seen items in a whole training.

A run that was cut short ends as the uninterrupted one, with each of them and with all.
"""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from linrec.backbones import BACKBONES
from linrec.data.dataset.store import SequenceStore
from linrec.recommender import Recommender, load
from linrec.runs.run import CHECKPOINT
from linrec.training import loop, precision
from linrec.training.average import WeightAverage
from linrec.types import InputError
from tests.contracts import cases
from tests.training.cases import SMALL, Recorder, digest, history_without_times

ALL = {
    "schedule": "linear",
    "warmup": 4,
    "clip_norm": 0.5,
    "ema": 0.8,
    "seen_aware": True,
    "head_norm": True,
}
WAYS: dict[str, dict[str, Any]] = {
    "linear": {"schedule": "linear", "warmup": 4},
    "warm-up": {"warmup": 7},
    "average": {"ema": 0.9},
    "all": ALL,
    "all, sampled": ALL | {"loss": "sampled-softmax", "negatives": 32},
    "gbce, sparse": {
        "loss": "gbce", "negatives": 8, "sparse_items": True, "ema": 0.5, "seen_aware": True,
    },
}  # fmt: skip
SETTINGS = SMALL | {"epochs": 2, "dropout": 0.2, "batch_tokens": 64}


@pytest.mark.slow
@pytest.mark.parametrize("way", list(WAYS))
def test_killed_and_resumed_it_is_the_same_run(
    way: str, store: SequenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)  # after every step
    whole, run = tmp_path / "whole", tmp_path / "run"

    class Photographer(Recorder):
        def on_batch_end(self, loss: float, targets: int) -> None:
            super().on_batch_end(loss, targets)
            if self.steps == 5:
                shutil.copytree(whole, run)

    settings = SETTINGS | WAYS[way]
    Recommender(**settings).fit(store, whole, callbacks=[Photographer()])
    assert digest(run / CHECKPOINT) != digest(whole / CHECKPOINT)
    Recommender(**settings).fit(store, run, resume=True)
    assert digest(run / "model.safetensors") == digest(whole / "model.safetensors")
    assert history_without_times(run).equals(history_without_times(whole))
    assert load(run).config == load(whole).config


def test_the_learning_rate_is_recorded_and_falls_to_zero(store, tmp_path: Path) -> None:
    settings = SETTINGS | {"epochs": 4, "patience": 9, "schedule": "linear", "warmup": 3}
    Recommender(**settings).fit(store, tmp_path / "run")
    with (tmp_path / "run" / "history.csv").open(newline="") as file:
        rates = [float(row["learning_rate"]) for row in csv.DictReader(file)]
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 0.1 * SETTINGS["learning_rate"]
    assert rates[0] < SETTINGS["learning_rate"]


def test_the_epochs_of_a_falling_learning_rate_cannot_change(store, tmp_path: Path) -> None:
    settings = SETTINGS | {"epochs": 1, "schedule": "linear"}
    Recommender(**settings).fit(store, tmp_path / "run")
    message = "falls to zero over 1 epochs, and another number .*; resume with epochs=1, or train"
    with pytest.raises(InputError, match=message) as refused:
        Recommender(**settings | {"epochs": 2}).fit(store, tmp_path / "run", resume=True)
    assert "\n" not in str(refused.value)
    Recommender(**settings | {"patience": 3}).fit(store, tmp_path / "run", resume=True)


def test_a_falling_learning_rate_may_end_early(store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "validate", lambda *_: {"ndcg@10": 0.5, "recall@10": 0.5})
    settings = SETTINGS | {"epochs": 9, "patience": 2, "schedule": "linear"}
    found = Recommender(**settings).fit(store)
    assert found.trained is not None
    assert found.trained.progress.epoch == 3


def test_the_average_is_what_is_validated_and_saved(store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a sum by hand of all weights that the training went through."""
    steps: list[torch.Tensor] = []
    usual = WeightAverage.update_parameters

    def recorded(self: WeightAverage, model: Any) -> None:
        steps.append(model.item.weight.detach().clone())
        usual(self, model)

    monkeypatch.setattr(WeightAverage, "update_parameters", recorded)
    found = Recommender(**SETTINGS | {"epochs": 1, "ema": 0.5}).fit(store)
    expected = steps[0]
    for count, weight in enumerate(steps[1:], 1):
        decay = min(0.5, (1 + count) / (10 + count))
        expected = decay * expected + (1 - decay) * weight
    torch.testing.assert_close(found.model.item.weight.detach(), expected)
    assert not torch.equal(expected, steps[-1])


def test_a_gradient_is_not_longer_than_the_limit(store, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []
    usual = torch.optim.Adam.step

    def measured(self: torch.optim.Adam, *given: Any) -> Any:
        gradients = [p.grad.norm() for group in self.param_groups for p in group["params"]]
        lengths.append(torch.stack(gradients).norm().item())
        return usual(self, *given)

    monkeypatch.setattr(torch.optim.Adam, "step", measured)
    Recommender(**SETTINGS | {"epochs": 1, "clip_norm": 0.01}).fit(store)
    assert max(lengths) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("loss", ["softmax", "sampled-softmax", "gbce"])
@pytest.mark.parametrize(
    ("backbone", "objective"),
    [(name, way) for name in ("sasrec", "bert4rec") for way in BACKBONES[name].Config.objectives],
)
def test_every_objective_can_leave_seen_items_out(backbone: str, objective: str, loss: str) -> None:
    chosen = cases.settings(backbone, "linrec-decay", objective=objective, loss=loss, epochs=2)
    losses = []
    for aware in (False, True):
        found = Recommender(**chosen | {"seen_aware": aware}).fit(cases.cycle())
        assert found.trained is not None
        losses.append([row["loss"] for row in found.trained.progress.history])
    assert np.isfinite(losses).all()
    assert losses[1][0] < losses[0][0]  # fewer items to compete with


def test_where_seen_items_are_shown_a_note_says_what_was_not_learned(store) -> None:
    message = "it learned nothing about their scores"
    for aware in (False, True):
        found = Recommender(**SETTINGS | {"epochs": 1, "seen_aware": aware}).fit(store)
        shown = {
            "hidden": found.evaluate(),
            "kept": found.evaluate(seen="keep"),
            "sampled": found.evaluate(protocol="pop100"),
        }
        noted = {name for name, figures in shown.items() if message in " ".join(figures.notes)}
        assert noted == ({"kept", "sampled"} if aware else set())
        assert message not in " ".join(found.recommend([["i01"]]).notes)
        kept = found.recommend([["i01"]], seen="keep")
        assert (message in " ".join(kept.notes)) == aware


@pytest.mark.parametrize("faster", ["float32", "bfloat16"])
def test_auto_is_what_a_timing_chose_and_a_resumed_run_keeps_it(
    faster: str, store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {kind: 1.0 if kind == faster else 2.0 for kind in ("float32", "bfloat16")}
    monkeypatch.setattr(precision, "_seconds", lambda *_: seconds)
    settings = SETTINGS | {"epochs": 1, "precision": "auto"}
    made = Recommender(**settings).fit(store, tmp_path / "run")
    plain = Recommender(**settings | {"precision": faster}).fit(store)
    recorded = load(tmp_path / "run").config.training
    assert made.config.training == plain.config.training == recorded
    assert torch.equal(made.model.item.weight, plain.model.item.weight)
    monkeypatch.setattr(precision, "_seconds", lambda *_: pytest.fail("timed again"))
    Recommender(**settings | {"epochs": 2}).fit(store, tmp_path / "run", resume=True)
    assert load(tmp_path / "run").config.training.precision == faster


def test_the_timing_leaves_the_training_as_it_is(store) -> None:
    found = Recommender(**SETTINGS | {"epochs": 1, "precision": "auto"}).fit(store)
    chosen = found.config.training.precision
    assert chosen in ("float32", "bfloat16")
    plain = Recommender(**SETTINGS | {"epochs": 1, "precision": chosen}).fit(store)
    assert torch.equal(found.model.item.weight, plain.model.item.weight)


def test_bfloat16_learns_as_float32_does(store) -> None:
    figures = [
        Recommender(**SMALL | ALL | {"precision": kind, "ema": 0.0})
        .fit(store)
        .evaluate()["ndcg@10"]
        for kind in ("float32", "bfloat16")
    ]
    assert min(figures) > 0.8


def test_clipping_needs_whole_gradients() -> None:
    with pytest.raises(InputError, match=r"^clip_norm needs the gradient of every item"):
        Recommender(loss="gbce", sparse_items=True, clip_norm=1.0)
