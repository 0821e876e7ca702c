"""A catalogue of many items: one message with both times, and a training that does not notice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from linrec.data.dataset.store import SequenceStore
from linrec.recommender import Recommender
from linrec.training import loss_advice
from linrec.training.loss_advice import in_words
from tests.training.cases import SMALL, Recorder
from tests.training.fixtures import dataset, store

__all__ = ["dataset", "store"]

SETTINGS = SMALL | {"epochs": 1, "dropout": 0.1}


class Messages(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def on_message(self, text: str) -> None:
        self.messages.append(text)


def told(store: SequenceStore, out: Path | None = None, **changes: object) -> list[str]:
    heard = Messages()
    resume = bool(changes.pop("resume", False))
    Recommender(**SETTINGS | changes).fit(store, out, resume=resume, callbacks=[heard])
    return [message for message in heard.messages if "an epoch takes" in message]


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the sixteen items were many, and a sampled loss took a tenth of the time."""
    monkeypatch.setattr(loss_advice, "MANY_ITEMS", 15)
    seconds = {"softmax": 600.0, "sampled-softmax": 60.0}
    monkeypatch.setattr(loss_advice, "epoch_seconds", lambda _, loss, *__: seconds[loss.loss])


@pytest.mark.usefixtures("many")
def test_both_times_in_one_message(store: SequenceStore, tmp_path: Path) -> None:
    (message,) = told(store, tmp_path / "run")
    assert message.startswith(
        "the catalogue has 16 items: an epoch takes about 10 minutes with the loss softmax and "
        "about 60 seconds with sampled-softmax"
    )
    assert "train again with --loss sampled-softmax" in message
    assert told(store, tmp_path / "run", epochs=2, resume=True) == []
    assert told(store, loss="softmax") == []  # chosen by name
    assert told(store, loss="sampled-softmax", negatives=4) == []


def test_few_items_are_not_timed(store: SequenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_advice, "epoch_seconds", lambda *_: pytest.fail("timed"))
    assert told(store) == []


def test_no_advice_where_a_sample_is_not_faster(
    store: SequenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_advice, "MANY_ITEMS", 15)
    monkeypatch.setattr(loss_advice, "epoch_seconds", lambda *_: 60.0)
    assert told(store) == []


def test_the_timing_leaves_the_training_as_it_is(
    store: SequenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Recommender(**SETTINGS).fit(store)
    seconds: list[float] = []
    real = loss_advice.epoch_seconds

    def timed(*given: object) -> float:
        seconds.append(real(*given))  # type: ignore[arg-type]
        return seconds[-1]

    monkeypatch.setattr(loss_advice, "MANY_ITEMS", 15)
    monkeypatch.setattr(loss_advice, "epoch_seconds", timed)
    with_timing = Recommender(**SETTINGS).fit(store, callbacks=[Recorder()])
    assert len(seconds) == 2
    assert min(seconds) > 0
    weights = with_timing.model.state_dict()
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, weights[name]), name


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "a second"),
        (1.6, "2 seconds"),
        (60, "60 seconds"),
        (600, "10 minutes"),
        (9000, "2.5 hours"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
