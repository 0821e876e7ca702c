"""Items that are known by a vector: in DATA, in every backbone, in a RUN, on a server."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import linrec
from linrec.backbones import BACKBONES, Backbone
from linrec.data.dataset.store import SequenceStore
from linrec.files import expansion
from linrec.serving import Engine, NewEvent, open_store
from linrec.types import InputError
from tests.contracts.cases import model, plain_model, sequences
from tests.training.cases import N_ITEMS, SMALL, cycle_events

ITEMS = cycle_events(24)["item"].unique().sort().to_list()
NEW = "new"
WIDTH = 8
NOTHING = 1e-25  # compiled exponentials end at the smallest float, not at zero


def vectors() -> dict[str, np.ndarray]:
    """Those of neighbours in the cycle are alike; the new item is like the first one."""
    angles = 2 * np.pi * np.arange(N_ITEMS) / N_ITEMS
    waves = [wave(k * angles) for k in range(1, 5) for wave in (np.sin, np.cos)]
    table = np.stack(waves, 1).astype(np.float32)
    return {**dict(zip(ITEMS, table, strict=True)), NEW: table[0]}


def prepared() -> SequenceStore:
    return linrec.prepare(cycle_events(24), item_vectors=vectors())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors") / "run"
    with pytest.warns(UserWarning, match="1 of 17 items have no training event and are recomm"):
        linrec.Recommender(**SMALL | {"epochs": 3}).fit(prepared(), folder)
    return folder


def test_an_item_without_events_has_the_last_index(tmp_path: Path) -> None:
    store = prepared().write(tmp_path / "data")
    assert store.catalogue.ids[-1] == NEW
    assert store.item_vectors is not None
    assert store.item_vectors.shape == (N_ITEMS + 2, WIDTH)
    assert not store.item_vectors[0].any()
    np.testing.assert_array_equal(store.item_vectors[-1], vectors()[NEW])
    assert store.popularity()[-1] == 0
    assert "have no events" in " ".join(store.summary["notes"])


@pytest.mark.parametrize("kind", ["npz", "npy", "lists", "columns"])
def test_every_form_is_read_the_same(kind: str, tmp_path: Path) -> None:
    names, table = list(vectors()), np.stack(list(vectors().values()))
    path = tmp_path / ("v.parquet" if kind in ("lists", "columns") else f"v.{kind}")
    if kind == "npz":
        np.savez(path, ids=np.array(names), vectors=table)
    elif kind == "npy":
        np.save(path, table)
        (tmp_path / "v.ids.txt").write_text("\n".join(names))
    elif kind == "lists":
        pl.DataFrame({"item": names, "text": table.tolist()}).write_parquet(path)
    else:
        columns = {f"x{index}": table[:, index] for index in range(WIDTH)}
        pl.DataFrame({"item": names, **columns}).write_parquet(path)
    found = linrec.prepare(cycle_events(24), item_vectors=path).item_vectors
    np.testing.assert_array_equal(found, prepared().item_vectors)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": [1.0]}, "no item of the events has a vector"),
        ((ITEMS[:2], [[1.0], [np.nan]]), "missing, not finite or beyond"),
        ((ITEMS[:1], [[1e20]]), r"beyond 1e\+18"),
        ((ITEMS[:1] * 2, [[1.0], [2.0]]), "more than one vector"),
        ({ITEMS[0]: [1.0], ITEMS[1]: [1.0, 2.0]}, "vectors of one width"),
        ((ITEMS[:2], [[1.0]]), "2 ids for 1 vectors"),
        ((ITEMS[:1], [1.0]), r"must be numbers of shape \[items, width\]"),
        ("nowhere.csv", "is not a file of item vectors"),
        ("nowhere.npz", "does not exist"),
        (pl.DataFrame({"item": ITEMS[:1], "note": ["x"]}), "no column of lists or of floats"),
        (pl.DataFrame({"item": ITEMS[:1], "words": [["x"]]}), "'words' holds List.String. and no"),
        (np.ones((2, 3)), "item_vectors of the type ndarray does not say whose vector each row is"),
    ],
)
def test_bad_vectors_are_refused(given: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        linrec.prepare(cycle_events(4), item_vectors=given)


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_what_numpy_has_not_saved_is_refused(suffix: str, tmp_path: Path) -> None:
    """numpy takes it for a pickle and proposes to run it, which no message may repeat."""
    (tmp_path / f"v.{suffix}").write_text("hello")
    (tmp_path / "v.ids.txt").write_text(ITEMS[0])
    with pytest.raises(InputError, match=r"is not a file that numpy\.save(z)? has made"):
        linrec.prepare(cycle_events(4), item_vectors=tmp_path / f"v.{suffix}")


def test_vectors_that_expand_beyond_measure_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, table = np.array(ITEMS), np.zeros((N_ITEMS, 4_000), np.float32)
    table[:, 0] = 1.0
    np.savez_compressed(tmp_path / "v.npz", ids=names, vectors=table)
    linrec.prepare(cycle_events(4), item_vectors=tmp_path / "v.npz")
    monkeypatch.setattr(expansion, "ALLOWED", 0)
    with pytest.raises(InputError, match=r"more than 10 times its size.*max_expansion"):
        linrec.prepare(cycle_events(4), item_vectors=tmp_path / "v.npz", max_expansion=10)


def test_a_vector_of_zeros_is_none() -> None:
    table = np.ones((3, 2))
    table[1] = 0.0
    notes = linrec.prepare(cycle_events(24), item_vectors=(ITEMS[:3], table)).summary["notes"]
    assert f"{N_ITEMS - 2} of {N_ITEMS} items have no vector in" in " ".join(notes)


def test_ids_are_left_out_only_where_vectors_stand_in(tmp_path: Path) -> None:
    plain = linrec.prepare(cycle_events(4))
    quick = SMALL | {"epochs": 1}
    for data, off in ((plain, {}), (prepared(), {"item_vectors": "off"})):
        with pytest.raises(InputError, match=r"no use for id_dropout=0\.3; leave it out"):
            linrec.Recommender(**quick, id_dropout=0.3, **off).fit(data)
    recipe = tmp_path / "mine.toml"
    recipe.write_text("[model]\nid_dropout = 0.3\n")
    del quick["seen_aware"], quick["time_gaps"]
    with pytest.warns(UserWarning, match="all ids are kept"):
        made = linrec.Recommender(recipe=str(recipe), **quick).fit(plain)
    assert made.config.model.id_dropout == 0.0


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_a_vector_moves_its_item_on_both_sides(backbone: str) -> None:
    made = plain_model(backbone, "linrec", item_vectors="on").eval()
    assert made.given_vectors is not None
    before, vectors = made.encode(sequences(torch.tensor([[2, 3]]))), made.item_vectors().clone()
    with torch.no_grad():
        made.given_vectors.vectors[3] *= -2
    assert not torch.equal(made.encode(sequences(torch.tensor([[2, 3]]))), before)
    changed = (made.item_vectors() != vectors).any(1)
    assert changed.nonzero().flatten().tolist() == [3]


@pytest.mark.parametrize("backbone", ["sasrec", "sasrecf", "fdsa", "core"])
def test_event_by_event_is_all_at_once(backbone: str) -> None:
    made = model(backbone, "linrec-decay", item_vectors="on")
    state = made.start(1)
    for item in (3, 1, 4):
        state = made.advance(torch.tensor([[item]]), state)
    whole = made.encode(sequences(torch.tensor([[3, 1, 4]])))
    torch.testing.assert_close(made.request(state), whole)


def test_an_item_without_events_is_where_its_vector_says(run: Path) -> None:
    found = linrec.load(run)
    assert isinstance(found.model, Backbone)
    assert found.model.item.weight[-1].abs().max() < NOTHING, "its own embedding stays zero"
    assert found.model.untrained is None
    assert found.model.item_vectors()[-1].any()
    assert NEW in found.recommend([ITEMS[1:3]], k=17, seen="keep").table["item"].to_list()


def test_a_run_needs_no_data_for_its_vectors(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    lists = [linrec.load(path).recommend([ITEMS[:3]], k=9).table for path in (run, copy)]
    assert lists[0].equals(lists[1])
    (copy / "item-vectors.safetensors").unlink()
    with pytest.raises(InputError, match="item-vectors"):
        linrec.load(copy)


def test_without_item_vectors_such_an_item_is_not_recommended() -> None:
    with pytest.warns(UserWarning, match="does not recommend them"):
        found = linrec.Recommender(**SMALL | {"epochs": 1}, item_vectors="off").fit(prepared())
    assert NEW not in found.recommend([ITEMS[:3]], k=17, seen="keep").table["item"].to_list()
    with pytest.raises(InputError, match="reads item vectors and the given data has none"):
        linrec.Recommender(item_vectors="on").fit(linrec.prepare(cycle_events(24)))


def test_a_server_recommends_it_and_takes_its_events(run: Path) -> None:
    engine = Engine(run, open_store("memory"))
    engine.append("ann", [NewEvent(ITEMS[1]), NewEvent(NEW)])
    items = [item.item for item in engine.recommend("ann", k=17, seen="keep").items]
    lists = linrec.load(run).recommend([[ITEMS[1], NEW]], k=17, seen="keep").table
    engine.close()
    assert sorted(items) == sorted(lists["item"].to_list())
    assert NEW in items


def test_a_warm_start_begins_with_the_vector_of_a_new_item(run: Path) -> None:
    more = {**vectors(), "newer": vectors()[ITEMS[3]]}
    store = linrec.prepare(cycle_events(24), item_vectors=more)
    with pytest.warns(UserWarning, match="2 of 18 items"):
        found = linrec.Recommender(start=run, epochs=1).fit(store)
    assert isinstance(found.model, Backbone)
    assert found.model.item.weight[-2:].abs().max() < NOTHING
    narrow = {name: vector[:3] for name, vector in vectors().items()}
    with pytest.raises(InputError, match="have 8 numbers and those of the new data 3"):
        linrec.Recommender(start=run).fit(linrec.prepare(cycle_events(24), item_vectors=narrow))
