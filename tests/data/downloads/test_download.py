"""A download is complete, checked and in its folder, or it is a sentence and a part to resume."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from filelock import FileLock

from linrec.data.downloads import archives, fetch
from linrec.data.downloads.download import MARKER, Downloaded, download
from linrec.data.downloads.sources import Source, source, sources
from linrec.files import atomic
from linrec.types import InputError
from tests.data.downloads.mirror import Mirror, serving
from tests.data.downloads.official import ARCHIVES, gowalla, zipped

NOISE = random.Random(7).randbytes(700_000)  # does not compress, so that there is much to cut
CONTENT = zipped({"toy/": b"", "toy/ratings.dat": NOISE, "toy/README": b"terms", "toy/x/y": b"z"})
MD5 = hashlib.md5(CONTENT).hexdigest()
HALF = len(CONTENT) // 2
TOY = Source(
    name="toy",
    what="noise",
    address="https://example.invalid/data/toy.zip",
    bytes=len(CONTENT),
    md5=MD5,
    licence="none",
    terms="https://example.invalid/terms",
    files=("README", "ratings.dat"),
    prepare="linrec prepare {folder}/ratings.dat --out {folder}-data",
)
UNPINNED = replace(TOY, md5=None)
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with serving() as one:
        one.add("toy.zip", CONTENT)
        yield one


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "toy"


def get(mirror: Mirror, out: Path, toy: Source = TOY, **options: bool) -> Downloaded:
    return download(toy, out, from_=mirror.address, **options)


def part_of(out: Path) -> Path:
    return out.parent / "toy.zip.part"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refusal(mirror: Mirror, out: Path, toy: Source = TOY) -> str:
    """One sentence, and no folder."""
    with pytest.raises(InputError) as caught:
        get(mirror, out, toy)
    assert "\n" not in str(caught.value)
    assert not out.exists()
    assert set(names(out.parent)) <= {"toy.zip.part"}
    return str(caught.value)


# ------------------------------------------------------------------------------------ what is right


def test_the_named_files_and_a_record_of_the_archive(mirror: Mirror, out: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    record = download(
        TOY, out, from_=mirror.address, progress=lambda done, total: seen.append((done, total))
    )
    assert names(out) == ["README", MARKER, "ratings.dat"]
    assert (out / "ratings.dat").read_bytes() == NOISE
    assert names(out.parent) == ["toy"]
    kept = json.loads((out / MARKER).read_text())
    assert kept["sha256"] == record.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert (kept["bytes"], kept["md5"], kept["checked"]) == (len(CONTENT), MD5, "known")
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))


@pytest.mark.parametrize("how", ["redirect", "chunked"])
def test_other_ways_to_serve_it(mirror: Mirror, out: Path, how: str) -> None:
    setattr(mirror, how, True)
    assert get(mirror, out).md5 == MD5


def test_from_a_folder(tmp_path: Path, out: Path) -> None:
    folder = tmp_path / "my archives"
    folder.mkdir()
    (folder / "toy.zip").write_bytes(CONTENT)
    assert download(UNPINNED, out, from_=str(folder)).checked is None
    (folder / "toy.zip.md5").write_text(f"{MD5}  toy.zip\n")
    assert download(UNPINNED, out, from_=str(folder), overwrite=True).checked == "published"
    with pytest.raises(InputError, match=r"cannot reach .*No such file"):
        download(TOY, tmp_path / "other", from_=str(tmp_path))


def test_through_a_proxy(mirror: Mirror, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", mirror.address)
    download(TOY, out, from_="http://nowhere.invalid/a")
    assert ("http://nowhere.invalid/a/toy.zip", None) in mirror.requests


def test_what_vouches_for_the_archive(mirror: Mirror, out: Path) -> None:
    assert get(mirror, out, UNPINNED).checked == "published"
    del mirror.files["toy.zip.md5"]
    assert get(mirror, out, UNPINNED, overwrite=True).checked is None
    mirror.files["toy.zip.md5"] = b"<html>no such page</html>"
    assert get(mirror, out, UNPINNED, overwrite=True).checked is None
    assert get(mirror, out, overwrite=True).checked == "known"


# ----------------------------------------------------------------------------------------- going on


def test_a_cut_connection_is_gone_on_with(mirror: Mirror, out: Path) -> None:
    mirror.cut_after = HALF
    assert f"after {HALF:,} of {len(CONTENT):,} bytes" in refusal(mirror, out)
    assert part_of(out).read_bytes() == CONTENT[:HALF]
    mirror.cut_after = None
    get(mirror, out)
    assert mirror.ranges_of("toy.zip") == [None, f"bytes={HALF}-"]
    assert (out / "ratings.dat").read_bytes() == NOISE
    assert names(out.parent) == ["toy"]


def test_a_cut_without_a_length_is_noticed_too(mirror: Mirror, out: Path) -> None:
    mirror.chunked, mirror.cut_after = True, HALF
    assert "run it again to resume" in refusal(mirror, out)


@pytest.mark.parametrize("trouble", [{"ranges": False}, {"shifted": True}])
def test_a_server_that_cannot_go_on_begins_anew(
    mirror: Mirror, out: Path, trouble: dict[str, bool]
) -> None:
    part_of(out).write_bytes(CONTENT[:HALF])
    for name, value in trouble.items():
        setattr(mirror, name, value)
    assert get(mirror, out).md5 == MD5


def test_a_part_that_is_complete_is_not_fetched_again(mirror: Mirror, out: Path) -> None:
    part_of(out).write_bytes(CONTENT)
    get(mirror, out)
    assert mirror.ranges_of("toy.zip") == [f"bytes={len(CONTENT)}-"]


@pytest.mark.parametrize("before", [b"x" * 1000, CONTENT + b"more", b"x" * len(CONTENT)])
@pytest.mark.parametrize("toy", [TOY, UNPINNED])
@pytest.mark.parametrize("md5", [True, False])
def test_a_part_of_something_else_is_thrown_away(
    mirror: Mirror, out: Path, before: bytes, toy: Source, md5: bool
) -> None:
    if not md5:
        del mirror.files["toy.zip.md5"]
    part_of(out).write_bytes(before)
    assert get(mirror, out, toy).md5 == MD5


def test_two_downloads_do_not_share_a_part(mirror: Mirror, out: Path) -> None:
    with (
        FileLock(out.parent / "toy.zip.part.lock"),
        pytest.raises(InputError, match=r"another download is writing.*another out="),
    ):
        get(mirror, out)
    assert not out.exists()


# ------------------------------------------------------------------------------------ what is wrong


def test_no_network(out: Path) -> None:
    with pytest.raises(InputError, match=r"cannot reach 127\.0\.0\.1:9 .*from="):
        download(TOY, out.parent / "deep" / "toy", from_="http://127.0.0.1:9/")
    assert names(out.parent) == []


def test_no_such_host(out: Path) -> None:
    with pytest.raises(InputError, match=r"cannot reach nowhere\.invalid"):
        download(TOY, out, from_="http://nowhere.invalid")


def test_a_silent_server(mirror: Mirror, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT", 0.2)
    mirror.stall_after = HALF
    assert "sent nothing for 0.2 seconds" in refusal(mirror, out)
    assert part_of(out).read_bytes() == CONTENT[:HALF]
    mirror.pause = 0.5
    assert "sent nothing for 0.2 seconds" in refusal(mirror, out)


@pytest.mark.parametrize(("status", "sentence"), [(503, "returned HTTP 503"), (403, "HTTP 403")])
def test_a_server_that_refuses(mirror: Mirror, out: Path, status: int, sentence: str) -> None:
    mirror.status = status
    assert sentence in refusal(mirror, out)


def test_a_file_that_is_not_there(mirror: Mirror, out: Path) -> None:
    del mirror.files["toy.zip"]
    assert f"there is no file at {mirror.address}/toy.zip (HTTP 404)" in refusal(mirror, out)
    assert names(out.parent) == []


@pytest.mark.parametrize("address", ["ftp://example.org/data", "http://[bad", "http://a b/"])
def test_addresses_that_are_invalid(out: Path, address: str) -> None:
    with pytest.raises(InputError) as caught:
        download(TOY, out, from_=address)
    assert "\n" not in str(caught.value)


def test_a_wrong_file(mirror: Mirror, out: Path) -> None:
    mirror.add("toy.zip", b"<html>log in first</html>", md5=False)
    del mirror.files["toy.zip.md5"]
    assert f"where {MD5} was expected" in refusal(mirror, out)
    assert "is not toy.zip: File is not a zip file" in refusal(mirror, out, UNPINNED)
    assert names(out.parent) == []


def test_a_published_checksum_that_is_not_the_known_one(mirror: Mirror, out: Path) -> None:
    mirror.files["toy.zip.md5"] = b"MD5 (toy.zip) = " + b"0" * 32
    assert "the file has changed" in refusal(mirror, out)
    assert mirror.ranges_of("toy.zip") == []
    assert f"where {'0' * 32} was expected" in refusal(mirror, out, UNPINNED)


def test_damage_shows_without_any_checksum(mirror: Mirror, out: Path, tmp_path: Path) -> None:
    broken = CONTENT[:HALF] + bytes([CONTENT[HALF] ^ 1]) + CONTENT[HALF + 1 :]
    mirror.add("toy.zip", broken, md5=False)
    del mirror.files["toy.zip.md5"]
    assert "is not toy.zip: its toy/ratings.dat is damaged" in refusal(mirror, out, UNPINNED)
    for wrong in (gowalla()[:-9], gowalla()[:-1] + b"x", b"x", b""):
        (tmp_path / "a.gz").write_bytes(wrong)
        assert archives.damage(tmp_path / "a.gz", "a.gz") or not wrong
    (tmp_path / "a.gz").write_bytes(gowalla())
    assert archives.damage(tmp_path / "a.gz", "a.gz") is None


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "toy/../../evil", "..\\evil", "C:\\evil", "toy/ratings.dat/.."]
)
def test_an_archive_that_points_out_of_its_folder(mirror: Mirror, out: Path, name: str) -> None:
    mirror.add("toy.zip", zipped({"toy/README": b"", "toy/ratings.dat": b"", name: b"evil"}))
    assert "points out of its folder" in refusal(mirror, out, UNPINNED)


def test_an_archive_without_what_it_should_hold(mirror: Mirror, out: Path) -> None:
    mirror.add("toy.zip", zipped({"toy/README": b"x"}))
    assert "holds no ratings.dat" in refusal(mirror, out, UNPINNED)


def test_an_archive_that_is_none_although_its_checksum_fits(mirror: Mirror, out: Path) -> None:
    mirror.add("toy.zip", b"x" * 200)
    assert "cannot unpack toy.zip" in refusal(mirror, out, UNPINNED)


def test_a_full_disk_while_it_arrives(
    mirror: Mirror, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fetch, "writing", full_disk)
        assert "toy.zip.part: the disk is full" in refusal(mirror, out)
    assert 0 < part_of(out).stat().st_size < len(CONTENT)
    get(mirror, out)
    assert names(out.parent) == ["toy"]


def test_a_limit_on_the_size_of_files(mirror: Mirror, out: Path) -> None:
    """What the buffer still holds cannot be written either when the file is closed."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HALF, before[1]))
    try:
        assert "toy.zip.part: File too large" in refusal(mirror, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    get(mirror, out)


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Writing that fails once there is something in the file."""
    with atomic.writing(path):
        yield
        if path.stat().st_size:
            raise NO_SPACE


def test_a_full_disk_while_it_is_unpacked(
    mirror: Mirror, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", Mock(side_effect=NO_SPACE))
        assert "the disk is full" in refusal(mirror, out)
    get(mirror, out)
    assert mirror.ranges_of("toy.zip") == [None, f"bytes={len(CONTENT)}-"]


# ----------------------------------------------------------------------------------- what was there


def test_an_old_download_is_kept_unless_overwrite(mirror: Mirror, out: Path) -> None:
    get(mirror, out)
    mirror.requests.clear()
    with pytest.raises(InputError, match="add overwrite=True"):
        get(mirror, out)
    assert mirror.requests == []
    (out / "README").write_text("old")
    mirror.cut_after = HALF
    with pytest.raises(InputError, match="run it again"):
        get(mirror, out, overwrite=True)
    assert (out / "README").read_text() == "old"
    mirror.cut_after = None
    get(mirror, out, overwrite=True)
    assert (out / "README").read_text() == "terms"


def test_what_is_not_a_download_is_never_replaced(mirror: Mirror, out: Path) -> None:
    out.mkdir()
    (out / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=f"holds no {MARKER}"):
        get(mirror, out, overwrite=True)
    assert names(out) == ["letter.txt"]
    for folder in (Path(), Path("..")):
        with pytest.raises(InputError, match="not a name for a new folder"):
            get(mirror, folder)


def test_a_folder_that_cannot_be_written(mirror: Mirror, out: Path) -> None:
    out.write_text("a file")
    with pytest.raises(InputError, match="a part of that path is a file"):
        get(mirror, out / "deep")


# ---------------------------------------------------------------------------------------- the table


@pytest.mark.parametrize("name", sources())
def test_every_entry_of_the_table(name: str) -> None:
    entry = source(name)
    assert entry.address.startswith("https://")
    assert entry.terms.startswith("https://")
    assert entry.licence
    assert entry.bytes > 0
    assert entry.md5 is None or len(entry.md5) == 32
    assert entry.next_command(Path("a b")).startswith("linrec prepare 'a b'/")
    assert name in ARCHIVES  # the commands are run on it in tests/cli/test_download.py


def test_an_unknown_name() -> None:
    with pytest.raises(InputError, match="unknown dataset 'ml-1b'; choose from ml-1m, "):
        source("ml-1b")
