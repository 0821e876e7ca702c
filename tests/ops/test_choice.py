"""The compiled choice of the best items is that of `scoring`, ties and NaN included."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from linrec import ops
from linrec.ops import compiled
from linrec.scoring import HIDDEN, top_k

pytestmark = pytest.mark.skipif(ops.kernels().startswith("off"), reason="there are no kernels")


@pytest.mark.parametrize("items", [1, 9, 64, 65, 700])
@pytest.mark.parametrize("k", [1, 10, 90])
def test_it_is_top_k_after_hiding(items: int, k: int) -> None:
    rng = np.random.default_rng(items)
    scores = rng.integers(0, 40, (5, items + 1)).astype(np.float32)  # many ties
    scores[1, rng.integers(0, items + 1, 3)] = np.nan
    scores[2, rng.integers(0, items + 1, items // 2)] = -np.inf
    hide = [rng.integers(0, items + 1, rng.integers(0, items + 1)) for _ in range(5)]
    masks = [None, rng.random(items + 1) < 0.5, None, rng.random(items + 1) < 0.1, None]
    expected = torch.from_numpy(scores.copy())
    for row, (some, mask) in enumerate(zip(hide, masks, strict=True)):
        expected[row, torch.from_numpy(some)] = HIDDEN
        if mask is not None:
            expected[row, ~torch.from_numpy(mask)] = HIDDEN
    found = compiled.choose(scores, hide, masks, [k] * 5)
    for mine, other in zip(found, top_k(expected, k), strict=True):
        np.testing.assert_array_equal(mine, other.numpy())


def test_every_row_has_its_own_k() -> None:
    scores = np.tile(np.arange(8, dtype=np.float32), (2, 1))
    items, values = compiled.choose(scores, [np.empty(0, np.int64)] * 2, [None] * 2, [1, 3])
    assert items.tolist() == [[7, 0, 0], [7, 6, 5]]
    assert values[0, 1:].tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize(
    ("hide", "mask", "k", "message"),
    [
        ([9], None, 1, "hidden item is unknown"),
        ([], np.ones(3, np.bool_), 1, "one entry per score"),
        ([], None, 0, "k must fit"),
    ],
)
def test_wrong_input_is_refused(hide: list[int], mask: object, k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compiled.choose(
            np.zeros((1, 5), np.float32),
            [np.array(hide, np.int64)],
            [mask],
            [k],  # type: ignore[list-item]
        )
