"""How much a repeat head counts is chosen on validation, once, and kept with the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from linrec.data.dataset.splits import leave_one_out
from linrec.layers.repeats import RepeatHead
from linrec.recommender import Recommender, load
from linrec.runs.tensors import pack_tensors
from linrec.training.calibration import MAX_STEPS, STEP, calibrate
from linrec.training.loop import validate
from tests.training.cases import SMALL
from tests.training.test_repeats import ON, favourites, fit


@pytest.mark.parametrize(
    ("best", "chosen"),
    [(1.0, 1.0), (STEP**3, STEP**3), (STEP**-2, STEP**-2), (1e9, STEP**MAX_STEPS)],
)
def test_the_best_scale_is_found(best: float, chosen: float) -> None:
    head = RepeatHead(4, timed=False)

    def figure() -> float:
        return -abs(float(torch.log(head.scale)) - float(torch.log(torch.tensor(best))))

    plain, found = calibrate(head, figure)
    assert float(head.scale) == pytest.approx(chosen)
    assert plain == pytest.approx(-abs(float(torch.log(torch.tensor(best)))))
    assert found == pytest.approx(figure())
    assert found >= plain


def test_only_a_trained_model_reads_it() -> None:
    head, hidden = RepeatHead(4, timed=True), torch.randn(3, 4)
    torch.nn.init.normal_(head.weight)
    plain = head.eval()(hidden)
    head.scale.fill_(2.0)
    assert torch.equal(head(hidden), 2 * plain)
    assert torch.equal(head.train()(hidden), plain)


def test_weights_of_earlier_versions_have_none() -> None:
    head = RepeatHead(4, timed=True)
    head.scale.fill_(2.0)
    before = {name: value for name, value in head.state_dict().items() if name != "scale"}
    assert len(before) == 2
    head.load_state_dict(before)
    assert float(head.scale) == 1.0


@pytest.fixture
def overconfident(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that counts for less in training than it should in use."""
    monkeypatch.setattr(RepeatHead, "forward", _timid)


def _timid(head: RepeatHead, hidden: torch.Tensor) -> torch.Tensor:
    weights = torch.nn.functional.linear(hidden.to(head.weight.dtype), head.weight, head.bias)
    return weights if head.training else 0.2 * weights * head.scale


@pytest.mark.usefixtures("overconfident")
def test_it_is_kept_with_the_run(tmp_path: Path) -> None:
    store, out = favourites(), tmp_path / "run"
    made, said = fit(store, out, epochs=2, **ON)
    scale = float(made.model.repeat.scale)
    assert scale > 1
    best = made.trained.progress.best
    assert made.trained.validated > best
    (message,) = (line for line in said if "the repeat head counts" in line)
    assert f"{scale:.3g} times" in message
    assert f"{made.trained.validated:.4f} instead of {best:.4f}" in message
    loaded = load(out)
    assert float(loaded.model.repeat.scale) == scale
    split = leave_one_out(store.sequences())
    assert validate(loaded.model, store, split, "keep")["ndcg@10"] == made.trained.validated
    before = pack_tensors(loaded.model.state_dict())
    again = Recommender(**SMALL | {"epochs": 2, "learning_rate": 0.01} | ON)
    again.fit(store, out, resume=True)  # after its end: nothing is chosen twice
    assert pack_tensors(load(out).model.state_dict()) == before


@pytest.mark.usefixtures("overconfident")
def test_a_training_on_all_events_takes_it_over() -> None:
    validated, _ = fit(favourites(), epochs=2, **ON)
    made, _ = fit(favourites(), epochs=2, final=True, **ON)
    assert float(made.model.repeat.scale) == float(validated.model.repeat.scale) > 1
