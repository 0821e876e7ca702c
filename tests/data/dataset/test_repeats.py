"""Repeats are counted in one pass over some users at a time, and must not depend on how many."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linrec.data.dataset import repeats
from linrec.data.dataset.repeats import Repeats, repeats_of
from linrec.data.dataset.statistics import statistics
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare

HISTORIES = st.lists(st.lists(st.integers(1, 6), max_size=9), min_size=1, max_size=8)


def by_hand(histories: list[list[int]]) -> Repeats:
    events = sum(map(len, histories))
    again = sum(item in row[:at] for row in histories for at, item in enumerate(row))
    rows = [row for row in histories if len(row) > 1]
    last = sum(row[-1] in row[:-1] for row in rows)
    return Repeats(again / max(events, 1), last / max(len(rows), 1))


@given(HISTORIES, st.sampled_from([1, 2, 5, 100]))
def test_repeats_are_those_of_a_loop(histories: list[list[int]], chunk: int) -> None:
    items = np.array([item for row in histories for item in row], np.int32)
    offsets = np.cumsum([0, *map(len, histories)]).astype(np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "CHUNK", chunk)
        assert repeats_of(items, offsets) == pytest.approx(by_hand(histories))


EVENTS = pl.DataFrame(
    {"user": [1, 1, 1, 1, 2, 2, 3], "item": list("abaabcc"), "time": [1, 2, 3, 4, 5, 6, 9]}
)


def test_prepare_says_how_often_users_come_back() -> None:
    store = prepare(EVENTS)
    assert store.summary["repeat_share"] == pytest.approx(2 / 7)
    assert store.summary["last_repeat_share"] == pytest.approx(1 / 2)  # user 3 has no past
    assert store.summary["sparsity"] == pytest.approx(100 * (1 - 5 / 9))  # pairs, not events
    rows = dict(statistics(store))
    assert rows["events of items the user had before"] == "28.6%"
    assert rows["last events of items the user had before"] == "50.0%"
    (note,) = [note for note in store.summary["notes"] if "had before" in note]
    assert note.startswith("50.0% of last events are items the user had before, more than 5%: a")


def test_where_repeats_are_rare_there_is_no_note() -> None:
    store = prepare(EVENTS.unique(["user", "item"], keep="first", maintain_order=True))
    assert store.repeats == Repeats(0, 0)
    assert not store.repeats.common
    assert "not more than 5%" in store.repeats.reason
    assert not any("had before" in note for note in store.summary["notes"])


def test_a_dataset_of_before_is_counted_when_needed(tmp_path: Path) -> None:
    store = prepare(EVENTS, tmp_path / "data")
    file = tmp_path / "data" / "dataset.json"
    content = json.loads(file.read_text())
    for name in ("repeat_share", "last_repeat_share"):
        del content["summary"][name]
    content["summary"] |= {"sparsity": 22.2, "notes": ["an old note"]}
    file.write_text(json.dumps(content))
    older = SequenceStore.open(tmp_path / "data")
    assert older.repeats == pytest.approx(store.repeats)
    assert older.full_summary["sparsity"] == pytest.approx(store.summary["sparsity"])
    assert older.full_summary["notes"][1:] == ["an old note"]
    assert dict(statistics(older)) == dict(statistics(store))
