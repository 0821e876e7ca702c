"""A model built around given weights; nothing larger than the weights is ever allocated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

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


class _Undrawn(TorchFunctionMode):
    """Draws no initial weights, for which torch imports its compiler even without memory."""

    draws = frozenset(
        (nn.init.normal_, nn.init.uniform_, nn.init.trunc_normal_, nn.init.xavier_normal_,
         nn.init.xavier_uniform_, nn.init.kaiming_normal_, nn.init.kaiming_uniform_,
         Tensor.normal_, Tensor.uniform_)
    )  # fmt: skip

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        if func in self.draws:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def _check_sizes(
    weights: Mapping[str, Tensor], config: ModelConfig, features: ItemFeatures
) -> None:
    """Compare the sizes with those of a model without memory, before one with memory is built."""
    try:
        with torch.device("meta"), _Undrawn():
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
    if config.heads > max((value.numel() for value in weights.values()), default=0):
        raise UnfitWeightsError(f"{config.heads:,} heads have no room in any of the tensors")


def check_values(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Refuse tensors that no training leaves behind."""
    for name, value in weights.items():
        finite = bool(value.numel()) and bool(torch.isfinite(value).all())
        if not finite:
            problem = "holds values that are not finite" if value.numel() else "is empty"
            raise InputError(f"{path} is damaged ({name} {problem}); {TRAIN_AGAIN}")


def _sizes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in tensors.items()}
