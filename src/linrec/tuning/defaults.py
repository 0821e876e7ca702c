"""The space that is searched if none is given: around the recipe, so that it contains it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from linrec.backbones.config import BERT4RecConfig, COREConfig, ModelConfig
from linrec.losses.config import GBCEConfig, SampledSoftmaxConfig
from linrec.runs.config import RunConfig
from linrec.tuning.space import Choice, Range, Space

# with linrec-decay each head has a memory span of its own, so more of them mean more
HEADS = {"linrec-decay": (4, 8, 16), "softmax": (1, 2, 4)}
OTHER_HEADS = (2, 4, 8)
WEIGHT_DECAYS = (0.0, 1e-6, 1e-5, 1e-4)


def default_space(config: RunConfig, named: Collection[str] = ()) -> Space:
    """named: settings that were given by name, which are fixed.

    config: with what follows from the data decided, such as whether seen items are kept.
    """
    model = config.model
    assert isinstance(model, ModelConfig)
    space = {**_training(config), **_size(model), **_of_backbone(model), **_of_loss(config)}
    if config.training.seen == "keep" and model.causal and model.repeat_head == "auto":
        space["repeat_head"] = Choice(("on", "off"))
    return {name: part for name, part in space.items() if name not in named}


def _training(config: RunConfig) -> dict[str, Any]:
    training = config.training
    rate, tokens = training.learning_rate, training.batch_tokens
    space: dict[str, Any] = {
        "learning_rate": Range(min(3e-4, rate), max(1e-2, rate), log=True),
        "batch_tokens": _with((max(tokens // 2, 1), tokens * 2), tokens),
    }
    if not training.sparse_items:
        space["weight_decay"] = _with(WEIGHT_DECAYS, training.weight_decay)
    return space


def _size(model: ModelConfig) -> dict[str, Any]:
    widths = tuple(sorted({max(model.width // 2, model.heads), model.width, model.width * 2}))
    widths = tuple(width for width in widths if width % model.heads == 0)
    usual = HEADS.get(model.attention, OTHER_HEADS)
    heads = tuple(n for n in usual if all(width % n == 0 for width in widths))
    return {
        "dropout": Range(0.0, max(0.5, model.dropout)),
        "width": Choice(widths),
        "heads": _with(heads, model.heads),
        "layers": Range(1, max(4, model.layers)),
    }


def _of_backbone(model: ModelConfig) -> dict[str, Any]:
    if isinstance(model, BERT4RecConfig) and model.objective == "cloze":
        return {"mask_ratio": Range(min(0.1, model.mask_ratio), max(0.6, model.mask_ratio))}
    if isinstance(model, COREConfig):
        low, high = min(0.02, model.temperature), max(0.3, model.temperature)
        return {"temperature": Range(low, high, log=True)}
    return {}


def _of_loss(config: RunConfig) -> dict[str, Any]:
    loss = config.loss
    if not isinstance(loss, SampledSoftmaxConfig | GBCEConfig):
        return {}
    few = max(loss.negatives // 4, 1)
    own = "sampling_power" if isinstance(loss, SampledSoftmaxConfig) else "calibration"
    return {"negatives": Range(few, loss.negatives * 4, log=True), own: Range(0.0, 1.0)}


def _with(choices: tuple[Any, ...], own: Any) -> Choice:
    return Choice(tuple(sorted({*choices, own})))
