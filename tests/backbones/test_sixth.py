"""The backbone that CONTRIBUTING.md shows is all there is to write: one file and one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from linrec.backbones import BACKBONES
from linrec.recommender import Recommender, load
from tests.test_docs import REPO, blocks_of
from tests.training.cases import SMALL, cycle


@pytest.fixture
def untied(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (REPO / "CONTRIBUTING.md").read_text("utf-8")
    code = [block.code for block in blocks_of(page) if block.language == "python"]
    namespace: dict[str, object] = {"BACKBONES": dict(BACKBONES)}
    exec(compile("\n".join(code), "CONTRIBUTING.md", "exec"), namespace)
    monkeypatch.setitem(BACKBONES, "untied", namespace["BACKBONES"]["untied"])


@pytest.mark.usefixtures("untied")
def test_it_is_trained_saved_loaded_and_streamed_like_the_others(tmp_path: Path) -> None:
    trained = Recommender(**SMALL | {"backbone": "untied", "attention": "linrec"}).fit(cycle())
    assert trained.evaluate(floors=False)["ndcg@10"] > 0.9
    trained.save(tmp_path / "run")
    model = load(tmp_path / "run").model
    items = torch.tensor([[3, 4, 5, 6]])
    hidden, state = model.advance(items[:, :2], model.start(users=1))
    hidden, state = model.advance(items[:, 2:], state)
    torch.testing.assert_close(hidden, trained.model(items, items > 0)[:, 2:])
