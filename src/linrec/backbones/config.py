"""The settings of each backbone: everything needed to build a model again around its weights.

They are apart from the models so that the help of `linrec train` can list them without torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from pydantic import ConfigDict

from linrec.settings import check, either, override, setting
from linrec.types import InputError, argument

Objective = Literal["all-positions", "last-position", "cloze"]
Norm = Literal["post", "pre"]
RepeatHeadChoice = Literal["auto", "on", "off"]
VectorsChoice = Literal["auto", "on", "off"]

_MAX_HEADS = 1 << 16  # that are tried for a suggestion


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The settings that every backbone has.

    The defaults read whole histories with linrec-decay and train every position at once.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    objectives: ClassVar[tuple[Objective, ...]] = ("all-positions", "last-position")
    """The objectives that the backbone can be trained on."""

    backbone: str = setting(
        "sasrec", "Transformer that encodes the histories, or a baseline that only counts."
    )
    attention: str = setting(
        "linrec-decay",
        "Attention mechanism: softmax, linrec, linrec-decay or any other of linrec.ops.",
    )
    objective: Objective = setting(
        "all-positions",
        "Positions to predict: all of a window at once (causal), the last of each prefix, or "
        "masked ones.",
        choices=get_args(Objective),
    )
    width: int = setting(128, "Embedding and hidden size.", min=1)
    heads: int = setting(8, "Attention heads; must divide the width.", min=1)
    layers: int = setting(2, "Transformer blocks.", min=1)
    inner: int = setting(256, "Feed-forward size.", min=1)
    dropout: float = setting(0.2, "Dropout rate.", min=0, below=1)
    norm: Norm = setting(
        "post",
        "LayerNorm after each residual sum, or before each sublayer.",
        choices=get_args(Norm),
    )
    head_norm: bool = setting(False, "RMS norm of each attention head's output.")
    gate: bool = setting(False, "Gate on the attention's output, computed from its input.")
    positions: int = setting(256, "Learned positions; later events share the last one.", min=1)
    max_length: int | None = setting(
        None, "Newest events of a history to read; all of them if 0 or left out.", min=1
    )
    time_gaps: bool = setting(
        False,
        "Read the time between events, and from the newest one to the request; needs real times.",
    )

    context: tuple[str, ...] | str | None = setting(
        None,
        "Context of each event to read, as type,rating; from the columns that `linrec prepare` "
        "was told to keep. None if left out.",
    )
    repeat_head: RepeatHeadChoice = setting(
        "auto",
        "Add to the scores of past items by how often and how long ago; auto: where seen items "
        "are kept and a short trial says that it pays.",
        choices=get_args(RepeatHeadChoice),
    )

    item_vectors: VectorsChoice = setting(
        "auto",
        "Add a projection of the item vectors of the data to the item embeddings, so that an item "
        "without events can be recommended; auto: where the data has them.",
        choices=get_args(VectorsChoice),
    )
    id_dropout: float = setting(
        0.0,
        "With item vectors: share of the items whose own embedding is left out in training, so "
        "that the vectors alone say something.",
        min=0,
        below=1,
    )

    def __post_init__(self) -> None:
        if self.max_length == 0:  # a flag or a TOML file cannot contain None
            object.__setattr__(self, "max_length", None)
        if self.context is not None:
            object.__setattr__(self, "context", _names(self.context) or None)
        check(self)
        from linrec.ops import find  # here, so that the settings can be listed without torch

        find(self.attention)
        if self.objective not in self.objectives:
            remedy = either([argument("objective", name) for name in self.objectives])
            raise InputError(
                f"{self.backbone} cannot be trained on {self.objective}; choose {remedy}"
            )
        if self.width % self.heads:
            raise InputError(
                f"width {self.width} must be a multiple of heads {self.heads}; "
                f"try {argument('heads', _nearest_divisor(self.width, self.heads))}"
            )

        if self.repeat_head == "on" and not self.causal:
            raise InputError(
                f"{argument('repeat_head', 'on')} needs a causal model, and {self.backbone} "
                f"trained on {self.objective} reads a history both ways; leave "
                f"{argument('repeat_head')} out, or choose another "
                f"{argument('backbone')} with {argument('objective', 'all-positions')}"
            )

    @property
    def causal(self) -> bool:
        """All positions can only be trained at once if none sees its own future."""
        return self.objective == "all-positions"


@dataclass(frozen=True, kw_only=True)
class FeatureConfig(ModelConfig):
    """The settings of a backbone that reads item features."""

    features: tuple[str, ...] | str | None = setting(
        None,
        "Item features to read, as genre,year; all that `linrec describe` lists if left out.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features is not None:
            names = _names(self.features)
            if not names:
                raise InputError(
                    "features names none; give them as genre,year or leave it out for all"
                )
            object.__setattr__(self, "features", names)


@dataclass(frozen=True, kw_only=True)
class SASRecFConfig(FeatureConfig):
    backbone: str = override(ModelConfig, "backbone", "sasrecf")


@dataclass(frozen=True, kw_only=True)
class FDSAConfig(FeatureConfig):
    backbone: str = override(ModelConfig, "backbone", "fdsa")


@dataclass(frozen=True, kw_only=True)
class BERT4RecConfig(ModelConfig):
    objectives = ("cloze", "last-position")

    backbone: str = override(ModelConfig, "backbone", "bert4rec")
    objective: Objective = override(ModelConfig, "objective", "cloze")
    mask_ratio: float = setting(
        0.2, "Share of the events that are masked, besides the last one.", min=0, below=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective == "cloze":
            return
        if self.mask_ratio not in (0.0, type(self).mask_ratio):
            raise InputError(
                f"{self.backbone} trained on {self.objective} has no use for mask_ratio; leave "
                f"{argument('mask_ratio')} out, or choose {argument('objective', 'cloze')}"
            )
        object.__setattr__(self, "mask_ratio", 0.0)  # only the last event is masked


@dataclass(frozen=True, kw_only=True)
class COREConfig(ModelConfig):
    backbone: str = override(ModelConfig, "backbone", "core")
    temperature: float = setting(0.07, "Temperature that divides the cosines.", above=0)


CONFIGS: dict[str, type[ModelConfig]] = {
    config.backbone: config
    for config in (ModelConfig, SASRecFConfig, FDSAConfig, BERT4RecConfig, COREConfig)
}
"""By the backbone that has them; `linrec train` makes its flags from these."""


def _names(given: tuple[str, ...] | str) -> tuple[str, ...]:
    """As a flag or a recipe has them; each once."""
    listed = given.split(",") if isinstance(given, str) else given
    return tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))


def _nearest_divisor(width: int, heads: int) -> int:
    small = [n for n in range(1, min(math.isqrt(width), _MAX_HEADS) + 1) if width % n == 0]
    divisors = sorted({*small, *(width // n for n in small)})
    return min(divisors, key=lambda n: abs(n - heads))
