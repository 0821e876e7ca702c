"""The repeat head's kernels: the torch form, which holds all features, is the slow twin."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from linrec import ops
from linrec.data.dataset.half_lives import half_lives
from linrec.data.dataset.past_counts import ItemCounts, counts_of_users
from linrec.data.dataset.repeat_index import RepeatIndex
from linrec.data.dataset.sequences import Sequences
from linrec.layers.repeats import additions, pairs_of
from linrec.types import PastCounts

LENGTHS = (2, 3, 17, 40, 90)  # fewer past items than a register, as many, and more


def past_of(*, timed: bool, items: int = 30) -> PastCounts:
    """Every event of some users but the first; times from the same second to years apart."""
    rng = np.random.default_rng(3)
    rows = [rng.integers(1, items + 1, length).tolist() for length in LENGTHS]
    clock = [np.cumsum(np.exp(rng.uniform(-3, 17, length))).tolist() for length in LENGTHS]
    for times in clock[2:]:
        times[-5] = times[-6]  # a tie
    histories = Sequences.of(rows, clock if timed else None)
    events = np.concatenate(
        [np.arange(s + 1, e) for s, e in zip(histories.starts, histories.ends, strict=True)]
    )
    return RepeatIndex.of(histories).before(events, rng.random(len(events)) < 0.3)


def gained(past: PastCounts, begin: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What each pair of these targets gains, and the gradient of the weights."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(
        len(past.counts), 1 + past.sums.shape[1], generator=generator
    ).requires_grad_()
    values = additions(weights[begin:end], past, begin).values
    (values * torch.randn(len(values), generator=generator)).sum().backward()
    assert weights.grad is not None
    return values.detach(), weights.grad


@pytest.mark.skipif(ops.kernels().startswith("off"), reason="there are no kernels here")
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize(("begin", "end"), [(0, 147), (40, 103), (7, 7)])
def test_the_kernels_match_the_torch_form(timed, begin, end) -> None:
    past = past_of(timed=timed)
    assert len(past.counts) == 147
    fast = gained(past, begin, end)
    with ops.without_kernels():
        slow = gained(past, begin, end)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(ops.kernels().startswith("off"), reason="there are no kernels here")
def test_the_kernels_know_unknown_times_and_large_counts() -> None:
    """Of an event of unknown time only its position counts; an item of every second for hours."""
    times = [math.nan, 5.0, math.nan, *(10.0 + n for n in range(20_000))]
    counts = ItemCounts.none(timed=True).after(
        np.array([1, 2, 2, *([3] * 20_000)]), np.array(times)
    )
    past = counts_of_users([counts, ItemCounts.none(timed=True)], [math.nan, 7.0])
    weights = torch.linspace(-1, 1, 2 * (1 + half_lives(True))).view(2, -1)
    fast = pairs_of(past).gains(weights)
    with ops.without_kernels():
        slow = pairs_of(past).gains(weights)
    assert len(fast) == 3
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(ops.kernels().startswith("off"), reason="there are no kernels here")
@pytest.mark.parametrize("field", ["newest", "counts", "ends", "places"])
def test_the_kernels_refuse_what_they_cannot_read(field) -> None:
    """Memory is only read where the tensors say that there is some."""
    past = past_of(timed=True)
    wrong = {"newest": past.newest + len(past.items), "counts": -past.counts}
    broken = past._replace(**{field: wrong.get(field, getattr(past, field)[:-1])})
    pairs = pairs_of(past)._replace(past=broken)
    with pytest.raises(ValueError, match=r"must|negative"):
        pairs.gains(torch.zeros(len(past.counts), 1 + past.sums.shape[1]))
