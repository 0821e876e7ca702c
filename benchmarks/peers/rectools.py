"""RecTools' SASRec with its softmax loss, by its own fit, recommend and metrics.

Its SASRec has a feed-forward as wide as the model: half of what the others compute there.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import pandas as pd
import rectools
from rectools import Columns
from rectools.dataset import Dataset
from rectools.metrics import MRR, NDCG, Recall, calc_metrics
from rectools.models import SASRecModel

from benchmarks.peers.common import Bounded, Clock, Task, begin, finish, timed, trained


def main() -> None:
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    task = begin()
    histories = task.histories()
    model = SASRecModel(
        n_blocks=task.layers, n_heads=task.heads, n_factors=task.width, dropout_rate=task.dropout,
        session_max_len=task.length, loss="softmax", batch_size=task.batch,
        recommend_batch_size=task.eval_batch, epochs=1, lr=1e-3, verbose=0,
    )  # fmt: skip
    clock = Clock(task)
    batches = model.data_preparator.get_dataloader_train
    model.data_preparator.get_dataloader_train = lambda: Bounded(batches(), clock, count)
    model.fit(Dataset.construct(events_of(histories, 2)))
    found: dict[str, Any] = {"version": f"RecTools {rectools.__version__}", **trained(clock)}
    seconds, metrics = timed(lambda: evaluated(model, histories, task))
    finish(found | {"eval_seconds": seconds, "users": len(histories), "metrics": metrics})


def count(batch: dict[str, Any]) -> int:
    return int((batch["y"] != 0).sum())


def events_of(histories: list[np.ndarray], held_out: int) -> pd.DataFrame:
    rows = [items[: len(items) - held_out] for items in histories]
    lengths = [len(items) for items in rows]
    return pd.DataFrame(
        {
            Columns.User: np.repeat(np.arange(len(rows)), lengths),
            Columns.Item: np.concatenate(rows),
            Columns.Weight: 1.0,
            Columns.Datetime: pd.to_datetime(
                np.concatenate([np.arange(length) for length in lengths]), unit="s"
            ),
        }
    )


def evaluated(model: SASRecModel, histories: list[np.ndarray], task: Task) -> dict[str, float]:
    """Full ranking, seen items hidden."""
    users = np.arange(len(histories))
    dataset = Dataset.construct(events_of(histories, 1))
    listed = model.recommend(users, dataset, k=task.k, filter_viewed=True)
    last = pd.DataFrame({Columns.User: users, Columns.Item: [items[-1] for items in histories]})
    metrics = {"recall": Recall(task.k), "ndcg": NDCG(task.k), "mrr": MRR(task.k)}
    return {name: float(value) for name, value in calc_metrics(metrics, listed, last).items()}


if __name__ == "__main__":
    main()
