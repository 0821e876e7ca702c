"""`compile` for real: torch's own compiler, on batches of several shapes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from linrec.recommender import Recommender
from tests.training.cases import SMALL, cycle

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++"),
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes from an earlier run's cache, and no graph stays for the next test."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch.compiler.reset()


@pytest.mark.parametrize("attention", ["linrec-decay", "softmax"])
def test_a_compiled_training_gives_the_same_weights(attention: str) -> None:
    store = cycle()
    settings = SMALL | {"epochs": 2, "attention": attention}
    plain = Recommender(**settings).fit(store)
    compiled = Recommender(**settings, compile=True).fit(store)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    for (name, expected), found in zip(
        plain.model.named_parameters(), compiled.model.parameters(), strict=True
    ):
        torch.testing.assert_close(
            found, expected, rtol=1e-3, atol=1e-3, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_a_compiled_backbone_has_the_same_gradients() -> None:
    """Forward and backward of the model alone, for two shapes of a batch."""
    model = Recommender(**SMALL | {"epochs": 1, "attention": "linrec-decay"}).fit(cycle()).model
    model.train()
    compiled = torch.compile(model, dynamic=True)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for users, length in ((3, 7), (2, 12)):
        items = torch.randint(1, 16, (users, length), generator=torch.manual_seed(0))
        keep = torch.arange(length) < torch.tensor([length] * (users - 1) + [length - 3])[:, None]
        results = []
        for form in (model, compiled):
            hidden = form(items, keep)
            loss = hidden[keep].square().sum()
            results.append([hidden, *torch.autograd.grad(loss, parameters, allow_unused=True)])
        for expected, actual in zip(*results, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
