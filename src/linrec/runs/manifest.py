"""manifest.json of a run: the checksum of each of its files, which shows that they belong together.

A file is replaced in three steps: its new checksum is added to the manifest, the file is replaced,
the old checksum is removed. A process that is killed in between leaves a file that fits one of the
two. The checksums are those of `b2sum`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from linrec.files.atomic import write_bytes
from linrec.files.guard import reading
from linrec.types import InputError
from linrec.validation import explain

MANIFEST = "manifest.json"
FORMAT = 1
COPY_AGAIN = "copy the whole folder again, or train the run again"


class _ManifestFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: int
    files: dict[str, list[str]]


@dataclass(frozen=True)
class Manifest:
    files: Mapping[str, tuple[str, ...]]  # by name: one checksum, two while it is being replaced

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """None for a run of an older linrec, which wrote no manifest."""
        path = folder / MANIFEST
        if not path.is_file():
            return None
        with reading(str(path), COPY_AGAIN):
            content: Any = json.loads(path.read_bytes())
        try:
            known = _ManifestFile.model_validate(content)
        except ValidationError as error:
            raise InputError(f"{path} is damaged ({explain(error)}); {COPY_AGAIN}") from None
        if known.format != FORMAT:
            raise InputError(
                f"{path} has format version {known.format} and this linrec reads version "
                f"{FORMAT}; update linrec"
            )
        return cls({name: tuple(sums) for name, sums in known.files.items()})

    def check(self, folder: Path, name: str, checksum: str) -> None:
        """Refuse a file with another checksum."""
        if checksum not in self.files.get(name, ()):
            raise InputError(
                f"{folder / name} is not the file that {MANIFEST} lists: it was changed, damaged "
                f"or comes from another run; {COPY_AGAIN}"
            )

    def to_json(self) -> str:
        content = _ManifestFile(
            format=FORMAT, files={name: list(sums) for name, sums in sorted(self.files.items())}
        )
        return content.model_dump_json(indent=2) + "\n"


def checksum_of(content: bytes) -> str:
    return blake2b(content).hexdigest()


def write_listed(folder: Path, name: str, content: bytes) -> None:
    """Replace one file and its checksum; a kill at any moment leaves the two in step."""
    checksum = checksum_of(content)
    files = dict(_files(folder))
    _save(folder, files | {name: (*files.get(name, ()), checksum)})
    write_bytes(folder / name, content)
    _save(folder, files | {name: (checksum,)})


def remove_listed(folder: Path, names: Collection[str]) -> None:
    """Take the files of these names, and those in folders of these names, off the list."""
    files = _files(folder)
    left = {name: sums for name, sums in files.items() if name.split("/")[0] not in names}
    if len(left) < len(files):
        _save(folder, left)


def _files(folder: Path) -> Mapping[str, tuple[str, ...]]:
    """The list of a manifest; for an older run, which has none, made from what is there."""
    known = Manifest.read(folder)
    if known is not None:
        return known.files
    paths = [path for pattern in ("[!.]*", "evaluation/[!.]*") for path in folder.glob(pattern)]
    return {
        path.relative_to(folder).as_posix(): (checksum_of(path.read_bytes()),)
        for path in paths
        if path.is_file()
    }


def _save(folder: Path, files: Mapping[str, tuple[str, ...]]) -> None:
    write_bytes(folder / MANIFEST, Manifest(files).to_json().encode())
