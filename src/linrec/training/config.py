"""What a run is: the model, and how it was trained. Read from recipes, flags and config.json."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, fields, replace
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
    precision: Literal["float32", "bfloat16"] = described("float32", "Of the matrix products.")
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
