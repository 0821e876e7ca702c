from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from linrec.data.downloads.demo import demo_events, make_club, watch
from linrec.data.preparing.prepare import prepare
from linrec.types import InputError

USERS, ITEMS = 3000, 600


@pytest.fixture(scope="module")
def made() -> tuple[pl.DataFrame, pl.DataFrame]:
    return demo_events()


def test_the_same_every_time(made: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    again = demo_events()
    assert made[0].equals(again[0])
    assert made[1].equals(again[1])
    assert not demo_events(50, 120, seed=1)[0].equals(demo_events(50, 120, seed=2)[0])


def test_it_is_a_log_like_any_other(made: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    events, items = made
    store = prepare(events, items=items)
    assert store.n_users == USERS
    assert store.n_items == ITEMS
    assert {feature.name: feature.kind for feature in store.features} == {
        "title": "text",
        "genre": "multi",
        "year": "numeric",
    }
    lengths = store.summary["lengths"]
    assert 80 < lengths["mean"] < 100
    assert (lengths["min"], lengths["max"]) == (40, 300)
    assert store.summary["notes"] == []
    assert events.select("user", "item").is_duplicated().sum() == 0
    assert items["title"].n_unique() == ITEMS
    assert items["year"].is_between(1950, 2020).all()


def test_both_ends_of_the_history_are_needed() -> None:
    rng = np.random.default_rng(7)
    club = make_club(USERS, ITEMS, rng)
    watched, lengths = watch(club, rng)
    users = np.arange(USERS)
    target, last = watched[users, lengths - 1], watched[users, lengths - 2]
    past = np.where(np.arange(watched.shape[1]) < (lengths - 1)[:, None], watched, ITEMS)
    seen = np.zeros((USERS, ITEMS + 1), dtype=bool)
    seen[users[:, None], past] = True
    seen = seen[:, :ITEMS]
    pairs = (past[:, :-1], past[:, 1:])
    follows = np.zeros((ITEMS + 1, ITEMS + 1))
    np.add.at(follows, pairs, 1)
    popularity = np.bincount(past.ravel(), minlength=ITEMS + 1)[:ITEMS].astype(float)

    def ndcg(scores: np.ndarray) -> float:
        hidden = np.where(seen, -np.inf, scores)
        rank = (hidden >= hidden[users, target][:, None]).sum(1) - 1
        return float(np.where(rank < 10, 1 / np.log2(rank + 2), 0).mean())

    chances = club.chances(users, last, seen)
    assert np.allclose(chances.sum(1), 1)
    best = ndcg(chances)
    by_last = ndcg(follows[last, :ITEMS] + 1e-6 * popularity)
    by_popularity = ndcg(np.broadcast_to(popularity, seen.shape))
    assert by_popularity < 0.06
    assert by_last < 0.25
    assert best > 2 * by_last


@pytest.mark.parametrize("size", [(1, 120), (20, 121), (20, 250)])
def test_other_sizes(size: tuple[int, int]) -> None:
    events, items = demo_events(*size)
    assert events["user"].n_unique() == size[0]
    assert len(items) == size[1]
    assert events["item"].is_in(items["item"].implode()).all()


def test_too_small_a_club() -> None:
    with pytest.raises(InputError, match="at least 1 user and 120 items"):
        demo_events(10, 50)
