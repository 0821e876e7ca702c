"""A target of weight 2 counts as two targets, one of weight 0 as none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from linrec.losses import ItemVectors, full_softmax
from linrec.losses.config import LossConfig
from linrec.losses.gbce import gbce
from linrec.losses.sampled_softmax import sampled_softmax
from linrec.losses.softmax import FullSoftmax

WEIGHTS = torch.tensor([1.0, 3.0, 0.0, 2.0])
OFTEN = torch.repeat_interleave(torch.arange(4), WEIGHTS.long())


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def test_full_softmax_and_its_gradients() -> None:
    vectors, bias, targets = drawn(8, 5), drawn(8), torch.tensor([3, 1, 7, 2])
    found = []
    for rows, weights in ((torch.arange(4), WEIGHTS), (OFTEN, None)):
        given = [x.clone().double().requires_grad_() for x in (drawn(4, 5), vectors, bias)]
        loss = full_softmax(given[0][rows], given[1], targets[rows], given[2], weights=weights)
        loss.backward()
        found.append([loss.detach(), *(x.grad for x in given)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_equal_weights_change_nothing_and_none_at_all_give_zero() -> None:
    hidden, items, targets = drawn(4, 5), ItemVectors(drawn(8, 5)), torch.tensor([3, 1, 7, 2])
    loss = FullSoftmax(LossConfig(), np.ones(8, np.int64))
    plain = loss(hidden, targets, items)
    torch.testing.assert_close(loss(hidden, targets, items, weights=torch.full((4,), 7.0)), plain)
    assert loss(hidden, targets, items, weights=torch.zeros(4)) == 0


@pytest.mark.parametrize("of_past", [False, True])
def test_losses_that_sample(of_past: bool) -> None:
    own, others, hits = drawn(4), drawn(4, 6), drawn(4, 6) > 1
    past = drawn(4).abs() if of_past else torch.zeros(4)

    def both(rows: Tensor, weights: Tensor | None) -> list[Tensor]:
        given = own[rows], others[rows], hits[rows]
        gained = past[rows] if of_past else None
        return [
            sampled_softmax(*given, gained, weights),
            gbce(*given, 0.5, past[rows], weights),
        ]

    weighted, repeated = both(torch.arange(4), WEIGHTS), both(OFTEN, None)
    for one, other in zip(weighted, repeated, strict=True):
        torch.testing.assert_close(one, other)
