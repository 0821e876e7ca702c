"""Runs of before each backbone and loss had its own settings: theirs are None where unused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from linrec.recommender import Recommender, load
from tests.training.cases import SMALL, cycle

RECORDED = Path(__file__).parent / "format2"
CHOSEN: dict[str, dict[str, Any]] = {
    "sasrec": {},
    "bert4rec": {
        "backbone": "bert4rec",
        "objective": "last-position",
        "loss": "gbce",
        "negatives": 8,
    },
}

SINCE: dict[str, dict[str, Any]] = {  # settings that were added later, off by default
    "model": {
        "head_norm": False,
        "gate": False,
        "time_gaps": False,
        "repeat_head": "off",
        "item_vectors": "off",
        "id_dropout": 0.0,
    },
    "training": {
        "sparse_items": False,
        "seen_aware": False,
        "schedule": "constant",
        "warmup": 0,
        "clip_norm": 0.0,
        "ema": 0.0,
        "unknown_time": 0.15,
        "split": "leave-one-out",
        "targets": "next",
        "final": False,
        "seen": "hide",
    },
}


@pytest.mark.parametrize("name", list(CHOSEN))
def test_an_older_run_is_loaded_and_resumed(name: str, tmp_path: Path) -> None:
    store, settings = cycle(users=12), SMALL | {"epochs": 1} | CHOSEN[name]
    made = Recommender(**settings).fit(store, tmp_path / "run")
    shutil.copy(RECORDED / f"{name}.json", tmp_path / "run" / "config.json")
    (tmp_path / "run" / "manifest.json").unlink()  # older ones had none
    older = load(tmp_path / "run")
    assert older.config.as_dict() == made.config.as_dict() | {"description": ""}
    more = Recommender(**settings | {"epochs": 2}).fit(store, tmp_path / "run", resume=True)
    assert more.trained is not None
    assert more.trained.progress.epoch == 2


def test_a_new_run_records_only_the_settings_it_has(tmp_path: Path) -> None:
    Recommender(**SMALL | {"epochs": 1}).fit(cycle(users=12), tmp_path / "run")
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())
    older = json.loads((RECORDED / "sasrec.json").read_text())
    assert recorded["format"] == older["format"]
    for part in ("model", "training"):
        kept = {key: value for key, value in older[part].items() if value is not None}
        new = {key: value for key, value in recorded[part].items() if value is not None}
        assert new == kept | SINCE[part]
    assert not {"mask_ratio", "temperature", "negatives"} & {
        *recorded["model"],
        *recorded["training"],
    }
