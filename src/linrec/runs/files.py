"""The files of a run: written with their checksums, read and compared with them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from linrec.files.atomic import FolderDraft, writing
from linrec.files.drafts import locked
from linrec.files.guard import reading
from linrec.runs.manifest import MANIFEST, Manifest, checksum_of, remove_listed, write_listed
from linrec.runs.tensors import TRAIN_AGAIN
from linrec.types import InputError

TRIES = 5  # of a reader while another process replaces the files

Result = TypeVar("Result")


class RunFiles:
    def __init__(
        self, path: Path, draft: FolderDraft | None = None, *, verify: bool = True
    ) -> None:
        """draft: where the files are until `publish`."""
        self.path, self._draft, self._verify = path, draft, verify
        self.checksums: dict[str, str] = {}  # of what was read last

    @property
    def folder(self) -> Path:
        """Where the files are now."""
        return self.path if self._draft is None else self._draft.folder

    def publish(self) -> None:
        """Give the draft its name, if there is one."""
        if self._draft is not None:
            self._draft.publish()
            self._draft = None

    def discard(self) -> None:
        """Remove the draft, if there is one."""
        if self._draft is not None:
            self._draft.discard()

    def read(self, name: str) -> bytes:
        with reading(str(self.path / name), TRAIN_AGAIN):
            content = (self.folder / name).read_bytes()
        self.checksums[name] = checksum_of(content)
        return content

    def check(self, *names: str) -> None:
        """Refuse what was read last under these names unless the manifest lists it.

        Last, because whatever is wrong with a content says more than that it is another one.
        """
        manifest = Manifest.read(self.folder) if self._verify else None
        if manifest is not None:
            for name in names:
                if name in self.checksums:
                    manifest.check(self.path, name, self.checksums[name])

    def write(self, name: str, content: bytes) -> None:
        """Replace one file in one step; every file of a run but TensorBoard's is written here."""
        with self._writing(name):
            write_listed(self.folder, name, content)
        if name in self.checksums:
            self.checksums[name] = checksum_of(content)

    def remove(self, *names: str) -> None:
        """Remove files, or folders with all that is in them."""
        with self._writing(names[0]):
            remove_listed(self.folder, names)
            for name in names:
                path = self.folder / name
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def steady(self, load: Callable[[], Result]) -> Result:
        """Load again if the files were replaced while they were read."""
        for _ in range(TRIES - 1):
            before = self._manifest_bytes()
            try:
                return load()
            except InputError:
                if self._manifest_bytes() == before:
                    raise
        return load()

    def _manifest_bytes(self) -> bytes:
        with contextlib.suppress(OSError):
            return (self.folder / MANIFEST).read_bytes()
        return b""

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """Alone: another process may be evaluating the same run."""
        with writing(self.path / name):
            if self._draft is not None:  # which is locked, and nobody else knows
                yield
                return
            with locked(self.folder):
                yield
