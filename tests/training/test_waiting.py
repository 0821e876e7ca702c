"""A training on a GPU must not wait for it: what would wait is counted on the CPU."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch.utils._python_dispatch import TorchDispatchMode

from linrec import ops
from linrec.data.dataset.splits import leave_one_out
from linrec.recommender import Recommender
from linrec.training.loop import DivergedError, epoch_batches
from linrec.training.running_loss import RunningLoss
from linrec.training.step import Step
from linrec.training.transfer import Transfer
from tests.training.cases import SMALL, cycle

# on a GPU the result of each has to be known on the host before it can go on
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2"}


class Waiting(TorchDispatchMode):
    """Collects the calls that would wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        masks = name == "index" and any(x is not None and x.dtype == torch.bool for x in args[1])
        if name in WAITING or masks:
            self.calls.append(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def _read_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU in the role of a GPU: losses are read every three steps, and no step looks at one."""

    monkeypatch.setattr(RunningLoss, "is_due", property(lambda self: self.steps >= 3))
    monkeypatch.setattr(ops, "_is_readable", lambda _: False)
    monkeypatch.setattr(Step, "waits", property(lambda _: False, lambda *_: None), raising=False)


@pytest.mark.usefixtures("_read_rarely")
@pytest.mark.parametrize("attention", ["linrec-decay", "linrec"])
def test_a_step_waits_for_nothing(attention: str) -> None:
    trained = Recommender(**SMALL | {"epochs": 1, "attention": attention}).fit(cycle())
    split = leave_one_out(cycle().sequences())
    counts = split.train.item_counts(cycle().n_items)
    step = Step(trained.model, trained.config, counts)
    step.module.train()
    batch = epoch_batches(trained.model, split, trained.config, 0)[0]
    sent = step.transfer.send(batch)
    losses = RunningLoss(torch.device("cpu"))
    with Waiting() as waiting:
        for seed in range(2):
            losses.add(step(sent, seed), sent.n_targets, 0)
    assert waiting.calls == []
    with Waiting() as waiting:
        losses.read()
    assert waiting.calls == ["_local_scalar_dense"]


def test_reading_rarely_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = SMALL | {"epochs": 2}
    plain = Recommender(**settings).fit(cycle(), tmp_path / "plain")
    monkeypatch.setattr(RunningLoss, "is_due", property(lambda self: self.steps >= 3))
    rare = Recommender(**settings).fit(cycle(), tmp_path / "rare")
    for name, value in plain.model.state_dict().items():
        assert torch.equal(rare.model.state_dict()[name], value), name
    first, second = ((tmp_path / run / "history.csv").read_text() for run in ("plain", "rare"))
    losses = [[row.split(",")[1] for row in text.splitlines()[1:]] for text in (first, second)]
    assert np.allclose(*[np.array(each, float) for each in losses], rtol=1e-12)


@pytest.mark.usefixtures("_read_rarely")
def test_a_loss_that_is_seen_late_is_never_saved(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(DivergedError, match=r"loss became (nan|inf)"):
        Recommender(**SMALL | {"learning_rate": 1e30, "epochs": 3}).fit(cycle(), run)
    assert not (run / "checkpoint.safetensors").exists()


def test_batches_are_pinned_and_sent_one_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stream that is none: what is asked of it, and in which order."""
    trained = Recommender(**SMALL | {"epochs": 1}).fit(cycle())
    split = leave_one_out(cycle().sequences())
    batch = epoch_batches(trained.model, split, trained.config, 0)[0]
    transfer = Transfer(Fabric(accelerator="cpu", devices=1))
    order: list[str] = []

    def pinned(x: torch.Tensor) -> torch.Tensor:
        order.append("pinned")
        return x

    monkeypatch.setattr(transfer, "stream", object())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    for key, _ in transfer.ahead([(0, batch), (1, batch)]):
        order.append(f"step {key}")
    at = order.index("step 0")
    assert set(order[:at]) == {"pinned"}
    assert order[at:] == ["step 0", "step 1"]
