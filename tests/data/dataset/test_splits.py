from __future__ import annotations

import pytest

from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.splits import Holdout, leave_one_out
from linrec.types import InputError


def rows(sequences: Sequences) -> list[list[int]]:
    return [sequences[row].tolist() for row in range(len(sequences))]


def as_rows(part: Holdout) -> list[tuple[int, list[int], int]]:
    return list(zip(part.users.tolist(), rows(part.histories), part.targets.tolist(), strict=True))


def test_last_tests_and_the_one_before_validates() -> None:
    split = leave_one_out(Sequences.of([[1, 2, 3, 4], [5, 6], [7, 8, 9], [10]]))
    assert rows(split.train) == [[1, 2], [5, 6], [7], [10]]
    assert as_rows(split.valid) == [(0, [1, 2], 3), (2, [7], 8)]
    assert as_rows(split.test) == [(0, [1, 2, 3], 4), (2, [7, 8], 9)]
    assert split.part("valid") is split.valid
    assert split.part("test") is split.test
    assert len(split.test) == 2


def test_too_short_to_split() -> None:
    with pytest.raises(InputError, match="3 events"):
        leave_one_out(Sequences.of([[1, 2], [3]]))
