"""Graphs of models with a repeat head count the items of a history as torch does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from linrec.data.dataset.sequences import Sequences
from linrec.export.folder import export_onnx
from linrec.runs.run import Run
from linrec.scoring import HIDDEN
from tests.contracts.cases import N_ITEMS
from tests.export.cases import Deployed, run_of, scores_of
from tests.export.test_time import close, timed

KINDS = [
    ("sasrec", "linrec-decay", {"time_gaps": True}),
    ("sasrec", "softmax", {"time_gaps": False, "max_length": 9}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("backbone", "attention", "changes"), KINDS)
def test_scores_are_those_of_torch(
    tmp_path: Path, backbone: str, attention: str, changes: dict[str, int]
) -> None:
    settings = {"layers": 1, "repeat_head": "on"} | changes
    run = run_of(tmp_path / "run", backbone, attention, {"seen": "keep"}, **settings)
    assert Run.open(run).load_model().repeat.weight.abs().max() > 0
    exported = export_onnx(run, tmp_path / "out", top_k=4)
    assert list(exported.differences) == ["model.onnx"]
    assert exported.why_no_step is not None
    deployed = Deployed(tmp_path / "out")
    for histories in (timed(3, 1, 30), timed(12, 70, at=np.nan), timed(4, at=0.0)):
        if changes["time_gaps"]:
            scores, items, _ = deployed.timed_scores(histories)
        else:
            rows = [row.tolist() for row in (histories[n] for n in range(len(histories)))]
            scores, items, _ = deployed.scores(*rows)
        expected = scores_of(run, histories)
        close(scores, expected)
        assert (scores[:, 0] == HIDDEN).all()
        np.testing.assert_array_equal(np.sort(items), np.sort(np.argsort(-expected)[:, :4]))


@pytest.mark.slow
def test_without_a_step_it_says_why(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "sasrec", "linrec-decay", layers=1, repeat_head="on")
    export_onnx(run, tmp_path / "out")
    assert "no fixed size" in Deployed(tmp_path / "out").message["why_no_step"]
    assert not (tmp_path / "out" / "step.onnx").exists()
    empty = Sequences.of([[1] * 70 + [N_ITEMS] * 3])
    close(Deployed(tmp_path / "out").scores(empty[0].tolist())[0], scores_of(run, empty))
