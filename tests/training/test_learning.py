"""Training learns what is plainly there, the same way each time, and stops when it is done."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import count

import numpy as np
import polars as pl
import pytest
import torch
from lightning_fabric.accelerators import MPSAccelerator

from linrec.backbones import Backbone
from linrec.backbones.config import CONFIGS, ModelConfig
from linrec.data.dataset.context import ContextColumn
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.losses.config import CONFIGS as LOSS_CONFIGS
from linrec.recommender import Recommender
from linrec.runs.config import SETTINGS, TrainingConfig
from linrec.settings import settings_of
from linrec.training import loop
from linrec.training.loop import DivergedError
from linrec.training.step import make_fabric
from linrec.training.world import World
from linrec.types import InputError
from tests.training.cases import SMALL, Recorder, cycle

Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def small_store() -> SequenceStore:
    return cycle(users=12)


def fitted(store: SequenceStore, **changes: object) -> Recommender:
    return Recommender(**SMALL | changes).fit(store)


def weights(recommender: Recommender) -> Weights:
    return recommender.model.state_dict()


def same(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(
        a[name].shape == b[name].shape and torch.equal(a[name], b[name]) for name in a
    )


def test_fabric_announces_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("lightning_fabric")
    monkeypatch.setattr(logger, "propagate", True)
    make_fabric(TrainingConfig(precision="bfloat16", device="cpu"), World())
    assert caplog.records == []
    assert logging.getLogger("lightning_fabric.utilities.rank_zero").level == logging.NOTSET


def test_bfloat16_learns_too(store: SequenceStore) -> None:
    found = fitted(store, precision="bfloat16")
    assert found.trained is not None
    assert found.trained.progress.best > 0.9
    assert all(value.dtype == torch.float32 for value in weights(found).values())


def test_the_seed_decides(small_store: SequenceStore) -> None:
    first = fitted(small_store, epochs=2, dropout=0.2)
    torch.rand(7)  # what went on before must not matter
    again = fitted(small_store, epochs=2, dropout=0.2)
    other = fitted(small_store, epochs=2, dropout=0.2, seed=1)
    assert same(weights(first), weights(again))
    assert not same(weights(first), weights(other))


OTHER = {
    "backbone": "gru4rec",
    "attention": "softmax",
    "objective": "last-position",
    "features": "genre",
    "mask_ratio": 0.5,
    "temperature": 0.5,
    "width": 8,
    "heads": 1,
    "layers": 2,
    "inner": 8,
    "dropout": 0.5,
    "norm": "pre",
    "head_norm": True,
    "gate": True,
    "positions": 8,
    "max_length": 3,
    "time_gaps": True,
    "repeat_head": "on",  # which needs seen items that are kept
    "unknown_time": 0.9,
    "seen": "keep",
    "epochs": 2,
    "patience": 1,
    "learning_rate": 0.001,
    "schedule": "linear",
    "warmup": 5,
    "weight_decay": 0.5,
    "clip_norm": 0.01,
    "ema": 0.9,
    "window": 3,
    "batch_tokens": 32,
    "seed": 1,
    "loss": "gbce",
    "seen_aware": True,
    "negatives": 3,
    "sampling_power": 0.3,
    "calibration": 0.3,
    "sparse_items": True,
    "precision": "bfloat16",
    "compile": True,
    "device": "abacus",
    "split": "last-k",  # which needs `last`
    "last": 2,
    "valid_from": 1.6e9 + 60 * 30**2,
    "test_from": 2e9,  # after the last event; any other time would change no training
    "targets": "basket",
    "final": True,
    "context": ("type",),
    "targets_where": "type=odd",
    "weight": "price",
    "item_vectors": "off",
    "id_dropout": 0.7,
}
TEMPORAL = {
    "split": "temporal",
    "valid_from": 1.6e9 + 60 * 70**2,
    "test_from": 1.6e9 + 60 * 90**2,
}
NEEDS = {
    "unknown_time": {"time_gaps": True},
    "last": {"split": "last-k", "last": 1},
    "valid_from": TEMPORAL,
    "test_from": TEMPORAL,
}
OF_SOME = {
    "sparse_items",
    *(name for config in CONFIGS.values() for name in settings_of(config)),
    *(name for config in LOSS_CONFIGS.values() for name in settings_of(config)),
} - {*settings_of(ModelConfig), "loss"}


def test_no_setting_is_left_out_here() -> None:
    assert OTHER.keys() == SETTINGS.keys()


def outcome(store: SequenceStore, **changes: object) -> tuple[int, Weights] | str:
    try:
        found = fitted(
            store, **{"epochs": 4, "patience": 2, "dropout": 0.1, "batch_tokens": 48} | changes
        )
    except InputError as error:
        return str(error)
    assert found.trained is not None
    return found.trained.progress.epoch, weights(found)


def with_real_times(store: SequenceStore, together: int = 1) -> SequenceStore:
    """The same events with a context, minutes and hours apart; some of them together."""
    place = pl.Series(np.arange(len(store.items)))
    context = (
        ContextColumn.of("type", "categorical", (place % 2).replace_strict({0: "even", 1: "odd"})),
        ContextColumn.of("price", "numeric", place % 5),
    )
    times = 1.6e9 + 60.0 * (np.arange(len(store.items)) // together * together) ** 2
    return replace(store, times=times, summary=store.summary | {"times": "real"}, context=context)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_matters(
    name: str, small_store: SequenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # never better than the first epoch: early stopping has something to do. Ranked with seen items
    # (the fourth argument) each is better, as another validation may find
    better = count(1)
    monkeypatch.setattr(
        loop,
        "validate",
        lambda _model, _store, _split, seen, *_, **__: {
            "ndcg@10": next(better) if seen == "keep" else 0.5,
            "recall@10": 0.5,
        },
    )
    # a compiler that leaves a mark: the real one takes a minute
    monkeypatch.setattr(torch, "compile", lambda module, **_: lambda *given: 2 * module(*given))
    needs = NEEDS.get(name, {})
    store = with_real_times(small_store, together=2 if name == "targets" else 1)
    if name in {"item_vectors", "id_dropout"}:
        drawn = np.random.default_rng(0).normal(size=(store.n_items + 1, 4)).astype(np.float32)
        store = replace(store, item_vectors=drawn)
    usual, changed = outcome(store, **needs), outcome(store, **needs | {name: OTHER[name]})
    assert not isinstance(usual, str)
    assert usual[0] == 3
    if isinstance(changed, str):
        of_some = OF_SOME | {"repeat_head"}
        assert name in of_some | {"backbone", "device", "split", "test_from"}
        assert (name if name in of_some else str(OTHER[name])) in changed
    else:
        assert changed[0] != usual[0] or not same(changed[1], usual[1])


class Scripted:
    """Validation figures by plan, and the weights they were given for."""

    def __init__(self, *figures: float) -> None:
        self.figures, self.met = list(figures), list[Weights]()

    def __call__(self, model: Backbone, *_: object, **__: object) -> dict[str, float]:
        self.met.append({name: value.clone() for name, value in model.state_dict().items()})
        return {"ndcg@10": self.figures[len(self.met) - 1], "recall@10": 0.0}


def test_the_best_is_kept_and_patience_ends(
    small_store: SequenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Scripted(0.1, 0.5, 0.5, 0.3, 0.4, 0.9)
    monkeypatch.setattr(loop, "validate", plan)
    recorder = Recorder()
    untrained = Recommender(**SMALL | {"epochs": 50, "patience": 3})
    found = untrained.fit(small_store, callbacks=[recorder])
    assert found.trained is not None
    progress = found.trained.progress
    # an equal figure is not a better one; the sixth epoch is never reached
    assert (progress.epoch, progress.best_epoch, progress.best) == (5, 2, 0.5)
    assert not found.trained.interrupted
    assert [row["epoch"] for row in recorder.rows] == [1, 2, 3, 4, 5]
    assert recorder.ended
    assert same(weights(found), plan.met[1])
    assert not same(weights(found), plan.met[4])
    assert not found.model.training


def test_a_loss_that_explodes_is_the_learning_rate(small_store: SequenceStore) -> None:
    with pytest.raises(DivergedError, match=r"loss became (nan|inf).*learning_rate=") as diverged:
        fitted(small_store, learning_rate=1e30, norm="pre", epochs=50)
    assert not isinstance(diverged.value, InputError)  # whoever chose the settings made no mistake


def test_users_too_short_to_learn_from_are_refused() -> None:
    events = pl.DataFrame(
        {"user": [1, 1, 1, 2, 2, 2], "item": list("abcabc"), "time": [1, 2, 3, 1, 2, 3]}
    )
    with pytest.raises(InputError, match="no user has two events that are not held out"):
        fitted(prepare(events))
    with pytest.raises(InputError, match="no user has 3 events"):
        fitted(prepare(events.filter(pl.col("time") < 3)))


@pytest.mark.parametrize("device", ["cuda", "abacus"])
def test_a_device_that_is_not_there_is_refused(
    device: str, small_store: SequenceStore, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(InputError, match=f"device '{device}' cannot be used.*device=cpu") as error:
        Recommender(**SMALL | {"device": device}).fit(small_store, tmp_path / "run")
    for word in ("accelerator", "Fabric", "Accelerator", "configuration"):
        assert word not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_reads_times_is_not_trained_on_an_apple_gpu(
    small_store: SequenceStore, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    """It has no 64-bit numbers. The default recipe reads times, so "auto" must work there."""
    store = with_real_times(small_store)
    settings = SMALL | {"time_gaps": True, "epochs": 1}
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(MPSAccelerator, "is_available", lambda: True)
    made = Recommender(**settings | {"device": "auto"}).fit(store)
    assert made.model.device.type == "cpu"
    message = r"^times are .* Apple.s GPUs .*device=cpu, or .*time_gaps="
    with pytest.raises(InputError, match=message) as no:
        Recommender(**settings | {"device": "mps"}).fit(store, tmp_path / "run")
    assert "\n" not in str(no.value)
    assert list(tmp_path.iterdir()) == []
