from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from linrec.data.dataset import store as store_module
from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.store import SequenceStore, same_dataset
from linrec.data.preparing.prepare import prepare
from linrec.types import InputError

FILES = ["items.npy", "offsets.npy", "times.npy", "users.parquet", "items.parquet", "dataset.json"]


def frame(items: list[str] | None = None) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "user": ["u", "v", "u", "v", "v"],
            "item": items or ["a", "b", "c", "a", "d"],
            "time": [1, 1, 2, 3, 4],
        }
    )


@pytest.fixture
def saved(tmp_path: Path) -> SequenceStore:
    catalogue = pl.DataFrame(
        {"item": ["a", "b", "c"], "title": ["A", "B", "C"], "tags": [["x"], [], ["x", "y"]]}
    )
    return prepare(frame(), tmp_path / "data", items=catalogue)


def test_there_and_back(saved: SequenceStore) -> None:
    made = prepare(frame())
    assert saved.path is not None
    assert made.path is None
    assert sorted(path.name for path in saved.path.iterdir()) == sorted(FILES)
    assert saved.items.tolist() == made.items.tolist() == [1, 3, 2, 1, 4]
    assert saved.offsets.tolist() == [0, 2, 5]
    assert saved.times.tolist() == [1, 2, 1, 3, 4]
    assert isinstance(saved.items, np.memmap)
    assert (saved.n_users, saved.n_items, saved.n_events) == (2, 4, 5)
    assert saved.users.ids.to_list() == ["u", "v"]
    assert saved.catalogue.ids_of(saved.sequences()[1]).to_list() == ["b", "a", "d"]
    assert saved.item_table["tags"].to_list() == [["x"], [], ["x", "y"], None]
    assert [(feature.name, feature.kind) for feature in saved.features] == [
        ("title", "text"),
        ("tags", "multi"),
    ]
    assert saved.popularity().tolist() == [0, 2, 1, 1, 1]


def test_the_repr_is_one_line(saved: SequenceStore) -> None:
    counts = "users=2, items=4, events=5"
    assert repr(saved) == f"SequenceStore({counts}, path={str(saved.path)!r})"
    assert repr(prepare(frame())) == f"SequenceStore({counts}, path=None)"


def test_the_fingerprint_is_of_ids_sequences_and_times(saved: SequenceStore) -> None:
    later = prepare(frame().with_columns(pl.col("time") + 100))
    assert prepare(frame()).fingerprint == saved.fingerprint != later.fingerprint
    assert later.sequence_fingerprint == saved.sequence_fingerprint
    other = prepare(frame(["a", "b", "c", "a", "e"]))
    assert other.fingerprint != saved.fingerprint
    assert prepare(frame(["a", "b", "c", "b", "d"])).fingerprint != saved.fingerprint
    assert [len(part) for part in saved.fingerprint.split("-")] == [16, 16]


def test_numbers_as_text_or_not_are_the_same_dataset() -> None:
    numbers = frame().with_columns(item=pl.Series([1, 2, 3, 1, 4]))
    text = numbers.with_columns(pl.col("item").cast(pl.String))
    assert prepare(numbers).fingerprint == prepare(text).fingerprint


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["missing", "truncated", "empty", "garbled"])
def test_a_damaged_dataset_is_one_sentence(saved: SequenceStore, name: str, how: str) -> None:
    assert saved.path is not None
    file = saved.path / name
    content = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        at = len(content) - 8 if name.endswith(".npy") else len(content) // 2
        damaged = {
            "truncated": content[:-5],
            "empty": b"",
            "garbled": content[:at] + b"\xff\xfe\x00\x01" + content[at + 4 :],
        }
        file.unlink()  # the mapped arrays must not change under us
        file.write_bytes(damaged[how])
    with pytest.raises(InputError, match="linrec prepare") as caught:
        SequenceStore.open(saved.path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["items.npy", "offsets.npy", "times.npy"])
@pytest.mark.parametrize("at", [0, 4, 8, 12, 40, 60, 100])
def test_a_damaged_header_is_one_sentence(saved: SequenceStore, name: str, at: int) -> None:
    assert saved.path is not None
    file = saved.path / name
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[:at] + b"('[\xff" + content[at + 4 :])
    with pytest.raises(InputError, match="linrec prepare"):
        SequenceStore.open(saved.path)


def test_there_is_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no dataset at"):
        SequenceStore.open(tmp_path / "nothing")
    with pytest.raises(InputError, match="not a linrec dataset"):
        SequenceStore.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format_version": 99}, "format version 99"),
        ({"surprise": 1}, "surprise"),
        ({"fingerprint": "0" * 16}, "fingerprint"),
        (
            {"features": [{"name": "title", "kind": "smell"}]},
            "kind must be 'categorical', .* not 'smell'",
        ),
        ({"features": []}, "item table"),
    ],
)
def test_a_description_that_does_not_fit(
    saved: SequenceStore, change: dict[str, object], sentence: str
) -> None:
    assert saved.path is not None
    file = saved.path / "dataset.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=sentence):
        SequenceStore.open(saved.path)


