from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from linrec.files import atomic, drafts
from linrec.files.atomic import write_bytes, write_folder, write_text
from linrec.types import InputError


def fill(path: Path, content: str, **options: bool) -> None:
    with write_folder(path, **options) as draft:
        (draft / "dataset.json").write_text(content)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_whole_and_alone(tmp_path: Path) -> None:
    fill(tmp_path / "deep" / "data", "new")
    assert (tmp_path / "deep" / "data" / "dataset.json").read_text() == "new"
    assert names(tmp_path / "deep") == ["data"]


def test_an_existing_dataset_is_kept_unless_told(tmp_path: Path) -> None:
    fill(tmp_path / "data", "old")
    with pytest.raises(InputError, match="overwrite=True"):
        fill(tmp_path / "data", "new")
    fill(tmp_path / "data", "new", overwrite=True)
    assert (tmp_path / "data" / "dataset.json").read_text() == "new"
    assert names(tmp_path) == ["data"]


def test_what_is_not_a_dataset_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not made by linrec"):
        fill(tmp_path / "home", "new", overwrite=True)
    with pytest.raises(InputError, match="not a folder"):
        fill(tmp_path / "file", "new", overwrite=True)
    assert names(tmp_path / "home") == ["letter.txt"]


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    fill(tmp_path / "data", "new")
    assert names(tmp_path / "data") == ["dataset.json"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("boom")])
def test_a_failing_block_leaves_the_old_folder(tmp_path: Path, error: BaseException) -> None:
    fill(tmp_path / "data", "old")
    with pytest.raises(type(error)):
        _fail_halfway(tmp_path / "data", error)
    assert names(tmp_path) == ["data"]
    assert (tmp_path / "data" / "dataset.json").read_text() == "old"


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        pytest.raises(InputError, match=r"data: the disk is full"),
        write_folder(tmp_path / "data"),
    ):
        raise full
    assert names(tmp_path) == []


def test_a_failing_rename_brings_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data", "old")
    monkeypatch.setattr(drafts, "exchange", lambda *_: False)
    replace = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if self.name.endswith(".draft"):
            raise OSError(errno.EIO, "Input/output error")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(InputError, match="Input/output error"):
        fill(tmp_path / "data", "new", overwrite=True)
    assert names(tmp_path) == ["data"]
    assert (tmp_path / "data" / "dataset.json").read_text() == "old"


def test_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "a" / "x.json", "old")
    write_bytes(tmp_path / "a" / "x.json", b"new")
    assert (tmp_path / "a" / "x.json").read_bytes() == b"new"
    monkeypatch.setattr(atomic.os, "fsync", _full)
    with pytest.raises(InputError, match="disk is full"):
        write_text(tmp_path / "a" / "x.json", "newer")
    assert names(tmp_path / "a") == ["x.json"]
    assert (tmp_path / "a" / "x.json").read_bytes() == b"new"


def test_what_is_written_obeys_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        fill(tmp_path / "data", "x")
        write_text(tmp_path / "file", "x")
    finally:
        os.umask(mask)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot write"):
        fill(tmp_path / "file" / "data", "new")


def leave(draft: Path) -> Path:
    """What a killed process leaves: its locks are gone."""
    draft.mkdir()
    (draft / "dataset.json").write_text("half")
    return draft


def test_drafts_of_killed_processes_are_removed(tmp_path: Path) -> None:
    leave(tmp_path / ".data.abcd1234.draft")
    other = leave(tmp_path / ".data.more.abcd1234.draft")
    (tmp_path / ".file.abcd1234.draft").write_text("half")
    fill(tmp_path / "data", "new")
    write_text(tmp_path / "file", "new")
    assert names(tmp_path) == [other.name, "data", "file"]


def test_a_draft_that_is_being_written_stays(tmp_path: Path) -> None:
    with write_folder(tmp_path / "data") as draft:
        (draft / "dataset.json").write_text("first")
        fill(tmp_path / "data", "second")
        assert draft.is_dir()
        fill(tmp_path / "data", "third", overwrite=True)
        assert (draft / "dataset.json").read_text() == "first"
        (tmp_path / "data" / "dataset.json").unlink()
    assert (tmp_path / "data" / "dataset.json").read_text() == "first"


@pytest.mark.parametrize("moved", [False, True])
def test_an_interrupted_replacement_is_undone_at_the_next_start(
    tmp_path: Path, moved: bool
) -> None:
    """Without an exchange of names: killed before or after the new folder took the name."""
    fill(tmp_path / "data", "old")
    (tmp_path / "data").rename(tmp_path / ".data.abcd1234.old")
    draft = leave(tmp_path / ".data.abcd1234.draft")
    if moved:
        draft.rename(tmp_path / "data")
    drafts.recover(tmp_path / "data")
    assert names(tmp_path) == ["data"]
    assert (tmp_path / "data" / "dataset.json").read_text() == ("half" if moved else "old")


KILLED_WRITER = """
import itertools, sys
from pathlib import Path
from linrec.files import drafts
from linrec.files.atomic import write_folder
if sys.argv[2] == "without exchange":
    drafts.exchange = lambda *_: False
for number in itertools.count():
    with write_folder(Path(sys.argv[1]), overwrite=True) as draft:
        for name in ("dataset.json", "a", "b"):
            (draft / name).write_text(str(number))
    print(number, flush=True)
"""


@pytest.mark.parametrize("how", ["with exchange", "without exchange"])
def test_a_folder_that_is_replaced_survives_kills(tmp_path: Path, how: str) -> None:
    place = tmp_path / "data"
    fill(place, "first")
    for round_ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED_WRITER, str(place), how], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()  # it is at work
            time.sleep(0.003 * round_)
            writer.kill()
        if how == "with exchange":
            assert place.is_dir()  # at every moment
        drafts.recover(place)
        assert names(tmp_path) == ["data"]
        assert names(place) == ["a", "b", "dataset.json"]
        assert len({(place / name).read_text() for name in names(place)}) == 1


def _fail_halfway(path: Path, error: BaseException) -> None:
    with write_folder(path, overwrite=True) as draft:
        (draft / "half").write_text("half")
        raise error


def _full(_handle: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
