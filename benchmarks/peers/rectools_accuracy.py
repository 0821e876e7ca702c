"""RecTools' SASRec or HSTU, trained epoch by epoch until its validation NDCG@10 is high enough."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import pandas as pd
import rectools
from rectools import Columns
from rectools.dataset import Dataset
from rectools.dataset.context import get_context
from rectools.metrics import NDCG
from rectools.models import HSTUModel, SASRecModel

from benchmarks.peers.common import begin_goal, finish, timed

MODELS = {"sasrec": SASRecModel, "hstu": HSTUModel}


def main() -> None:
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    task, goal = begin_goal()
    histories, times = task.histories(), task.times()
    model = MODELS[task.variant](
        n_blocks=task.layers, n_heads=task.heads, n_factors=task.width, dropout_rate=task.dropout,
        session_max_len=task.length, loss="softmax", batch_size=task.batch,
        recommend_batch_size=task.eval_batch, lr=1e-3, verbose=0,
    )  # fmt: skip
    train = Dataset.construct(events_of(histories, times, slice(None, -2)))
    while not goal.reached:
        seconds, _ = timed(lambda: model.fit_partial(train, min_epochs=1, max_epochs=1))
        goal.epoch(seconds, ndcg(model, train, histories, times, task.k))
    finish({"version": f"RecTools {rectools.__version__}", **goal.found()})


def ndcg(
    model: Any, train: Dataset, histories: list[np.ndarray], times: list[np.ndarray], k: int
) -> float:
    """Of the validation events: full ranking, seen items hidden, their times given to HSTU."""
    targets = events_of(histories, times, slice(-2, -1))
    context = get_context(targets) if isinstance(model, HSTUModel) else None
    users = targets[Columns.User].to_numpy()
    listed = model.recommend(users, train, k=k, filter_viewed=True, context=context)
    known = targets[targets[Columns.Item].isin(train.item_id_map.external_ids)]
    # an item without a training event is a miss for every library
    return float(NDCG(k).calc(listed, known)) * len(known) / len(targets)


def events_of(histories: list[np.ndarray], times: list[np.ndarray], part: slice) -> pd.DataFrame:
    rows, moments = [items[part] for items in histories], [one[part] for one in times]
    lengths = [len(items) for items in rows]
    # a microsecond per event keeps the order of equal times, whatever the sort
    offsets = np.concatenate([np.arange(len(items))[part] for items in histories])
    return pd.DataFrame(
        {
            Columns.User: np.repeat(np.arange(len(rows)), lengths),
            Columns.Item: np.concatenate(rows),
            Columns.Weight: 1.0,
            Columns.Datetime: pd.to_datetime(
                1_000_000 * np.concatenate(moments).astype(np.int64) + offsets, unit="us"
            ),
        }
    )


if __name__ == "__main__":
    main()
