"""Which drawn items were seen, against a look into every list."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from linrec.data.dataset.seen import SeenIndex, concatenated_ranges
from linrec.data.dataset.sequences import Sequences
from linrec.losses.seen_draws import seen_among
from linrec.types import SeenItems


@pytest.mark.parametrize("together", [1, 3, 100])
@pytest.mark.parametrize("lengths", [(1,), (4, 1, 9), (30,)])
def test_it_equals_a_look_into_every_list(lengths, together) -> None:
    rng = np.random.default_rng(1)
    histories = Sequences.of([rng.integers(1, 12, length + 2).tolist() for length in lengths])
    inputs = Sequences(histories.items, histories.starts + 1, histories.ends - 1)
    seen = SeenIndex.of(histories).before(concatenated_ranges(inputs.starts + 1, inputs.lengths))
    targets = len(seen.starts)
    drawn = torch.from_numpy(rng.integers(1, 15, (-(-targets // together), 8)))
    found = seen_among(seen, drawn, together)
    assert found.shape == (targets, 8)
    for target in range(targets):
        begin, count = int(seen.starts[target]), int(seen.counts[target])
        past = seen.items[begin : begin + count].tolist()
        expected = [item in past for item in drawn[target // together].tolist()]
        assert found[target].tolist() == expected


def test_who_has_seen_nothing_has_no_hit() -> None:
    """A target without a list, beside one whose list begins at the same place."""
    seen = SeenItems(torch.tensor([3]), torch.tensor([0, 0]), torch.tensor([0, 1]))
    assert seen_among(seen, torch.tensor([[3, 4]]), 2).tolist() == [[False, False], [True, False]]
