"""A short soak: thirty kills of two servers under concurrent appends, reloads and deletions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.soak import soak

KILLS, MINUTES = 30, 10  # the second only bounds a machine that stands still


@pytest.mark.slow
def test_thirty_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    report = soak(tmp_path, str(tmp_path / "users.sqlite"), KILLS, MINUTES)
    assert not report.failed, str(report)
    assert report.kills >= KILLS
    assert report.acknowledged > KILLS
