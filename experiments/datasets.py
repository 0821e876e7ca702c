"""The paper's two datasets: where they come from, how they are prepared, how ours differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

import linrec
from linrec import InputError


@dataclass(frozen=True)
class Dataset:
    title: str
    recipe: str
    differs: str  # from the paper's, in a sentence
    prepare: Mapping[str, Any] = field(default_factory=dict)
    features: str = ""  # what sasrecf and fdsa read; nothing: the item's own id
    settings: Mapping[str, Any] = field(default_factory=dict)  # other than the paper's


DATASETS = {
    "ml-1m": Dataset(
        "ML-1M",
        "paper-ml-1m",
        "The same ratings. Items with fewer than 5 of them are left out, as in the sequences most "
        "papers publish on; RecBole counts a padding user and the unrated items of the catalogue.",
        {"min_item_events": 5},
        "genre,year",
    ),
    "gowalla": Dataset(
        "Gowalla",
        "paper-gowalla",
        "A smaller cut of the same SNAP check-ins: users and places with at least 10 events each "
        "(the NGCF / LightGCN benchmark) where the paper kept 5, so half of its events, half of "
        "its users and a quarter of its places. Repeat visits are merged in both; here a place "
        "stands at a user's last visit to it. Training tells a place from 2,048 drawn ones instead "
        "of from all, in a fifth of the time ([log.md](log.md)).",
        settings={"loss": "sampled-softmax"},
    ),
}


def is_given(name: str, given: Path | None, runs: Path) -> bool:
    return given is not None or (runs / f"data-{name}" / "dataset.json").exists()


def open_dataset(name: str, given: Path | None, runs: Path) -> linrec.SequenceStore:
    """A dataset as given, or events as given, prepared in the runs folder if not done before."""
    if given is not None and (given / "dataset.json").exists():
        return linrec.SequenceStore.open(given)
    place = runs / f"data-{name}"
    runs.mkdir(parents=True, exist_ok=True)
    with FileLock(runs / f".data-{name}.lock"):  # two processes may start side by side
        if (place / "dataset.json").exists():
            return linrec.SequenceStore.open(place)
        if given is None:
            raise InputError(f"{name} is not prepared in {place}; give it with --data {name}=PATH")
        events = _events(name, given)
        items = events.parent / f"{name}.item"
        known: dict[str, Any] = {"items": items} if items.exists() else {}
        return linrec.prepare(events, place, **known, **DATASETS[name].prepare)


def _events(name: str, given: Path) -> Path:
    """A file of events, or the one in a folder that is named after the dataset."""
    if not given.is_dir():
        return given
    for file in (f"{name}.inter.gz", f"{name}.inter", "ratings.dat"):
        if (given / file).exists():
            return given / file
    return given
