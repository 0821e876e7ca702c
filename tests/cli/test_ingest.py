"""`linrec ingest`."""

from __future__ import annotations

from pathlib import Path

from linrec.serving import open_store
from tests.cli.conftest import Command, Refused


def test_a_file_and_its_bad_lines(linrec: Command, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text('{"user": "u", "item": "a", "time": 1}\nspoiled\n{"user": "u", "item": "b"}\n')
    words = ["--from", file, "--store", tmp_path / "u.sqlite"]
    first = linrec("ingest", run, *words)
    assert first.code == 0, first.err
    assert "stored 2 events; 0 were stored before; 1 lines were left out" in first.out
    assert "1 x not JSON, such as: spoiled" in first.out
    assert "stored 0 events" in linrec("ingest", run, *words, "--states", "now").out
    again = linrec("ingest", run, *words, "--restart")
    assert "stored 0 events; 2 were stored before" in again.out
    store = open_store(str(tmp_path / "u.sqlite"))
    assert [event.item for event in store.history("u")] == ["a", "b"]
    store.close()


def test_mistakes(refused: Refused, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("spoiled\n")
    store = tmp_path / "u.sqlite"
    assert "is not a file" in refused("ingest", run, "--from", tmp_path / "no", "--store", store)
    assert "end with this command" in refused("ingest", run, "--from", file, "--store", "memory")
    assert "no line of" in refused("ingest", run, "--from", file, "--store", store)
    assert "--states never must be 'now' or 'later'" in refused(
        "ingest", run, "--from", file, "--states", "never"
    )
