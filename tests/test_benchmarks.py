"""The benchmarks of training measure what they say, at a size where nothing is to be learned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import losses, measuring, parts, step, windows
from linrec.backbones import Backbone
from linrec.backbones import build as build_backbone

Moved = tuple[torch.Tensor, torch.Tensor]


def weights_after(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Callable[[], None]]) -> Moved:
    """The item vectors before and after the step that `make` builds."""
    models: list[Backbone] = []

    def build(*arguments: Any) -> Backbone:
        models.append(build_backbone(*arguments))
        return models[-1]

    monkeypatch.setattr(measuring, "build", build)
    step = make()
    before = models[-1].item_vectors().detach().clone()
    step()
    return before, models[-1].item_vectors().detach()


@pytest.mark.parametrize("way", list(losses.WAYS))
def test_every_loss_trains_the_items(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = weights_after(
        monkeypatch, lambda: losses.step_of(way, n_items=300, targets=200)
    )
    assert torch.isfinite(after).all()
    assert not torch.equal(before, after)


def test_the_plain_loss_makes_the_step_of_the_chunked_one(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        weights_after(monkeypatch, lambda way=way: losses.step_of(way, n_items=300, targets=200))
        for way in ("plain", "softmax", "gbce")
    ]
    assert torch.equal(steps[0][0], steps[1][0])
    torch.testing.assert_close(steps[0][1], steps[1][1])
    assert not torch.allclose(steps[2][1], steps[1][1])


@pytest.mark.parametrize("variant", list(step.VARIANTS))
def test_every_variant_runs_what_it_names(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    used = {"loss": False, "dropout": False}
    monkeypatch.setattr(
        step.F, "linear_cross_entropy", spy(used, "loss", step.F.linear_cross_entropy)
    )
    monkeypatch.setattr(step.nn.Dropout, "forward", spy(used, "dropout", step.nn.Dropout.forward))
    before, after = weights_after(monkeypatch, lambda: step.made(variant, n_items=300, targets=200))
    assert not torch.equal(before, after)
    both = variant == "both"
    assert used == {
        "loss": both or variant == "torch's linear_cross_entropy",
        "dropout": both or variant == "torch's dropout",
    }


def spy(used: dict[str, bool], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which also notes that it was called."""

    def called(*arguments: Any, **options: Any) -> Any:
        used[name] = True
        return function(*arguments, **options)

    return called


def test_every_part_is_found_on_both_ways() -> None:
    found = dict(parts.shares(measuring.training_step(50, 300, targets=200), repeats=1))
    assert sum(found.values()) == pytest.approx(1)
    wanted = {"loss", "attention", "feed-forward", "projections", "norms", "dropout", "embedding"}
    assert wanted | {"optimizer", "batch assembly"} <= found.keys()


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    rows = [
        {"mechanism": name, "window": window, "seconds": 0.1, "mib": 5.0}
        for name in windows.MECHANISMS
        for window in (200, 1_000)
    ]
    windows.plot(rows, 1_000, tmp_path / "windows.png")
    assert (tmp_path / "windows.png").read_bytes().startswith(b"\x89PNG")
