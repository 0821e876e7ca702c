"""A model on disk: weights as safetensors, everything else as JSON and Parquet. No pickle."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError

from linrec.backbones import Backbone, build
from linrec.backbones.catalogue import AnyModelConfig
from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.item_features import Field, ItemFeatures
from linrec.data.dataset.store import SequenceStore
from linrec.files.atomic import check_free, write_bytes, write_text
from linrec.files.guard import first_line, reading
from linrec.types import InputError, argument
from linrec.validation import explain

FORMAT = 2  # 1 knew one backbone, and laid its weights out otherwise
CONFIG, WEIGHTS, ITEMS = "config.json", "model.safetensors", "items.parquet"
RESULTS = "evaluation"
AGAIN = "train the run again"


@dataclass(frozen=True)
class Catalogue:
    """The items a model knows, in index order: ids, titles, features, how often each occurred."""

    table: pl.DataFrame  # item, events, and whatever columns the dataset has

    @classmethod
    def of(cls, store: SequenceStore) -> Catalogue:
        """For a run to carry along."""
        return cls(store.item_table.with_columns(events=pl.Series(store.popularity()[1:])))

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
    model: AnyModelConfig
    training: dict[str, Any] = {}
    n_items: int
    dataset: dict[str, Any] = {}  # fingerprint, path, name
    features: tuple[Field, ...] = ()  # what the model reads of its items, with vocabularies


def write_description(folder: Path, description: RunDescription, catalogue: Catalogue) -> None:
    write_config(folder, description)
    catalogue.table.write_parquet(folder / ITEMS)


def write_config(folder: Path, description: RunDescription) -> None:
    content = {
        **dict(description),
        "model": asdict(description.model),
        "features": [asdict(field) for field in description.features],
    }
    write_text(folder / CONFIG, json.dumps(content, indent=2) + "\n")


def read_description(folder: Path) -> tuple[RunDescription, Catalogue]:
    description = _read_config(folder)
    path = folder / ITEMS
    with reading(str(path), AGAIN):
        # not by its path: polars would take a name with * or ? for a pattern
        table = pl.read_parquet(path.read_bytes())
    missing = [name for name in ("item", "events") if name not in table.columns]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}; the run is damaged, {AGAIN}")
    if len(table) != description.n_items:
        raise InputError(
            f"{path} holds {len(table)} items where {CONFIG} says {description.n_items}; "
            f"the run is damaged, {AGAIN}"
        )
    return description, Catalogue(table)


def is_run(folder: Path) -> bool:
    """Whether linrec made this folder; many other programs keep a config.json too."""
    try:
        content = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and {"format", "linrec", "n_items"} <= content.keys()


def check_free_for_run(folder: Path, *, overwrite: bool) -> None:
    """Refuse a place that holds anything but, with `overwrite`, an older run."""
    if is_run(folder):
        if not overwrite:
            raise InputError(
                f"{folder} already holds a run; add {argument('resume', True)} to continue it, "
                f"{argument('overwrite', True)} to replace it, or choose another place"
            )
    elif (folder / CONFIG).exists():  # config.json is a common name
        raise InputError(
            f"{folder} has a {CONFIG} that is not of a linrec run and will not be replaced; "
            "choose another place"
        )
    else:
        check_free(folder, overwrite=overwrite, marker=CONFIG)


def _read_config(folder: Path) -> RunDescription:
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{folder} is not a run: it has no {CONFIG}; `linrec train` makes one")
    with reading(str(path), AGAIN):
        content = json.loads(path.read_bytes())
    # another version explains every other difference, so it is looked at first
    version = content.get("format") if isinstance(content, dict) else None
    if isinstance(version, int) and version != FORMAT:
        raise InputError(
            f"{path} has format version {version} and this linrec reads version {FORMAT}; {AGAIN}"
        )
    try:
        return RunDescription.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path} is damaged or not of a linrec run: {explain(error)}") from None


def write_weights(path: Path, model: Backbone) -> None:
    tensors = {
        name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()
    }
    write_bytes(path, safetensors.torch.save(tensors))


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise InputError(f"{path} is missing: the training has not saved a model yet")
    with reading(str(path), AGAIN):
        content = path.read_bytes()
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise InputError(f"{path} is truncated or corrupt ({first_line(error)}); {AGAIN}") from None


def last_line(error: BaseException) -> str:
    """What torch says last of weights that do not fit; the lines before say where it looked."""
    return str(error).strip().splitlines()[-1].strip().rstrip(".")


def read_features(folder: Path, description: RunDescription, catalogue: Catalogue) -> ItemFeatures:
    for field in description.features:
        if field.name not in catalogue.table.columns:
            raise InputError(
                f"{folder / ITEMS} has no column {field.name!r}; the run is damaged, {AGAIN}"
            )
    return ItemFeatures.of(catalogue.table, description.features)


def read_model(folder: Path, description: RunDescription, catalogue: Catalogue) -> Backbone:
    model = build(description.model, read_features(folder, description, catalogue))
    tensors = read_tensors(folder / WEIGHTS)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(
            f"{folder / WEIGHTS} does not fit {folder / CONFIG} ({last_line(error)}); "
            f"the two come from different runs, {AGAIN}"
        ) from None
    return model.eval()
