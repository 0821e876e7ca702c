"""The settings of each loss.

They are apart from the losses so that the help of `linrec train` can list them without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from linrec.settings import check, override, setting


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """The settings that every loss has."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    samples_items: ClassVar[bool] = False
    """Whether a step scores a sample of the items instead of all."""

    loss: str = setting(
        "softmax", "Loss: over the whole catalogue, or over negatives sampled from a large one."
    )
    seen_aware: bool = setting(
        False, "Leave what a user has seen out of the loss, for lists that hide seen items."
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True)
class SampledSoftmaxConfig(LossConfig):
    samples_items = True

    loss: str = override(LossConfig, "loss", "sampled-softmax")
    negatives: int = setting(2048, "Sampled negatives.", min=1)
    sampling_power: float = setting(
        0.5,
        "Power of the popularity by which negatives are drawn: 0 is uniform, 1 proportional.",
        min=0,
        max=1,
    )


@dataclass(frozen=True, kw_only=True)
class GBCEConfig(LossConfig):
    samples_items = True

    loss: str = override(LossConfig, "loss", "gbce")
    negatives: int = setting(256, "Sampled negatives.", min=1)
    calibration: float = setting(
        0.75,
        "Calibration t of gSASRec: 0 is binary cross-entropy, 1 removes all overconfidence.",
        min=0,
        max=1,
    )


CONFIGS: dict[str, type[LossConfig]] = {
    config.loss: config for config in (LossConfig, SampledSoftmaxConfig, GBCEConfig)
}
"""By the loss that has them; `linrec train` makes its flags from these."""
