"""A public dataset, from its official source into a folder: all of it, checked, or nothing."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from linrec.data.downloads.archives import damage, unpack
from linrec.data.downloads.fetch import Told, fetch, published_md5
from linrec.data.downloads.sources import Source
from linrec.files.atomic import check_free, write_folder, writing
from linrec.types import InputError

MARKER = "download.json"
"""Tells that a folder is a download, and what of: such a folder may be replaced by another."""

_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Downloaded:
    """Where an archive came from and what it was; kept beside its files."""

    dataset: str
    address: str
    bytes: int
    md5: str
    sha256: str
    # what the md5 was compared with; None where only the archive's own checksums vouch for it
    checked: Literal["known", "published"] | None
    terms: str
    at: str  # UTC


def _quiet(_done: int, _total: int | None) -> None: ...


def download(
    source: Source,
    out: Path,
    *,
    place: str | None = None,
    overwrite: bool = False,
    told: Told = _quiet,
) -> Downloaded:
    """Fetch, check and unpack a dataset into the folder `out`.

    What has arrived stays in a `.part` file beside `out` until all is done, so that an
    interrupted download goes on from there. `place` is a mirror or a folder with the archive.
    """
    if out.name in ("", ".."):
        raise InputError(f"{out} is no name for a new folder; choose one, such as {source.name}")
    check_free(out, overwrite=overwrite, marker=MARKER)
    address = source.address_at(place)
    expected = _expected_md5(source, address)
    with _part_file(out.parent / f"{source.archive}.part") as part:
        record = _fetch_whole(source, address, part, expected, told)
        with write_folder(out, overwrite, MARKER) as draft:
            unpack(part, source.archive, source.files, draft)
            (draft / MARKER).write_text(json.dumps(asdict(record), indent=2) + "\n")
        part.unlink()
    return record


def _expected_md5(source: Source, address: str) -> str | None:
    """The md5 known to us and the one published must agree; one of them is enough."""
    published = published_md5(address)
    if source.md5 and published and published != source.md5:
        raise InputError(
            f"{address} is published with the md5 {published} where that of {source.name} is "
            f"known to be {source.md5}: it is another file now; read {source.terms}"
        )
    return source.md5 or published


@contextlib.contextmanager
def _part_file(path: Path) -> Iterator[Path]:
    """The file an archive arrives in, ours alone; it stays if anything is in it."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another download is writing {path}; wait for it, or choose another --out"
            ) from None
        try:
            yield path
        finally:
            if path.exists() and not path.stat().st_size:
                path.unlink()


def _fetch_whole(
    source: Source, address: str, part: Path, expected: str | None, told: Told
) -> Downloaded:
    """Fetch until the archive is right; a second time if it was put together from two halves."""
    resumed = part.stat().st_size > 0
    fetch(address, part, told)
    md5, sha256 = _digests(part)
    wrong = _what_is_wrong(part, source.archive, md5, expected)
    if wrong is None:
        return Downloaded(
            dataset=source.name,
            address=address,
            bytes=part.stat().st_size,
            md5=md5,
            sha256=sha256,
            checked=None if expected is None else "known" if source.md5 else "published",
            terms=source.terms,
            at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
    with writing(part):
        part.write_bytes(b"")
    if resumed:
        return _fetch_whole(source, address, part, expected, told)
    raise InputError(f"what came from {address} is not {source.archive}: {wrong}; it was removed")


def _what_is_wrong(part: Path, name: str, md5: str, expected: str | None) -> str | None:
    if expected is None:
        return damage(part, name)
    return None if md5 == expected else f"its md5 is {md5} where {expected} was expected"


def _digests(path: Path) -> tuple[str, str]:
    """md5 against accidents, as the sources publish it; sha256 for the record."""
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            md5.update(chunk)
            sha256.update(chunk)
    return md5.hexdigest(), sha256.hexdigest()
