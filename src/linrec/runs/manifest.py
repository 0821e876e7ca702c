"""manifest.json of a run: the checksum of each of its files, so that they are known to belong together.

A file is replaced in three steps: its new checksum is added to the manifest, the file is replaced,
the old checksum is removed. A process that is killed in between leaves a file that fits one of the
two. The checksums are those of `b2sum`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from linrec.files.atomic import write_bytes
from linrec.files.drafts import locked
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
    """Replace one file and its line in the manifest; a kill at any moment leaves the two in step."""
    folder.mkdir(parents=True, exist_ok=True)
    checksum = checksum_of(content)
    with locked(folder):
        files = dict(_files(folder))
        _save(folder, files | {name: (*files.get(name, ())[-1:], checksum)})
        write_bytes(folder / name, content)
        _save(folder, files | {name: (checksum,)})


def remove_listed(folder: Path, prefix: str) -> None:
    """Take the files whose names begin so out of the manifest."""
    with locked(folder):
        files = _files(folder)
        left = {name: sums for name, sums in files.items() if not name.startswith(prefix)}
        if len(left) < len(files):
            _save(folder, left)


def _files(folder: Path) -> Mapping[str, tuple[str, ...]]:
    """Of an older run, which has no manifest, whatever is there."""
    known = Manifest.read(folder)
    if known is not None:
        return known.files
    return {
        path.relative_to(folder).as_posix(): (checksum_of(path.read_bytes()),)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and "tensorboard" not in path.parts
    }


def _save(folder: Path, files: Mapping[str, tuple[str, ...]]) -> None:
    write_bytes(folder / MANIFEST, Manifest(files).to_json().encode())
