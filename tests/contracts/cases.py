"""Every backbone with every attention, on a dataset whose answer is obvious.

The pairs come from the catalogues: a backbone or a mechanism is under contract from the moment it
is entered there. The items of the cycle have features of every kind, and some items lack each.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from linrec import ops
from linrec.backbones import BACKBONES, Backbone, ModelConfig, build, model_config
from linrec.backbones.config import FeatureConfig
from linrec.data.dataset.gaps import gaps_of
from linrec.data.dataset.item_features import Field, ItemFeatures, choose_fields
from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.layers import RepeatHead
from linrec.runs.recipes import recipe
from linrec.types import PAD
from tests.training import cases
from tests.training.cases import N_ITEMS, N_USERS, cycle_events

SMALL: dict[str, Any] = {
    "width": 8,
    "heads": 2,
    "layers": 2,
    "inner": 16,
    "positions": 16,
    "dropout": 0.2,
}

CAUSAL = [name for name, found in BACKBONES.items() if "all-positions" in found.Config.objectives]
PAIRS = [(name, attention) for name in BACKBONES for attention in ops.MECHANISMS]
TRAINED = [*PAIRS, *((name, "linrec-decay", "time") for name in BACKBONES)]
LINEAR = [name for name in ops.MECHANISMS if ops.has_state(name)]
WAYS = [
    (name, objective) for name, found in BACKBONES.items() for objective in found.Config.objectives
]

# seconds between neighbouring events: none, a part, much and a step back, again and again
GAPS = (0.0, 3.0, 0.0, 4_000.0, 0.5, -20.0, 86_400.0, 7e7, 1.0)
CLOCK = torch.tensor(GAPS, dtype=torch.float64).repeat(130).cumsum(0)
CLOCK[13::40] = torch.nan

WITH_AND_WITHOUT_TIME = pytest.mark.parametrize("time_gaps", [False, True], ids=["", "time"])
EVERY_BACKBONE = pytest.mark.parametrize("backbone", list(BACKBONES))
CAUSAL_BACKBONES = pytest.mark.parametrize("backbone", CAUSAL)
EVERY_ATTENTION = pytest.mark.parametrize("attention", list(ops.MECHANISMS))
LINEAR_ATTENTION = pytest.mark.parametrize("attention", LINEAR)
EVERY_WAY = pytest.mark.parametrize(("backbone", "objective"), WAYS)
BOTH_WAYS = pytest.mark.parametrize(
    ("backbone", "objective"), [way for way in WAYS if way[1] != "all-positions"]
)

# what the recipe `default` has and the backbones have not
RECIPE = {
    name: getattr(recipe("default").model, name) for name in ("norm", "head_norm", "time_gaps")
}
EVERY_BLOCK = pytest.mark.parametrize(
    "block",
    [
        pytest.param({}, id="plain"),
        pytest.param({"head_norm": True, "gate": True}, id="gate", marks=pytest.mark.slow),
        pytest.param({"gate": True, "time_gaps": True}, id="time", marks=pytest.mark.slow),
        pytest.param(RECIPE, id="recipe", marks=pytest.mark.slow),
    ],
)


def cycle_features(items: int = N_ITEMS) -> pl.DataFrame:
    """A category, some tags and a number of each item; the last item is not listed at all."""
    return pl.DataFrame(
        {
            "item": [f"i{index:02d}" for index in range(items)],
            "genre": [None if index == 3 else "abc"[index % 3] for index in range(items)],
            "tags": [list("xyz"[: index % 4]) for index in range(items)],
            "year": [None if index == 5 else 1990.0 + index for index in range(items)],
        }
    )[:-1]


@cache
def cycle(users: int = N_USERS) -> SequenceStore:
    kinds = {"genre": "categorical", "tags": "multi", "year": "numeric"}
    events = cycle_events(users).with_columns(time=60 * pl.col("time") ** 2 + pl.col("user"))
    return prepare(events, items=cycle_features(), feature_kinds=kinds)


@cache
def what_is_known(config: ModelConfig) -> ItemFeatures:
    """What the backbone would know of the items of the cycle, and of its events."""
    if config.context:
        values = tuple(Field(name, "categorical", values=("a", "b")) for name in config.context)
        return replace(what_is_known(replace(config, context=None)), context=values)
    vectors = cycle_vectors() if config.item_vectors == "on" else None
    if not isinstance(config, FeatureConfig):
        return replace(ItemFeatures.ids(N_ITEMS), vectors=vectors)
    table, names = cycle().item_table, config.features
    assert not isinstance(names, str)
    return ItemFeatures.of(table, choose_fields(table, cycle().features, names), vectors=vectors)


def cycle_vectors() -> NDArray[np.float32]:
    """A vector for each item of the cycle but the last, PAD first."""
    vectors = np.random.default_rng(0).normal(size=(N_ITEMS + 1, 6)).astype(np.float32)
    vectors[[0, -1]] = 0
    return vectors


def plain_model(backbone: str, attention: str, *, seed: int = 0, **changes: Any) -> Backbone:
    torch.manual_seed(seed)
    config = model_config(**SMALL | {"backbone": backbone, "attention": attention} | changes)
    return build(config, what_is_known(config))


def model(backbone: str, attention: str, **changes: Any) -> Backbone:
    """In double precision, and with weights so large that no difference between events hides."""
    made = plain_model(backbone, attention, **changes).eval().double()
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, nn.Linear):
                module.weight.mul_(20)
            if isinstance(module, RepeatHead):  # which begins as zero
                module.weight.normal_()
                module.bias.normal_()
    return made


def narrow_model(backbone: str, attention: str, **changes: Any) -> Backbone:
    """As it is used, in float32, with weights of the size that a training gives them."""
    made = plain_model(backbone, attention, **changes).eval()
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, nn.Linear):
                module.weight.mul_(3)
            if isinstance(module, nn.Embedding):
                module.weight.mul_(10)
    return made


def history(length: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng([seed, length])
    return torch.from_numpy(rng.integers(1, N_ITEMS + 1, (1, length)))


def times_of(items: Tensor, start: int = 0) -> Tensor:
    """When the events happened that begin as the `start`-th of their history."""
    return CLOCK[start : start + items.shape[-1]].expand(items.shape)


def sequences(*rows: Tensor, start: int = 0) -> Sequences:
    """Histories at the times of `times_of`; each request comes when the next event would."""
    items = [row.flatten().numpy().astype(np.int32) for row in rows]
    times = [times_of(row.flatten(), start).numpy() for row in rows]
    return Sequences.of(items, times, [float(CLOCK[start + row.numel()]) for row in rows])


def hidden(backbone: Backbone, items: Tensor) -> Tensor:
    """At every position, at the times of `sequences`."""
    keep = items != PAD
    gaps = gaps_of(times_of(items), keep, CLOCK[keep.sum(1)])
    return backbone(items, keep, *gaps)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def settings(backbone: str, attention: str, **changes: Any) -> dict[str, Any]:
    """With which the pair learns the cycle in a moment."""
    usual = cases.SMALL | {"dropout": 0.1, "epochs": 10, "patience": 100}
    if BACKBONES[backbone].Config.objectives[0] == "cloze":
        # a mask tells nothing: that its neighbour does has to be learned as well
        usual |= {"width": 32, "max_length": 2, "batch_tokens": 32}
        usual |= {"learning_rate": 0.01, "epochs": 25}
    usual |= {"unknown_time": 0.5}  # so few targets: enough of both kinds
    return usual | {"backbone": backbone, "attention": attention} | changes
