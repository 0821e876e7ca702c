"""Only some events are targets, while all are read: what is held out, trained on and weighed."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from linrec.data.dataset.batches import (
    Masking,
    all_position_batches,
    cloze_batches,
    last_position_batches,
    prefixes,
)
from linrec.data.dataset.splits import Part
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.data.preparing.splitting import SplitConfig
from linrec.types import PAD, InputError

# of each user: item, and whether it was bought; a user is a row
USERS = {
    "ann": "a b C d E f G h",
    "bob": "A b c D",
    "cid": "a b c",  # buys nothing
    "dan": "A B",  # nothing comes before the first of two purchases
}


def store(users: dict[str, str] = USERS) -> SequenceStore:
    events = [
        (user, word.lower(), float(place), "buy" if word.isupper() else "view", float(place % 3))
        for user, words in users.items()
        for place, word in enumerate(words.split())
    ]
    names = ["user", "item", "time", "type", "price"]
    frame = pl.DataFrame(events, schema=names, orient="row")
    return prepare(frame, context="type,price", times="real")


def held_out(config: SplitConfig, part: Part = "test", only: str | None = None) -> dict[str, list]:
    data = store()
    split = config.of(data) if only is None else config.narrowed(data, part, only)
    holdout = split.part(part)
    found: dict[str, list] = {}
    targets = np.split(holdout.targets, np.cumsum(holdout.target_counts)[:-1])
    for row, user in enumerate(data.users.ids_of(holdout.users)):
        past = "".join(data.catalogue.ids_of(holdout.histories[row]))
        found.setdefault(user, []).append((past, "".join(data.catalogue.ids_of(targets[row]))))
    return found


def test_leave_one_out_holds_out_the_last_matching_events() -> None:
    config = SplitConfig(targets_where="type=buy")
    assert held_out(config) == {"ann": [("abcdef", "g")]}
    assert held_out(config, "valid") == {"ann": [("abcd", "e")]}
    split, data = config.of(store()), store()
    trained = ["".join(data.catalogue.ids_of(split.train[row])) for row in range(4)]
    assert trained == ["abcd", "abcd", "abc", "ab"]  # who holds nothing out trains on all


def test_last_k_and_several_targets() -> None:
    config = SplitConfig(split="last-k", last=1, targets="every", targets_where="type=buy")
    assert held_out(config) == {"ann": [("abcdef", "g")]}
    both = SplitConfig(split="temporal", valid_from=1, test_from=2, targets_where="type=buy")
    assert held_out(both) == {"ann": [("ab", "c")], "bob": [("abc", "d")]}
    several = SplitConfig(
        split="temporal", valid_from=1, test_from=2, targets="2", targets_where="type=buy"
    )
    assert held_out(several) == {"ann": [("ab", "ce")], "bob": [("abc", "d")]}
    every = SplitConfig(
        split="temporal", valid_from=1, test_from=2, targets="every", targets_where="type=buy"
    )
    assert held_out(every)["ann"] == [("ab", "c"), ("abcd", "e"), ("abcdef", "g")]


def test_an_evaluation_narrows_the_targets_and_holds_out_nothing_else() -> None:
    plain = SplitConfig()
    assert held_out(plain, only="type=buy") == {"bob": [("abc", "d")]}  # the others end in a view
    assert held_out(SplitConfig(targets_where="type=buy"), only="price=0") == {
        "ann": [("abcdef", "g")]
    }
    assert len(plain.narrowed(store(), "test", "type=buy").valid) == len(plain.of(store()).valid)
    with pytest.raises(InputError, match="held out for valid has"):
        SplitConfig(targets_where="type=buy").narrowed(store(), "valid", "price=2")
    with pytest.raises(InputError, match="whole baskets"):
        SplitConfig(targets="basket").narrowed(store(), "test", "type=buy")


@pytest.mark.parametrize(
    ("condition", "items"),
    [
        ("type=buy", "ceg"),
        ("type = buy|view", "abcdefgh"),
        ("type!=buy", "abdfh"),
        ("price>=1", "bcefh"),
        ("price<1", "adg"),
        ("price=0|2", "acdfg"),
    ],
)
def test_conditions(condition: str, items: str) -> None:
    data = store({"ann": USERS["ann"]})
    chosen = data.items[data.where(condition)]
    assert "".join(data.catalogue.ids_of(chosen)) == items


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("type", "is not a condition"),
        ("type=", "is not a condition"),
        ("price>=much", "no number"),
        ("type=rent", "no event .* has the type 'rent'; choose from buy, view"),
        ("colour=red", "no context column 'colour'; choose from type, price"),
        ("price=much", "holds numbers"),
        ("type>3", "not made of numbers"),
        ("price>99", "no event"),
    ],
)
def test_wrong_conditions_are_refused(condition: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SplitConfig(targets_where=condition).of(store())


def test_without_any_context_the_remedy_is_named() -> None:
    frame = pl.DataFrame({"user": [1] * 4, "item": list("abcd"), "time": range(4)})
    with pytest.raises(InputError, match="nor any other; prepare it again"):
        SplitConfig(targets_where="type=buy").of(prepare(frame))


def test_baskets_have_no_use_for_it() -> None:
    with pytest.raises(InputError, match="whole baskets"):
        SplitConfig(targets="basket", targets_where="type=buy")


def _targets(batches) -> dict[int, int]:
    """How often each item is a target."""
    found = np.concatenate([batch.targets[batch.targets != PAD].numpy() for batch in batches])
    assert len(found) == batches.n_targets
    return dict(zip(*(x.tolist() for x in np.unique(found, return_counts=True)), strict=True))


def test_only_matching_events_are_trained_on() -> None:
    data = store()
    eligible, train = data.where("type=buy"), data.sequences()
    starts = {int(start) for start in train.starts}
    later = [e for e in np.flatnonzero(eligible).tolist() if e not in starts]
    items, counts = np.unique(data.items[later], return_counts=True)
    expected = dict(zip(items.tolist(), counts.tolist(), strict=True))
    rng = np.random.default_rng(0)
    for make in (all_position_batches, last_position_batches):
        batches = make(train, window=4, tokens=16, rng=rng, eligible=eligible)
        assert _targets(batches) == expected
    rows = prefixes(train, 8)
    masks = cloze_batches(rows, Masking(99, 0.5, eligible=eligible), tokens=64, rng=rng)
    assert set(_targets(masks)) <= set(data.items[eligible].tolist())
    for batch in masks:  # of what is no target only the next event is hidden
        hidden = (batch.items == 99) & (batch.targets == PAD)
        assert (hidden.sum(1) <= 1).all()


def test_weights_go_with_their_targets() -> None:
    data = store()
    weights = data.weights("price")
    batches = all_position_batches(
        data.sequences(), window=8, tokens=16, rng=np.random.default_rng(0)
    ).with_seen(None, None, weights)
    for batch in batches:
        place = (batch.keep.cumsum(1) % 3)[batch.targets != PAD]  # the price of the next event
        assert batch.weights is not None
        assert batch.weights.tolist() == place.tolist()


def test_what_cannot_weigh_is_refused() -> None:
    data = store()
    with pytest.raises(InputError, match="holds categories"):
        data.weights("type")
    frame = pl.DataFrame({"user": [1, 1], "item": ["a", "b"], "time": [1, 2], "price": [1.5, None]})
    with pytest.raises(InputError, match="missing, negative or infinite in 1 events"):
        prepare(frame, context="price").weights("price")
