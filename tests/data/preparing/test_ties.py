"""Events with equal times: sorted ties are noticed, and shuffled where that is asked for."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linrec.data.dataset.store import SequenceStore
from linrec.data.dataset.ties import ascending_share, is_sorted
from linrec.data.preparing import filtering
from linrec.data.preparing.prepare import prepare
from linrec.types import InputError

SORTED = "order of their item ids"


def baskets(
    order: str = "ascending", users: int = 20, per_user: int = 6, text: bool = False
) -> pl.DataFrame:
    """Baskets of five different items, one time each, and the number of the basket."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(users):
        for basket in range(per_user):
            items = np.sort(rng.choice(np.arange(5, 200), 5, replace=False))
            if order == "descending":
                items = items[::-1]
            if order == "random":
                items = rng.permutation(items)
            rows += [
                (f"u{user}", int(item), 1_000.0 * basket, user * 100 + basket) for item in items
            ]
    log = pl.DataFrame(rows, ["user", "item", "time", "basket"], orient="row")
    return log.with_columns(pl.col("item").cast(pl.String)) if text else log


def histories(store: SequenceStore) -> list[list[int]]:
    rows = store.sequences()
    return [store.catalogue.ids_of(rows[row]).to_list() for row in range(len(rows))]


@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("text", [False, True])
def test_ties_sorted_by_id_are_noticed(order: str, text: bool) -> None:
    store = prepare(baskets(order, text=text))
    assert store.summary["ties_ascending"] == (1.0 if order == "ascending" else 0.0)
    (note,) = (note for note in store.summary["notes"] if SORTED in note)
    assert note.startswith(f"100.0% of neighbouring events with equal times are in {order} order")
    assert note.endswith("prepare the log again with ties shuffle.")


def test_ties_in_random_order_and_logs_without_ties_are_left_alone() -> None:
    random = prepare(baskets("random")).summary
    assert random["ties_ascending"] == pytest.approx(0.5, abs=0.1)
    untied = prepare(baskets().with_columns(time=pl.int_range(pl.len()))).summary
    assert untied["ties_ascending"] is None
    assert not any(SORTED in note for note in random["notes"] + untied["notes"])


def test_a_few_ties_prove_nothing() -> None:
    assert prepare(baskets(users=1, per_user=6)).summary["ties_ascending"] is None  # 24 pairs
    assert prepare(baskets(users=1, per_user=7)).summary["ties_ascending"] == 1.0  # 28 pairs
    assert not is_sorted(None)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=300), st.integers(0, 100))
def test_the_share_is_the_share_of_pairs(items, seed) -> None:
    tied = np.random.default_rng(seed).random(len(items) - 1) < 0.9
    ids = pl.Series([f"{100 - item}" for item in range(31)])  # "100" is before "99" as text only
    pairs = [
        (ids[a], ids[b])
        for a, b, both in zip(items[:-1], items[1:], tied, strict=True)
        if both and a != b
    ]
    found = ascending_share(np.array(items, np.int32), tied, ids)
    if not pairs:
        assert found is None
        return
    shares = [np.mean([a < b for a, b in pairs]), np.mean([int(a) < int(b) for a, b in pairs])]
    expected = max(shares, key=lambda share: abs(share - 0.5))
    if len(pairs) >= 100:
        assert found == pytest.approx(expected)
    else:
        assert found is None or found == pytest.approx(expected)


