"""A dataset made by many tasks is the one that a single process makes, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linrec.cluster.options import EngineOptions
from linrec.cluster.pool import LocalPool
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.divided import driver, times
from linrec.data.preparing.divided.driver import Sizes, prepare_divided
from linrec.data.preparing.options import PrepareOptions
from linrec.data.preparing.prepare import prepare
from linrec.data.reading import chunks
from linrec.data.reading.events import files_of
from linrec.types import InputError

ROWS = 600


def log(rows: int = ROWS, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    price = [None if draw < 0.1 else round(draw, 2) for draw in rng.random(rows).tolist()]
    return pl.DataFrame(
        {
            "user": [f"u{n}" for n in (rng.random(rows) ** 2 * 30).astype(int)],
            "item": (rng.random(rows) ** 2 * 30).astype(int),
            "time": 1_700_000_000 + 3600 * rng.integers(0, 24, rows),  # ties, exact duplicates
            "rating": rng.integers(1, 6, rows),
            "basket": [f"b{n}" for n in rng.integers(0, 90, rows)],
            "type": rng.choice(["view", "cart", "purchase", None, " view "], rows).tolist(),
            "price": price,
            "stock": rng.integers(0, 200, rows),
            "whole": rng.integers(0, 4, rows).astype(float),
            "written": [str(n) for n in rng.integers(0, 1000, rows)],
        }
    )


def sizes(blocks: int) -> Sizes:
    rows = -(-ROWS // blocks)
    return Sizes(chunk_rows=rows, bucket_rows=rows, range_events=rows, ranges_per_worker=1)


def divided(
    source: Any,
    out: Path,
    blocks: int | Sizes,
    shard_events: int | None = None,
    **options: Any,
) -> SequenceStore:
    chosen = PrepareOptions(**options)
    files = files_of(source, chosen.reading)
    assert files is not None
    size = blocks if isinstance(blocks, Sizes) else sizes(blocks)
    return prepare_divided(
        files, out, chosen, EngineOptions(), shard_events=shard_events, sizes=size
    )


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def check(
    tmp_path: Path, source: Any, blocks: Sequence[int] = (1, 2, 8), **options: Any
) -> dict[str, Any]:
    """The summary, after all divisions gave the same files."""
    one = prepare(source, tmp_path / "one", **options)
    expected = content(tmp_path / "one")
    for number in blocks:
        out = tmp_path / f"in-{number}"
        store = divided(source, out, number, **options)
        found = content(out)
        assert found.keys() == expected.keys()
        for name in found:
            assert found[name] == expected[name], name
        assert store.fingerprint == one.fingerprint
    assert sorted(path.name for path in tmp_path.glob(".*")) == []  # no scratch is left
    return one.summary


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    log().write_parquet(path, row_group_size=64)
    return path


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "filters": {"since": 1_700_010_000, "until": 1_700_080_000, "rating_at_least": 2.0},
    "histories": {"drop_duplicates": True, "drop_repeats": True},
    "item-core": {"min_item_events": 12},
    "user-core": {"min_user_events": 12},
    "core": {"min_item_events": 12, "min_user_events": 9, "rating_at_least": 2},
    "shuffled": {"ties": "shuffle", "ties_seed": 3, "rating_at_least": 2},
    "groups": {"group": "basket"},
    "shuffled groups": {"group": "basket", "ties": "shuffle", "min_item_events": 10},
    "context": {"context": "type,price,stock,whole,written,rating"},
    "given kinds": {
        "context": "type,price=categorical,stock=categorical,whole=numeric,written=categorical",
        "min_user_events": 9,
    },
    "shards": {"shard_events": 100, "context": "type,price", "group": "basket"},
    "one user a shard": {"shard_events": 1, "min_item_events": 12},
    "given times": {"times": "order", "time_unit": "ms"},
    "order of rows": {"time": "order", "min_item_events": 12},
    "everything": {
        "since": 1_700_010_000, "rating_at_least": 2, "drop_duplicates": True,
        "drop_repeats": True, "min_item_events": 6, "min_user_events": 4, "ties": "shuffle",
        "group": "basket", "context": "type,price,written", "shard_events": 70,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_on_1_2_and_8_blocks(parquet: Path, tmp_path: Path, name: str) -> None:
    summary = check(tmp_path, parquet, **OPTIONS[name])
    if name.endswith("core") or name == "everything":
        assert any(summary["source"]["removed"].values())


def test_items_features_and_vectors(parquet: Path, tmp_path: Path) -> None:
    items = pl.DataFrame({"item": range(60), "genre": ["a", "b", "a|b"] * 20})
    items.write_csv(tmp_path / "items.csv")
    vectors = pl.DataFrame({"item": range(60), "vector": [[float(n), 1.0] for n in range(60)]})
    vectors.write_parquet(tmp_path / "vectors.parquet")
    check(
        tmp_path,
        parquet,
        items=tmp_path / "items.csv",
        item_vectors=tmp_path / "vectors.parquet",
        feature_kinds={"genre": "multi"},
        min_item_events=5,
    )


def write_parts(folder: Path, parts: int = 5) -> Path:
    """Files of different lengths, one without rows, in folders that name a column."""
    whole, folder = log(), folder / "parts"
    bounds = [0, 7, 7, 250, 400, ROWS][: parts + 1]
    for n, (first, end) in enumerate(pairwise(bounds)):
        place = folder / f"region={n % 2}"
        place.mkdir(parents=True, exist_ok=True)
        whole[first:end].write_parquet(place / f"{n}.parquet")
    return folder


def test_a_folder_with_a_column_in_its_names(tmp_path: Path) -> None:
    check(tmp_path, write_parts(tmp_path), context="region,type")


def test_a_list_and_a_pattern(tmp_path: Path) -> None:
    folder = write_parts(tmp_path)
    files = sorted(folder.rglob("*.parquet"), reverse=True)
    check(tmp_path, [str(path) for path in files], blocks=[8])
    (tmp_path / "again").mkdir()
    check(tmp_path / "again", str(folder / "*" / "*.parquet"), blocks=[2])


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder above the given path names no column."""
    place = tmp_path / "type=7"
    place.mkdir()
    log().drop("type").with_columns(kind=pl.lit("a")).write_parquet(place / "log.parquet")
    monkeypatch.chdir(place)
    check(tmp_path, "log.parquet", blocks=[2], context="kind")
    with pytest.raises(InputError, match="no column 'type'"):
        divided("log.parquet", tmp_path / "out", 2, context="type")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "csv.gz"])
