"""RePlay's SASRec with its cross-entropy, by its own Lightning module and metrics.

Batches are cut here from memory, in the form RePlay's models take them: its Parquet loader is not
part of the measurement.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import lightning
import numpy as np
import torch
from replay.data import FeatureHint, FeatureSource, FeatureType
from replay.data.nn import TensorFeatureInfo, TensorFeatureSource, TensorSchema
from replay.nn.lightning import LightningModule
from replay.nn.lightning.callback import ComputeMetricsCallback
from replay.nn.lightning.postprocessor import SeenItemsFilter
from replay.nn.sequential import SasRec
from torch import Tensor
from torch.utils.data import DataLoader

from benchmarks.peers.common import Bounded, Clock, Task, begin, finish, timed, trained

Batch = dict[str, Any]


def main() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    task = begin()
    histories = task.histories()
    n_items = int(max(items.max() for items in histories))
    model = LightningModule(
        SasRec.from_params(
            schema_of(n_items, task.width), embedding_dim=task.width, num_heads=task.heads,
            num_blocks=task.layers, max_sequence_length=task.length, dropout=task.dropout,
            hidden_dim=task.inner,
        )
    )  # fmt: skip
    metrics = ComputeMetricsCallback(
        ["recall", "ndcg", "mrr"], ks=[task.k], postprocessors=[SeenItemsFilter(n_items + 1)],
        verbose=False,
    )  # fmt: skip
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[metrics],
    )  # fmt: skip
    clock = Clock(task)
    trainer.fit(model, Bounded(training_batches(histories, task), clock, count))
    found: dict[str, Any] = {"version": f"RePlay {version('replay-rec')}", **trained(clock)}
    seconds, figures = timed(
        lambda: trainer.test(model, once(test_batches(histories, task)), verbose=False)
    )
    finish(found | {"eval_seconds": seconds, "users": len(histories), "metrics": figures[0]})


def once(batches: Iterator[Batch]) -> DataLoader[Batch]:
    """Lightning takes a bare list for several loaders."""
    return DataLoader(list(batches), batch_size=None)


def schema_of(n_items: int, width: int) -> TensorSchema:
    item = TensorFeatureInfo(
        "item_id",
        is_seq=True,
        feature_type=FeatureType.CATEGORICAL,
        embedding_dim=width,
        padding_value=0,
        cardinality=n_items + 1,
        feature_hint=FeatureHint.ITEM_ID,
        feature_sources=[TensorFeatureSource(FeatureSource.INTERACTIONS, "item_id")],
    )
    return TensorSchema([item])


def count(batch: Batch) -> int:
    return int(batch["target_padding_mask"].sum())


def training_batches(histories: list[np.ndarray], task: Task) -> Iterator[Batch]:
    """The last events of each user, every one of them predicted from those before it."""
    order = np.random.default_rng(0).permutation(len(histories))
    for start in range(0, len(order), task.batch):
        some = [histories[row][:-2] for row in order[start : start + task.batch]]
        rows = padded(some, task.length + 1)
        items, following = rows[:, :-1], rows[:, 1:]
        yield {
            "feature_tensors": {"item_id": items},
            "padding_mask": items > 0,
            "positive_labels": following[..., None],
            "target_padding_mask": ((items > 0) & (following > 0))[..., None],
        }


def test_batches(histories: list[np.ndarray], task: Task) -> Iterator[Batch]:
    for start in range(0, len(histories), task.eval_batch):
        some = histories[start : start + task.eval_batch]
        items = padded([row[:-1] for row in some], task.length)
        yield {
            "feature_tensors": {"item_id": items},
            "padding_mask": items > 0,
            "ground_truth": torch.tensor([[row[-1]] for row in some]),
            "seen_ids": padded([row[:-1] for row in some], max(map(len, some)), pad=-1),
        }


def padded(rows: list[np.ndarray], width: int, pad: int = 0) -> Tensor:
    table = np.full((len(rows), width), pad, np.int64)
    for row, items in zip(table, rows, strict=True):
        last = items[-width:]
        row[width - len(last) :] = last
    return torch.from_numpy(table)


if __name__ == "__main__":
    main()
