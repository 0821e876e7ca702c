"""Runs to serve, made in a moment: weights are drawn, not learned, and large enough to differ."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from linrec.backbones import build, model_config
from linrec.data.dataset.item_features import Field, ItemFeatures
from linrec.data.dataset.store import SequenceStore
from linrec.layers import RepeatHead
from linrec.runs.catalogue import Catalogue
from linrec.runs.description import RunDescription
from linrec.runs.run import Run
from linrec.serving import Engine, NewEvent, Store

SMALL = {"width": 16, "heads": 2, "layers": 2, "inner": 16, "positions": 32, "dropout": 0.1}


def make_run(
    folder: Path,
    store: SequenceStore,
    *,
    seed: int = 0,
    training: dict[str, Any] | None = None,
    context: tuple[Field, ...] = (),
    **settings: Any,
) -> Path:
    """A run folder as `linrec train` leaves it, less the training; settings: of the model."""
    config = model_config(**SMALL | settings)
    torch.manual_seed(seed)
    model = build(config, ItemFeatures.of(store.item_table, (), context))
    with (
        torch.no_grad()
    ):  # as large as training makes them: from tiny ones all histories look alike
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                module.weight.mul_(10)
            if isinstance(module, RepeatHead):  # which begins as zero
                module.weight.normal_()
                module.bias.normal_()
    place = None if store.path is None else str(store.path)
    dataset = {"fingerprint": store.fingerprint, "path": place}
    description = RunDescription(
        linrec=version("linrec"), model=config, training=training or {}, n_items=store.n_items,
        dataset=dataset, context=context,
    )  # fmt: skip
    Run.create(folder, description, Catalogue.of(store), overwrite=True, model=model)
    return folder


def events(*items: str, first: float = 0.0) -> list[NewEvent]:
    """Events a second apart."""
    return [NewEvent(item, first + place) for place, item in enumerate(items)]


def scores(engine: Engine, user: str, k: int = 1000) -> dict[str, float]:
    return {item.item: item.score for item in engine.recommend(user, k).items}


def assert_same_scores(found: dict[str, float], expected: dict[str, float]) -> None:
    assert found.keys() == expected.keys()
    np.testing.assert_allclose(
        [found[item] for item in expected], list(expected.values()), rtol=1e-4, atol=1e-4
    )


def assert_rebuilt_is_the_same(engine: Engine, store: Store, user: str) -> None:
    """The state that grew event by event is the one rebuilt from the history."""
    history = [event.item for event in store.history(user)]
    again = engine.recommend(history=history, k=1000)
    assert_same_scores(scores(engine, user), {item.item: item.score for item in again.items})
