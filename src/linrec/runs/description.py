"""config.json of a run: what was trained, how, and on which dataset."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from linrec.baselines.config import CONFIGS as BASELINES
from linrec.data.dataset.item_features import Field
from linrec.files.guard import reading
from linrec.runs.config import AnyConfig, RunConfig, model_config, parse
from linrec.runs.tensors import TRAIN_AGAIN
from linrec.types import InputError
from linrec.validation import explain

FORMAT = 2  # format 1 had a single backbone and another layout of the weights

SINCE = {"seen": "hide"}
"""What runs did before there was a setting for it, where the default is something else."""

MODELS_SINCE = {"repeat_head": "off", "item_vectors": "off"}
"""The same for the settings of models."""


def _as_config(content: object) -> object:
    return model_config(content) if isinstance(content, dict) else content


class RunDescription(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    format: int = FORMAT
    linrec: str
    model: Annotated[AnyConfig, BeforeValidator(_as_config)]
    training: dict[str, Any] = {}
    n_items: int
    dataset: dict[str, Any] = {}  # fingerprint, path, time of the newest event
    final: bool = False  # whether the weights were trained on all events, the held-out ones too
    features: tuple[Field, ...] = ()  # the item features that the model reads, with vocabularies
    context: tuple[Field, ...] = ()  # of the events, likewise
    start: dict[str, Any] | None = None  # of a warm start: the run, its weights, what changed

    def config(self, source: str) -> RunConfig:
        """The settings of the run; `source` names the file in error messages."""
        training = SINCE | self.training
        return parse({"model": asdict(self.model), "training": training}, source)

    def to_json(self) -> str:
        content = {
            **dict(self),
            "model": asdict(self.model),
            "features": [asdict(field) for field in self.features],
            "context": [asdict(field) for field in self.context],
        }
        return json.dumps(content, indent=2) + "\n"


def read_description(path: Path, text: bytes) -> RunDescription:
    """What the text of the file `path` describes."""
    with reading(str(path), TRAIN_AGAIN):
        content = json.loads(text)
    # another version explains every other difference, so it is checked first
    version = content.get("format") if isinstance(content, dict) else None
    if isinstance(version, int) and version != FORMAT:
        raise InputError(
            f"{path} has format version {version} and this linrec reads version {FORMAT}; "
            f"{TRAIN_AGAIN}"
        )
    model = content.get("model") if isinstance(content, dict) else None
    if isinstance(model, dict) and model.get("backbone") not in BASELINES:
        content["model"] = MODELS_SINCE | model
    try:
        return RunDescription.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path} is damaged or not of a linrec run: {explain(error)}") from None


def is_description(path: Path) -> bool:
    """Whether linrec wrote this file; many other programs have a config.json too."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"format", "linrec", "n_items"} <= content.keys()
