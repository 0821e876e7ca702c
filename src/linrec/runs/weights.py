"""A model built around given weights; nothing larger than the weights is ever allocated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from linrec.backbones import Backbone, build
from linrec.backbones.config import ModelConfig
from linrec.baselines import BASELINES, Baseline, BaselineConfig
from linrec.data.dataset.item_features import ItemFeatures
from linrec.runs.config import AnyConfig
from linrec.runs.tensors import TRAIN_AGAIN, last_line
from linrec.types import InputError

AnyModel = Backbone | Baseline
"""What a run can hold."""

MAX_TENSORS = 20_000
TENSORS_PER_LAYER = 4  # every block has more: attention, feed-forward network and norms


class UnfitWeightsError(Exception):
    """The weights are not those of the model that the settings describe."""


def build_around(
    weights: Mapping[str, Tensor], config: AnyConfig, features: ItemFeatures
) -> AnyModel:
    """The model of these settings with these weights, or the baseline with these counts."""
    try:
        if isinstance(config, BaselineConfig):
            if config.open:
                raise ValueError(f"{config.open[0]} is not decided")
            kind = BASELINES[config.backbone]
            kind.check_counts(weights, features.n_items)
            return kind(config, weights)
        _check_count(weights, config)
        _check_sizes(weights, config, features)
        model = build(config, features)
        model.load_state_dict(weights)
    except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise UnfitWeightsError(last_line(error)) from None
    return model


def _check_sizes(
    weights: Mapping[str, Tensor], config: ModelConfig, features: ItemFeatures
) -> None:
    """Compare the sizes with those of a model without memory, before one with memory is built."""
    try:
        with torch.device("meta"):
            empty = build(config, features)
    except (RuntimeError, NotImplementedError) as error:
        if "meta" in str(error):  # a part of the model that reads its values as it is built
            return
        raise
    if _sizes(empty.state_dict()) != _sizes(weights):
        empty.load_state_dict(weights, assign=True)  # raises, and names the difference


def _check_count(weights: Mapping[str, Tensor], config: ModelConfig) -> None:
    if len(weights) > MAX_TENSORS:
        raise UnfitWeightsError(f"{len(weights):,} tensors are more than any model has")
    if config.layers * TENSORS_PER_LAYER > len(weights):
        raise UnfitWeightsError(
            f"{config.layers:,} layers have more than the {len(weights):,} tensors there are"
        )


def check_values(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Refuse tensors that no training leaves behind."""
    for name, value in weights.items():
        finite = bool(value.numel()) and bool(torch.isfinite(value).all())
        if not finite:
            problem = "holds values that are not finite" if value.numel() else "is empty"
            raise InputError(f"{path} is damaged ({name} {problem}); {TRAIN_AGAIN}")


def _sizes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in tensors.items()}