def test_text_files(tmp_path: Path, ending: str) -> None:
    import gzip

    table = log().drop("type")
    text = table.write_ndjson() if ending == "jsonl" else table.write_csv()
    raw = text.encode()
    half = raw.index(b"\n", len(raw) // 2) + 1
    header = raw[: raw.index(b"\n") + 1] if ending != "jsonl" else b""
    for n, part in enumerate((raw[:half], header + raw[half:])):
        data = gzip.compress(part) if ending.endswith("gz") else part
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / "logs" / f"{n}.{ending}").write_bytes(data)
    check(tmp_path, tmp_path / "logs", context="price,stock,whole")


def test_bad_rows_are_counted_and_sampled_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    folder = tmp_path / "logs"
    folder.mkdir()
    for n in range(4):
        table = log(ROWS, n).select("user", "item", "time").cast(pl.String)
        for name in table.columns:
            wrong = pl.Series(rng.random(ROWS) < 0.1 * (n + 1))
            table = table.with_columns(
                pl.when(wrong).then(None).otherwise(pl.col(name)).alias(name)
            )
        table.write_csv(folder / f"{n}.csv")
    (folder / "4.csv").write_text('user,item,time\na,1,5,6\n"b,1,7\nc,2,x\nd,3,8\n')
    summary = check(tmp_path, folder, skip_bad_rows=True)
    assert len(summary["source"]["skipped"]) == 4


def test_ids_that_are_names_in_some_files(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for n in range(4):
        table = log(100, n)
        users = pl.Series(np.random.default_rng(n).integers(0, 9, 100))
        named = users.cast(pl.String) + ("" if n != 2 else "x")
        table = table.with_columns(user=named if n in (1, 2) else users, item=users % 5)
        table.write_parquet(folder / f"{n}.parquet")
    check(tmp_path, folder)


@pytest.mark.parametrize(
    ("scale", "noted"), [(1000, "milliseconds"), (1_000_000_000, "nanoseconds")]
)
def test_units_of_time(tmp_path: Path, scale: int, noted: str) -> None:
    log().with_columns(pl.col("time") * scale).write_parquet(tmp_path / "log.parquet")
    assert noted in check(tmp_path, tmp_path / "log.parquet", since="2023-11-15")["notes"][0]


def test_days_dates_and_small_floats(tmp_path: Path) -> None:
    days = log().with_columns(time=20240500 + pl.Series(np.arange(ROWS) % 28 + 1))
    days.write_parquet(tmp_path / "log.parquet")
    assert "YYYYMMDD" in check(tmp_path, tmp_path / "log.parquet")["notes"][0]
    (tmp_path / "dates").mkdir()
    dates = log().with_columns(pl.from_epoch("time").cast(pl.Datetime("us")))
    dates.write_parquet(tmp_path / "dates.parquet")
    check(tmp_path / "dates", tmp_path / "dates.parquet")
    (tmp_path / "floats").mkdir()
    log().with_columns(pl.col("time").cast(pl.Float32)).write_parquet(tmp_path / "floats.parquet")
    assert "32-bit" in check(tmp_path / "floats", tmp_path / "floats.parquet")["notes"][0]


def test_times_as_text_are_read_file_by_file(tmp_path: Path) -> None:
    text = log().with_columns(pl.from_epoch("time").cast(pl.String))
    text.write_parquet(tmp_path / "log.parquet")
    check(tmp_path, tmp_path / "log.parquet")


def test_times_that_number_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "SPAN", 50)
    order = np.random.default_rng(2).permutation(ROWS)
    log().with_columns(time=pl.Series(order + 5)).write_parquet(tmp_path / "log.parquet")
    summary = check(tmp_path, tmp_path / "log.parquet")
    assert summary["times_reason"] == "guessed: they number the rows"
    order[3] = order[4]
    (tmp_path / "twice").mkdir()
    log().with_columns(time=pl.Series(order + 5)).write_parquet(tmp_path / "twice.parquet")
    assert check(tmp_path / "twice", tmp_path / "twice.parquet")["times"] == "real"