def test_shuffled_ties_keep_their_time_and_follow_the_seed() -> None:
    log = baskets()
    file, one, same, other = (
        prepare(log, **options)
        for options in ({}, {"ties": "shuffle"}, {"ties": "shuffle", "ties_seed": 0},
                        {"ties": "shuffle", "ties_seed": 1})
    )  # fmt: skip
    assert histories(one) == histories(same)
    assert histories(one) != histories(other) != histories(file) != histories(one)
    assert len({store.fingerprint for store in (file, one, other)}) == 3
    assert one.fingerprint == same.fingerprint
    for shuffled, sorted_ in zip(histories(one), histories(file), strict=True):
        for start in range(0, len(sorted_), 5):
            assert sorted(shuffled[start : start + 5]) == sorted_[start : start + 5]
    assert one.summary["ties_ascending"] == pytest.approx(0.5, abs=0.1)
    assert (one.summary["ties"], one.summary["ties_seed"]) == ("shuffle", 0)
    assert (file.summary["ties"], file.summary["ties_seed"]) == ("file", None)
    assert not any("equal times" in note for note in one.summary["notes"])


def test_the_shuffle_does_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prepare(baskets(), ties="shuffle", group="basket")
    monkeypatch.setattr(filtering, "CHUNK_EVENTS", 7)
    pieces = prepare(baskets(), ties="shuffle", group="basket")
    assert histories(pieces) == histories(whole)
    assert (pieces.groups == whole.groups).all()


@pytest.mark.parametrize("ties", ["file", "shuffle"])
def test_groups_of_one_time_stay_together(ties: str) -> None:
    rows = [("u", item, 5, item % 2) for item in range(40)]  # two baskets, dealt out in turn
    log = pl.DataFrame(rows, ["user", "item", "time", "basket"], orient="row")
    store = prepare(log, group="basket", ties=ties)
    (items,) = histories(store)
    assert [item % 2 for item in items] == [0] * 20 + [1] * 20
    assert (items[:20] == list(range(0, 40, 2))) == (ties == "file")
    assert store.summary["baskets"] == 2
    assert np.flatnonzero(store.basket_starts()).tolist() == [0, 20]


def test_a_group_may_last_and_a_time_is_a_basket_without_one() -> None:
    rows = [("a", 1, 1, 7), ("a", 2, 2, 7), ("a", 3, 2, 8), ("a", 4, 9, 7), ("b", 1, 9, 7)]
    log = pl.DataFrame(rows, ["user", "item", "time", "session"], orient="row")
    by_session, by_time = prepare(log, group="session"), prepare(log)
    assert by_session.basket_starts().tolist() == [True, False, True, True, True]
    assert by_time.basket_starts().tolist() == [True, True, False, True, True]
    assert by_session.summary["source"]["columns"]["group"] == "session"
    assert by_session.fingerprint.startswith(by_time.fingerprint)
    assert by_session.fingerprint != by_time.fingerprint


def test_groups_go_to_disk_and_damage_is_noticed(tmp_path) -> None:
    store = prepare(baskets(), tmp_path / "data", group="basket", min_item_events=2)
    again = SequenceStore.open(tmp_path / "data")
    assert (again.groups == store.groups).all()
    assert len(again.groups) == again.n_events
    np.save(tmp_path / "data" / "groups.npy", np.zeros(again.n_events, np.int32))
    with pytest.raises(InputError, match="do not match its fingerprint"):
        SequenceStore.open(tmp_path / "data")
    (tmp_path / "data" / "groups.npy").unlink()
    with pytest.raises(InputError, match="do not match its fingerprint"):
        SequenceStore.open(tmp_path / "data")


def test_a_column_that_is_not_there_or_empty_is_named() -> None:
    with pytest.raises(InputError, match=r"no column 'order_id'.*set group= to one of them"):
        prepare(baskets(), group="order_id")
    missing = baskets().with_columns(basket=pl.lit(None, dtype=pl.Int64))
    with pytest.raises(InputError, match="group"):
        prepare(missing, group="basket")
    with pytest.raises(InputError, match="ties=random must be 'file' or 'shuffle'"):
        prepare(baskets(), ties="random")
    with pytest.raises(InputError, match=r"ties=file has no use for ties_seed=; .*ties=shuffle"):
        prepare(baskets(), ties_seed=3)
    with pytest.raises(InputError, match="group=5 must be text"):
        prepare(baskets(), group=5)
