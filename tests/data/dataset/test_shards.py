"""A dataset in shards is the same dataset: statistics, batches, training, figures, lists."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from linrec.data.dataset.chunked import Chunked, parts_of
from linrec.data.dataset.statistics import statistics
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.data.preparing.splitting import SplitConfig
from linrec.recommender import Recommender
from linrec.serving.bulk import import_histories
from linrec.serving.stores import MemoryStore
from linrec.types import InputError

USERS, EVENTS = 40, 1200
SMALL: dict[str, Any] = {
    "recipe": "small", "width": 8, "heads": 2, "layers": 1, "epochs": 2, "seed": 3,
    "batch_tokens": 256, "dropout": 0.1,
}  # fmt: skip


def log() -> pl.DataFrame:
    rng = np.random.default_rng(7)
    price = [None if draw < 0.1 else round(draw, 2) for draw in rng.random(EVENTS).tolist()]
    return pl.DataFrame(
        {
            "user": [f"u{n}" for n in rng.integers(0, USERS, EVENTS).tolist()],
            "item": [f"i{n}" for n in (rng.random(EVENTS) ** 2 * 30).astype(int).tolist()],
            "time": 1_700_000_000 + 37 * rng.integers(0, 9_000, EVENTS),
            "type": rng.choice(["view", "cart", "purchase"], EVENTS),
            "price": price,
            "basket": rng.integers(0, 5, EVENTS),
        }
    )


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], SequenceStore]:
    """The same log in so many shards; one is the format without shards."""
    base = tmp_path_factory.mktemp("shards")
    options: dict[str, Any] = {"context": "type,price=numeric", "group": "basket"}
    made = {1: prepare(log(), base / "1", **options)}

    def of(shards: int) -> SequenceStore:
        if shards not in made:
            events = -(-EVENTS // shards) + EVENTS // USERS
            made[shards] = prepare(log(), base / str(shards), shard_events=events, **options)
            path = made[shards].path
            assert path is not None
            assert len(list(path.glob("shard-*"))) >= shards - 1 > 0
            assert not (path / "items.npy").exists()
        return made[shards]

    return of


@pytest.mark.parametrize("shards", [2, 8])
def test_the_same_content(sharded: Callable[[int], SequenceStore], shards: int) -> None:
    whole, store = sharded(1), sharded(shards)
    assert isinstance(store.items, Chunked)
    assert all(isinstance(part, np.memmap) for part in parts_of(store.items))
    assert store.fingerprint == whole.fingerprint
    assert store.summary == whole.summary
    assert statistics(store) == statistics(whole)
    assert store.users.ids.equals(whole.users.ids)
    for name in ("items", "offsets", "times", "groups"):
        one, other = np.asarray(getattr(store, name)), np.asarray(getattr(whole, name))
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    for one, other in zip(store.context, whole.context, strict=True):
        assert one.texts().equals(other.texts())
    np.testing.assert_array_equal(store.popularity(), whole.popularity())
    np.testing.assert_array_equal(store.basket_starts(), whole.basket_starts())
    np.testing.assert_array_equal(store.where("price>=0.5"), whole.where("price>=0.5"))
    assert (store.repeats, store.newest) == (whole.repeats, whole.newest)


@pytest.mark.parametrize(
    "split",
    [
        {},
        {"split": "last-k", "last": 2, "targets": "2"},
        {"split": "temporal", "valid_from": 1_700_200_000, "test_from": 1_700_250_000},
        {"targets_where": "type=purchase"},
        {"targets": "basket"},
    ],
    ids=str,
)
def test_the_same_split(sharded: Callable[[int], SequenceStore], split: dict[str, Any]) -> None:
    one, other = (SplitConfig(**split).of(sharded(shards)) for shards in (1, 8))
    for part in ("valid", "test"):
        first, second = one.part(part), other.part(part)  # type: ignore[arg-type]
        np.testing.assert_array_equal(first.targets, second.targets)
        np.testing.assert_array_equal(first.histories.padded(), second.histories.padded())
        np.testing.assert_array_equal(
            first.histories.until_or_unknown(), second.histories.until_or_unknown()
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"seen": "hide"}, {"seen": "keep", "context": "type"}], ids=str
)
def test_the_same_training_figures_and_lists(
    sharded: Callable[[int], SequenceStore], tmp_path: Path, settings: dict[str, Any]
) -> None:
    found = []
    for shards in (1, 2, 8):
        model = Recommender(**SMALL, **settings).fit(sharded(shards), tmp_path / str(shards))
        assert model.trained is not None
        losses = [row["loss"] for row in model.trained.progress.history]
        warm = Recommender(start=tmp_path / str(shards), epochs=1).fit(sharded(shards))
        assert warm.trained is not None
        found.append(
            (
                losses,
                model.evaluate_users(protocol="pop100")[1].to_dicts(),
                model.evaluate_users()[1].to_dicts(),
                model.recommend(k=3).to_polars().to_dicts(),
                warm.trained.progress.history[0]["loss"],
            )
        )
    assert found[0] == found[1] == found[2]


def test_a_server_begins_with_the_same_histories(
    sharded: Callable[[int], SequenceStore],
) -> None:
    stored = []
    for shards in (1, 8):
        store, data = MemoryStore(), sharded(shards)
        assert import_histories(data, store, keep=5).users == data.n_users
        users = [str(user) for user in data.users.ids]
        stored.append([store.history(user) for user in users])
    assert stored[0] == stored[1]


def test_shards_are_rewritten_as_one(
    sharded: Callable[[int], SequenceStore], tmp_path: Path
) -> None:
    again = sharded(8).write(tmp_path / "one")
    whole = sharded(1)
    assert whole.path is not None
    assert again.path is not None
    names = {file.name for file in whole.path.iterdir() if file.is_file()}
    assert {file.name for file in again.path.iterdir()} == names
    for file in again.path.iterdir():
        assert file.read_bytes() == (whole.path / file.name).read_bytes(), file.name


def test_a_shard_holds_whole_users(tmp_path: Path) -> None:
    store = prepare(log(), tmp_path / "data", shard_events=1)
    folders = sorted((tmp_path / "data").glob("shard-*"))
    assert len(folders) == store.n_users
    lengths = [len(np.load(folder / "items.npy")) for folder in folders]
    assert lengths == np.diff(store.offsets).tolist()


@pytest.fixture
def damaged(sharded: Callable[[int], SequenceStore], tmp_path: Path) -> Path:
    path = sharded(2).path
    assert path is not None
    shutil.copytree(path, tmp_path / "data")
    return tmp_path / "data"


def _unlink(path: Path) -> None:
    (path / "shard-00001" / "times.npy").unlink()


def _cut(path: Path) -> None:
    file = path / "shard-00001" / "items.npy"
    file.write_bytes(file.read_bytes()[:-40])


def _swap(path: Path) -> None:
    (path / "shard-00000").rename(path / "other")
    (path / "shard-00001").rename(path / "shard-00000")
    (path / "other").rename(path / "shard-00001")


def _change(path: Path) -> None:
    file = path / "shard-00001" / "items.npy"
    items = np.load(file)
    items[0] = items[0] % 2 + 1
    np.save(file, items)


def _same_users(path: Path) -> None:
    users = pl.read_parquet(path / "shard-00000" / "users.parquet")
    own = pl.read_parquet(path / "shard-00001" / "users.parquet")
    users.head(len(own)).write_parquet(path / "shard-00001" / "users.parquet")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_unlink, "lacks shard-00001/times.npy"),
        (_cut, "items.npy is not a whole array"),
        (lambda path: shutil.rmtree(path / "shard-00001"), "lacks shard-00001/items.npy"),
        (_swap, "is not the shard that was written|do not match its fingerprint"),
        (_change, "do not match its fingerprint"),
        (_same_users, "users|more than once|twice"),
    ],
)
def test_a_damaged_shard_is_one_sentence(
    damaged: Path, damage: Callable[[Path], None], words: str
) -> None:
    damage(damaged)
    with pytest.raises(InputError, match=words) as caught:
        SequenceStore.open(damaged)
    assert "make it again with `linrec prepare`" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_shards_of_no_events_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shard_events=0 must be at least 1"):
        prepare(log(), tmp_path / "data", shard_events=0)
    assert not (tmp_path / "data").exists()
