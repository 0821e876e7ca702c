"""What a run is: the model, and how it was trained. Read from recipes, flags and config.json."""

from __future__ import annotations

import sys
from dataclasses import Field, asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from linrec.backbones.config import ModelConfig, complaint, described
from linrec.types import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def is_own(item: Field[Any]) -> bool:
    """Whether only some losses have this setting (`Loss.own_settings`)."""
    return bool(item.metadata["own"])


SEEDS = 2**63  # torch takes no more


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    epochs: int = described(100, "Epochs at most.")
    patience: int = described(10, "Epochs without a better validation NDCG@10 before stopping.")
    learning_rate: float = described(1e-3, "Step size of Adam.")
    weight_decay: float = described(0.0, "L2 penalty of Adam.")
    window: int = described(2048, "Events trained on at a stretch; longer histories are cut.")
    batch_tokens: int = described(4096, "Events in a batch, padding included.")
    seed: int = described(0, "The same seed gives the same model.")
    loss: Literal["softmax", "sampled-softmax", "gbce"] = described(
        "softmax", "Over the whole catalogue, or with negatives drawn from a large one."
    )
    negatives: int | None = described(
        None,
        "Items drawn for the targets to be told from (sampled-softmax, gbce).",
        unset="2048, gbce 256",
        own=True,
    )
    sampling_power: float | None = described(
        None,
        "How much oftener popular items are drawn: 0 not at all, 1 in proportion "
        "(sampled-softmax).",
        unset="0.5",
        own=True,
    )
    calibration: float | None = described(
        None,
        "t of gSASRec: 0 is binary cross-entropy, 1 takes all overconfidence back (gbce).",
        unset="0.75",
        own=True,
    )
    sparse_items: bool | None = described(
        None,
        "Move only the items that a step meets (sampled-softmax, gbce).",
        unset="no",
        own=True,
    )
    precision: Literal["float32", "bfloat16"] = described("float32", "Of the matrix products.")
    compile: bool = described(False, "Train through torch.compile, which needs a C++ compiler.")
    device: str = described("auto", "cpu, cuda, mps or auto.")

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "window", "batch_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.learning_rate < float("inf"):
            raise InputError(f"learning_rate must be positive, not {self.learning_rate}")
        if not 0 <= self.weight_decay < float("inf"):
            raise InputError(f"weight_decay must be 0 or more, not {self.weight_decay}")
        if not 0 <= self.seed < SEEDS:
            raise InputError(f"seed must be at least 0 and below 2**63, not {self.seed}")
        self._check_loss()

    def _check_loss(self) -> None:
        if self.negatives is not None and self.negatives < 1:
            raise InputError(f"negatives must be at least 1, not {self.negatives}")
        if self.sampling_power is not None and not 0 <= self.sampling_power <= 1:
            raise InputError(f"sampling_power must be from 0 to 1, not {self.sampling_power}")
        if self.calibration is not None and not 0 <= self.calibration <= 1:
            raise InputError(f"calibration must be from 0 to 1, not {self.calibration}")
        if self.sparse_items and self.weight_decay:
            raise InputError(
                "sparse_items leaves items alone that a step does not meet, weight_decay would "
                "shrink them; leave one of the two out"
            )

    def completed(self) -> TrainingConfig:
        """What was left open filled in by the loss; what it has no use for refused."""
        from linrec.losses import own_settings_of  # here, to list the settings without torch

        given = {item.name: getattr(self, item.name) for item in fields(self) if is_own(item)}
        return replace(self, **own_settings_of(self.loss, given))


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    description: str = ""

    @property
    def window(self) -> int:
        """Events of one training window: none is longer than what the encoder will ever read."""
        return min(self.training.window, self.model.max_length or self.training.window)

    def with_settings(self, settings: dict[str, Any]) -> RunConfig:
        """The same run with some fields changed, each named as in `settings_of`."""
        unknown = sorted(set(settings) - set(SETTINGS))
        if unknown:
            raise InputError(f"unknown setting {unknown[0]!r}; choose from {', '.join(SETTINGS)}")
        merged = self.as_dict()
        for name, value in settings.items():
            merged[SETTINGS[name]][name] = value
        return parse(merged)

    def completed(self) -> RunConfig:
        """Nothing left open but what only the data can tell."""
        from linrec.backbones.catalogue import completed  # here, to list the settings without torch

        return replace(self, model=completed(self.model), training=self.training.completed())

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def with_training(self, **changes: Any) -> RunConfig:
        return replace(self, training=replace(self.training, **changes))


SETTINGS: dict[str, Literal["model", "training"]] = {
    **{item.name: "model" for item in fields(ModelConfig)},
    **{item.name: "training" for item in fields(TrainingConfig)},
}
"""Every setting of a run and the part it belongs to; no name is in both."""


def parse(content: dict[str, Any], source: str = "") -> RunConfig:
    """Check what came from a file or the command line; an unknown field is an error."""
    try:
        return TypeAdapter(RunConfig).validate_python(content)
    except ValidationError as error:
        told = complaint(error, {"": RunConfig, "model": ModelConfig, "training": TrainingConfig})
        raise InputError(f"{source}: {told}" if source else told) from None


def recipes() -> dict[str, RunConfig]:
    """The shipped recipes, by name."""
    folder = resources.files("linrec") / "recipes"
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {
        name.removesuffix(".toml"): _from_toml((folder / name).read_bytes(), name) for name in found
    }


def recipe(name: str) -> RunConfig:
    """A shipped recipe by name, or one of your own by the path of its TOML file."""
    if name.endswith(".toml"):
        path = Path(name)
        try:
            return _from_toml(path.read_bytes(), str(path))
        except OSError as error:
            raise InputError(f"cannot read recipe {path}: {error.strerror}") from error
    shipped = recipes()
    if name not in shipped:
        raise InputError(
            f"unknown recipe {name!r}; choose from {', '.join(shipped)}, or give a .toml file"
        )
    return shipped[name]


def _from_toml(content: bytes, source: str) -> RunConfig:
    try:
        return parse(tomllib.loads(content.decode()), f"recipe {source}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"recipe {source} is not valid TOML: {error}") from error
