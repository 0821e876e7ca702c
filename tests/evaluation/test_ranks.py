"""Ranks of held-out items: slow twins, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.splits import Holdout, leave_one_out
from linrec.evaluation import RankOptions, draw_negatives, rank_targets
from linrec.evaluation.ranks import batches
from linrec.scoring import MISS, top_k
from linrec.types import InputError

INF = float("inf")
SEEDS = st.integers(0, 10_000)


def hashed(n_items: int, levels: int = 7):
    """A scorer of few distinct scores that depends on the whole history of its row alone."""

    def score(histories: Sequences) -> torch.Tensor:
        items = np.arange(n_items + 1)
        rows = [
            ((int(histories[row].sum()) + 3) * (items + 11) ** 2) % 101 % levels
            for row in range(len(histories))
        ]
        scores = torch.tensor(np.array(rows), dtype=torch.float32)
        scores[:, 0] = -INF
        return scores

    return score


def slow_ranks(scorer, holdout: Holdout, hide: bool, candidates=None) -> list[int]:
    ranks = []
    for row, target in enumerate(holdout.targets.tolist()):
        scores = scorer(holdout.histories.take(np.array([row])))[0].tolist()
        seen = set(holdout.histories[row].tolist()) if hide else set()
        rivals = set(range(1, len(scores))) if candidates is None else set(candidates[row].tolist())
        rivals -= seen | {target}
        own = scores[target]
        hidden = target in seen
        ranks.append(MISS if hidden else sum(scores[item] >= own for item in rivals))
    return ranks


@given(SEEDS, st.booleans(), st.sampled_from(["valid", "test"]))
def test_full_ranks_match_brute_force(random_store, seed, hide, part) -> None:
    store = random_store(seed)
    holdout = leave_one_out(store.sequences()).part(part)
    scorer = hashed(store.n_items)
    options = RankOptions(part=part, hide_seen=hide, max_tokens=30)
    found = rank_targets(scorer, store, holdout, "full", options)
    assert found.ranks.tolist() == slow_ranks(scorer, holdout, hide)
    expected = [target in holdout.histories[row] for row, target in enumerate(holdout.targets)]
    assert found.seen.tolist() == expected


@given(SEEDS, st.sampled_from(["pop100", "uni100"]))
def test_sampled_ranks_match_brute_force(random_store, seed, protocol) -> None:
    store = random_store(seed)
    holdout = leave_one_out(store.sequences()).test
    scorer = hashed(store.n_items)
    candidates = draw_negatives(store, holdout, protocol, part="test", seed=3)
    found = rank_targets(scorer, store, holdout, protocol, RankOptions(seed=3))
    assert found.ranks.tolist() == slow_ranks(scorer, holdout, False, candidates)
    assert found.recommended == {}


@given(SEEDS, st.sampled_from(["full", "pop100"]), st.integers(1, 200), st.integers(1, 2_000))
def test_batches_and_order_of_users_do_not_matter(
    random_store, seed, protocol, tokens, scores
) -> None:
    store = random_store(seed)
    holdout = leave_one_out(store.sequences()).test
    scorer = hashed(store.n_items)
    whole = rank_targets(scorer, store, holdout, protocol, RankOptions(ks=(3,)))
    order = np.random.default_rng(seed).permutation(len(holdout))
    shuffled = Holdout(holdout.users[order], holdout.histories.take(order), holdout.targets[order])
    options = RankOptions(ks=(3,), max_tokens=tokens, max_scores=scores)
    again = rank_targets(scorer, store, shuffled, protocol, options)
    assert again.ranks.tolist() == whole.ranks[order].tolist()
    for k, counts in whole.recommended.items():
        assert again.recommended[k].tolist() == counts.tolist()


@given(SEEDS, st.floats(-4, 4, width=16))
def test_a_constant_added_to_all_scores_changes_nothing(random_store, seed, constant) -> None:
    store = random_store(seed)
    holdout = leave_one_out(store.sequences()).test
    scorer = hashed(store.n_items)
    shifted = rank_targets(lambda rows: scorer(rows) + constant, store, holdout)
    assert shifted.ranks.tolist() == rank_targets(scorer, store, holdout).ranks.tolist()


def test_constant_scores_earn_nothing(random_store) -> None:
    store = random_store(1)
    holdout = leave_one_out(store.sequences()).test
    constant = lambda rows: torch.zeros(len(rows), store.n_items + 1)  # noqa: E731
    found = rank_targets(constant, store, holdout)
    unseen = np.array(
        [
            store.n_items - len(set(row))
            for row in map(holdout.histories.__getitem__, range(len(holdout)))
        ]
    )
    expected = np.where(found.seen, MISS, unseen - 1)
    assert found.ranks.tolist() == expected.tolist()


@pytest.mark.parametrize("protocol", ["full", "pop100", "uni100"])
def test_a_perfect_scorer_ranks_first(make_store, protocol) -> None:
    store = make_store([[1, 2, 3, 4], [4, 3, 2, 1], [2, 1, 3, 5]])
    holdout = leave_one_out(store.sequences()).test
    answers = dict(
        zip(
            map(tuple, map(holdout.histories.__getitem__, range(3))),
            holdout.targets.tolist(),
            strict=True,
        )
    )

    def perfect(histories: Sequences) -> torch.Tensor:
        wanted = [answers[tuple(histories[row])] for row in range(len(histories))]
        return torch.eye(store.n_items + 1)[wanted]

    assert rank_targets(perfect, store, holdout, protocol).ranks.tolist() == [0, 0, 0]


def test_the_items_of_the_lists_are_counted(random_store) -> None:
    store = random_store(2)
    holdout = leave_one_out(store.sequences()).test
    scorer = hashed(store.n_items)
    options = RankOptions(ks=(2, 5), hide_seen=False, max_tokens=40)
    found = rank_targets(scorer, store, holdout, "full", options)
    lists = top_k(scorer(holdout.histories), 5)[0].numpy()
    for k in (2, 5):
        expected = np.bincount(lists[:, :k].ravel(), minlength=store.n_items + 1)
        assert found.recommended[k].tolist() == expected.tolist()


def test_places_without_an_item_are_not_counted(make_store) -> None:
    store = make_store([[1, 2, 3]])
    holdout = leave_one_out(store.sequences()).test
    found = rank_targets(hashed(3), store, holdout, "full", RankOptions(ks=(10,)))
    assert found.recommended[10].tolist() == [0, 0, 0, 1]


@given(SEEDS, st.integers(1, 100), st.integers(1, 400))
def test_the_scorer_never_gets_more_than_the_bounds(random_store, seed, tokens, scores) -> None:
    store = random_store(seed)
    holdout = leave_one_out(store.sequences()).test
    calls: list[tuple[int, int]] = []
    inner = hashed(store.n_items)

    def watched(histories: Sequences) -> torch.Tensor:
        calls.append((len(histories), int(histories.lengths.max())))
        return inner(histories)

    options = RankOptions(max_tokens=tokens, max_scores=scores)
    rank_targets(watched, store, holdout, "full", options)
    assert sum(count for count, _ in calls) == len(holdout)
    for count, longest in calls:
        assert count == 1 or count * longest <= tokens
        assert count == 1 or count * (store.n_items + 1) <= scores


def test_a_million_items_are_ranked_few_users_at_a_time() -> None:
    lengths = np.full(100, 10)
    sizes = [len(rows) for rows in batches(lengths, 1_000_000, RankOptions())]
    assert max(sizes) == 15
    assert sum(sizes) == 100


def test_what_a_scorer_does_not_read_does_not_make_batches_small() -> None:
    lengths = np.full(100, 65_536)
    assert len(list(batches(lengths, 10, RankOptions()))) == 100
    assert len(list(batches(lengths, 10, RankOptions(reads=100)))) == 1


def test_progress_is_told_and_ends_at_the_last_user(random_store) -> None:
    store = random_store(4)
    holdout = leave_one_out(store.sequences()).test
    message: list[tuple[int, int]] = []
    options = RankOptions(max_tokens=40, progress=lambda done, of: message.append((done, of)))
    rank_targets(hashed(store.n_items), store, holdout, "full", options)
    assert len(message) > 1
    assert message == sorted(message)
    assert message[-1] == (len(holdout), len(holdout))


def test_scores_of_another_shape_are_refused(random_store) -> None:
    store = random_store(5)
    holdout = leave_one_out(store.sequences()).test
    with pytest.raises(ValueError, match="must give"):
        rank_targets(lambda rows: torch.zeros(len(rows), store.n_items), store, holdout)


def test_an_unknown_protocol_is_named(random_store) -> None:
    store = random_store(6)
    holdout = leave_one_out(store.sequences()).test
    with pytest.raises(InputError, match="pop100"):
        rank_targets(hashed(store.n_items), store, holdout, "pop99")
