"""The figures on attention, against the same taken row by row."""

from __future__ import annotations

import pytest
import torch

from experiments.attention import MEASURES, _sums, example
from linrec.data.dataset.sequences import Sequences

LENGTHS = torch.tensor([5, 3])


@pytest.mark.parametrize("causal", [True, False])
def test_sums_over_users_are_those_of_their_rows(causal: bool) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(2, 2, 5, 5, dtype=torch.float64)
    matrix[1, :, 3:] = matrix[1, :, :, 3:] = 0
    matrix = matrix.tril() if causal else matrix
    sums, highest = _sums(matrix, LENGTHS, causal=causal)
    for head in range(2):
        rows = [
            matrix[user, head, at, : at + 1 if causal else int(length)]
            for user, length in enumerate(LENGTHS)
            for at in range(int(length))
        ]
        last = [rows[4].abs(), rows[7].abs()]
        entropy = [float(torch.special.entr(row / row.sum()).sum()) for row in last]
        effective = [2.718281828459045**one for one in entropy]
        expected = {
            "rows": 8, "row_sum": sum(row.sum() for row in rows),
            "row_size": sum(row.abs().sum() for row in rows),
            "scores": sum(len(row) for row in rows),
            "negative": sum((row < 0).sum() for row in rows),
            "negative_size": -sum(row[row < 0].sum() for row in rows),
            "users": 2, "entropy": sum(entropy), "effective": sum(effective),
            "effective_share": effective[0] / 5 + effective[1] / 3,
        }  # fmt: skip
        assert dict(zip(MEASURES, sums[head].tolist(), strict=True)) == pytest.approx(
            {name: float(value) for name, value in expected.items()}
        )
        assert float(highest[head]) == pytest.approx(max(float(row.sum()) for row in rows))


def test_the_example_has_fifty_events_or_nearly() -> None:
    assert example(Sequences.of([[1] * 4, [1] * 48, [1] * 60])) == 1
