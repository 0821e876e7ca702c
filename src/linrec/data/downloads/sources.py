"""The public datasets that can be downloaded, as sources.toml lists them."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from linrec.types import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMES = ("http", "https", "file")


@dataclass(frozen=True, kw_only=True)
class Source:
    """One dataset: its address, its licence and the command that prepares it."""

    name: str
    what: str
    address: str
    bytes: int
    licence: str
    terms: str
    files: tuple[str, ...]
    prepare: str
    md5: str | None = None

    @property
    def archive(self) -> str:
        return self.address.rpartition("/")[2]

    def address_at(self, mirror: str | None) -> str:
        """The official address, or that of the same archive at a mirror or in a folder."""
        if mirror is None:
            return self.address
        base = mirror if "://" in mirror else Path(mirror).absolute().as_uri()
        if base.partition("://")[0].lower() not in SCHEMES:
            raise InputError(
                f"cannot download from {mirror!r}; give an address that begins with http:// or "
                "https://, or a folder"
            )
        return f"{base.rstrip('/')}/{self.archive}"

    def next_command(self, folder: Path) -> str:
        """The command to run once the files are in `folder`."""
        return self.prepare.format(folder=shlex.quote(str(folder)))


def sources() -> dict[str, Source]:
    """All of them, by name."""
    table = tomllib.loads(
        (resources.files("linrec.data.downloads") / "sources.toml").read_text("utf-8")
    )
    return {
        name: Source(name=name, **(entry | {"files": tuple(entry["files"])}))
        for name, entry in table.items()
    }


def source(name: str) -> Source:
    known = sources()
    if name not in known:
        raise InputError(f"unknown dataset {name!r}; choose from {', '.join(known)}")
    return known[name]
