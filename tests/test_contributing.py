"""What CONTRIBUTING.md shows is all there is to write: one file and one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from linrec.backbones import BACKBONES
from linrec.losses import LOSSES
from linrec.recommender import Recommender, load
from linrec.types import InputError
from tests.contributing import run_example
from tests.training.cases import SMALL, cycle


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    backbones = run_example("Adding a backbone", BACKBONES={})["BACKBONES"]
    losses = run_example("Adding a loss", LOSSES={})["LOSSES"]
    monkeypatch.setitem(BACKBONES, "untied", backbones["untied"])
    monkeypatch.setitem(LOSSES, "bpr", losses["bpr"])


def test_the_backbone_is_trained_saved_loaded_and_streamed_like_the_others(tmp_path: Path) -> None:
    trained = Recommender(**SMALL | {"backbone": "untied", "attention": "linrec"}).fit(cycle())
    assert trained.evaluate(baselines=False)["ndcg@10"] > 0.9
    trained.save(tmp_path / "run")
    model = load(tmp_path / "run").model
    items = torch.tensor([[3, 4, 5, 6]])
    state = model.advance(items[:, :2], model.start(users=1))
    state = model.advance(items[:, 2:], state)
    torch.testing.assert_close(model.request(state), trained.model(items, items > 0)[:, -1])


def test_the_loss_learns_and_is_recorded(tmp_path: Path) -> None:
    settings = SMALL | {"loss": "bpr", "sampling_power": 0.5, "epochs": 20}
    trained = Recommender(**settings).fit(cycle(), tmp_path / "run")
    assert trained.evaluate(baselines=False)["ndcg@10"] > 0.8
    assert load(tmp_path / "run").config.loss == trained.config.loss
    assert Recommender(loss="bpr", sparse_items=True).config.training.sparse_items


def test_the_settings_of_the_loss_are_checked() -> None:
    assert Recommender(loss="bpr").config.as_dict()["training"]["sampling_power"] == 0.0
    with pytest.raises(InputError, match=r"^sampling_power=2\.0 must be from 0 to 1"):
        Recommender(loss="bpr", sampling_power=2)
    with pytest.raises(InputError, match=r"^the loss softmax has no use for .* or loss=bpr$"):
        Recommender(sampling_power=0.5)
