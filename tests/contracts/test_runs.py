"""A trained pair on disk: saved and loaded, killed and resumed, in half the bits."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from linrec.evaluation.scorer import model_scorer
from linrec.recommender import Recommender, load
from linrec.runs.run import CHECKPOINT
from linrec.scoring import item_scores
from tests.contracts.cases import EVERY_ATTENTION, EVERY_BACKBONE, cycle, settings
from tests.contracts.conftest import Fitted
from tests.training.cases import Recorder, digest, history_without_times

SOME = [["i03", "i04"], ["i09"], ["i15", "i00", "i01", "i02"]]


def scores(recommender: Recommender) -> Tensor:
    with torch.inference_mode():
        return model_scorer(recommender.model)(cycle().sequences())


def assert_same_answers(found: Recommender, expected: Recommender) -> None:
    assert found.config.model == expected.config.model
    assert found.config.training == expected.config.training
    assert torch.equal(scores(found), scores(expected))
    for who in (SOME, cycle().users.ids):
        requested = {"who": who, "k": 16, "data": cycle()}
        assert found.recommend(**requested).table.equals(expected.recommend(**requested).table)


def test_saved_and_loaded_is_the_same_model(fitted: Fitted, tmp_path: Path) -> None:
    fitted.recommender.save(tmp_path / "saved")
    assert_same_answers(load(tmp_path / "saved"), fitted.recommender)
    assert_same_answers(load(fitted.run), fitted.recommender)


def test_killed_and_resumed_is_the_same_run(fitted: Fitted, tmp_path: Path) -> None:
    run = Path(shutil.copytree(fitted.killed, tmp_path / "run"))
    assert digest(run / CHECKPOINT) != digest(fitted.run / CHECKPOINT)
    recorder = Recorder()
    again = Recommender(**settings(fitted.backbone, fitted.attention, time_gaps=fitted.time_gaps))
    again.fit(cycle(), run, resume=True, callbacks=[recorder])
    assert len(recorder.rows) == 1
    assert 0 < recorder.steps < fitted.steps
    assert digest(run / "model.safetensors") == digest(fitted.run / "model.safetensors")
    assert history_without_times(run).equals(history_without_times(fitted.run))
    last, expected = (safetensors.torch.load_file(at / CHECKPOINT) for at in (run, fitted.run))
    assert last.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in last.items())


def test_bfloat16_scores_are_float32_scores_in_fewer_digits(fitted: Fitted) -> None:
    """A number has 8 bits, and not many roundings of 1 in 256 add up."""
    model = fitted.recommender.model.eval()
    exact = scores(fitted.recommender)[:, 1:]
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        encoded = model.encode(cycle().sequences())
        rough = item_scores(encoded, model.item_vectors(), model.item_bias())[:, 1:]
    assert not torch.equal(rough, exact)
    assert (rough - exact).abs().max() < 5 / 256 * exact.std()


@EVERY_BACKBONE
@EVERY_ATTENTION
def test_training_in_bfloat16_stays_finite(backbone: str, attention: str) -> None:
    small = {"precision": "bfloat16", "epochs": 1, "width": 8, "batch_tokens": 256}
    found = Recommender(**settings(backbone, attention) | small).fit(cycle(users=8))
    assert found.trained is not None
    assert np.isfinite(found.trained.progress.history[0]["loss"])
    for value in found.model.parameters():
        assert value.dtype == torch.float32
        assert value.isfinite().all()
        assert value.grad is not None
        assert value.grad.isfinite().all()
