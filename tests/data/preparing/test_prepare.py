from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import linrec
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.options import PrepareOptions
from linrec.data.preparing.prepare import prepare
from linrec.types import InputError
from tests.data.conftest import Write

LOG = pl.DataFrame(
    {
        "user": ["v", "u", "v", "u", "v", "w"],
        "item": ["b", "a", "a", "b", "c", "a"],
        "time": [5, 9, 5, 1, 4, 7],
        "stars": [5, 4, 3, 2, 1, 5],
    }
)


def histories(store: SequenceStore) -> dict[str, list[str]]:
    sequences = store.sequences()
    return {
        user: store.catalogue.ids_of(sequences[row]).to_list()
        for row, user in enumerate(store.users.ids)
    }


def test_users_in_order_of_appearance_events_in_order_of_time() -> None:
    store = prepare(LOG)
    assert histories(store) == {"v": ["c", "b", "a"], "u": ["b", "a"], "w": ["a"]}
    assert store.users.ids.to_list() == ["v", "u", "w"]
    assert store.catalogue.ids.to_list() == ["b", "a", "c"]


def test_ties_across_files_keep_the_order_of_names(write: Write) -> None:
    write("logs/b.csv", "user,item,time\n1,z,5\n1,y,5\n")
    folder = write("logs/a.csv", "user,item,time\n1,x,5\n1,w,5\n1,first,4\n").parent
    store = prepare(folder)
    assert store.catalogue.ids_of(store.items).to_list() == ["first", "x", "w", "z", "y"]


def test_frames_of_every_kind_are_one() -> None:
    pandas = pytest.importorskip("pandas")
    expected = prepare(LOG).fingerprint
    assert prepare(LOG.lazy()).fingerprint == expected
    assert prepare(pandas.DataFrame(LOG.to_dict(as_series=False))).fingerprint == expected
    stamped = pandas.DataFrame(LOG.to_dict(as_series=False))
    stamped["time"] = pandas.to_datetime(stamped["time"], unit="s")
    assert prepare(stamped).times.tolist() == prepare(LOG).times.tolist()


def test_pandas_is_not_imported_for_a_polars_frame() -> None:
    code = (
        "import sys, polars as pl; from linrec.data.preparing.prepare import prepare;"
        "prepare(pl.DataFrame({'user': [1], 'item': [1], 'time': [1]}));"
        "assert 'pandas' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_summary() -> None:
    summary = prepare(LOG, rating="stars", min_user_events=2).summary
    assert (summary["users"], summary["items"], summary["events"]) == (2, 3, 5)
    assert summary["sparsity"] == pytest.approx(100 / 6)
    lengths = summary["lengths"]
    assert (lengths["mean"], lengths["median"], lengths["min"], lengths["max"]) == (2.5, 2.5, 2, 3)
    assert lengths["quantiles"]["0.5"] == 3
    assert summary["time"] == {"first": 1.0, "last": 9.0}
    assert summary["tied_share"] == pytest.approx(1 / 3)
    assert summary["one_event_users"] == 0
    source = summary["source"]
    assert source["columns"] == {"user": "user", "item": "item", "time": "time", "rating": "stars"}
    assert source["columns_guessed"] == ["user", "item", "time"]
    assert source["filters"] == {"min_user_events": 2}
    assert source["removed"] == {"min_user_events": 1}
    assert source["events_read"] == 6
    assert any("33.3% of neighbouring events have equal times" in n for n in summary["notes"])


def test_duplicates_and_single_event_users_are_noted_and_kept() -> None:
    twice = pl.concat([LOG, LOG.tail(2), LOG.head(1)])
    summary = prepare(twice).summary
    assert summary["events"] == 9
    assert summary["exact_duplicates"] == 3
    assert any("3 events repeat" in note for note in summary["notes"])
    dropped = prepare(twice, drop_duplicates=True).summary
    assert (dropped["events"], dropped["exact_duplicates"]) == (6, 0)
    assert any("1 users have a single event" in note for note in dropped["notes"])


def test_one_event_is_a_dataset() -> None:
    store = prepare(LOG.head(1))
    assert store.offsets.tolist() == [0, 1]
    assert store.summary["sparsity"] == 0


def test_single_precision_times_are_noted() -> None:
    store = prepare(LOG.with_columns(pl.col("time").cast(pl.Float32)))
    assert any("32-bit" in note for note in store.summary["notes"])


def test_options_and_overrides() -> None:
    options = PrepareOptions(rating_at_least=3, rating="stars")
    assert prepare(LOG, options=options).n_events == 4
    assert prepare(LOG, options=options, rating_at_least=5).n_events == 2
    with pytest.raises(InputError, match="no option 'min_users'; its options are user, item"):
        prepare(LOG, min_users=3)


def test_what_events_can_come_from() -> None:
    with pytest.raises(InputError, match="from a list; give a path"):
        prepare([1, 2, 3])  # type: ignore[arg-type]


def test_an_existing_place_is_refused_before_the_events_are_read(tmp_path: Path) -> None:
    prepare(LOG, tmp_path / "data")
    with pytest.raises(InputError, match="overwrite=True"):
        prepare(tmp_path / "missing.csv", tmp_path / "data")
    with pytest.raises(InputError, match="does not exist"):
        prepare(tmp_path / "missing.csv", tmp_path / "data", overwrite=True)
    assert SequenceStore.open(tmp_path / "data").n_events == 6


def test_nothing_is_written_for_bad_events(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="min_user_events"):
        prepare(LOG, tmp_path / "data", min_user_events=99)
    assert list(tmp_path.iterdir()) == []


def test_the_public_name() -> None:
    assert linrec.prepare is prepare
