"""A short steady load, and what counts as growth."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.serving.steady import Sample, Steady, steady


def of(memory: list[int], descriptors: list[int]) -> Steady:
    pairs = enumerate(zip(memory, descriptors, strict=True))
    return Steady([Sample(float(at), each, count, 9) for at, (each, count) in pairs])


def test_what_counts_as_growth() -> None:
    same = of([50, 90, *[100] * 38], [20] * 40)
    assert not same.failed  # the warm-up does not count
    assert of([1000 + 5 * at for at in range(40)], [20] * 40).failed
    assert of([100] * 40, list(range(40))).failed
    same.statuses = Counter({200: 5, 500: 1})
    assert same.failed


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory and descriptors are read from /proc")
def test_a_short_load(tmp_path: Path) -> None:
    found = steady(tmp_path, seconds=10, every=0.1)
    assert {200, 404, 422} <= found.statuses.keys()
    assert not [status for status in found.statuses if status >= 500]
    assert found.more_descriptors() <= 6
    assert len(found.samples) > 20
    assert "descriptors" in str(found)
