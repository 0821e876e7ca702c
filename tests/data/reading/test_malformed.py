"""Whatever the bytes, a reader gives events or one sentence, and never writes anything."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linrec.data.preparing.prepare import prepare
from linrec.data.reading.chunks import ReadOptions
from linrec.data.reading.events import read_events
from linrec.data.reading.formats import FORMATS
from linrec.types import EventLog, InputError

SUFFIXES = [".csv", ".tsv", ".jsonl", ".parquet", ".inter", ".dat", ".txt"]
EXAMPLES = 60


def survives(name: str, content: bytes, **options: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            result = read_events(path, ReadOptions(**options))  # type: ignore[arg-type]
        except InputError:
            refused(path, **options)
        else:
            assert isinstance(result.log, EventLog)
            events = result.log.to_polars()
            assert events["time"].is_finite().all()
            assert events.null_count().sum_horizontal()[0] == 0


def refused(path: Path, **options: str) -> None:
    """One sentence, and nothing written."""
    with pytest.raises(InputError) as caught:
        prepare(path, path.parent / "out", **options)
    assert "\n" not in str(caught.value)
    assert list(path.parent.iterdir()) == [path]


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(SUFFIXES), st.binary(max_size=300))
def test_random_bytes(suffix: str, content: bytes) -> None:
    survives("log" + suffix, content)


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(sorted(FORMATS)), st.binary(max_size=300))
def test_random_bytes_as_any_format(form: str, content: bytes) -> None:
    survives("log", content, format=form)


FIELD = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=8),
    st.sampled_from(["", '"', '"a', "2024-05-31", "nan", "null", "1e400", "\x00", "::", "\r"]),
)


@settings(max_examples=EXAMPLES)
@given(
    st.sampled_from([(".csv", ","), (".tsv", "\t")]),
    st.lists(st.lists(FIELD, min_size=2, max_size=4), max_size=6),
)
def test_random_tables(kind: tuple[str, str], rows: list[list[str]]) -> None:
    suffix, mark = kind
    lines = [mark.join(("user", "item", "time")), *(mark.join(row) for row in rows)]
    survives("log" + suffix, "\n".join(lines).encode("utf-8", "surrogatepass"))


@settings(max_examples=EXAMPLES)
@given(st.lists(st.lists(FIELD, min_size=3, max_size=5), min_size=1, max_size=6))
def test_random_ratings_and_checkins(rows: list[list[str]]) -> None:
    survives("ratings.dat", "\n".join("::".join(row) for row in rows).encode("utf-8", "replace"))
    text = "\n".join("\t".join(row) for row in rows)
    survives("log.txt", text.encode("utf-8", "replace"), format="gowalla")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)


@settings(max_examples=EXAMPLES)
@given(st.lists(st.fixed_dictionaries({"user": JSON, "item": JSON, "time": JSON}), max_size=4))
def test_random_json(rows: list[dict[str, object]]) -> None:
    survives("log.jsonl", "\n".join(json.dumps(row) for row in rows).encode())


TABLE = pl.DataFrame({"user": range(500), "item": range(500), "time": range(500)})
CSV = TABLE.write_csv().encode()
PARQUET = io.BytesIO()
TABLE.write_parquet(PARQUET)


@settings(max_examples=EXAMPLES)
@given(st.floats(0, 0.99))
def test_cut_short(share: float) -> None:
    for name, content in (
        ("log.csv.gz", gzip.compress(CSV)),
        ("log.parquet", PARQUET.getvalue()),
    ):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(content[: int(len(content) * share)])
            with pytest.raises(InputError):
                read_events(path, ReadOptions())


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_a_few_bytes_changed(data: st.DataObject) -> None:
    for name, content in (
        ("log.csv.gz", gzip.compress(CSV)),
        ("log.parquet", PARQUET.getvalue()),
    ):
        damaged = bytearray(content)
        for _ in range(3):
            damaged[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        survives(name, bytes(damaged))
