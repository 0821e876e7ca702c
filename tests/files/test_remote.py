"""Addresses of object storage: told from paths, found, and explained where they are wrong."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from glob import glob
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from linrec.files.atomic import write_folder, write_text
from linrec.files.copies import cache_folder, fetch, here, kept_copy, objects_of
from linrec.files.remote import Address, entry, is_file, is_folder, matching, place
from linrec.types import InputError
from tests.storage import Bucket, point_to


@pytest.mark.parametrize("text", ["s3://shop/log/a.csv", "s3:/shop/log/a.csv"])
@pytest.mark.parametrize("kind", [str, Path])
def test_an_address_keeps_its_name(text: str, kind: Callable[[str], str | Path]) -> None:
    found = place(kind(text))
    assert isinstance(found, Address)
    assert str(found) == "s3://shop/log/a.csv"
    assert (found.scheme, found.bucket, found.location) == ("s3", "shop", "shop/log/a.csv")
    for same in (found.resolve(), found.parent / "a.csv", pickle.loads(pickle.dumps(found))):
        assert isinstance(same, Address)
        assert str(same) == str(found)


def test_a_path_stays_a_path() -> None:
    for text in ("data", "/data/log.csv", "a:b/c", "logs/s3:x"):
        assert type(place(text)) is type(Path())
        assert str(place(text)) == text


def test_what_cannot_be_an_address() -> None:
    with pytest.raises(InputError, match=r"hdfs://x/y is not on a file system.*s3:// and gs://"):
        place("hdfs://x/y")
    with pytest.raises(InputError, match="s3:// names no bucket"):
        place("s3://")


def test_a_run_is_not_written_to_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(InputError, match="s3://shop/run is not on a file system"),
        write_folder(Path("s3://shop/run")),
    ):
        pass
    with pytest.raises(InputError, match=r"s3://shop/list\.csv is not on a file system"):
        write_text(Path("s3://shop/list.csv"), "")
    assert not list(tmp_path.iterdir())


NAMES = [
    "logs/a.csv", "logs/b.csv", "logs/b.txt", "logs/.hidden.csv", "logs/date=1/a.csv",
    "logs/date=1/deep/c.csv", "logs/.git/d.csv", "other/a.csv",
]  # fmt: skip


@pytest.mark.parametrize(
    "pattern",
    ["logs/*.csv", "logs/*/*.csv", "logs/**/*.csv", "logs/**", "*/a.csv", "logs/[ab].csv", "*/b*",
     "logs/date=?/a.csv", "logs/.*", "logs/*/deep/c.csv", "logs/*.json", "logs/**/deep/*"],
)  # fmt: skip
def test_a_pattern_fits_what_it_fits_on_a_file_system(
    pattern: str, bucket: Bucket, tmp_path: Path
) -> None:
    for name in NAMES:
        bucket.put(name, b"x")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    local = [Path(found) for found in glob(str(tmp_path / pattern), recursive=True)]  # noqa: PTH207
    expected = sorted(str(path.relative_to(tmp_path)) for path in local if path.is_file())
    address = place(bucket.address(pattern))
    assert isinstance(address, Address)
    found = [str(each.path) for each in matching(address)]
    assert found == [bucket.address(name) for name in expected]


def test_what_is_there(bucket: Bucket) -> None:
    bucket.put("log/a.csv", b"user,item\n")
    assert is_file(bucket.address("log/a.csv"))
    assert not is_folder(bucket.address("log/a.csv"))
    assert is_folder(bucket.address("log"))
    assert not is_file(bucket.address("log"))
    assert not is_file(bucket.address("none"))


def test_files_are_here_only_as_long_as_they_are_read(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("a/log.csv", b"one")
    bucket.put("b/log.csv", b"two")
    (tmp_path / "log.csv").write_bytes(b"three")
    paths = [place(bucket.address(f"{name}/log.csv")) for name in "ab"]
    with here([*paths, tmp_path / "log.csv"]) as places:
        assert [each.read_bytes() for each in places] == [b"one", b"two", b"three"]
        assert places[2] == tmp_path / "log.csv"
    assert not list(cache_folder().iterdir())


def test_a_broken_transfer_leaves_no_copy(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        bucket.put(f"data/{name}", b"content")
    objects = objects_of(place_of(bucket, "data"))

    def broken(address: Address, to: Path) -> None:
        if address.name == "b":
            raise InputError("the line is cut")
        fetch(address, to)

    monkeypatch.setattr("linrec.files.copies.fetch", broken)
    with pytest.raises(InputError, match="the line is cut"):
        kept_copy("data", objects)
    assert [path.name for path in (cache_folder() / "datasets").iterdir()] == ["data.lock"]
    monkeypatch.undo()


def test_a_copy_that_is_too_short_is_not_kept(bucket: Bucket) -> None:
    bucket.put("data/a", b"content")
    objects = objects_of(place_of(bucket, "data"))
    bucket.put("data/a", b"cont")
    with pytest.raises(InputError, match="changed while it was read; run the command again"):
        kept_copy("data", objects)
    assert not (cache_folder() / "datasets" / "data").exists()


def test_several_processes_fetch_once(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("data/a", b"content")
    objects, fetched = objects_of(place_of(bucket, "data")), []

    def counted(address: Address, to: Path) -> None:
        fetched.append(address)
        fetch(address, to)

    monkeypatch.setattr("linrec.files.copies.fetch", counted)
    threads = [threading.Thread(target=kept_copy, args=("data", objects)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == 1


def place_of(bucket: Bucket, name: str) -> Address:
    found = place(bucket.address(name))
    assert isinstance(found, Address)
    return found


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LINREC_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "linrec"
    monkeypatch.setenv("LINREC_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.setenv("LINREC_CACHE", "s3://shop/cache")
    with pytest.raises(InputError, match="s3://shop/cache is not on a file system"):
        cache_folder()


# what goes wrong


@pytest.mark.usefixtures("bucket")
def test_a_bucket_that_is_not_there() -> None:
    words = "there is no bucket 'none-such', which s3://none-such.* names; correct it, or make it"
    for look in (entry, is_file, matching):
        with pytest.raises(InputError, match=words):
            look(Address("s3:/none-such/log.csv"))


def test_an_object_that_is_not_there(bucket: Bucket, tmp_path: Path) -> None:
    address = place_of(bucket, "log.csv")
    assert entry(address) is None
    with pytest.raises(InputError, match=f"{address} does not exist; check the address"):
        fetch(address, tmp_path / "log.csv")


class Refusing(BaseHTTPRequestHandler):
    """A service that lets nobody in."""

    def do_GET(self) -> None:
        self.send_response(403)
        self.end_headers()

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815

    def log_message(self, *args: object) -> None:
        del args


@pytest.fixture
def refusing() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_no_credentials(refusing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point_to(refusing, tmp_path, monkeypatch)
    words = "does not let you read s3://shop/log.csv; give credentials that may: AWS_ACCESS_KEY_ID"
    with pytest.raises(InputError, match=words) as caught:
        entry(Address("s3:/shop/log.csv"))
    assert "\n" not in str(caught.value)


def test_a_service_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point_to("http://127.0.0.1:9", tmp_path, monkeypatch)
    words = "no storage answers for s3://shop/log.csv; check the network and AWS_ENDPOINT_URL=http"
    with pytest.raises(InputError, match=words):
        entry(Address("s3:/shop/log.csv"))
