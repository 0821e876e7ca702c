"""The second training, on all events: its steps, its run, and resuming it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from linrec.backbones import build
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.splits import Split
from linrec.data.dataset.store import SequenceStore
from linrec.recommender import Recommender, load
from linrec.runs.run import FINAL, Run
from linrec.training.callbacks import Callback
from linrec.training.loop import Schedule, epoch_batches, step_seed
from linrec.training.step import Step
from linrec.types import InputError
from tests.cli.conftest import linrec, refused
from tests.training.cases import SMALL, contents, cycle, digest

__all__ = ["linrec", "refused"]

SETTINGS = SMALL | {"epochs": 3, "dropout": 0.1, "batch_tokens": 48, "schedule": "linear"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SequenceStore:
    return cycle(tmp_path_factory.mktemp("final") / "data", users=12)


@pytest.fixture(scope="module")
def validated(store: SequenceStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "validated"
    Recommender(**SETTINGS).fit(store, run)
    return run


@pytest.fixture(scope="module")
def final(store: SequenceStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "final"
    Recommender(**SETTINGS, final=True).fit(store, run)
    return run


def test_it_takes_the_steps_of_the_best_epoch_on_all_events(
    store: SequenceStore, validated: Path, final: Path
) -> None:
    """Slow twin: the steps written out."""
    config = load(validated).config
    split = config.split.of(store)
    torch.manual_seed(config.training.seed)
    model = build(config.model, ItemFeatures.ids(store.n_items))
    whole = Split(store.sequences(), split.valid, split.test)
    step, schedule = (
        Step(model, config, whole.train.item_counts(store.n_items)),
        Schedule.of(config.training),
    )
    best = Run.open(validated).progress.best_epoch
    shares = [
        schedule.share(epoch, index, steps)
        for epoch in range(best)
        for steps in [len(epoch_batches(model, split, config, epoch))]
        for index in range(steps)
    ]
    ahead = (
        (epoch, index, batch)
        for epoch in range(best + 1)
        for index, batch in enumerate(epoch_batches(model, whole, config, epoch))
    )
    step.module.train()
    for share, (epoch, index, batch) in zip(shares, ahead, strict=False):
        step(batch, step_seed(config.training.seed, epoch, index), share)
    found = Run.open(final).load_weights()
    for name, value in model.state_dict().items():
        assert torch.equal(found[name], value), name
    assert digest(final / "model.safetensors") != digest(validated / "model.safetensors")


def test_the_figures_stay_those_of_the_validated_model(
    validated: Path, final: Path, store: SequenceStore
) -> None:
    kept, first = (Run.open(run).load_evaluation("test-full") for run in (final, validated))
    assert kept[0] == first[0]
    assert kept[1].equals(first[1])
    assert Run.open(final).description.final
    assert not Run.open(validated).description.final
    assert "these are the figures of the validated model" in (final / "report.html").read_text()
    assert "of the validated model" not in (validated / "report.html").read_text()
    assert not (final / FINAL).exists()
    with pytest.raises(InputError, match="was trained on all events, the held-out ones too"):
        load(final).evaluate()
    assert len(load(final).recommend(store.users.ids[:2].to_list(), k=3)) == 6


def test_a_validated_run_can_be_made_final(
    store: SequenceStore, validated: Path, final: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    Recommender(**SETTINGS).fit(store, run)
    more = Recommender(**SETTINGS, final=True).fit(store, run, resume=True)
    assert digest(run / "model.safetensors") == digest(final / "model.safetensors")
    assert more.test_evaluation == Run.open(validated).load_evaluation("test-full")[0]
    before = contents(run)
    again = Recommender(**SETTINGS, final=True).fit(store, run, resume=True)
    assert again.test_evaluation == more.test_evaluation
    assert contents(run)["model.safetensors"] == before["model.safetensors"]
    with pytest.raises(InputError, match="was trained on all events"):
        again.evaluate()


class StopInTheSecond(Callback):
    """Stops after some steps of the second training."""

    def __init__(self, steps: int) -> None:
        self.left, self.second = steps, False

    def on_message(self, message: str) -> None:
        self.second |= message.startswith("Training again on all")

    def on_batch_end(self, loss: float, targets: int) -> None:
        del loss, targets
        self.left -= self.second
        self.stop_training = self.second and self.left <= 0


@pytest.mark.parametrize("steps", [1, 5])
def test_it_resumes_exactly(
    store: SequenceStore, validated: Path, final: Path, tmp_path: Path, steps: int
) -> None:
    run = tmp_path / "run"
    stopped = Recommender(**SETTINGS, final=True)
    stopped.fit(store, run, callbacks=[StopInTheSecond(steps)])
    assert stopped.trained is not None
    assert stopped.trained.interrupted
    assert digest(run / "model.safetensors") == digest(validated / "model.safetensors")
    assert not Run.open(run).description.final
    Recommender(**SETTINGS, final=True).fit(store, run, resume=True)
    assert digest(run / "model.safetensors") == digest(final / "model.safetensors")
    assert Run.open(run).finished


def test_a_run_killed_before_its_last_weights_is_not_evaluated_and_resumes(
    store: SequenceStore, final: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_write_config", _then_die(Run._write_config))
        with pytest.raises(RuntimeError, match="killed"):
            Recommender(**SETTINGS, final=True).fit(store, run)
    with pytest.raises(InputError, match="was trained on all events"):
        load(run).evaluate()
    Recommender(**SETTINGS, final=True).fit(store, run, resume=True)
    assert digest(run / "model.safetensors") == digest(final / "model.safetensors")


def _then_die(write):
    def written(run: Run) -> None:
        write(run)
        if run.description.final:
            raise RuntimeError("killed")

    return written


def test_in_memory(store: SequenceStore, final: Path) -> None:
    model = Recommender(**SETTINGS, final=True).fit(store)
    weights = Run.open(final).load_weights()
    assert all(
        torch.equal(weights[name], value) for name, value in model.model.state_dict().items()
    )
    with pytest.raises(InputError, match="was trained on all events"):
        model.evaluate()


def test_from_the_command_line(store: SequenceStore, tmp_path: Path, linrec, refused) -> None:
    run = tmp_path / "run"
    flags = ["--recipe", "small", "--epochs", "1", "--width", "16", "--device", "cpu"]
    trained = linrec("train", store.path, "--out", run, *flags, "--final")
    assert trained.code == 0, trained.err
    assert f"Training again on all {store.n_events:,} events for" in trained.out
    assert "trained on all events" in refused("evaluate", run)
    assert linrec("recommend", run, "--user", "100").code == 0
