"""A run folder that is not whole is refused in one sentence that names the file."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import safetensors.torch
import torch

from linrec.recommender import Recommender, load
from linrec.types import InputError
from tests.contracts.cases import cycle as cycle_with_features
from tests.training.cases import SMALL, contents
from tests.training.fixtures import dataset, run, store, trained

__all__ = ["dataset", "run", "store", "trained"]

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def edit_config(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        content = json.loads(path.read_text())
        for place, value in changes.items():
            part, _, name = place.rpartition("__")
            (content[part] if part else content)[name] = value
        path.write_text(json.dumps(content))

    return edit


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def cut(name: str, at: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:at])


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def foreign_weights(folder: Path) -> None:
    safetensors.torch.save_file({"bert.pooler": torch.ones(3)}, folder / "model.safetensors")


def weights_of_another_shape(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors["item.weight"] = tensors["item.weight"][:-1].clone()
    path.unlink()
    safetensors.torch.save_file(tensors, path)


def fewer_items(folder: Path) -> None:
    pl.read_parquet(folder / "items.parquet")[:-1].write_parquet(folder / "items.parquet")


def items_without_ids(folder: Path) -> None:
    table = pl.read_parquet(folder / "items.parquet").rename({"item": "sku"})
    table.write_parquet(folder / "items.parquet")


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated weights": (cut("model.safetensors", -100), r"model\.safetensors is truncated"),
    "half a header": (cut("model.safetensors", 20), r"model\.safetensors is truncated"),
    "empty weights": (write("model.safetensors", b""), r"model\.safetensors is truncated"),
    "corrupt weights": (write("model.safetensors", b"PK" * 500), r"model\.safetensors is trunc"),
    "foreign weights": (foreign_weights, r"model\.safetensors does not fit .*config\.json"),
    "another shape": (weights_of_another_shape, r"model\.safetensors does not fit .*size mism"),
    "no weights": (remove("model.safetensors"), r"model\.safetensors is missing"),
    "no config": (remove("config.json"), r"copy is not a run: it has no config\.json"),
    "config of noise": (write("config.json", b"\xff{"), r"cannot read .*config\.json"),
    "config cut short": (cut("config.json", 50), r"cannot read .*config\.json"),
    "config is a list": (write("config.json", b"[]"), r"config\.json is damaged or not of a lin"),
    "another program's": (write("config.json", b'{"a": 1}'), r"config\.json is damaged or not"),
    "a newer version": (edit_config(format=99), r"config\.json has format version 99"),
    "an older version": (edit_config(format=1), r"format version 1 and this linrec reads .* 2"),
    "unknown field": (edit_config(extra=1), r"config\.json is damaged.*unknown setting 'extra'"),
    "unknown setting": (
        edit_config(model__depth=1),
        r"config\.json.*unknown setting 'depth' of the backbone sasrec; choose",
    ),
    "unknown training": (
        edit_config(training__momentum=1),
        r"config\.json.*unknown setting 'momentum' in \[training\]",
    ),
    "a bad value": (edit_config(model__heads=5), r"config\.json.*multiple of heads 5"),
    "no items": (remove("items.parquet"), r"items\.parquet does not exist"),
    "items cut short": (cut("items.parquet", 100), r"cannot read .*items\.parquet"),
    "another count": (fewer_items, r"items\.parquet holds 15 items where config\.json says 16"),
    "no ids": (items_without_ids, r"items\.parquet has no column 'item'"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_run_is_refused(damage: str, copy: Path) -> None:
    harm, message = DAMAGE[damage]
    harm(copy)
    with pytest.raises(InputError, match=message) as refused:
        load(copy)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


def test_a_run_without_the_features_it_reads_is_refused(tmp_path: Path) -> None:
    settings = SMALL | {"backbone": "sasrecf", "epochs": 1}
    Recommender(**settings).fit(cycle_with_features()).save(tmp_path / "run")
    assert load(tmp_path / "run").config.model.features == ("genre", "tags", "year")
    items = tmp_path / "run" / "items.parquet"
    pl.read_parquet(items).drop("tags").write_parquet(items)
    with pytest.raises(InputError, match=r"items\.parquet has no column 'tags'; the run is damag"):
        load(tmp_path / "run")


def test_a_place_without_anything(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere is not a run"):
        load(tmp_path / "nowhere")


def test_saved_and_loaded_is_the_same_model(trained: Recommender, tmp_path: Path) -> None:
    trained.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.config == trained.config
    for who in ([["i03", "i04"], ["i09"]], None):
        assert again.recommend(who, 16).table.equals(trained.recommend(who, 16).table)
    assert again.evaluate().to_dict() == trained.evaluate().to_dict()


def test_save_replaces_only_runs_and_only_when_asked(trained: Recommender, tmp_path: Path) -> None:
    trained.save(tmp_path / "saved")
    with pytest.raises(InputError, match="already holds a run"):
        trained.save(tmp_path / "saved")
    trained.save(tmp_path / "saved", overwrite=True)
    other = tmp_path / "app"
    other.mkdir()
    (other / "config.json").write_text('{"name": "somebody else\'s"}')
    (other / "precious.txt").write_text("keep me")
    before = contents(other)
    for place in (other, tmp_path):
        with pytest.raises(InputError, match="choose another path"):
            trained.save(place, overwrite=True)
        with pytest.raises(InputError, match="choose another path"):
            Recommender(**SMALL).fit(trained.store, place, overwrite=True)
    assert contents(other) == before


def test_a_run_never_replaces_the_dataset_it_learns_from(
    run: Path, dataset: Path, tmp_path
) -> None:
    place = Path(shutil.copytree(run, tmp_path / "place"))
    data = Path(shutil.copytree(dataset, place / "data"))
    with pytest.raises(InputError, match=r"holds the dataset .*choose another path"):
        Recommender(**SMALL).fit(str(data), place, overwrite=True)
    assert (data / "dataset.json").is_file()


def test_a_run_holds_what_it_should(run: Path) -> None:
    names = {name for name in contents(run) if not name.startswith("tensorboard/")}
    assert names == {
        "checkpoint.safetensors",
        "config.json",
        "evaluation/test-full.json",
        "evaluation/test-full.parquet",
        "history.csv",
        "items.parquet",
        "learning-curve.png",
        "manifest.json",
        "model.safetensors",
        "report.html",
    }
    items = pl.read_parquet(run / "items.parquet")
    assert {"item", "title", "events"} <= set(items.columns)
    assert items["events"].min() > 0
    for path in run.rglob("*.*"):
        assert not path.read_bytes().startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x04"))


def test_nothing_in_the_library_can_unpickle() -> None:
    allowed = re.compile(r"allow_pickle=False|[Nn]o pickle")
    for path in SOURCE.rglob("*.py"):
        text = allowed.sub("", path.read_text(encoding="utf-8"))
        assert not re.search(
            r"pickle|(?<!safetensors\.)torch\.load|joblib|\bmarshal\b|shelve", text
        ), path
