"""The datasets: the paper's two, and those that show what lies beyond it."""

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
    differs: str  # how it differs from the paper's, or what it is, in a sentence
    prepare: Mapping[str, Any] = field(default_factory=dict)
    features: str = ""  # of sasrecf and fdsa; without any they read the item id
    settings: Mapping[str, Any] = field(default_factory=dict)  # other than the paper's
    epochs: int = 30  # of every cell, so that a table compares equal budgets
    file: str = ""  # the name of its files, if that is not the dataset's own


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
        "stands at a user's last visit to it. Training contrasts a place with 2,048 sampled ones "
        "instead of with all, in a fifth of the time ([log.md](log.md)).",
        settings={"loss": "sampled-softmax"},
        epochs=20,
    ),
}
"""Those of the paper."""

OTHERS = {
    "ml-1m-all": Dataset(
        "ML-1M, all items",
        "default",
        "The same ratings with the 290 films that fewer than 5 people rated.",
        file="ml-1m",
    ),
}

_REPEATS: dict[str, Any] = {
    "width": 64, "heads": 4, "inner": 128, "layers": 2, "norm": "post", "dropout": 0.2,
    "learning_rate": 0.002, "warmup": 100,
    "batch_tokens": 1024, "loss": "sampled-softmax", "seen": "keep", "seen_aware": False,
    "precision": "bfloat16",
}  # fmt: skip
"""What the trainings on data with repeats have in common, besides the recipe: a small model."""

WITH_REPEATS = {
    "gowalla-checkins": Dataset(
        "Gowalla, all check-ins",
        "default",
        "Check-ins with repeats and real times; places with at least 10 of them.",
        settings=_REPEATS,
        epochs=6,
    ),
    "foursquare-4c": Dataset(
        "Foursquare, four cities",
        "default",
        "Check-ins in Kuala Lumpur, Jakarta, Sao Paulo and New York. The times are only an order, "
        "so the model reads no gaps between events.",
        settings=_REPEATS | {"negatives": 1024, "time_gaps": False},
        epochs=4,
    ),
    "congress-hashtags": Dataset(
        "Hashtags of Congress",
        "default",
        "Which hashtag an account uses next, real times; the hashtags of one tweet, 31 % of all "
        "neighbours, are in the order of its text.",
        settings=_REPEATS | {"negatives": 1024},
        epochs=8,
    ),
    "complete-journey": Dataset(
        "The Complete Journey",
        "default",
        "Groceries of half the households of the panel. The next basket is predicted from all "
        "baskets before it; inside a basket the order is random.",
        {"group": "basket_id"},
        settings=_REPEATS | {"targets": "basket", "loss": "softmax"},
        epochs=5,
    ),
}
"""Where users come back to the same items."""

ALL = DATASETS | OTHERS | WITH_REPEATS


def is_given(name: str, given: Path | None, runs: Path) -> bool:
    return given is not None or (runs / f"data-{name}" / "dataset.json").exists()


def open_dataset(name: str, given: Path | None, runs: Path) -> linrec.SequenceStore:
    """A prepared dataset as given, or events as given, prepared in the runs folder once."""
    if given is not None and (given / "dataset.json").exists():
        return linrec.SequenceStore.open(given)
    path = runs / f"data-{name}"
    runs.mkdir(parents=True, exist_ok=True)
    with FileLock(runs / f".data-{name}.lock"):  # two processes may start side by side
        if (path / "dataset.json").exists():
            return linrec.SequenceStore.open(path)
        if given is None:
            raise InputError(f"{name} is not prepared in {path}; give it as --data {name}=PATH")
        events = _events(name, given)
        items = events.parent / f"{ALL[name].file or name}.item"
        known: dict[str, Any] = {"items": items} if items.exists() else {}
        return linrec.prepare(events, path, **known, **ALL[name].prepare)


def _events(name: str, given: Path) -> Path:
    """The file itself, or the one in a folder that has the name of the dataset."""
    if not given.is_dir():
        return given
    stem = ALL[name].file or name
    for file in (f"{stem}.inter.gz", f"{stem}.inter", "ratings.dat"):
        if (given / file).exists():
            return given / file
    return given
