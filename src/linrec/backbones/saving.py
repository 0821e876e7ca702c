"""A model on disk: weights as safetensors, everything else as JSON and Parquet. No pickle."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError

from linrec.backbones import Backbone, ModelConfig, build
from linrec.data.atomic import write_bytes, write_text
from linrec.data.ids import IdMap
from linrec.types import InputError

FORMAT = 1
CONFIG, WEIGHTS, ITEMS = "config.json", "model.safetensors", "items.parquet"


@dataclass(frozen=True)
class Catalogue:
    """The items a model knows, in index order: ids, titles, features and how often each occurred."""

    table: pl.DataFrame  # item, events, and whatever columns the dataset has

    @property
    def ids(self) -> IdMap:
        return IdMap(self.table["item"], first=1)

    def __len__(self) -> int:
        return len(self.table)


class RunDescription(BaseModel):
    """config.json of a run folder."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    format: int = FORMAT
    linrec: str
    model: ModelConfig
    training: dict[str, Any] = field(default_factory=dict)
    n_items: int
    dataset: dict[str, Any] = field(default_factory=dict)  # fingerprint, path, name


def write_description(folder: Path, description: RunDescription, catalogue: Catalogue) -> None:
    content = {**dict(description), "model": asdict(description.model)}
    write_text(folder / CONFIG, json.dumps(content, indent=2) + "\n")
    catalogue.table.write_parquet(folder / ITEMS)


def read_description(folder: Path) -> tuple[RunDescription, Catalogue]:
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{folder} is not a run: it has no {CONFIG}; `linrec train` makes one")
    try:
        description = RunDescription.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path} is damaged or of another version: {place}: {first['msg']}") from None
    try:
        catalogue = Catalogue(pl.read_parquet(folder / ITEMS))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"cannot read {folder / ITEMS}: {error}; train the run again") from error
    if len(catalogue) != description.n_items:
        raise InputError(
            f"{folder / ITEMS} holds {len(catalogue)} items where {CONFIG} says "
            f"{description.n_items}; the run is damaged, train it again"
        )
    return description, catalogue


def write_weights(path: Path, model: Backbone) -> None:
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    write_bytes(path, safetensors.torch.save(tensors))


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise InputError(f"{path} is missing: the training has not saved a model yet")
    try:
        return safetensors.torch.load(path.read_bytes())
    except SafetensorError as error:
        raise InputError(f"{path} is truncated or corrupt ({error}); train the run again") from None


def read_model(folder: Path, description: RunDescription) -> Backbone:
    model = build(description.model, description.n_items)
    tensors = read_tensors(folder / WEIGHTS)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(
            f"{folder / WEIGHTS} does not fit {folder / CONFIG}: {str(error).splitlines()[-1].strip()}; "
            "the two come from different runs"
        ) from None
    return model.eval()
