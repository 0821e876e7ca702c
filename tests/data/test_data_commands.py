from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from linrec.cli.describe import describe
from linrec.cli.prepare import feature_kinds, prepare
from linrec.types import InputError
from tests.data.conftest import Write

LOG = "who,item,time,stars\na,x,1,5\na,y,1,4\nb,x,2,3\na,z,3,1\n"

app = typer.Typer()
app.command()(prepare)
app.command()(describe)


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_prepare_prints_the_table_and_writes_the_folder(write: Write, tmp_path: Path) -> None:
    items = write("items.csv", "item,year,name\nx,1999,Ex\ny,2001,Why\n")
    output = run(
        *("prepare", write("log.csv", LOG), "--out", tmp_path / "data", "--user", "who"),
        *("--items", items, "--feature", "year=categorical", "--rating-at-least", 3),
    )
    assert "sparsity" in output
    assert "guessed" in output
    assert "rating_at_least" in output
    assert "note:" in output
    known = json.loads(run("describe", tmp_path / "data", "--json"))
    assert (known["users"], known["items"], known["events"]) == (2, 2, 3)
    assert known["features"] == {"year": "categorical", "title": "text"}
    assert known["fingerprint"] in run("describe", tmp_path / "data")


def test_prepare_takes_every_filter(write: Write, tmp_path: Path) -> None:
    run(
        *("prepare", write("log.csv", LOG), "--out", tmp_path / "data", "--user", "who"),
        *("--item", "item", "--time", "time", "--rating", "stars", "--format", "csv"),
        *("--since", 1, "--until", "1970-01-02", "--drop-repeats", "--drop-duplicates"),
        *("--min-user-events", 2, "--min-item-events", 1, "--overwrite"),
    )
    known = json.loads(run("describe", tmp_path / "data", "--json"))
    assert known["events"] == 3
    assert known["source"]["filters"] == {
        "since": "1",
        "until": "1970-01-02",
        "drop_duplicates": True,
        "drop_repeats": True,
        "min_user_events": 2,
    }


def test_bad_rows_are_skipped_if_wanted(write: Write, tmp_path: Path) -> None:
    log, data = write("log.csv", f"{LOG}a,,4,1\nb,y,5,1,1\n"), tmp_path / "data"
    output = run("prepare", log, "--out", data, "--user", "who", "--skip-bad-rows")
    assert "2 of 6 rows were skipped: not a row (1), no item id (1)." in " ".join(output.split())
    assert "2 of 6" in run("describe", data)
    assert len((data / "skipped.csv").read_text().splitlines()) == 3


def test_describe_prints_dates(write: Write, tmp_path: Path) -> None:
    log = write("log.csv", "user,item,time\n1,a,1717156800000\n1,b,1719835200000\n")
    assert "note: The times in 'time' were read as milliseconds" in " ".join(
        run("prepare", log, "--out", tmp_path / "data").split()
    )
    assert "2024-05-31 to 2024-07-01" in run("describe", tmp_path / "data")


@pytest.mark.parametrize(
    ("time", "flags"),
    [("31/05/2024", ("--time-format", "%d/%m/%Y")), ("1717113600000", ("--time-unit", "ms"))],
)
def test_the_unit_and_the_format_of_times(
    write: Write, tmp_path: Path, time: str, flags: tuple[str, str]
) -> None:
    log = write("log.csv", f"user,item,time\n1,a,{time}\n")
    assert "2024-05-31 to 2024-05-31" in run("prepare", log, "--out", tmp_path / "data", *flags)


def test_events_without_times(write: Write, tmp_path: Path) -> None:
    log = write("log.csv", "user,item\n1,a\n1,b\n")
    assert "time = order" in run("prepare", log, "--out", tmp_path / "data", "--time", "order")


def test_mistakes_are_input_errors(write: Write, tmp_path: Path) -> None:
    log = write("log.csv", LOG)
    with pytest.raises(InputError, match="set user=") as caught:
        run("prepare", log, "--out", tmp_path / "data")
    assert caught.value.field == "user"
    with pytest.raises(InputError, match="no dataset at"):
        run("describe", tmp_path / "data")
    with pytest.raises(InputError, match="NAME=KIND"):
        feature_kinds(["year"])


@pytest.mark.parametrize("command", ["prepare", "describe"])
def test_help_has_examples(command: str) -> None:
    assert f"linrec {command}" in run(command, "--help")
