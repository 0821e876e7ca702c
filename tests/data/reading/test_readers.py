"""Every format, as a small literal file, must give the same four events."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from linrec.data.reading.chunks import ReadOptions
from linrec.data.reading.events import read_events
from linrec.data.reading.formats import FORMATS
from linrec.types import InputError
from tests.data.conftest import Write

EVENTS = [(1, 7, 10.0), (1, 8, 20.0), (2, 7, 15.0), (1, 9, 20.5)]

CSV = "userId,movieId,rating,timestamp\n1,7,5,10\n1,8,4,20\n2,7,1,15\n1,9,3,20.5\n"
JSONL = "".join(
    f'{{"user": {user}, "extra": {{"a": [1]}}, "item": {item}, "time": {time}}}\n'
    for user, item, time in EVENTS
)
INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + "".join(
    f"{user}\t{item}\t4\t{time}\n" for user, item, time in EVENTS
)
DAT = "".join(f"{user}::{item}::4::{time}\n" for user, item, time in EVENTS)
U_DATA = DAT.replace("::", "\t")
GOWALLA = (
    "1\t1970-01-01T00:00:10Z\t30.2\t-97.7\t7\n1\t1970-01-01T00:00:20Z\t30.2\t-97.7\t8\n"
    "2\t1970-01-01T00:00:15Z\t30.2\t-97.7\t7\n1\t1970-01-01T00:00:20.5Z\t30.2\t-97.7\t9\n"
)

CASES = {
    "log.csv": (CSV, "csv"),
    "semicolons.csv": (CSV.replace(",", ";"), "csv"),
    "windows.csv": ("\ufeff" + CSV.replace("\n", "\r\n"), "csv"),
    "quoted.csv": (CSV.replace("1,9", '"1","9"'), "csv"),
    "blank-lines.csv": (CSV.replace("\n2,", "\n\n2,") + "\n\n", "csv"),
    "log.tsv": (CSV.replace(",", "\t"), "tsv"),
    "log.jsonl": (JSONL, "jsonl"),
    "log.ndjson": (JSONL.replace("\n", "\n\n"), "jsonl"),
    "log.inter": (INTER, "atomic"),
    "ratings.dat": (DAT, "movielens"),
    "u.data": (U_DATA, "movielens-100k"),
    "totalCheckins.txt": (GOWALLA, "gowalla"),
    "comma.txt": (CSV, "csv"),
    "tab.txt": (CSV.replace(",", "\t"), "tsv"),
    "atomic.txt": (INTER, "atomic"),
    "json.log": (JSONL, "jsonl"),
    "colons.txt": (DAT, "movielens"),
    "numbers.txt": (U_DATA, "movielens-100k"),
}


def read(path: object, **options: object) -> pl.DataFrame:
    return read_events(path, ReadOptions(**options)).log.to_polars()  # type: ignore[arg-type]


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize("name", CASES)
def test_every_format_plain_and_gzipped(write: Write, name: str, zipped: str) -> None:
    content, form = CASES[name]
    source = read_events(write(name + zipped, content), ReadOptions())
    assert source.log.to_polars().rows() == EVENTS
    assert source.log.to_polars().schema == {"user": pl.Int64, "item": pl.Int64, "time": pl.Float64}
    assert source.format == form
    assert source.guessed == ("user", "item", "time")


@pytest.mark.parametrize("name", ["log.parquet", "log.pq", "log"])
def test_parquet(tmp_path: Path, name: str) -> None:
    table = pl.DataFrame(EVENTS, schema=["customer_id", "sku", "ts"], orient="row")
    table.with_columns(pl.lit("x" * 50).alias("text")).write_parquet(tmp_path / name)
    assert read(tmp_path / name).rows() == EVENTS


def test_every_format_of_the_catalogue_is_tried_here() -> None:
    assert set(FORMATS) == {form for _, form in CASES.values()} | {"parquet"}


def test_the_format_can_be_set(write: Write) -> None:
    assert read(write("log.data", CSV), format="csv").rows() == EVENTS
    assert read(write("ratings.csv", DAT), format="movielens").rows() == EVENTS
    with pytest.raises(InputError, match="unknown format 'xls'; choose from csv, tsv"):
        read(write("log.csv", CSV), format="xls")
    with pytest.raises(InputError, match="set format="):
        read(write("noise.bin", "nothing here"))


def test_a_folder_is_read_in_the_order_of_names(write: Write) -> None:
    header, first, second, third, fourth = CSV.splitlines()
    write("logs/part-2.csv", "\n".join([header, third, fourth]))
    folder = write("logs/part-1.csv.gz", "\n".join([header, first, second])).parent
    write("logs/_SUCCESS", "")
    write("logs/.hidden.csv", "broken")
    write("logs/notes.md", "about these logs")
    assert read(folder).rows() == EVENTS
    assert read(str(folder / "part-*")).rows() == EVENTS
    assert read(str(folder.parent / "**" / "part-2.csv")).rows() == EVENTS[2:]


def test_hive_style_folders_are_read_recursively(write: Write) -> None:
    write("logs/date=2024-05-31/hour=9/b.csv", "user,item,ts\n1,8,20\n")
    write("logs/date=2024-05-31/hour=10/a.csv", "user,item,ts\n1,7,10\n")
    write("logs/date=2024-06-01/.hidden=1/a.csv", "broken")
    write("logs/date=2024-06-01/_SUCCESS", "")
    folder = write("logs/date=2024-06-01/a.csv", "user,item,ts\n2,7,15\n").parent.parent
    write("logs/archive/a.csv", "user,item,ts\n9,9,9\n")
    assert read(folder).rows() == EVENTS[:3]
    days = read(folder, time="date")["time"].to_list()
    assert days == [1717113600.0, 1717113600.0, 1717200000.0]


def test_partition_values_are_decoded_and_do_not_hide_columns(write: Write) -> None:
    folder = write("logs/user=a%20b/ts=5/a.csv", "item,ts\n7,10\n").parent.parent.parent
    assert read(folder, user="user").rows() == [("a b", 7, 10.0)]
    with pytest.raises(InputError, match="plainly the user"):
        read(folder)


def test_a_list_of_files_is_read_in_its_order(write: Write) -> None:
    header, first, second, third, fourth = CSV.splitlines()
    one = write("z.csv", "\n".join([header, first, second]))
    two = write("a.csv", "\n".join([header, third, fourth]))
    assert read([str(one), two]).rows() == EVENTS
    assert read((one,)).rows() == EVENTS[:2]
    with pytest.raises(InputError, match=r"nothing\.csv does not exist"):
        read([one, one.with_name("nothing.csv")])
    with pytest.raises(InputError, match=r"several formats \(csv, jsonl\)"):
        read([one, write("b.jsonl", JSONL)])


def test_tables_with_arrows_stream_protocol() -> None:
    frame = pl.DataFrame(EVENTS, schema=["user", "item", "time"], orient="row")
    assert read(frame.to_arrow()).rows() == EVENTS

    class Relation:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return frame.__arrow_c_stream__(requested_schema)

    assert read(Relation()).rows() == EVENTS


def test_duckdb_relations(write: Write) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = write("log.csv", CSV)
    assert read(duckdb.sql(f"SELECT * FROM '{path}'")).rows() == EVENTS


def test_the_order_of_the_rows_can_replace_a_time(write: Write) -> None:
    write("logs/a.csv", "user,item\n1,7\n2,7\n")
    folder = write("logs/b.csv", "user,item\n1,8\n").parent
    with pytest.raises(InputError, match="or time=order for the order of the rows"):
        read(folder)
    assert read(folder, time="order").rows() == [(1, 7, 0.0), (2, 7, 1.0), (1, 8, 2.0)]
    named = write("c.csv", "user,item,order\n1,7,5\n")
    assert read(named, time="order").rows() == [(1, 7, 5.0)]


def test_columns_of_later_files_may_stand_in_another_order(write: Write) -> None:
    write("logs/a.csv", "user,item,time\n1,7,10\n")
    folder = write("logs/b.csv", "time,Item,user\n20,x8,1\n").parent
    assert read(folder).rows() == [(1, "7", 10.0), (1, "x8", 20.0)]


def test_a_folder_of_several_formats_or_of_none(write: Write) -> None:
    folder = write("logs/a.csv", CSV).parent
    write("logs/b.jsonl", JSONL)
    with pytest.raises(InputError, match=r"several formats \(csv, jsonl\)"):
        read(folder)
    assert read(folder, format="csv").rows() == EVENTS
    with pytest.raises(InputError, match="no file of a known format"):
        read(write("docs/readme.md", "x").parent)


def test_folders_of_recbole_and_movielens_have_other_files_too(write: Write) -> None:
    folder = write("ml/ratings.dat", DAT).parent
    write("ml/movies.dat", b"7::Amelie \xe9 (2001)::Comedy|Romance\n")
    write("ml/users.dat", "1::F::1::10::48067\n")
    source = read_events(folder, ReadOptions())
    assert source.log.to_polars().rows() == EVENTS
    assert source.items_beside == folder / "movies.dat"
    folder = write("100k/u.data", U_DATA).parent
    write("100k/u.item", "7|A|||||")
    write("100k/u1.base", U_DATA)
    source = read_events(folder, ReadOptions())
    assert source.log.to_polars().rows() == EVENTS
    assert source.items_beside == folder / "u.item"
    folder = write("rb/x.inter", INTER).parent
    write("rb/x.item.gz", "item_id:token\n7\n")
    write("rb/x.user", "user_id:token\n1\n")
    source = read_events(folder, ReadOptions())
    assert source.log.to_polars().rows() == EVENTS
    assert source.items_beside == folder / "x.item.gz"


def test_ratings_are_read_when_they_matter(write: Write) -> None:
    path = write("log.csv", CSV)
    assert "rating" not in read(path).columns
    assert read(path, with_rating=True)["rating"].to_list() == [5.0, 4.0, 1.0, 3.0]
    with pytest.raises(InputError, match=r"plainly the rating.*rating="):
        read(write("log.jsonl", JSONL), with_rating=True)


def test_json_strings_stay_strings_and_mixed_ones_become_so(write: Write) -> None:
    lines = "".join(f'{{"user": "{n}", "item": {n}, "time": {n}}}\n' for n in range(1200))
    late = '{"user": 5, "item": "x", "time": 1.5}\n'
    events = read(write("log.jsonl", lines + late))
    assert events.schema == {"user": pl.String, "item": pl.String, "time": pl.Float64}
    assert events.rows()[-1] == ("5", "x", 1.5)


ATOMIC = "user_id:token\titem_id:token\ttimestamp:float\n"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv.gz", "", "a.csv.gz"),
        ("a.csv", "user,item,time\n", "no events"),
        ("a.csv", "1,2,3,4\n1,2,3,4\n", "'1', '2', '3', '4'"),
        (
            "a.csv",
            'user,item,time\n"1\n1",2,3\n1,2,3,4\n',
            "a.csv, line 4: 4 fields where the header has 3; .* leave such rows out with skip_bad",
        ),
        ("a.csv", 'user,item,time\n1,2,3\n1,"2,3\n', r"line 3 is not a row \(unexpected end"),
        ("a.tsv", "user\titem\ttime\n1\t2\t3\t4\n", "a.tsv, line 2: 4 fields where the header"),
        (
            "a.inter",
            ATOMIC + "1\t2\t3\t4\n",
            "line 2: 4 fields where the header has 3; correct it$",
        ),
        ("a.jsonl", '{"user": 1}\n\n[1]\n', "a.jsonl, line 3 is not a JSON object; correct it, or"),
        ("a.jsonl.gz", '{"user": 1}\n{"user":\n', "a.jsonl.gz"),
        ("a.csv", "user,item,time\n1,2,3\n1,2\n", r"row 2 \(line 3\), column 'time'"),
        ("a.jsonl", '{"user": 1, "item": 2}\n', "plainly the time"),
        ("a.jsonl", '{"user": 1,', "a.jsonl"),
        ("a.inter", "user_id\titem_id\n1\t2\n", "name:type"),
        ("a.inter", "user_id:word\n1\n", "name:type"),
        ("a.dat", "1::2\n", "2 fields"),
        ("u.data", "1\t2\n", "neither the 4 fields between tabs"),
        ("u.data", U_DATA + "1\t2\n", "row 5"),
        ("a.txt", GOWALLA + "1\t2\n", "row 5"),
        ("a.parquet", "PAR1 but no more", "cannot read"),
        ("a.csv.gz.csv", "\x1f\x8b rubbish", "cannot read"),
    ],
)
def test_files_that_cannot_be_read(write: Write, name: str, content: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        read(write(name, content.encode("latin-1")))
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read(tmp_path / "missing.csv")
    with pytest.raises(InputError, match="no file matches"):
        read(str(tmp_path / "*.csv"))
    with pytest.raises(InputError, match="set format="):
        read(tmp_path)


def test_the_wrong_number_of_checkin_fields(write: Write) -> None:
    with pytest.raises(InputError, match="3 fields"):
        read(write("log.txt", "1\t2\t3\n"), format="gowalla")
