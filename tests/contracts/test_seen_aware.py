"""A loss for lists that hide seen items, in every backbone, objective and loss.

Everybody has had the same item first, long before any window of a training, so it competes with no
target. What the loss is told of its vector must not matter then, and it must matter otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from linrec.backbones import BACKBONES
from linrec.data.dataset.splits import Split, leave_one_out
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.losses import ItemVectors
from linrec.losses.config import CONFIGS as LOSSES
from linrec.losses.items import Scored
from linrec.losses.loss import at_targets
from linrec.runs.config import RunConfig, TrainingConfig
from linrec.training.loop import Trainer, epoch_batches
from linrec.types import SequenceBatch
from tests.contracts.cases import EVERY_WAY, N_ITEMS, cycle_features, plain_model

WINDOW = 4
EVERY_LOSS = pytest.mark.parametrize("loss", list(LOSSES))


@cache
def log() -> SequenceStore:
    rng = np.random.default_rng(0)
    rows = [
        (user, f"i{0 if step == 0 else rng.integers(1, N_ITEMS):02d}", 60 * step)
        for user in range(20)
        for step in range(12)
    ]
    events = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    kinds = {"genre": "categorical", "tags": "multi", "year": "numeric"}
    return prepare(events, items=cycle_features(), feature_kinds=kinds)


class Louder(ItemVectors):
    """The items of a model, one of them changed."""

    def __init__(self, usual: ItemVectors, item: int) -> None:
        self.usual, self.item = usual, item

    def all(self) -> Scored:
        vectors, bias = self.usual.all()
        return Scored(self._changed(vectors, torch.arange(len(vectors))), bias)

    def of(self, ids: Tensor) -> Scored:
        vectors, bias = self.usual.of(ids)
        return Scored(self._changed(vectors, ids), bias)

    def _changed(self, vectors: Tensor, ids: Tensor) -> Tensor:
        noise = torch.randn(vectors.shape[1], generator=torch.Generator().manual_seed(0))
        return torch.where((ids == self.item)[:, None], vectors + 3.0 * noise, vectors)


def trainer_of(backbone: str, objective: str, loss: str, aware: bool) -> tuple[Trainer, Split]:
    changes: dict[str, Any] = {"objective": objective, "dropout": 0.0}
    if objective == "cloze":
        changes["mask_ratio"] = 0.0  # or the first item is a target, too
    made = plain_model(backbone, "linrec-decay", **changes)
    kind, sampled = LOSSES[loss], {"negatives": 64} if LOSSES[loss].samples_items else {}
    config = RunConfig(
        model=made.config,
        loss=kind(seen_aware=aware, **sampled),
        training=TrainingConfig(
            window=WINDOW, batch_tokens=64, seen="hide", device="cpu", precision="float32"
        ),
    )
    split = leave_one_out(log().sequences())
    return Trainer(made, log(), split, config), split


def batches_of(trainer: Trainer, split: Split) -> list[SequenceBatch]:
    made = trainer.model.eval()
    batches = epoch_batches(made, split, trainer.config, 0)
    return list(batches.with_seen(trainer.seen))


@EVERY_WAY
@EVERY_LOSS
def test_what_was_seen_competes_with_no_target(backbone: str, objective: str, loss: str) -> None:
    first = int(log().sequences()[0][0])
    for aware in (True, False):
        trainer, split = trainer_of(backbone, objective, loss, aware)
        step, differences = trainer.step, []
        for seed, batch in enumerate(batches_of(trainer, split)):
            if (batch.targets == first).any():
                continue
            with torch.no_grad():
                hidden = trainer.model(*batch.events)
                found = []
                for items in (step.item_vectors, Louder(step.item_vectors, first)):
                    torch.manual_seed(seed)
                    rows, targets = at_targets(hidden, batch.targets)
                    found.append(step.loss(rows, targets, items, batch.seen))
            differences.append((found[1] - found[0]).abs().item())
        assert len(differences) > 3
        assert max(differences) < 1e-6 if aware else max(differences) > 1e-2


@EVERY_WAY
def test_the_softmax_is_over_what_may_be_shown(backbone: str, objective: str) -> None:
    """The whole step against the log of events itself, target by target."""
    trainer, split = trainer_of(backbone, objective, "softmax", aware=True)
    rows = log().sequences()
    numbered = replace(rows, items=np.arange(1, len(rows.items) + 1, dtype=np.int32))
    which = epoch_batches(trainer.model, leave_one_out(numbered), trainer.config, 0)
    vectors, bias = trainer.model.item_vectors(), trainer.model.item_bias()
    for batch, events in zip(batches_of(trainer, split), which, strict=True):
        hidden = trainer.model(*batch.events)
        losses = []
        at = batch.targets != 0
        each = zip(hidden[at], batch.targets[at].tolist(), events.targets[at].tolist(), strict=True)
        for vector, target, number in each:
            event = number - 1
            begin = rows.starts[np.searchsorted(rows.starts, event, side="right") - 1]
            past = set(rows.items[begin:event].tolist()) - {target}
            shown = [item for item in range(1, len(vectors)) if item not in past]
            scores = vectors[shown] @ vector + (0 if bias is None else bias[shown])
            losses.append(-scores.log_softmax(0)[shown.index(target)])
        found = trainer.step.compute_loss(hidden, batch)
        torch.testing.assert_close(found, torch.stack(losses).mean(), rtol=1e-5, atol=1e-5)


def test_no_backbone_is_left_out() -> None:
    assert {name for name, _ in EVERY_WAY.args[1]} == set(BACKBONES)
