"""Losses with a repeat head: the slow twin counts the past of each target event by event."""

from __future__ import annotations

import math
from importlib import import_module
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.data.dataset.half_lives import IN_EVENTS, IN_SECONDS
from linrec.data.dataset.repeat_index import RepeatIndex
from linrec.data.dataset.sequences import Sequences
from linrec.layers.repeats import additions
from linrec.losses import ItemVectors, build_loss, full_softmax, loss_config
from linrec.losses.repeats import Repeats
from linrec.losses.sampling import Sampler
from linrec.types import PastCounts

WIDTH = 16
EXACT = [(torch.float64, 2e-6), (torch.float32, 2e-5), (torch.bfloat16, 2e-2)]


class Case(NamedTuple):
    hidden: Tensor  # [T, d]
    vectors: Tensor  # [n_items + 1, d]
    weights: Tensor  # [T, 1 + K]
    targets: Tensor  # [T]
    past: PastCounts
    counted: list[dict[int, Tensor]]  # of each target, its past items with their features


def case(n_items: int, lengths: tuple[int, ...], *, timed: bool = True) -> Case:
    """Users with that many targets each, and three events before the window that holds them."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, n_items + 1, 4 + length) for length in lengths]
    clock = [np.cumsum(np.exp(rng.uniform(0, 14, len(row)))) for row in rows]
    histories = Sequences.of([row.tolist() for row in rows], clock if timed else None)
    events = np.concatenate(
        [np.arange(s + 4, e) for s, e in zip(histories.starts, histories.ends, strict=True)]
    )
    unknown = rng.random(len(events)) < 0.3
    counted = [
        counted_before(row.tolist(), time.tolist() if timed else None, n)
        for row, time in zip(rows, clock, strict=True)
        for n in range(4, len(row))
    ]
    if timed:  # a request of unknown time is as old as the newest event
        places = [(u, n) for u, row in enumerate(rows) for n in range(4, len(row))]
        for index in np.flatnonzero(unknown):
            user, n = places[index]
            row, time = rows[user].tolist(), clock[user].tolist()
            counted[index] = counted_before(row, [*time[:n], time[n - 1]], n)
    targets = torch.from_numpy(histories.items[events].astype(np.int64))
    torch.manual_seed(0)
    features = 1 + len(IN_EVENTS) + (len(IN_SECONDS) if timed else 0)
    return Case(
        torch.randn(len(targets), WIDTH), torch.randn(n_items + 1, WIDTH) / 2,
        torch.randn(len(targets), features) / 3, targets,
        RepeatIndex.of(histories).before(events, unknown), counted,
    )  # fmt: skip


def counted_before(items: list[int], times: list[float] | None, n: int) -> dict[int, Tensor]:
    features = {}
    for item in set(items[:n]):
        at = [place for place in range(n) if items[place] == item]
        counts = [sum(0.5 ** ((n - 1 - p) / half) for p in at) for half in IN_EVENTS]
        if times is not None:
            counts += [
                sum(0.5 ** ((times[n] - times[p]) / half) for p in at) for half in IN_SECONDS
            ]
        features[item] = torch.tensor([1.0, *map(math.log1p, counts)], dtype=torch.float64)
    return features


def slow_scores(given: Case, hidden: Tensor, vectors: Tensor, weights: Tensor) -> Tensor:
    """[T, n_items + 1], target by target and item by item."""
    rows = []
    for t, past in enumerate(given.counted):
        gains = [
            weights[t] @ past[item] if item in past else torch.zeros((), dtype=torch.float64)
            for item in range(len(vectors))
        ]
        rows.append(vectors @ hidden[t] + torch.stack(gains))
    return torch.stack(rows)


def slow(given: Case, hidden: Tensor, vectors: Tensor, weights: Tensor) -> Tensor:
    scores = slow_scores(given, hidden, vectors, weights)[:, 1:]
    return F.cross_entropy(scores, given.targets - 1)


def assert_equal_with_gradients(
    given: list[Tensor], wanted: list[Tensor], losses: tuple[Tensor, Tensor], tolerance: float
) -> None:
    torch.testing.assert_close(
        losses[0].double(), losses[1].double(), rtol=tolerance, atol=tolerance
    )
    found, right = torch.autograd.grad(losses[0], given), torch.autograd.grad(losses[1], wanted)
    for mine, other in zip(found, right, strict=True):
        scale = other.abs().max().item()
        torch.testing.assert_close(
            mine.double(), other.double(), rtol=tolerance, atol=tolerance * scale + 1e-7
        )


def leaves(given: Case, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """Hidden, vectors and weights as they are given, and the same numbers in float64."""
    wide = torch.promote_types(dtype, torch.float32)
    kinds = (dtype, wide, wide)
    exact = [x.to(dtype).double() for x in (given.hidden, given.vectors, given.weights)]
    narrow = [x.to(kind).requires_grad_() for x, kind in zip(exact, kinds, strict=True)]
    return narrow, [x.clone().requires_grad_() for x in exact]


@pytest.fixture(params=[1, 7, 10_000], ids="{} rows per chunk".format)
def _any_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that cut a user, chunks that leave a remainder, and all rows at once."""
    monkeypatch.setattr(
        import_module("linrec.losses.softmax"), "_chunk_rows", lambda *_: request.param
    )
    monkeypatch.setattr(import_module("linrec.losses.repeats"), "ROWS", request.param)


