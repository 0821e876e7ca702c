"""A run is one thing: its files are those that its manifest lists, or it is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import safetensors.torch
import torch

from linrec.files import atomic
from linrec.recommender import Recommender, load
from linrec.runs import manifest
from linrec.runs.run import Run
from linrec.serving.model import ServedModel, fingerprint_of
from linrec.types import InputError
from tests.training.cases import SMALL, Recorder, cycle, digest
from tests.training.fixtures import dataset, run, store, trained

__all__ = ["dataset", "run", "store", "trained"]

MODEL_FILES = ["config.json", "items.parquet", "model.safetensors"]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the same shape with other weights, items and settings."""
    place = tmp_path_factory.mktemp("other") / "run"
    Recommender(**SMALL | {"epochs": 1, "seed": 5}).fit(cycle(seed=3), place)
    return place


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def refused(folder: Path, match: str, action: Callable[[Path], object] = load) -> None:
    with pytest.raises(InputError, match=match) as error:
        action(folder)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("name", MODEL_FILES)
def test_files_of_different_runs_are_not_mixed(name: str, copy: Path, other: Path) -> None:
    shutil.copy(other / name, copy / name)
    refused(copy, rf"{name} is not the file that manifest\.json lists")


def test_a_flipped_bit_in_the_weights_is_noticed(copy: Path) -> None:
    path = copy / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    refused(copy, r"model\.safetensors is not the file that manifest\.json lists")
    refused(copy, "is not the file", ServedModel)
    assert load(copy, verify=False).recommend([["i01"]]).table.height


def test_the_ranks_of_another_run_are_refused(copy: Path, other: Path) -> None:
    file = Path("evaluation") / "test-full.parquet"
    shutil.copy(other / file, copy / file)
    refused(copy, "is not the file", lambda folder: Run.open(folder).load_evaluation("test-full"))


def test_a_checkpoint_of_another_run_is_refused(store, other: Path, tmp_path: Path) -> None:
    Recommender(**SMALL | {"epochs": 1}).fit(store, tmp_path / "run")
    shutil.copy(other / "checkpoint.safetensors", tmp_path / "run")
    more = Recommender(**SMALL | {"epochs": 2})
    refused(
        tmp_path / "run",
        r"checkpoint\.safetensors is not the file",
        lambda folder: more.fit(store, folder, resume=True),
    )


def without_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def change_items(folder: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    without_manifest(folder)
    path = folder / "items.parquet"
    change(pl.read_parquet(path)).write_parquet(path)


ITEMS: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], str]] = {
    "twice": (lambda t: t.with_columns(item=pl.lit("i01")), "has an id twice"),
    "null": (lambda t: t.with_columns(item=pl.lit(None, pl.String)), "has an empty id"),
    "float": (lambda t: t.with_columns(item=pl.int_range(16).cast(pl.Float64)), "not Float64"),
    "list": (lambda t: t.with_columns(item=pl.concat_list("item")), "text or whole numbers"),
    "binary": (lambda t: t.with_columns(pl.col("item").cast(pl.Binary)), "not Binary"),
    "counts": (lambda t: t.with_columns(events=pl.lit("many")), "must hold whole numbers"),
}


@pytest.mark.parametrize("case", ITEMS)
def test_odd_items_are_refused_without_a_manifest_too(case: str, copy: Path) -> None:
    change, sentence = ITEMS[case]
    change_items(copy, change)
    refused(copy, sentence)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value: float, copy: Path) -> None:
    without_manifest(copy)
    path = copy / "model.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    tensors["item.weight"][3, 2] = value
    path.write_bytes(safetensors.torch.save(tensors))
    refused(copy, r"item\.weight holds values that are not finite")


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"format": 9, "files": {}}', b"[" * 100_000])
def test_a_damaged_manifest_is_one_sentence(content: bytes, copy: Path) -> None:
    (copy / "manifest.json").write_bytes(content)
    refused(copy, r"manifest\.json")


def test_an_older_run_loads_and_gets_a_manifest_when_resumed(store, tmp_path: Path) -> None:
    place = tmp_path / "run"
    Recommender(**SMALL | {"epochs": 1}).fit(store, place)
    without_manifest(place)
    assert load(place).recommend([["i01"]]).table.height
    Recommender(**SMALL | {"epochs": 2}).fit(store, place, resume=True)
    assert load(place).recommend([["i01"]]).table.height
    listed = set(json.loads((place / "manifest.json").read_text())["files"])
    found = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    assert {name for name in found if not name.startswith("tensorboard")} == {
        *listed,
        "manifest.json",
    }


class PowerCutError(BaseException):
    pass


