"""From `linrec download` to a dataset, by the commands it prints."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from linrec.cli.progress import arriving
from linrec.data.downloads import sources
from tests.cli.conftest import Command, Refused
from tests.data.downloads.mirror import Mirror, serving
from tests.data.downloads.official import AFTER_5_CORE, ARCHIVES


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """The official archives, made up, at another address and under their own checksums."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    known = sources.sources()
    with serving() as one:
        for name, made in ARCHIVES.items():
            entry, content = known[name], made()
            one.add(entry.archive, content, md5=name != "gowalla")
            if entry.md5:
                known[name] = replace(entry, md5=hashlib.md5(content).hexdigest())
        monkeypatch.setattr(sources, "sources", lambda: known)
        yield one


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_command_it_prints_prepares_what_it_fetched(
    name: str, mirror: Mirror, linrec: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    entry = sources.source(name)
    result = linrec("download", name, "--out", f"my data/{name}", "--from", mirror.address)
    assert result.code == 0, result.err
    assert entry.terms in result.out
    assert entry.licence in result.out
    command = result.out.rpartition("Next: ")[2].strip()
    assert "\n" not in command
    prepared = linrec(*shlex.split(command)[1:])
    assert prepared.code == 0, prepared.err
    data = tmp_path / "my data" / f"{name}-data"
    known = json.loads(linrec("describe", data, "--json").out)
    assert {key: known[key] for key in AFTER_5_CORE} == AFTER_5_CORE
    if name != "gowalla":
        assert known["features"]["genres"] == "multi"
        items = pl.read_parquet(data / "items.parquet")
        assert items["title"][0].startswith("Été")
        assert items["genres"][0].to_list() == ["Comedy", "Drama"]


def test_what_vouches_for_the_archive_is_said(
    mirror: Mirror, linrec: Command, tmp_path: Path
) -> None:
    def said(name: str) -> str:
        words = ("download", name, "--out", tmp_path / name, "--from", mirror.address)
        return linrec(*words).out

    assert "has the md5 it is known by" in said("ml-1m")
    assert "has the md5 published beside it" in said("ml-latest-small")
    message = said("gowalla")
    assert "No checksum is published" in message
    assert json.loads((tmp_path / "gowalla" / "download.json").read_text())["sha256"] in message


def test_the_folder_is_named_as_the_dataset(
    mirror: Mirror, linrec: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert linrec("download", "ml-100k", "--from", mirror.address).code == 0
    assert (tmp_path / "ml-100k" / "u.data").is_file()
    assert not (tmp_path / "ml-100k" / "u1.base").exists()


def test_the_list(linrec: Command) -> None:
    shown = linrec("download", "--list").out
    assert all(name in shown for name in ARCHIVES)
    assert "5.9 MB" in shown


def test_mistakes(mirror: Mirror, refused: Refused, tmp_path: Path) -> None:
    assert "say which dataset: ml-1m" in refused("download")
    assert "unknown dataset 'ml'" in refused("download", "ml")
    words = ("download", "ml-1m", "--out", tmp_path / "x", "--from")
    assert "cannot reach" in refused(*words, "http://127.0.0.1:9")
    archive = mirror.files.pop("ml-1m.zip")
    assert "HTTP 404" in refused(*words, mirror.address)
    mirror.files["ml-1m.zip"], mirror.cut_after = archive, 200
    assert "run it again to resume" in refused(*words, mirror.address)
    assert [path.name for path in tmp_path.iterdir()] == ["ml-1m.zip.part"]


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_download_goes_on(
    blow: signal.Signals, mirror: Mirror, linrec: Command, tmp_path: Path
) -> None:
    words = ["download", "gowalla", "--out", str(tmp_path / "raw"), "--from", mirror.address]
    part = tmp_path / "loc-gowalla_totalCheckins.txt.gz.part"
    mirror.stall_after = 120
    program = "from linrec.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        text=True,
    ) as running:
        while not (part.exists() and part.stat().st_size == 120):
            assert running.poll() is None
            time.sleep(0.02)
        running.send_signal(blow)
        _, errors = running.communicate()
    assert running.returncode == (130 if blow == signal.SIGINT else -blow)
    assert "Traceback" not in errors
    # whoever is killed cannot remove the lock file, which no longer locks anything
    locks = {f"{part.name}.lock"} if blow == signal.SIGKILL else set()
    assert {path.name for path in tmp_path.iterdir()} == {part.name} | locks
    mirror.stall_after = None
    assert linrec(*words).code == 0
    assert mirror.ranges_of("loc-gowalla_totalCheckins.txt.gz") == [None, "bytes=120-"]
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_a_bar_on_a_terminal() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with arriving("ml-1m.zip", console) as message:
        message(3_000_000, None)
        message(3_000_000, 6_000_000)
    assert "ml-1m.zip" in screen.getvalue()
    assert "3.0/6.0 MB" in screen.getvalue()