def test_pickles_are_not_read(saved: SequenceStore) -> None:
    assert saved.path is not None
    (saved.path / "items.npy").unlink()
    np.save(saved.path / "items.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="linrec prepare"):
        SequenceStore.open(saved.path)


def test_a_disk_that_fills_up_leaves_the_old_dataset(
    saved: SequenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert saved.path is not None
    save = np.save

    def fill_up(file: Path, array: np.ndarray, **options: bool) -> None:
        if file.name == "times.npy":
            raise OSError(errno.ENOSPC, "No space left on device")
        save(file, array, **options)

    monkeypatch.setattr(store_module.np, "save", fill_up)
    with pytest.raises(InputError, match="disk is full"):
        prepare(frame(["x"] * 5), saved.path, overwrite=True)
    assert SequenceStore.open(saved.path).fingerprint == saved.fingerprint
    assert [path.name for path in saved.path.parent.iterdir()] == ["data"]


def test_replacing_a_dataset_leaves_an_open_one_alone(saved: SequenceStore) -> None:
    assert saved.path is not None
    new = prepare(frame(["x", "y", "x", "y", "x"]), saved.path, overwrite=True)
    assert new.n_items == 2
    assert saved.items.tolist() == [1, 3, 2, 1, 4]


def older(folder: Path) -> Path:
    """A dataset as format version 1 had it."""
    file = folder / "dataset.json"
    content = json.loads(file.read_text())
    content |= {"format_version": 1, "fingerprint": content["fingerprint"].partition("-")[0]}
    file.write_text(json.dumps(content))
    return folder


def test_a_dataset_of_the_older_format_is_read(saved: SequenceStore) -> None:
    assert saved.path is not None
    again = SequenceStore.open(older(saved.path))
    assert again.fingerprint == saved.fingerprint
    assert same_dataset(saved.sequence_fingerprint, again.fingerprint)
    assert same_dataset(again.fingerprint, saved.sequence_fingerprint)
    assert not same_dataset("0" * 16, again.fingerprint)
    assert not same_dataset(None, again.fingerprint)


def test_a_new_dataset_cannot_do_without_its_times(saved: SequenceStore) -> None:
    assert saved.path is not None
    file = saved.path / "dataset.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"fingerprint": saved.sequence_fingerprint}))
    with pytest.raises(InputError, match="do not match its fingerprint"):
        SequenceStore.open(saved.path)


def forge(saved: SequenceStore, **arrays: object) -> Path:
    """A dataset with other arrays and the right fingerprint, as an attacker would write it."""
    forged = replace(saved, path=None, **arrays)  # type: ignore[arg-type]
    assert saved.path is not None
    for name in ("items", "offsets", "times"):
        (saved.path / f"{name}.npy").unlink()
        np.save(saved.path / f"{name}.npy", getattr(forged, name))
    pl.DataFrame({"user": forged.users.ids}).write_parquet(saved.path / "users.parquet")
    forged.write_manifest(saved.path, [], {})
    return saved.path


FORGED: dict[str, tuple[dict[str, object], str]] = {
    "decreasing offsets": ({"offsets": np.array([0, 9, 5])}, "offsets do not divide"),
    "offsets from 1": ({"offsets": np.array([1, 2, 5])}, "offsets do not divide"),
    "offsets past the end": ({"offsets": np.array([0, 2, 6])}, "offsets do not divide"),
    "padding": ({"items": np.array([1, 0, 2, 1, 4], np.int32)}, "not from 1 to 4"),
    "negative items": ({"items": np.array([1, -3, 2, 1, 4], np.int32)}, "not from 1 to 4"),
    "unknown items": ({"items": np.array([1, 9, 2, 1, 4], np.int32)}, "not from 1 to 4"),
    "no time": ({"times": np.array([1, 2, np.nan, 3, 4])}, "times are not all finite"),
    "a user twice": ({"users": IdMap(pl.Series(["u", "u"]), 0)}, "has an id twice"),
    "odd user ids": ({"users": IdMap(pl.Series([1.5, 2.5]), 0)}, "not Float64"),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_dataset_is_one_sentence(saved: SequenceStore, case: str) -> None:
    arrays, sentence = FORGED[case]
    with pytest.raises(InputError, match=sentence) as caught:
        SequenceStore.open(forge(saved, **arrays))
    assert "\n" not in str(caught.value)
