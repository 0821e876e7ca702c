"""A dataset with an obvious answer, and models small enough to learn it in a moment.

After item n comes item n + 1, round and round. Users start anywhere and stop before they meet an
item again, so the last event alone tells the next one and nothing seen hides it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.runs.history import Row
from linrec.training.callbacks import Callback

N_ITEMS, N_USERS = 16, 48
FIRST_USER = 100

SMALL: dict[str, Any] = {
    "width": 16,
    "heads": 2,
    "layers": 1,
    "inner": 16,
    "dropout": 0.0,
    "positions": 16,
    "learning_rate": 0.03,
    "batch_tokens": 128,
    "epochs": 8,
    "device": "cpu",
    # what the recipe adds is tested where it is given by name
    "norm": "post",
    "head_norm": False,
    "time_gaps": False,
    "seen_aware": False,
    "schedule": "constant",
    "warmup": 0,
    "precision": "float32",
}


def flags_of(settings: dict[str, Any]) -> list[str]:
    """The settings as words of a command line."""
    words = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return words


def cycle_events(users: int = N_USERS, items: int = N_ITEMS, seed: int = 0) -> pl.DataFrame:
    """Users 100, 101, ...; items i00, i01, ..."""
    rng = np.random.default_rng(seed)
    rows = [
        (FIRST_USER + user, f"i{(start + step) % items:02d}", step)
        for user, start in enumerate(rng.integers(0, items, users))
        for step in range(int(rng.integers(5, items - 4)))
    ]
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


def cycle_items(items: int = N_ITEMS) -> pl.DataFrame:
    """Titles as films have them: one looks like markup, one is missing."""
    names = [f"Film {index}" for index in range(items)]
    names[0] = "[REC] (2007)"
    return pl.DataFrame({"item": [f"i{index:02d}" for index in range(items)], "title": names})[:-1]


def cycle(out: Path | None = None, **changes: Any) -> SequenceStore:
    return prepare(cycle_events(**changes), out, items=cycle_items())


def cycle_with_context(out: Path | None = None) -> SequenceStore:
    """Each event has a type, which two share, and a price, which is 0 for every fifth."""
    place = pl.int_range(pl.len())
    kind = pl.when(place % 2 == 0).then(pl.lit("even")).otherwise(pl.lit("odd"))
    events = cycle_events().with_columns(type=kind, price=(place % 5).cast(pl.Float64))
    return prepare(events, out, items=cycle_items(), context="type,price=numeric")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(folder: Path) -> dict[str, str]:
    """Every file of a folder and what it holds."""
    return {
        str(path.relative_to(folder)): digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def history_without_times(run: Path) -> pl.DataFrame:
    return pl.read_csv(run / "history.csv").drop("seconds", "valid_seconds")


class Recorder(Callback):
    """Records the epochs; a test may act at any of these moments."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.steps = 0
        self.ended = 0

    def on_batch_end(self, loss: float, targets: int) -> None:
        del loss, targets
        self.steps += 1

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        del best
        self.rows.append(row)

    def on_train_end(self) -> None:
        self.ended += 1
