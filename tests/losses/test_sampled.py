"""Losses over a sample: each is its formula, and with everything in the sample it is the whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.losses import LOSSES, ItemVectors, Loss, build_loss, full_softmax, loss_config
from linrec.losses.gbce import gbce, target_power
from linrec.losses.sampled_softmax import sampled_softmax
from linrec.losses.sampling import Sampler
from linrec.settings import settings_of
from linrec.types import PAD, InputError

N_ITEMS, WIDTH, TARGETS = 12, 5, 70
SAMPLED = ["sampled-softmax", "gbce"]


def counts(n_items: int = N_ITEMS) -> np.ndarray:
    return np.r_[0, np.random.default_rng(0).integers(0, 50, n_items)]


def made(name: str, **changes: Any) -> Loss:
    return build_loss(loss_config(loss=name, **{"negatives": 6} | changes), counts())


class Recorded(ItemVectors):
    """Remembers the items that a loss compared."""

    def of(self, ids: Tensor) -> Any:
        self.ids = ids
        return super().of(ids)


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return (
        torch.randn(TARGETS, WIDTH, requires_grad=True),
        torch.randn(N_ITEMS + 1, WIDTH, requires_grad=True),
        torch.randn(N_ITEMS + 1, requires_grad=True),
        torch.randint(1, N_ITEMS + 1, (TARGETS,)),
    )


def called(loss: Loss, hidden: Tensor, vectors: Tensor, bias: Tensor | None, targets: Tensor):
    items = Recorded(vectors, bias)
    return loss(hidden, targets, items), items.ids


class Every(Sampler):
    """Each item once, in order."""

    def draw(self, *shape: int, device: torch.device) -> Tensor:
        assert shape[-1] == len(self.reach)
        return torch.arange(1, len(self.reach) + 1, device=device).expand(shape)


@pytest.mark.parametrize("with_bias", [False, True])
def test_with_all_items_drawn_sampled_softmax_is_softmax(with_bias: bool) -> None:
    hidden, vectors, bias, targets = inputs()
    loss = made("sampled-softmax", negatives=N_ITEMS, sampling_power=0.0)
    loss.sampler = Every(counts(), 0.0)
    given = [hidden, vectors, *([bias] if with_bias else [])]
    found, _ = called(loss, hidden, vectors, bias if with_bias else None, targets)
    whole = full_softmax(hidden, vectors, targets, bias if with_bias else None)
    torch.testing.assert_close(found, whole)
    for mine, right in zip(
        torch.autograd.grad(found, given), torch.autograd.grad(whole, given), strict=True
    ):
        torch.testing.assert_close(mine, right)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_sample_stands_for_the_catalogue(power: float) -> None:
    """The expected sum over a draw, corrected, and the target is the sum over all items."""
    torch.manual_seed(1)
    sampler, scores, target = Sampler(counts(), power), torch.randn(N_ITEMS + 1), 3
    items = torch.arange(1, N_ITEMS + 1)
    chance = sampler.log_probability(items).exp()
    torch.testing.assert_close(chance.sum(), torch.tensor(1.0))
    corrected = (scores[items] - sampler.log_probability(items)).exp() * (items != target)
    expected = (chance * corrected).sum() + scores[target].exp()
    torch.testing.assert_close(expected, scores[items].exp().sum())


def test_many_draws_give_the_gradient_of_the_whole_softmax() -> None:
    hidden, vectors, bias, targets = inputs()
    loss = made("sampled-softmax", negatives=200_000, sampling_power=0.5)
    found, _ = called(loss, hidden, vectors, bias, targets)
    whole = full_softmax(hidden, vectors, targets, bias)
    assert found.item() == pytest.approx(whole.item(), rel=0.01)
    mine, right = (torch.autograd.grad(each, hidden)[0] for each in (found, whole))
    torch.testing.assert_close(mine, right, rtol=0.02, atol=0.02 * right.abs().max().item())


def naive_sampled_softmax(loss: Any, scores: Tensor, items: Tensor, targets: Tensor) -> Tensor:
    """Target by target; scores: [T, n_items + 1]."""
    each = []
    for row, target in zip(scores, targets, strict=True):
        whole = row[target].exp()
        for item in items[TARGETS:]:
            if item != target:
                q = loss.sampler.log_probability(item[None])[0].exp()
                whole = whole + row[item].exp() / (loss.negatives * q)
        each.append(-(row[target].exp() / whole).log())
    return torch.stack(each).mean()


def naive_gbce(loss: Any, scores: Tensor, items: Tensor, targets: Tensor) -> Tensor:
    drawn, each = items[TARGETS:].view(-1, loss.negatives), []
    for place, (row, target) in enumerate(zip(scores, targets, strict=True)):
        total = -(row[target].sigmoid() ** loss.beta).log()
        for item in drawn[place // 32]:
            if item != target:
                total = total - (1 - row[item].sigmoid()).log()
        each.append(total / (loss.negatives + 1))
    return torch.stack(each).mean()


@pytest.mark.parametrize(
    ("name", "naive"), [("sampled-softmax", naive_sampled_softmax), ("gbce", naive_gbce)]
)
@pytest.mark.parametrize("with_bias", [False, True])
def test_it_is_its_formula(name: str, naive: Any, with_bias: bool) -> None:
    hidden, vectors, bias, targets = inputs()
    loss = made(name)
    found, items = called(loss, hidden, vectors, bias if with_bias else None, targets)
    scores = hidden @ vectors.T + (bias if with_bias else 0)
    expected = naive(loss, scores, items, targets)
    torch.testing.assert_close(found, expected)
    given = [hidden, vectors, *([bias] if with_bias else [])]
    for mine, right in zip(
        torch.autograd.grad(found, given), torch.autograd.grad(expected, given), strict=True
    ):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-6)


def test_gbce_without_calibration_is_binary_cross_entropy() -> None:
    own, others = torch.randn(20), torch.randn(20, 7)
    nothing = torch.zeros(20, 7, dtype=torch.bool)
    assert target_power(7, 1_000, calibration=0.0) == 1
    labels = F.one_hot(torch.zeros(20, dtype=torch.long), 8).float()
    expected = F.binary_cross_entropy_with_logits(torch.cat([own[:, None], others], 1), labels)
    torch.testing.assert_close(gbce(own, others, nothing, beta=1.0), expected)


def test_the_power_of_the_target_is_the_papers() -> None:
    """Fully calibrated it is the sampling rate; with every item drawn there is nothing to do."""
    assert target_power(256, 10_001, calibration=1.0) == pytest.approx(0.0256)
    assert target_power(256, 10_001, calibration=0.75) == pytest.approx(1 - 0.75 * (1 - 0.0256))
    for calibration in (0.0, 0.5, 1.0):
        assert target_power(99, 100, calibration=calibration) == pytest.approx(1)


def test_no_more_negatives_than_there_are() -> None:
    loss = made("gbce", negatives=1_000)
    assert loss.negatives == N_ITEMS - 1
    assert loss.beta == pytest.approx(1)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_items_are_drawn_as_often_as_they_should_be(power: float) -> None:
    torch.manual_seed(0)
    sampler = Sampler(counts(), power)
    drawn = sampler.draw(100, 1_000, device=torch.device("cpu"))
    assert drawn.shape == (100, 1_000)
    assert drawn.min() > PAD
    expected = (1.0 + counts()[1:]) ** power
    found = np.bincount(drawn.flatten(), minlength=N_ITEMS + 1)[1:] / 1e5
    np.testing.assert_allclose(found, expected / expected.sum(), atol=0.01)


def test_a_seed_fixes_the_draws() -> None:
    hidden, vectors, bias, targets = inputs()
    for name in SAMPLED:
        loss = made(name, negatives=50)
        draws = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            draws.append(called(loss, hidden, vectors, bias, targets)[1])
        assert torch.equal(draws[0], draws[1])
        assert not torch.equal(draws[0], draws[2])


def test_groups_of_targets_have_draws_of_their_own() -> None:
    hidden, vectors, bias, _ = inputs()
    ones = torch.ones(70, dtype=torch.long)
    _, items = called(made("gbce", negatives=9), hidden, vectors, bias, ones)
    assert len(items) == 70 + 3 * 9
    first, second, _ = items[70:].view(3, 9)
    assert not torch.equal(first, second)


def test_where_every_draw_is_a_hit_nothing_is_learned() -> None:
    own, others = torch.randn(3, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    hits = torch.ones(3, 4, dtype=torch.bool)
    loss = sampled_softmax(own, others, hits)
    assert loss.item() == 0
    assert all((slope == 0).all() for slope in torch.autograd.grad(loss, [own, others]))


@pytest.mark.parametrize("name", SAMPLED)
def test_no_targets_no_loss(name: str) -> None:
    hidden, vectors, bias, targets = inputs()
    found, _ = called(made(name), hidden[:0], vectors, bias, targets[:0])
    assert found.item() == 0


def test_uniform_draws_weigh_a_little_of_everything() -> None:
    sampler = Sampler(counts(), 0.0)
    assert sampler.log_probability(torch.tensor([1, N_ITEMS])).tolist() == pytest.approx(
        [-math.log(N_ITEMS)] * 2
    )


@pytest.mark.parametrize("name", list(LOSSES))
def test_settings_of_another_loss_are_refused(name: str) -> None:
    everything = {"negatives": 3, "sampling_power": 0.3, "calibration": 0.3}
    for setting, value in everything.items():
        if setting in settings_of(LOSSES[name].Config):
            assert getattr(loss_config(loss=name, **{setting: value}), setting) == value
        else:
            with pytest.raises(InputError, match=f"^the loss {name} has no use for {setting}; lea"):
                loss_config(loss=name, **{setting: value})
