"""Searches that take seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from linrec.tuning.results import Tuned
from tests.training.cases import SMALL

SPACE: dict[str, Any] = {
    "learning_rate": {"low": 0.0001, "high": 0.03, "log": True},
    "dropout": {"low": 0.0, "high": 0.8},
    "width": {"choices": [8, 16]},
}
FIXED = {name: value for name, value in SMALL.items() if name not in SPACE} | {
    "epochs": 3,
    "batch_tokens": 256,
}


def space_file(path: Path) -> Path:
    from linrec.tuning.space import parse_space, space_toml

    path.write_text(space_toml(parse_space(SPACE, "a test")), "utf-8")
    return path


def comparable(tuned: Tuned) -> pl.DataFrame:
    """Everything of the trials but the time they took."""
    return tuned.trials.drop("seconds")
