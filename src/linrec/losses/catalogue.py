"""The one list of losses."""

from __future__ import annotations

from typing import Any

from linrec.losses.config import LossConfig
from linrec.losses.gbce import GBCE
from linrec.losses.loss import Loss
from linrec.losses.sampled_softmax import SampledSoftmax
from linrec.losses.sampling import IntArray
from linrec.losses.softmax import FullSoftmax
from linrec.settings import choose

LOSSES: dict[str, type[Loss]] = {
    "softmax": FullSoftmax,
    "sampled-softmax": SampledSoftmax,
    "gbce": GBCE,
}


def configs() -> dict[str, type[LossConfig]]:
    """The class of settings of each loss."""
    return {name: loss.Config for name, loss in LOSSES.items()}


def loss_config(**settings: Any) -> LossConfig:
    """The complete settings of `loss`, which is softmax if not given."""
    return choose("loss", configs(), settings)


def build_loss(config: LossConfig, counts: IntArray) -> Loss:
    """counts: [n_items + 1], how often each item occurs in training."""
    loss = LOSSES[config.loss]
    assert isinstance(config, loss.Config), "loss_config makes the config of any loss"
    return loss(config, counts)
