"""With skip_bad_rows a log reads as if its bad rows were not there, and says which they were."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.data.reading.bad_rows import SAMPLED
from linrec.types import InputError
from tests.data.conftest import Write

GOOD = [("ann", "a", "5"), ("bob", "b", "6"), ("ann", "b", "7"), ("bob", "a", "8")]
BAD = {
    ("", "a", "5"): "no user id",
    ("ann", "", "5"): "no item id",
    ("ann", "a", ""): "no readable time",
    ("ann", "a", "soon"): "no readable time",
    ("ann", "a", "inf"): "no readable time",
    ("ann", "a\ufffd", "5"): "the item id is not UTF-8",
    ("ann", "a", "5", "more"): "not a row",
    ("ann", '"a', "5"): "not a row",
    ("ann",): "no item id",
}
Rows = list[tuple[str, ...]]


def text(rows: Rows, separator: str = ",") -> str:
    return "\n".join(separator.join(row) for row in [("user", "item", "time"), *rows]) + "\n"


def reasons(store: SequenceStore) -> dict[str, int]:
    skipped: dict[str, int] = store.summary["source"]["skipped"]
    return skipped


def same(one: SequenceStore, other: SequenceStore) -> bool:
    return one.fingerprint == other.fingerprint


@pytest.mark.parametrize("bad", BAD, ids=str)
@pytest.mark.parametrize(("name", "separator"), [("log.csv", ","), ("log.tsv.gz", "\t")])
def test_one_bad_row(write: Write, bad: tuple[str, ...], name: str, separator: str) -> None:
    whole = prepare(write(f"good-{name}", text(GOOD, separator)))
    path = write(name, text([*GOOD[:1], bad, *GOOD[1:]], separator))
    with pytest.raises(InputError):
        prepare(path)
    store = prepare(path, skip_bad_rows=True)
    assert same(store, whole)
    assert reasons(store) == {BAD[bad]: 1}
    assert f"1 of 5 rows were skipped: {BAD[bad]} (1)." in store.summary["notes"]


@given(st.lists(st.sampled_from([*GOOD, *BAD]), max_size=30))
def test_any_mixture(tmp_path_factory: pytest.TempPathFactory, rows: Rows) -> None:
    rows = [*rows, *GOOD]  # also first: the first row must not decide what the others are
    path = tmp_path_factory.mktemp("log") / "log.csv"
    path.write_text(text(rows))
    store = prepare(path, skip_bad_rows=True)
    good = pl.DataFrame(
        [row for row in rows if row in GOOD], ["user", "item", "time"], orient="row"
    )
    assert same(store, prepare(good.cast({"time": pl.Float64})))
    assert sum(reasons(store).values()) == sum(row in BAD for row in rows)


def test_the_sample_is_part_of_the_dataset(write: Write, tmp_path: Path) -> None:
    rows = [*GOOD, *[("ann", "", "1")] * 300, ("ann", "a", "5", "m" * 999)]
    out = tmp_path / "data"
    store = prepare(write("log.csv", text(rows)), out, skip_bad_rows=True)
    assert reasons(store) == {"no item id": 300, "not a row": 1}
    sample = pl.read_csv(out / "skipped.csv")
    assert len(sample) == SAMPLED + 1
    assert sample["row"].to_list() == [len(GOOD) + 301, *range(5, SAMPLED + 5)]
    assert sample["line"][0].startswith("ann,a,5,m")
    assert (out / "skipped.csv").stat().st_size < 20_000
    assert same(SequenceStore.open(out), store)
    prepare(write("log.csv", text(GOOD)), out, skip_bad_rows=True, overwrite=True)
    assert not (out / "skipped.csv").exists()


def test_json_lines(write: Write) -> None:
    lines = [json.dumps(dict(zip(("user", "item", "time"), row, strict=True))) for row in GOOD]
    broken = ['{"user": "ann", "item"', "[1]", "null", '{"user": "ann", "time": 3}']
    path = write(
        "log.jsonl", "\n".join([broken[0], *lines[:2], *broken[1:], "", *lines[2:]]) + "\n"
    )
    with pytest.raises(InputError, match=r"line 1 is not a JSON object; .* with skip_bad_rows="):
        prepare(path)
    store = prepare(path, skip_bad_rows=True)
    assert same(store, prepare(write("good.jsonl", "\n".join(lines) + "\n")))
    assert reasons(store) == {"not a row": 3, "no item id": 1}


def test_parquet_and_frames(tmp_path: Path) -> None:
    nan = float("nan")
    frame = pl.DataFrame(
        {
            "user": [1.0, 2.0, None, 1.5, 1.0, 2.0],
            "item": ["a", None, "a", "b", "b", "c"],
            "time": [1.0, 2.0, 3.0, 4.0, nan, 6.0],
        }
    )
    frame.write_parquet(tmp_path / "log.parquet")
    for source in (frame, tmp_path / "log.parquet"):
        store = prepare(source, skip_bad_rows=True)
        assert same(store, prepare(frame[[0, 5]].cast({"user": pl.Int64})))
        assert sum(reasons(store).values()) == 4


def test_several_files_add_up(write: Write) -> None:
    write("logs/a.csv", text([("ann", "", "1"), *GOOD]))
    folder = write("logs/b.csv", text([("", "a", "1"), ("ann", "", "1"), *GOOD])).parent
    store = prepare(folder, skip_bad_rows=True)
    assert reasons(store) == {"no item id": 2, "no user id": 1}
    assert store.n_events == 2 * len(GOOD)


def test_ratings_that_are_not_numbers() -> None:
    frame = pl.DataFrame({"user": 1, "item": ["a", "b"], "time": 1, "rating": ["4", "good"]})
    store = prepare(frame, skip_bad_rows=True, rating_at_least=1)
    assert reasons(store) == {"a rating that is not a number": 1}


def test_what_is_still_refused(write: Write) -> None:
    path = write("log.csv", text([("ann", "", "1"), ("", "a", "1")]))
    with pytest.raises(InputError, match="has no good row: 2 of 2 rows were skipped: no user id"):
        prepare(path, skip_bad_rows=True)
    mixed = write("mixed.csv", text([("ann", "a", "1700000000"), ("ann", "b", "1700000000000")]))
    with pytest.raises(InputError, match="mixes units of time"):
        prepare(mixed, skip_bad_rows=True)
    with pytest.raises(InputError, match="cannot read"):
        prepare(write("log.parquet", b"PAR1 but nothing else PAR1"), skip_bad_rows=True)
    header = "user_id:token\titem_id:token\ttimestamp:float\n"
    with pytest.raises(InputError, match=r"line 3: 4 fields where the header has 3; correct it$"):
        prepare(write("a.inter", f"{header}1\t2\t3\n1\t2\t3\t4\n"), skip_bad_rows=True)
