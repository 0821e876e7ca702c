"""The sampled protocols draw what they say, and the same for everybody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.splits import Holdout, leave_one_out
from linrec.evaluation import draw_negatives, load_or_draw
from linrec.evaluation.negatives import item_weights
from linrec.types import InputError

PROTOCOL = st.sampled_from(["pop100", "uni100"])


def test_pop100_counts_all_events_but_each_users_first(make_store) -> None:
    store = make_store([[1, 2, 2, 3], [1, 1, 4], [5]])
    assert item_weights(store, "pop100").tolist() == [0, 1, 2, 1, 1, 0]
    assert item_weights(store, "uni100").tolist() == [0, 1, 1, 1, 1, 1]


def test_full_ranking_draws_nothing(make_store) -> None:
    with pytest.raises(InputError, match="draws no negatives"):
        item_weights(make_store([[1, 2, 3]]), "full")


@given(st.integers(0, 10_000), PROTOCOL, st.sampled_from(["valid", "test"]))
def test_draws_are_possible_items_and_never_the_target(random_store, seed, protocol, part) -> None:
    store = random_store(seed)
    holdout = leave_one_out(store.sequences()).part(part)
    drawn = draw_negatives(store, holdout, protocol, part=part, seed=seed)
    assert drawn.shape == (len(holdout), 100)
    assert drawn.dtype == np.int32
    assert not (drawn == holdout.targets[:, None]).any()
    assert (item_weights(store, protocol)[drawn] > 0).all()


@given(st.integers(0, 10_000), PROTOCOL)
def test_draws_depend_on_seed_part_and_protocol_but_not_on_other_users(
    random_store, seed, protocol
) -> None:
    store = random_store(seed)
    holdout = leave_one_out(store.sequences()).test
    drawn = draw_negatives(store, holdout, protocol, part="test", seed=1)
    again = draw_negatives(store, holdout, protocol, part="test", seed=1)
    assert (drawn == again).all()
    assert (drawn != draw_negatives(store, holdout, protocol, part="test", seed=2)).any()
    assert (drawn != draw_negatives(store, holdout, protocol, part="valid", seed=1)).any()
    some = np.arange(len(holdout))[::-2].copy()
    subset = Holdout(holdout.users[some], holdout.histories.take(some), holdout.targets[some])
    assert (draw_negatives(store, subset, protocol, part="test", seed=1) == drawn[some]).all()


@pytest.mark.parametrize("protocol", ["pop100", "uni100"])
def test_draws_follow_the_counts(random_store, protocol) -> None:
    """Given the target t, item i is drawn with the chance c_i / (all - c_t)."""
    store = random_store(3, n_users=6_000, n_items=20)
    targets = np.arange(store.n_users) % 3 + 1  # the three most popular items
    nobody = Sequences.of([[1]] * store.n_users)
    holdout = Holdout(np.arange(store.n_users), nobody, targets)
    drawn = draw_negatives(store, holdout, protocol, part="test", seed=0)
    for target in (1, 2, 3):
        weights = item_weights(store, protocol).astype(float)
        weights[target] = 0
        of_target = drawn[targets == target].ravel()
        found = np.bincount(of_target, minlength=store.n_items + 1)
        possible = weights > 0
        assert not found[~possible].any()
        expected = weights[possible] / weights.sum() * len(of_target)
        assert stats.chisquare(found[possible], expected).pvalue > 1e-4


def test_draws_are_made_with_replacement(make_store) -> None:
    store = make_store([[1, 2, 3, 4]])
    holdout = leave_one_out(store.sequences()).test
    drawn = draw_negatives(store, holdout, "uni100", part="test", seed=0)
    assert set(drawn.ravel().tolist()) == {1, 2, 3}


def test_a_catalogue_of_one_item_is_refused(make_store) -> None:
    store = make_store([[1, 1, 1]])
    holdout = leave_one_out(store.sequences()).test
    with pytest.raises(InputError, match="two or more"):
        draw_negatives(store, holdout, "uni100", part="test", seed=0)


@pytest.fixture
def on_disk(random_store, tmp_path: Path):
    return replace(random_store(9), path=tmp_path)


def test_draws_are_saved_and_read_back(on_disk) -> None:
    holdout = leave_one_out(on_disk.sequences()).test
    drawn = load_or_draw(on_disk, holdout, "pop100", part="test", seed=5)
    place = on_disk.path / "negatives" / "pop100-test-seed5.npy"
    assert (np.load(place) == drawn).all()
    marked = drawn.copy()
    marked[0] = marked[0][::-1]
    np.save(place, marked)
    assert (load_or_draw(on_disk, holdout, "pop100", part="test", seed=5) == marked).all()


@pytest.mark.parametrize("damage", ["empty", "text", "short", "wide", "target", "zero", "pickle"])
def test_a_damaged_file_is_drawn_again(on_disk, damage: str) -> None:
    holdout = leave_one_out(on_disk.sequences()).test
    drawn = load_or_draw(on_disk, holdout, "uni100", part="test", seed=0)
    place = on_disk.path / "negatives" / "uni100-test-seed0.npy"
    if damage in ("empty", "text"):
        place.write_bytes(b"" if damage == "empty" else b"not an array")
    else:
        wrong = {
            "short": drawn[:-1],
            "wide": drawn.astype(np.int64),
            "target": np.where(np.arange(100) == 7, holdout.targets[:, None], drawn),
            "zero": np.zeros_like(drawn),
            "pickle": np.array([{}], dtype=object),
        }[damage]
        np.save(place, wrong.astype(np.int32) if damage == "target" else wrong)
    assert (load_or_draw(on_disk, holdout, "uni100", part="test", seed=0) == drawn).all()
    assert (np.load(place) == drawn).all()


def test_a_folder_one_cannot_write_to_gives_the_same_draws(on_disk) -> None:
    holdout = leave_one_out(on_disk.sequences()).test
    # a file where the folder should be stops even root, whom permissions do not
    (on_disk.path / "negatives").write_text("in the way")
    found = load_or_draw(on_disk, holdout, "pop100", part="test", seed=0)
    assert (found == draw_negatives(on_disk, holdout, "pop100", part="test", seed=0)).all()


def test_some_users_do_not_overwrite_the_draws_of_all(on_disk) -> None:
    holdout = leave_one_out(on_disk.sequences()).test
    drawn = load_or_draw(on_disk, holdout, "pop100", part="test", seed=0)
    few = Holdout(holdout.users[:3], holdout.histories.take(slice(3)), holdout.targets[:3])
    assert (load_or_draw(on_disk, few, "pop100", part="test", seed=0) == drawn[:3]).all()
    assert len(np.load(on_disk.path / "negatives" / "pop100-test-seed0.npy")) == len(holdout)


def test_a_store_in_memory_writes_nothing(random_store, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = random_store(1)
    load_or_draw(store, leave_one_out(store.sequences()).test, "pop100", part="test", seed=0)
    assert not any(tmp_path.iterdir())
