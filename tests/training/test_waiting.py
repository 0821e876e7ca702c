"""A training on a GPU must not wait for it: what would wait is an error on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.accelerators import CPUAccelerator
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from linrec.data.dataset.splits import leave_one_out
from linrec.data.preparing.prepare import prepare
from linrec.ops import fused
from linrec.recommender import Recommender
from linrec.training import step as step_of_training
from linrec.training.loop import DivergedError, Trainer, epoch_batches
from linrec.training.running_loss import RunningLoss
from linrec.training.step import Step
from linrec.training.transfer import Transfer
from tests.training.cases import SMALL, cycle, cycle_events, cycle_items

# what a step consists of; the sizes of SMALL, and the rest as the default recipe has it
RECIPE = {
    name: SMALL[name]
    for name in ("width", "heads", "layers", "inner", "positions", "batch_tokens", "device")
}
KEPT = {"seen": "keep", "repeat_head": "on"}
STEPS: dict[str, dict[str, Any]] = {
    "linrec-decay": SMALL,
    "linrec": SMALL | {"attention": "linrec"},
    "bidirectional": SMALL | {"backbone": "bert4rec"},
    "softmax": SMALL | {"attention": "softmax"},
    "bfloat16": SMALL | {"precision": "bfloat16"},
    "dropout": SMALL | {"dropout": 0.2},
    "clip-norm": SMALL | {"clip_norm": 1.0},
    "ema": SMALL | {"ema": 0.9},
    "schedule": SMALL | {"schedule": "linear", "warmup": 2},
    "seen-aware": SMALL | {"seen_aware": True},
    "repeat head": SMALL | KEPT,
    "repeat head, time": SMALL | KEPT | {"time_gaps": True},
    "sampled softmax": SMALL | {"loss": "sampled-softmax"},
    "gbce": SMALL | {"loss": "gbce"},
    "recipe": RECIPE | {"precision": "bfloat16", "seen": "hide"},
    "recipe, all else": RECIPE | KEPT | {"precision": "bfloat16", "ema": 0.9, "clip_norm": 1.0},
}


class Made(TorchFunctionMode):
    """Collects tensors that are made on the device from numbers on the host."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        made = func in (torch.tensor, torch.as_tensor) and not isinstance(args[0], torch.Tensor)
        if made and given.get("device") is not None:
            self.calls.append(func.__name__)
        return func(*args, **given)


class Copies(TorchDispatchMode):
    """Collects what goes from the host to the device, which waits unless memory is pinned."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor)]
        name = func._schema.name.split("::")[1]
        # a number on the host is an argument like any other, unless it is copied
        if len({x.device for x in tensors if x.dim() or "copy" in name}) > 1:
            self.calls.append(name)
        return out


class _Autocast(torch.autocast):
    """Torch has none for the meta device."""

    def __init__(self, device_type: str, *args: Any, **options: Any) -> None:
        super().__init__("cpu" if device_type == "meta" else device_type, *args, **options)


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on trainings run on torch's meta device, in the role of a GPU: it has shapes and no
    numbers, so whatever has to know a number on the host is an error. Kernels are operators there.
    """

    def move() -> None:
        made = step_of_training.make_fabric

        def fabric(*arguments: Any) -> Fabric:
            found = made(*arguments)
            found._strategy._root_device = torch.device("meta")
            return found

        monkeypatch.setattr(step_of_training, "make_fabric", fabric)
        monkeypatch.setattr(CPUAccelerator, "setup_device", lambda *_: None)
        monkeypatch.setattr(torch, "autocast", _Autocast)

    return move


@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "torch"])
@pytest.mark.parametrize("settings", STEPS.values(), ids=STEPS)
def test_a_step_waits_for_nothing(
    settings: dict[str, Any],
    kernels: bool,
    far_away: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forward and backward pass, clipping, optimizer, average and the sum of losses."""
    days = cycle_events().with_columns(time=pl.col("time") * 86_400)
    store = prepare(days, items=cycle_items(), times="real")
    split = leave_one_out(store.sequences())
    trained = Recommender(**settings | {"epochs": 1}).fit(store)
    far_away()
    if kernels:
        monkeypatch.setattr(fused, "covers", lambda rule, *_: rule is not None)
    trainer = Trainer(trained.model, store, split, trained.config)
    step, losses = trainer.step, trainer.losses
    batches = epoch_batches(trainer.model, split, trained.config, 0)
    batches = batches.with_seen(trainer.seen, trainer.past, trainer.weights)
    step.module.train()
    sent = step.transfer.send(batches[0])
    step(sent, seed=0)  # what all steps share goes there with the first
    copies: list[str] = []
    with Copies(copies), Made(copies):
        for seed in range(2):
            losses.add(step(sent, seed, 0.5), sent.n_targets, 0)
    assert copies == []
    assert losses.last.device.type == "meta"
    assert not losses.is_due
    with pytest.raises(RuntimeError, match="meta"):
        losses.read()


def test_what_waits_is_found() -> None:
    """The test above would fail for each of these."""
    there = torch.ones(3, device="meta")
    waiting: list[Callable[[], object]] = [
        lambda: there.sum().item(),
        lambda: bool(there.any()),
        lambda: there[there > 0],
        there.nonzero,
        there.unique,
        lambda: there.repeat_interleave(there.long()),
        there.cpu,
    ]
    for each in waiting:
        with pytest.raises((RuntimeError, NotImplementedError)):
            each()
    copies: list[str] = []
    with Copies(copies), Made(copies):
        torch.ones(3).to("meta")
        torch.tensor([1.0, 2.0], device="meta")
        there.add_(torch.tensor(2.0))  # a number on the host
    assert copies == ["_to_copy", "tensor"]


@pytest.fixture
def _read_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU in the role of a GPU: losses are read every three steps, and no step looks at one."""

    monkeypatch.setattr(RunningLoss, "is_due", property(lambda self: self.steps >= 3))
    monkeypatch.setattr(Step, "waits", property(lambda _: False, lambda *_: None), raising=False)


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
