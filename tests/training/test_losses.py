"""Every backbone learns by every loss, and a run cut short ends as the uninterrupted one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from linrec.backbones import BACKBONES
from linrec.data.dataset.splits import leave_one_out
from linrec.data.dataset.store import SequenceStore
from linrec.losses.catalogue import configs
from linrec.losses.config import CONFIGS
from linrec.recommender import Recommender, load
from linrec.runs.run import CHECKPOINT
from linrec.training import loop, step
from linrec.types import InputError
from tests.contracts import cases
from tests.training.cases import SMALL, Recorder, digest, history_without_times

WAYS: dict[str, dict[str, Any]] = {
    "sampled": {"loss": "sampled-softmax", "negatives": 64, "sampling_power": 1.0},
    "sampled, sparse": {"loss": "sampled-softmax", "negatives": 64, "sparse_items": True},
    "gbce": {"loss": "gbce", "negatives": 8},
    "gbce, sparse": {"loss": "gbce", "negatives": 8, "sparse_items": True},
}
EVERY_WAY = pytest.mark.parametrize("way", list(WAYS))


def test_the_flags_are_made_from_the_settings_of_the_losses() -> None:
    assert configs() == CONFIGS
    for name in CONFIGS:
        assert Recommender(recipe="small", loss=name).config.loss == CONFIGS[name]()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backbone", "way"),
    [
        (name, way)
        for name in BACKBONES
        for way in WAYS
        if ("," not in way or name == "core") and (name, way) != ("bert4rec", "gbce")
    ],
)
def test_every_backbone_learns_by_it(way: str, backbone: str) -> None:
    chosen = cases.settings(backbone, "linrec-decay", **WAYS[way])
    users = cases.N_USERS
    if chosen["loss"] == "gbce":
        users *= 4  # at first all scores fall alike, so it takes longer
        if backbone == "core":  # whose cosines are steep before they mean anything
            chosen["temperature"] = 0.3
    found = Recommender(**chosen).fit(cases.cycle(users))
    assert found.trained is not None
    history = found.trained.progress.history
    assert all(np.isfinite(row["loss"]) for row in history)
    assert history[-1]["loss"] < history[0]["loss"]
    assert found.evaluate(baselines=False)["ndcg@10"] > 0.8


def test_bert4rec_gets_better_by_gbce() -> None:
    """It would learn the cycle, but not in the time of a test."""
    chosen = cases.settings("bert4rec", "linrec-decay", **WAYS["gbce"])
    found = Recommender(**chosen | {"epochs": 4}).fit(cases.cycle())
    assert found.trained is not None
    losses = [row["loss"] for row in found.trained.progress.history]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.slow
@EVERY_WAY
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

    settings = SMALL | {"epochs": 2, "dropout": 0.2, "batch_tokens": 64} | WAYS[way]
    Recommender(**settings).fit(store, whole, callbacks=[Photographer()])
    assert digest(run / CHECKPOINT) != digest(whole / CHECKPOINT)
    Recommender(**settings).fit(store, run, resume=True)
    assert digest(run / CHECKPOINT) == digest(whole / CHECKPOINT) or _same_tensors(run, whole)
    assert digest(run / "model.safetensors") == digest(whole / "model.safetensors")
    assert history_without_times(run).equals(history_without_times(whole))
    assert load(run).config == load(whole).config


def _same_tensors(run: Path, whole: Path) -> bool:
    """The files also hold how long it took."""
    from safetensors.torch import load_file

    last, expected = load_file(run / CHECKPOINT), load_file(whole / CHECKPOINT)
    return last.keys() == expected.keys() and all(
        torch.equal(value, expected[name]) for name, value in last.items()
    )


def test_a_run_from_before_there_was_a_choice_is_resumed(
    store: SequenceStore, tmp_path: Path
) -> None:
    """Its config.json names no loss: it is the softmax over the whole catalogue."""
    settings = SMALL | {"epochs": 1}
    Recommender(**settings).fit(store, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    content = json.loads(path.read_text())
    for name in ("loss", "sparse_items", "compile"):
        del content["training"][name]
    path.write_text(json.dumps(content))
    (tmp_path / "run" / "manifest.json").unlink()  # nor was there a manifest
    assert load(tmp_path / "run").config.loss.loss == "softmax"
    Recommender(**settings | {"epochs": 2}).fit(store, tmp_path / "run", resume=True)
    with pytest.raises(InputError, match="loss was softmax and now is gbce"):
        Recommender(**settings | {"loss": "gbce"}).fit(store, tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"negatives": 5}, "^the loss softmax has no use for negatives; leave negatives= out"),
        ({"loss": "gbce", "sampling_power": 1}, "^the loss gbce has no use for sampling_power"),
        ({"loss": "sampled-softmax", "calibration": 0.5}, "no use for calibration; .* loss=gbce$"),
        (
            {"sparse_items": True},
            "^the loss softmax .* or choose loss=sampled-softmax or loss=gbce$",
        ),
        ({"loss": "bpr"}, "^unknown loss 'bpr'; choose from softmax, sampled-softmax, gbce$"),
        ({"loss": "gbce", "negatives": 0}, "^negatives=0 must be at least 1$"),
        ({"loss": "gbce", "calibration": 2}, "^calibration=2.0 must be from 0 to 1"),
        (
            {"loss": "sampled-softmax", "sampling_power": -1},
            "^sampling_power=-1.0 must be from",
        ),
        (
            {"loss": "gbce", "sparse_items": True, "weight_decay": 0.1},
            "^sparse_items leaves items alone .*leave one of the two out$",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        Recommender(**changes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "gbce"},
        {"loss": "sampled-softmax", "sampling_power": 1.0},
        {"loss": "sampled-softmax", "negatives": 5},
        {"loss": "gbce", "calibration": 0.0, "negatives": 3},
        {"loss": "sampled-softmax", "sparse_items": True},
    ],
)
def test_every_setting_does_something(changes: dict[str, Any], store: SequenceStore) -> None:
    """Against the same loss with its usual settings, or the usual loss."""
    usual = {"loss": changes["loss"]} if len(changes) > 1 else {}
    if "negatives" in changes and "calibration" in changes:
        usual["negatives"] = changes["negatives"]
    settings = SMALL | {"epochs": 2}
    found, other = (
        Recommender(**settings | each).fit(store).trained.progress.history[-1]["loss"]
        for each in (changes, usual)
    )
    assert found != other


def test_popularity_is_that_of_the_training_events(store: SequenceStore) -> None:
    split = leave_one_out(store.sequences())
    expected = np.zeros(store.n_items + 1, np.int64)
    for row in range(len(split.train)):
        np.add.at(expected, split.train[row], 1)
    assert np.array_equal(split.train.item_counts(store.n_items), expected)


def test_compile_without_a_compiler_is_refused_in_words(
    store: SequenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> Any:
        from torch._dynamo.exc import BackendCompilerFailed

        raise BackendCompilerFailed(print, RuntimeError("no g++"), None)

    monkeypatch.setattr(step.torch, "compile", lambda *_, **__: fails)
    with pytest.raises(
        InputError, match=r"torch\.compile failed \(.*leave compile= out$"
    ) as message:
        Recommender(**SMALL, compile=True).fit(store, tmp_path / "run")
    assert "\n" not in str(message.value)


def test_compiled_it_is_what_torch_compiles(
    store: SequenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def compile_(module: Any, **options: Any) -> Any:
        assert options == {"dynamic": True}
        return lambda *inputs: calls.append(inputs) or module(*inputs)

    monkeypatch.setattr(step.torch, "compile", compile_)
    found = Recommender(**SMALL | {"epochs": 1}, compile=True).fit(store)
    plain = Recommender(**SMALL | {"epochs": 1}).fit(store)
    assert calls
    assert all(
        torch.equal(a, b)
        for a, b in zip(found.model.parameters(), plain.model.parameters(), strict=True)
    )