@pytest.mark.usefixtures("_any_chunks")
@pytest.mark.parametrize(("dtype", "tolerance"), EXACT)
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize(("n_items", "lengths"), [(2, (1,)), (9, (5,)), (30, (1, 17, 8))])
def test_softmax_equals_its_slow_twin(n_items, lengths, timed, dtype, tolerance) -> None:
    given = case(n_items, lengths, timed=timed)
    mine, exact = leaves(given, dtype)
    hidden, vectors, weights = mine
    repeats = Repeats(weights, given.past)
    losses = (
        full_softmax(hidden, vectors, given.targets, repeats=repeats),
        slow(given, *exact),
    )
    assert_equal_with_gradients(mine, exact, losses, tolerance)


class Every(Sampler):
    """Each item once, in order."""

    def draw(self, *shape: int, device: torch.device) -> Tensor:
        return torch.arange(1, len(self.reach) + 1, device=device).expand(shape)


def sampled(name: str, given: Case, mine: list[Tensor], n_items: int) -> Tensor:
    """The loss with every item drawn once."""
    loss = build_loss(
        loss_config(loss=name, negatives=n_items), np.r_[0, np.full(n_items, 5, np.int64)]
    )
    loss.negatives = n_items
    loss.sampler = Every(np.r_[0, np.full(n_items, 5, np.int64)], 0.0)
    hidden, vectors, weights = mine
    return loss(hidden, given.targets, ItemVectors(vectors), repeats=Repeats(weights, given.past))


@pytest.mark.usefixtures("_any_chunks")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n_items", "lengths"), [(2, (1,)), (9, (5,)), (30, (1, 17, 8))])
def test_with_every_item_drawn_sampled_softmax_is_softmax(n_items, lengths, dtype) -> None:
    """What is in a target's past counts once, whether it was drawn or not."""
    given = case(n_items, lengths)
    mine, exact = leaves(given, dtype)
    losses = sampled("sampled-softmax", given, mine, n_items), slow(given, *exact)
    assert_equal_with_gradients(mine, exact, losses, 2e-5)


@pytest.mark.usefixtures("_any_chunks")
@pytest.mark.parametrize(("n_items", "lengths"), [(9, (5,)), (30, (1, 17, 8))])
def test_with_every_item_drawn_gbce_is_its_formula(n_items, lengths) -> None:
    given = case(n_items, lengths)
    mine, exact = leaves(given, torch.float64)
    scores = slow_scores(given, *exact)
    own = scores.gather(1, given.targets[:, None])[:, 0]
    beta = build_loss(
        loss_config(loss="gbce", negatives=n_items), np.r_[0, np.full(n_items, 5, np.int64)]
    ).beta
    right = F.softplus(scores[:, 1:]).sum() - F.softplus(own).sum() + beta * F.softplus(-own).sum()
    right = right / len(own) / (n_items + 1)
    losses = sampled("gbce", given, mine, n_items), right
    assert_equal_with_gradients(mine, exact, losses, 2e-5)


@pytest.mark.parametrize("name", ["sampled-softmax", "gbce"])
def test_past_items_are_compared_though_none_is_drawn(name) -> None:
    """Else a head would never learn when not to repeat."""
    given = case(500, (12, 9))
    mine, _ = leaves(given, torch.float32)
    loss = build_loss(loss_config(loss=name, negatives=1), np.r_[0, np.full(500, 5, np.int64)])
    hidden, vectors, weights = mine
    value = loss(hidden, given.targets, ItemVectors(vectors), repeats=Repeats(weights, given.past))
    (gradient,) = torch.autograd.grad(value, [weights])
    assert (gradient[:, 0] > 0).all()  # no target is a repeat: every past item is to be lowered


@pytest.mark.parametrize("name", ["softmax", "sampled-softmax", "gbce"])
def test_weights_of_zero_change_nothing(name) -> None:
    """A new model begins as the same model without a head."""
    given = case(40, (6, 11))
    negatives = {} if name == "softmax" else {"negatives": 40}
    loss = build_loss(loss_config(loss=name, **negatives), np.r_[0, np.full(40, 5, np.int64)])
    if name != "softmax":
        loss.negatives, loss.sampler = 40, Every(np.r_[0, np.full(40, 5, np.int64)], 0.0)
    items, zero = ItemVectors(given.vectors), torch.zeros_like(given.weights)
    found = loss(given.hidden, given.targets, items, repeats=Repeats(zero, given.past))
    torch.testing.assert_close(found, loss(given.hidden, given.targets, items))


def test_no_target_no_loss() -> None:
    given = case(9, (5,))
    nothing = given.past._replace(
        newest=given.past.newest[:0], counts=given.past.counts[:0], ends=given.past.ends[:0],
        moments=given.past.moments[:0],
    )  # fmt: skip
    weights = torch.zeros(0, given.weights.shape[1])
    assert len(additions(weights, nothing).values) == 0
    loss = full_softmax(
        given.hidden[:0], given.vectors, given.targets[:0], repeats=Repeats(weights, nothing)
    )
    assert loss == 0
