"""Every kind of graph gives in onnxruntime what the model gives in torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from linrec.export.check import TOLERANCE, open_session
from linrec.export.folder import export_onnx
from linrec.recommender import Recommender
from tests.contracts.cases import N_ITEMS
from tests.export.cases import Deployed, run_of, torch_scores

# each backbone and each way a graph is made: at once, cut, both ways, in chunks with a running
# mean; the same for all pairs: python -m tests.export.matrix
PAIRS = [
    ("sasrec", "softmax", {}),
    ("sasrecf", "efficient", {"max_length": 9}),
    ("fdsa", "linrec", {"max_length": 9}),
    ("bert4rec", "linrec-decay", {}),
    ("core", "linear-transformer", {}),
]
LONG = 300  # events, several chunks
RNG = np.random.default_rng(3)


def history(length: int) -> list[int]:
    return RNG.integers(1, N_ITEMS + 1, length).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("backbone", "attention", "changes"), PAIRS)
def test_scores_are_those_of_torch(
    tmp_path: Path, backbone: str, attention: str, changes: dict[str, int]
) -> None:
    run = run_of(tmp_path / "run", backbone, attention, layers=1, **changes)
    exported = export_onnx(run, tmp_path / "out")
    assert max(exported.differences.values()) <= TOLERANCE
    deployed = Deployed(tmp_path / "out")
    assert ("step.onnx" in exported.differences) == (exported.why_no_step is None)
    assert deployed.message.get("why_no_step") == exported.why_no_step
    histories = [history(3), history(1), history(LONG)]
    (found,) = deployed.scores(*histories)
    expected = torch_scores(run, *histories)
    np.testing.assert_allclose(found[:, 1:], expected[:, 1:], rtol=1e-3, atol=1e-3)
    assert (found[:, 0] == -np.inf).all()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("whole") / "run", "sasrec", "linrec-decay", layers=1)


@pytest.fixture(scope="module")
def deployed(run: Path) -> Deployed:
    export_onnx(run, run.with_name("out"), top_k=5)
    return Deployed(run.with_name("out"))


@pytest.mark.slow
def test_the_best_items_are_those_of_recommend(run: Path, deployed: Deployed) -> None:
    histories = [history(4), [], history(LONG)[:40]]
    _, items, scores = deployed.scores(*histories)
    ids = [[deployed.items[index] for index in row] for row in histories]
    found = Recommender.load(run).recommend(ids, k=5).to_dicts()
    shown = [deployed.items[index] for index in items.flatten() if index]
    assert shown == [row["item"] for row in found]
    expected = [row["score"] for row in found]
    np.testing.assert_allclose(scores[items > 0], expected, rtol=1e-3)


@pytest.mark.slow
def test_a_run_that_keeps_seen_items_has_them_among_the_best(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "core", "linrec", layers=1, training={"seen": "keep"})
    histories = [history(4), []]
    for seen in (None, "hide"):
        export_onnx(run, tmp_path / "out", top_k=16, seen=seen, overwrite=True)
        deployed = Deployed(tmp_path / "out")
        assert deployed.message["seen"] == (seen or "keep")
        _, items, _ = deployed.scores(*histories)
        ids = [[deployed.items[index] for index in row] for row in histories]
        found = Recommender.load(run).recommend(ids, k=16, seen=seen).to_dicts()
        assert [deployed.items[i] for i in items.flatten() if i] == [row["item"] for row in found]
        assert (set(histories[0]) <= set(items[0].tolist())) == (seen is None)


@pytest.mark.slow
def test_event_by_event_is_all_at_once(deployed: Deployed) -> None:
    step = open_session(deployed.folder / "step.onnx")
    state, events = deployed.start(2), [history(9), history(9)]
    for item in np.array(events, np.int64).T:
        scores, *after = step.run(None, {"item": item, **state})
        state = dict(zip(state, after, strict=True))
    expected = deployed.scores(*events)[0]
    np.testing.assert_allclose(scores[:, 1:], expected[:, 1:], rtol=1e-3, atol=1e-4)
    # who has no event in a batch keeps the state
    _, *kept = step.run(None, {"item": np.array([0, 1], np.int64), **state})
    for before, after_it in zip(state.values(), kept, strict=True):
        np.testing.assert_allclose(after_it[0], before[0], rtol=1e-6)
    assert not np.allclose(kept[1][1], list(state.values())[1][1])


@pytest.mark.slow
def test_padding_and_batch_mates_change_nothing(deployed: Deployed) -> None:
    one, other = history(5), history(70)
    alone = deployed.scores(one)[0][0]
    together = deployed.scores(one, other)[0][0]
    np.testing.assert_allclose(alone[1:], together[1:], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_nothing_tells_where_the_graphs_were_made(deployed: Deployed) -> None:
    for name in ("model.onnx", "step.onnx"):
        assert b".py" not in (deployed.folder / name).read_bytes()
