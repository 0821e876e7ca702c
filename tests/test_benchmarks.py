"""The benchmarks of training measure what they say, at a size where nothing is to be learned."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import losses, measuring, parts, step, windows


@pytest.mark.parametrize("way", list(losses.WAYS))
def test_every_loss_makes_its_step(way: str) -> None:
    losses.step_of(way, n_items=300, targets=200)()


@pytest.mark.parametrize("variant", list(step.VARIANTS))
def test_every_variant_makes_its_step(variant: str) -> None:
    step.made(variant, n_items=300, targets=200)()


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
