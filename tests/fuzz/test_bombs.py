"""Small files that stand for enormous ones: one sentence, in seconds, in less than a gigabyte."""

from __future__ import annotations

import gzip
import json
import lzma
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_LZMA, ZipFile

import pyarrow as pa
import pytest

from linrec.data.downloads import archives
from linrec.data.preparing.prepare import prepare
from linrec.files import expansion
from linrec.types import InputError
from tests.fuzz.targets import CORPUS, outcome, with_file
from tests.training.fixtures import dataset, run

__all__ = ["dataset", "run"]

HEADER = b"user,item,time\n"
LINES = b"1,2,3\n" * 200_000


def million_empty_tensors(layers: int = 1_000_000) -> bytes:
    entry = b'"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    header = b"{" + b",".join(entry % index for index in range(layers)) + b"}"
    return struct.pack("<Q", len(header)) + header


@pytest.mark.slow
def test_a_million_empty_tensors(run: Path, tmp_path: Path) -> None:
    folder = with_file(run, tmp_path / "copy", "model.safetensors", million_empty_tensors())
    config = json.loads((folder / "config.json").read_text())
    config["model"]["layers"] = 250_000
    (folder / "config.json").write_text(json.dumps(config))
    assert "more tensors than any model has" in str(outcome("run", folder))


def test_more_heads_than_memory(run: Path, tmp_path: Path) -> None:
    """Each has a decay, which is computed even for a model without memory."""
    config = json.loads((run / "config.json").read_text())
    config["model"] |= {"heads": 2**40, "width": 2**40, "attention": "linrec-decay"}
    folder = with_file(run, tmp_path / "copy", "config.json", json.dumps(config).encode())
    assert "heads have no room in any of the tensors" in str(outcome("run", folder))


def bomb(compressor: Callable[[bytes], bytes]) -> bytes:
    return compressor(HEADER + LINES * 60)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda content: gzip.compress(content, 9),
    "zlib": lambda content: zlib.compress(content, 9),
    "zstd": lambda content: pa.compress(content, "zstd", asbytes=True),
}


@pytest.mark.parametrize("packer", PACKERS)
def test_a_compressed_log_that_expands_too_far(
    packer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With less allowed than in use, so that the file of the test can be small."""
    path = tmp_path / "events.csv"
    path.write_bytes(bomb(PACKERS[packer]))
    monkeypatch.setattr(expansion, "ALLOWED", 1 << 20)
    for given in ({"events": path}, {"events": [path]}):
        with pytest.raises(InputError, match=r"expands to more than 250 times .*max_expansion"):
            prepare(**given)
    (tmp_path / "good.csv").write_bytes(HEADER + b"1,2,3\n")
    with pytest.raises(InputError, match="expands to more than 9 times"):
        prepare(tmp_path / "good.csv", items=path, max_expansion=9)


def test_a_larger_limit_may_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.csv.gz"
    path.write_bytes(gzip.compress(HEADER + LINES, 9))
    monkeypatch.setattr(expansion, "ALLOWED", 1 << 16)
    with pytest.raises(InputError, match="max_expansion"):
        prepare(path)
    assert prepare(path, max_expansion=2000).n_events == 200_000


MEASURED = """
import re, sys, time
from pathlib import Path
from linrec.data.preparing.prepare import prepare
from linrec.types import InputError
began = time.monotonic()
try:
    prepare(Path(sys.argv[1]))
except InputError as error:
    print(error)
    peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]
    print(time.monotonic() - began, int(peak) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory is read from Linux")
@pytest.mark.parametrize("kind", ["gzip", "parquet"])
def test_a_real_bomb_takes_seconds_and_less_than_a_gigabyte(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("events.csv.gz" if kind == "gzip" else "events.parquet")
    if kind == "gzip":
        path.write_bytes(gzip.compress(HEADER) + gzip.compress(b"0" * (10 << 20)) * 400)
    else:
        path.write_bytes((CORPUS / "run" / "items.parquet--bomb").read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, path], capture_output=True, text=True, check=True
    )
    sentence, figures = done.stdout.strip().split("\n")
    seconds, memory = map(float, figures.split())
    assert "expands to more than 250 times its size" in sentence
    assert seconds < 10
    assert memory < 1e9


def archive(path: Path, method: int, content: bytes = b"x" * 5_000_000) -> Path:
    with ZipFile(path, "w", method) as file:
        file.writestr("toy/ratings.dat", content)
    return path


def test_a_zip_that_expands_too_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path / "toy.zip", ZIP_DEFLATED)
    monkeypatch.setattr(expansion, "ALLOWED", 1 << 20)
    with pytest.raises(InputError, match=r"toy\.zip expands to more than 250 times"):
        archives.unpack(path, "toy.zip", ["ratings.dat"], tmp_path)
    with pytest.raises(InputError, match=r"toy\.zip expands to more than 250 times"):
        archives.damage(path, "toy.zip")
    archives.unpack(path, "toy.zip", ["ratings.dat"], tmp_path, max_expansion=10_000)
    assert (tmp_path / "ratings.dat").stat().st_size == 5_000_000


@pytest.mark.parametrize("method", [ZIP_LZMA, ZIP_BZIP2, ZIP_DEFLATED])
def test_a_damaged_archive_is_one_sentence(method: int, tmp_path: Path) -> None:
    content = bytes(range(256)) * 40 + lzma.compress(LINES)
    whole = archive(tmp_path / "toy.zip", method, content).read_bytes()
    for at in range(45, len(whole) - 100, max(1, len(whole) // 60)):
        damaged = bytearray(whole)
        damaged[at : at + 8] = b"\xff" * 8
        (tmp_path / "toy.zip").write_bytes(damaged)
        if archives.damage(tmp_path / "toy.zip", "toy.zip") is None:  # after the last byte of it
            archives.unpack(tmp_path / "toy.zip", "toy.zip", ["ratings.dat"], tmp_path)
            assert (tmp_path / "ratings.dat").read_bytes() == content
            continue
        with pytest.raises(InputError, match=r"cannot unpack|holds"):
            archives.unpack(tmp_path / "toy.zip", "toy.zip", ["ratings.dat"], tmp_path)


@pytest.mark.parametrize("name", ["events.jsonl", "events.json"])
def test_deep_events_are_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b'{"user": 1, "item": ' + b"[" * 20_000 + b"]" * 20_000 + b', "time": 1}\n')
    began = time.monotonic()
    with pytest.raises(InputError) as refused:
        prepare(path)
    assert "\n" not in str(refused.value)
    assert time.monotonic() - began < 10
