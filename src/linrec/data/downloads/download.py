"""A public dataset from its official source into a folder: complete and checked, or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from linrec.data.downloads.archives import damage, unpack
from linrec.data.downloads.fetch import Progress, fetch, published_md5
from linrec.data.downloads.sources import Source
from linrec.files.atomic import check_free, write_folder, writing
from linrec.files.expansion import MAX_EXPANSION
from linrec.types import InputError, argument

MARKER = "download.json"
"""The file that marks a folder as a download, which another download may replace."""

_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Downloaded:
    """The origin and checksums of an archive; stored beside its files."""

    dataset: str
    address: str
    bytes: int
    md5: str
    sha256: str
    # what the md5 was compared with; None if only the archive's own checksums were
    checked: Literal["known", "published"] | None
    terms: str
    at: str  # UTC


def _quiet(_done: int, _total: int | None) -> None: ...


def download(
    source: Source,
    out: Path,
    *,
    from_: str | None = None,
    overwrite: bool = False,
    max_expansion: int = MAX_EXPANSION,
    progress: Progress = _quiet,
) -> Downloaded:
    """Fetch, check and unpack a dataset into the folder `out`.

    The bytes are kept in a `.part` file beside `out` until all is done, so that an interrupted
    download resumes there. `from_` is a mirror or a folder with the archive; the
    archive may expand to `max_expansion` times its size.
    """
    if out.name in ("", ".."):
        raise InputError(f"{out} is not a name for a new folder; choose one, such as {source.name}")
    check_free(out, overwrite=overwrite, marker=MARKER)
    address = source.address_at(from_)
    expected = _expected_md5(source, address)
    with _part_file(out.parent / f"{source.archive}.part") as part:
        record = _fetch_whole(source, address, part, expected, progress, max_expansion)
        with write_folder(out, overwrite, MARKER) as draft:
            unpack(part, source.archive, source.files, draft, max_expansion)
            (draft / MARKER).write_text(json.dumps(asdict(record), indent=2) + "\n")
        part.unlink()
    return record


def _expected_md5(source: Source, address: str) -> str | None:
    """The md5 of our list or the published one; where there are both, they must agree."""
    published = published_md5(address)
    if source.md5 and published and published != source.md5:
        raise InputError(
            f"{address} is published with the md5 {published} where that of {source.name} is "
            f"known to be {source.md5}: the file has changed; read {source.terms}"
        )
    return source.md5 or published


@contextlib.contextmanager
def _part_file(path: Path) -> Iterator[Path]:
    """The file that receives an archive, locked; it is kept unless it is empty."""
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise InputError(
                f"another download is writing {path}; wait for it, or choose another "
                f"{argument('out')}"
            ) from None
    try:
        with writing(path):
            path.touch()
        yield path
    finally:
        if path.exists() and not path.stat().st_size:
            path.unlink()
        with contextlib.suppress(OSError):  # Windows removes it on release
            Path(lock.lock_file).unlink()
        lock.release()


def _fetch_whole(
    source: Source,
    address: str,
    part: Path,
    expected: str | None,
    progress: Progress,
    max_expansion: int,
) -> Downloaded:
    """Fetch and verify; once more from the start if a resumed part does not match."""
    resumed = part.stat().st_size > 0
    fetch(address, part, progress)
    md5, sha256 = _digests(part)
    wrong = (
        damage(part, source.archive, max_expansion)
        if expected is None
        else _mismatch(md5, expected)
    )
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
        return _fetch_whole(source, address, part, expected, progress, max_expansion)
    raise InputError(f"what came from {address} is not {source.archive}: {wrong}; it was removed")


def _mismatch(md5: str, expected: str) -> str | None:
    return None if md5 == expected else f"its md5 is {md5} where {expected} was expected"


def _digests(path: Path) -> tuple[str, str]:
    """md5 against accidents, as the sources publish it; sha256 for the record."""
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            md5.update(chunk)
            sha256.update(chunk)
    return md5.hexdigest(), sha256.hexdigest()
