"""Figures by the time between the target and the event before it, worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.splits import Holdout, leave_one_out
from linrec.evaluation.by_gap import figures_by_gap

DAY = 86_400.0


def holdout(gaps: list[float]) -> Holdout:
    """One user per gap, with a history of one event."""
    rows = Sequences.of([[1]] * len(gaps), [[100.0]] * len(gaps))
    at = 100.0 + np.array(gaps)
    return Holdout(np.arange(len(gaps)), rows, np.ones(len(gaps), np.int64), at)


def test_each_user_counts_once() -> None:
    gaps = [0, 0, 0.5, 60, 61, 3_600, 3_601, DAY, DAY + 1, 9 * DAY, -5, math.nan]
    found = figures_by_gap(holdout(gaps), np.zeros(len(gaps), np.int64), (10,))
    assert {name: part.n_users for name, part in found.items()} == {
        "0 s": 2, "up to a minute": 2, "up to an hour": 2, "up to a day": 2, "longer": 2,
        "unknown": 2,
    }  # fmt: skip


def test_the_figures_are_those_of_its_users() -> None:
    found = figures_by_gap(holdout([0, 0, DAY * 2]), np.array([0, 50, 2]), (10,))
    assert list(found) == ["0 s", "longer"]
    assert found["0 s"].metrics["recall@10"] == 0.5
    assert found["longer"].metrics["ndcg@10"] == pytest.approx(0.5)


def test_the_gap_is_that_of_the_split() -> None:
    sequences = Sequences.of([[1, 2, 3, 4]], [[0.0, 5.0, 5.0, 500.0]])
    split = leave_one_out(sequences)
    assert split.test.at.tolist() == split.test.histories.until.tolist() == [500]
    assert list(figures_by_gap(split.valid, np.array([0]), (10,))) == ["0 s"]
    assert list(figures_by_gap(split.test, np.array([0]), (10,))) == ["up to an hour"]


def test_without_times_there_are_none() -> None:
    rows = Sequences.of([[1, 2, 3]])
    assert figures_by_gap(leave_one_out(rows).test, np.array([0]), (10,)) == {}
