"""A small RUN and a small DATA, and what reading them may raise: an InputError and nothing else."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from linrec.data.dataset.store import SequenceStore
from linrec.recommender import load
from linrec.runs.run import Run
from linrec.types import InputError

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 10.0

RUN_FILES = ("config.json", "items.parquet", "model.safetensors", "manifest.json")
DATA_FILES = (
    "dataset.json", "items.npy", "offsets.npy", "times.npy", "users.parquet", "items.parquet"
)  # fmt: skip


def read_run(folder: Path) -> None:
    load(folder).recommend([["i01"]], 3)
    assert Run.open(folder).progress.epoch >= 0


def read_data(folder: Path) -> None:
    store = SequenceStore.open(folder)
    store.popularity()
    store.catalogue.ids_of(store.items)


TARGETS = {"run": (read_run, RUN_FILES), "data": (read_data, DATA_FILES)}


def outcome(kind: str, folder: Path) -> str | None:
    """The sentence with which the folder is refused, or None; anything else is an error."""
    began, sentence = time.monotonic(), None
    try:
        TARGETS[kind][0](folder)
    except InputError as error:
        sentence = str(error)
    assert "\n" not in (sentence or "")
    assert time.monotonic() - began < SECONDS
    return sentence


def with_file(base: Path, place: Path, name: str, content: bytes) -> Path:
    """A copy of the folder with another content of one file, and no checksums that give it away."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(base, place, ignore=shutil.ignore_patterns("tensorboard"))
    if name != "manifest.json":
        (place / "manifest.json").unlink(missing_ok=True)
    (place / name).write_bytes(content)
    return place
