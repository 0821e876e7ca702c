"""Datasets in object storage: fetched whole into the cache of a machine, written manifest last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from linrec.data.dataset.store_files import DatasetFile, EventFiles, description_of
from linrec.files.atomic import DATASET_MARKER, FolderDraft, write_folder, writing
from linrec.files.copies import (
    changed,
    check_free_anywhere,
    keep,
    kept_copy,
    objects_of,
    outgoing,
    send_folder,
    version_of,
)
from linrec.files.remote import Address, Entry, chunks, entry
from linrec.types import InputError


def check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse to write a dataset over what is not one, before any long work."""
    check_free_anywhere(path, overwrite=overwrite, marker=DATASET_MARKER)


def folder_of(path: Path) -> Path:
    """Where the files of a dataset are: in its folder, or in a copy of what is in storage.

    The copy is named after the fingerprint in the manifest and after the sizes and times of the
    objects, so it is fetched again only when the dataset was written again.
    """
    if not isinstance(path, Address):
        return path
    described, objects = _listed(path)
    copy = kept_copy(_name(described, objects), objects)
    if objects != _listed(path)[1]:
        raise changed(path)
    return copy


def _listed(path: Address) -> tuple[DatasetFile, dict[str, Entry]]:
    """The manifest, and the objects that belong to the dataset."""
    marker = entry(path / DATASET_MARKER)
    if marker is None:
        raise InputError(
            f"there is no dataset at {path}, or it is still being written: it has no "
            f"{DATASET_MARKER}; make one with `linrec prepare`"
        )
    described = description_of(b"".join(chunks(marker.path)), path)
    return described, _belonging(described, path)


def _belonging(described: DatasetFile, path: Address) -> dict[str, Entry]:
    files, objects = EventFiles(path, described.shards), objects_of(path)
    names = {DATASET_MARKER, *files.needed(described), *files.possible}
    return {name: each for name, each in objects.items() if name in names}


def _name(described: DatasetFile, objects: Mapping[str, Entry]) -> str:
    return f"{described.fingerprint}-{version_of(objects)}"


@contextmanager
def dataset_folder(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield a folder to fill, which is the dataset at this path once the block has succeeded."""
    if not isinstance(path, Address):
        with write_folder(path, overwrite) as draft:
            yield draft
        return
    check_free(path, overwrite=overwrite)
    sent = FolderDraft(outgoing(path), overwrite=True)
    try:
        with writing(sent.folder):
            yield sent.folder
        send_folder(sent.folder, path, DATASET_MARKER)
        keep(sent.folder, _name(*_listed(path)))
    finally:
        sent.discard()