EVENTS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVENTS, st.integers(1, 9), st.integers(1, 3), st.integers(1, 3))
def test_any_log(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int, int]],
    size: int,
    items: int,
    users: int,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    pl.DataFrame(rows, schema=["user", "item", "time"], orient="row").write_parquet(
        folder / "log.parquet"
    )
    options = {"min_item_events": items, "min_user_events": users, "drop_repeats": True}
    small = Sizes(size, size, size, 1)
    one, other = (
        outcome(folder / name, lambda out, make=make: make(folder / "log.parquet", out))
        for name, make in (
            ("one", lambda source, out: prepare(source, out, **options)),
            ("other", lambda source, out: divided(source, out, small, **options)),
        )
    )
    assert one == other


def outcome(out: Path, make: Callable[[Path], Any]) -> object:
    """The files, or the sentence that refuses them."""
    try:
        make(out)
    except InputError as error:
        return str(error), out.exists()
    return content(out)


def missing_user(table: pl.DataFrame) -> pl.DataFrame:
    users = table["user"].to_list()
    users[400] = None
    return table.with_columns(user=pl.Series(users))


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (missing_user, {}),
        (lambda table: table.head(0), {}),
        (lambda table: table.drop("user"), {}),
        (lambda table: table, {"context": "nothing"}),
        (lambda table: table.with_columns(tags=pl.lit([["a"]])), {"context": "tags"}),
        (lambda table: table.with_columns(tags=pl.lit([["a"]])), {"context": "tags=numeric"}),
        (lambda table: table.with_columns(none=pl.lit(None, pl.String)), {"context": "none"}),
        (lambda table: table, {"context": "type=numeric"}),
        (lambda table: table, {"since": 1_800_000_000}),
        (lambda table: table, {"min_user_events": 500}),
        (lambda table: table.with_columns(pl.col("time") * pl.Series([1, 1000] * 300)), {}),
        (lambda table: table, {"items": "nowhere.csv"}),
    ],
)
def test_what_is_refused_is_refused_alike(
    tmp_path: Path, change: Callable[[pl.DataFrame], pl.DataFrame], options: dict[str, Any]
) -> None:
    change(log()).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(InputError) as one:
        prepare(tmp_path / "log.parquet", tmp_path / "one", **options)
    with pytest.raises(InputError) as other:
        divided(tmp_path / "log.parquet", tmp_path / "other", 3, **options)
    assert str(other.value) == str(one.value)
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def test_an_error_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log().write_parquet(tmp_path / "log.parquet")
    prepare(tmp_path / "log.parquet", tmp_path / "data")
    before = content(tmp_path / "data")
    with pytest.raises(InputError, match="already exists"):
        divided(tmp_path / "log.parquet", tmp_path / "data", 2)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "finish", interrupted)
    options, engine = PrepareOptions(), EngineOptions()
    files = files_of(tmp_path / "log.parquet", options.reading)
    assert files is not None
    with pytest.raises(KeyboardInterrupt):
        prepare_divided(files, tmp_path / "data", options, engine, overwrite=True)
    assert content(tmp_path / "data") == before
    assert {path.name for path in tmp_path.iterdir()} == {"log.parquet", "data"}


def test_the_usual_division_of_a_file_is_that_of_one_process() -> None:
    assert Sizes().chunk_rows <= chunks.CHUNK_ROWS
    assert chunks.CHUNK_ROWS % Sizes().chunk_rows == 0


def test_an_engine_needs_files_and_a_folder(tmp_path: Path) -> None:
    engine = EngineOptions(engine="ray")
    with pytest.raises(InputError, match="engine=ray reads files; give a path"):
        prepare(log(), tmp_path / "out", engine=engine)
    log().write_parquet(tmp_path / "log.parquet")
    with pytest.raises(InputError, match="engine=ray writes a dataset to out"):
        prepare(tmp_path / "log.parquet", engine=engine)


class Watched(LocalPool):
    """Notes how its workers are started."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.starts: list[Any] = []

    def begin(self, start: Any) -> None:
        self.begun.append(start)

    def run(self, start: Any, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        self.starts.append(start)
        yield from super().run(start, tasks)


def test_workers_are_started_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is started otherwise is another process, which imports all again."""
    pool = Watched()
    monkeypatch.setattr(driver, "open_pool", lambda *_: nullcontext(pool))
    log().write_parquet(tmp_path / "log.parquet")
    divided(tmp_path / "log.parquet", tmp_path / "out", 2, min_item_events=3)
    assert pool.begun == [pool.starts[0]]
    assert len(pool.starts) > 5
    assert set(pool.starts) == {pool.starts[0]}