@pytest.mark.slow
def test_a_kill_between_any_two_writes_leaves_a_run_that_loads_or_resumes(
    store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write of a file is where the process may end: before it, or right after it."""
    settings = SMALL | {"epochs": 2}
    whole = tmp_path / "whole"
    Recommender(**settings).fit(store, whole)
    write = atomic.write_bytes
    for at in range(0, 60, 3):
        place, count = tmp_path / f"run{at}", [0]

        def cut(path: Path, content: bytes, at: int = at, count: list[int] = count) -> None:
            count[0] += 1
            if count[0] == at and at % 2:
                raise PowerCutError
            write(path, content)
            if count[0] == at:
                raise PowerCutError

        with monkeypatch.context() as patched:
            patched.setattr(manifest, "write_bytes", cut)
            try:
                Recommender(**settings).fit(store, place)
            except PowerCutError:
                pass
            else:
                assert count[0] < at or at == 0
        if not place.exists():  # the folder had not taken its name yet
            continue
        if (place / "model.safetensors").exists():
            assert load(place).recommend([["i01"]]).table.height
        Recommender(**settings).fit(store, place, resume=True)
        assert digest(place / "model.safetensors") == digest(whole / "model.safetensors")
        assert load(place).recommend([["i01"]]).table.height


def test_what_is_served_is_what_was_hashed(run: Path) -> None:
    assert ServedModel(run).fingerprint == fingerprint_of(run)


def test_a_run_that_is_replaced_while_it_is_read_is_one_of_the_two(
    trained: Recommender, tmp_path: Path
) -> None:
    place, end = tmp_path / "run", threading.Event()
    trained.save(place)
    twin = load(place)
    with torch.no_grad():
        for value in twin.model.parameters():
            value.mul_(2)

    def replace() -> None:
        while not end.is_set():
            twin.save(place, overwrite=True)
            trained.save(place, overwrite=True)
            time.sleep(0.05)

    known = {float(model.model.item.weight.detach()[1, 0]) for model in (trained, twin)}
    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for _ in range(15):
            assert float(load(place).model.item.weight.detach()[1, 0]) in known
    finally:
        end.set()
        writer.join()


# ---------------------------------------------------------------------------------------- overwrite


class Stop(Recorder):
    def __init__(self, error: BaseException, *, epoch: int | None = None) -> None:
        super().__init__()
        self.error, self.epoch = error, epoch

    def on_batch_end(self, loss: float, targets: int) -> None:
        super().on_batch_end(loss, targets)
        if self.epoch is None:
            raise self.error

    def on_epoch_end(self, row: dict[str, float], *, best: bool) -> None:
        super().on_epoch_end(row, best=best)
        if row["epoch"] == self.epoch:
            raise self.error


def test_an_old_run_stays_until_the_new_one_has_a_model(store, copy: Path) -> None:
    before = digest(copy / "model.safetensors")
    new = Recommender(**SMALL | {"epochs": 2, "seed": 9})
    with pytest.raises(RuntimeError, match="boom"):
        new.fit(store, copy, overwrite=True, callbacks=[Stop(RuntimeError("boom"))])
    assert digest(copy / "model.safetensors") == before
    assert load(copy).evaluate().n_users
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]
    with pytest.raises(RuntimeError, match="boom"):
        new.fit(store, copy, overwrite=True, callbacks=[Stop(RuntimeError("boom"), epoch=1)])
    assert digest(copy / "model.safetensors") != before
    assert load(copy).config.training.seed == 9
    new.fit(store, copy, resume=True)
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


KILLED = """
import os, sys
from linrec.recommender import Recommender
from tests.runs.test_manifest import Kill
from tests.training.cases import SMALL
settings = SMALL | {"epochs": 3, "seed": 9}
Recommender(**settings).fit(sys.argv[1], sys.argv[2], overwrite=True, callbacks=[Kill(sys.argv[3])])
"""


class Kill(Recorder):
    """Ends the process as kill -9 does, in the middle of an epoch or at its end."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self.when = when

    def on_batch_end(self, loss: float, targets: int) -> None:
        super().on_batch_end(loss, targets)
        if self.when == "first epoch":
            _kill()

    def on_epoch_end(self, row: dict[str, float], *, best: bool) -> None:
        super().on_epoch_end(row, best=best)
        _kill()


def _kill() -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["first epoch", "first validation"])
def test_a_killed_overwrite_leaves_one_run_or_the_other(
    when: str, dataset: Path, store, copy: Path
) -> None:
    before = digest(copy / "model.safetensors")
    subprocess.run([sys.executable, "-c", KILLED, dataset, copy, when], check=False)
    replaced = digest(copy / "model.safetensors") != before
    assert replaced == (when == "first validation")
    assert load(copy).recommend([["i01"]]).table.height
    Recommender(**SMALL | {"epochs": 1}).fit(store, copy, overwrite=True)
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]  # no draft is left
