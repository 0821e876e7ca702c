"""Graphs of models that read time: histories with times, and requests at any time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from linrec.data.dataset.sequences import Sequences
from linrec.export.check import TOLERANCE, open_session
from linrec.export.folder import export_onnx
from tests.contracts.cases import N_ITEMS
from tests.export.cases import Deployed, run_of, scores_of

# at once, cut, and with a mask at the time of the request; in chunks below
KINDS = [
    ("sasrec", "softmax", {}),
    ("fdsa", "linrec", {"max_length": 9}),
    ("bert4rec", "linrec", {"max_length": 9}),
]


def timed(*lengths: int, at: float | None = None) -> Sequences:
    """Some gaps are 0, some times unknown; the requests follow the newest events, or one is not."""
    rng = np.random.default_rng(sum(lengths))
    rows = [rng.integers(1, N_ITEMS + 1, length).astype(np.int32) for length in lengths]
    gaps = [np.exp(rng.uniform(0, 16, n)) * (rng.random(n) > 0.3) for n in lengths]
    clock = [1.7e9 + np.cumsum(row) for row in gaps]
    until = [float(row[-1]) + 3600.0 if at is None else at for row in clock]
    for row in clock:
        row[rng.random(len(row)) < 0.1] = np.nan
    return Sequences.of(rows, clock, until)


def close(scores: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(scores[:, 1:], expected[:, 1:], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("backbone", "attention", "changes"), KINDS)
def test_scores_are_those_of_torch(
    tmp_path: Path, backbone: str, attention: str, changes: dict[str, int]
) -> None:
    run = run_of(tmp_path / "run", backbone, attention, layers=1, time_gaps=True, **changes)
    exported = export_onnx(run, tmp_path / "out")
    assert list(exported.differences) == ["model.onnx"]
    deployed = Deployed(tmp_path / "out")
    assert deployed.message["reads_time"] is True
    for histories in (timed(3, 1, 30), timed(12, 5, at=np.nan), timed(4, at=0.0)):
        close(deployed.timed_scores(histories)[0], scores_of(run, histories))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("timed") / "run"
    return run_of(folder, "sasrec", "linrec-decay", layers=1, time_gaps=True)


@pytest.fixture(scope="module")
def deployed(run: Path) -> Deployed:
    exported = export_onnx(run, run.with_name("out"), top_k=5)
    assert list(exported.differences) == ["model.onnx", "step.onnx", "request.onnx"]
    assert max(exported.differences.values()) <= TOLERANCE
    return Deployed(run.with_name("out"))


@pytest.mark.slow
def test_in_chunks_it_is_the_whole_history(run: Path, deployed: Deployed) -> None:
    for histories in (timed(300, 2, 65), timed(64, at=np.nan)):
        close(deployed.timed_scores(histories)[0], scores_of(run, histories))


@pytest.mark.slow
def test_the_request_time_matters(deployed: Deployed) -> None:
    soon, later = (deployed.timed_scores(timed(9, at=1.8e9 + wait))[0] for wait in (0.0, 1e9))
    assert not np.allclose(soon[:, 1:], later[:, 1:])


@pytest.mark.slow
def test_event_by_event_is_all_at_once(deployed: Deployed) -> None:
    step, request = (open_session(deployed.folder / f"{name}.onnx") for name in ("step", "request"))
    histories = timed(9, 9)
    items, times = histories.padded(), histories.padded_times()
    assert times is not None
    state = deployed.start(2)
    for now in range(9):
        after = step.run(None, {"item": items[:, now], "time": times[:, now], **state})
        state = dict(zip(state, after, strict=True))
    for at in (histories.until, np.full(2, np.nan), np.zeros(2)):
        (scores,) = request.run(None, {"at": at, **state})
        whole = Sequences.of(list(items), list(times), at)
        close(scores, deployed.timed_scores(whole)[0])
    # a user who has no event in a batch keeps the state
    given = {"item": np.array([0, 1], np.int64), "time": np.full(2, 1.9e9)}
    kept = step.run(None, {**given, **state})
    for before, after_it in zip(state.values(), kept, strict=True):
        np.testing.assert_allclose(after_it[0], before[0], rtol=1e-6)


@pytest.mark.slow
def test_without_events_a_request_gets_what_is_popular(deployed: Deployed) -> None:
    request = open_session(deployed.folder / "request.onnx")
    (scores,) = request.run(None, {"at": np.full(1, np.nan), **deployed.start(1)})
    nothing = Sequences.of([[]], [[]], [np.nan])
    np.testing.assert_array_equal(scores, deployed.timed_scores(nothing)[0])
