"""Copies of what is in object storage: files for as long as they are read, folders to be kept."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from linrec.files.atomic import FolderDraft, check_free, write_folder, writing
from linrec.files.drafts import locked
from linrec.files.remote import (
    Address,
    Entry,
    check_local,
    children,
    chunks,
    delete,
    entry,
    send,
    send_bytes,
)
from linrec.types import InputError, argument

CACHE = "LINREC_CACHE"
"""The variable of the environment that says where copies lie."""

STREAMS = 8  # objects on their way at once; they wait for the network
BEGUN = ".begun"  # added to a marker while the objects that it stands for are written


def cache_folder() -> Path:
    """Of this machine, unless `LINREC_CACHE` names one that several share."""
    given, home = os.environ.get(CACHE), os.environ.get("XDG_CACHE_HOME")
    if given:
        check_local(given)
        return Path(given).absolute()
    return (Path(home) if home else Path.home() / ".cache") / "linrec"


def fetch(address: Address, to: Path) -> None:
    """Copy an object into a file."""
    with writing(to), to.open("wb") as file:
        for chunk in chunks(address):
            file.write(chunk)


@contextmanager
def here(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Where these files can be opened: those in storage are copied for as long as the block."""
    remote = {n: path for n, path in enumerate(paths) if isinstance(path, Address)}
    if not remote:
        yield list(paths)
        return
    draft = FolderDraft(cache_folder() / "reading", overwrite=True)
    try:
        there = {n: draft.folder / f"{n:06d}" / path.name for n, path in remote.items()}
        for file in there.values():
            file.parent.mkdir()
        _each(lambda n: fetch(remote[n], there[n]), remote)
        yield [there.get(n, path) for n, path in enumerate(paths)]
    finally:
        draft.discard()


def version_of(entries: Mapping[str, Entry]) -> str:
    """Differs when an object was written again."""
    lines = [f"{name} {entries[name].size} {entries[name].changed}" for name in sorted(entries)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def objects_of(folder: Address) -> dict[str, Entry]:
    """All objects below an address, by their names from there on."""
    found = children(folder, recursive=True)
    return {str(each.path)[len(str(folder)) + 1 :]: each for each in found if not each.is_folder}


def kept_copy(name: str, objects: Mapping[str, Entry]) -> Path:
    """A folder of the cache with these objects, fetched by the first process that needs it."""
    target = cache_folder() / "datasets" / name
    with _alone(target):
        if not target.is_dir():
            with write_folder(target) as draft:
                for each in {(draft / file).parent for file in objects}:
                    each.mkdir(parents=True, exist_ok=True)
                _each(lambda file: fetch(objects[file].path, draft / file), objects)
                for file, known in objects.items():
                    if (draft / file).stat().st_size != known.size:
                        raise changed(known.path)
    return target


def changed(address: Address) -> InputError:
    return InputError(f"{address} changed while it was read; run the command again")


def keep(folder: Path, name: str) -> None:
    """Make a folder that was just sent the copy, so that nobody fetches it again."""
    target = cache_folder() / "datasets" / name
    with _alone(target), writing(target):
        if not target.exists():
            folder.rename(target)


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """One process of this machine at a time."""
    held = target.with_name(f"{target.name}.lock")
    with writing(target):
        held.parent.mkdir(parents=True, exist_ok=True)
        held.touch()
    with locked(held):
        yield


def check_free_anywhere(path: Path, *, overwrite: bool, marker: str) -> None:
    """`check_free`, also of an address."""
    if not isinstance(path, Address):
        check_free(path, overwrite=overwrite, marker=marker)
        return
    there = entry(path)
    if there is None:
        return
    if not there.is_folder:
        raise InputError(f"{path} is an object and not a folder; choose another address")
    if entry(path / marker) is not None:
        if not overwrite:
            raise InputError(
                f"{path} already exists; add {argument('overwrite', True)} to replace it"
            )
    elif entry(path / f"{marker}{BEGUN}") is None and objects_of(path):
        raise InputError(
            f"{path} holds objects and no {marker}, so they were not made by linrec and will not "
            "be replaced; choose another address"
        )


def outgoing(path: Address) -> Path:
    """A path of the cache beside which a folder is made that is then sent to this address."""
    return cache_folder() / f"for-{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"


def send_folder(folder: Path, address: Address, marker: str) -> None:
    """Replace what is at the address. The marker comes last: without it nobody reads the rest."""
    files = {
        file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()
    }
    last, begun = files.pop(marker), address / f"{marker}{BEGUN}"
    send_bytes(b"", begun)
    old = objects_of(address)
    if marker in old:
        delete(old[marker].path)
    _each(lambda name: delete(old[name].path), old.keys() - files.keys() - {marker, begun.name})
    try:
        _each(lambda name: send(files[name], address / name), files)
        send(last, address / marker)
        # storage counts whole seconds, and a copy is known by them
        while marker in old and objects_of(address)[marker].changed == old[marker].changed:
            time.sleep(0.5)
            send(last, address / marker)
    except BaseException:
        with suppress(InputError):  # storage may be gone; what is left is replaced by the next
            left = objects_of(address)
            _each(lambda name: delete(left[name].path), left)
        raise
    delete(begun)


def _each(do: Callable[[Any], None], names: Iterable[Any]) -> None:
    """Several at once; the first error ends what has not begun."""
    with ThreadPoolExecutor(STREAMS) as pool:
        for _ in pool.map(do, list(names)):
            pass
