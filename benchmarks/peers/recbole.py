"""RecBole's SASRec, by its own data, trainer and evaluation; with softmax or the LinRec layer."""

from __future__ import annotations

import math
from typing import Any

import torch
from recbole import __version__
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.model.layers import MultiHeadAttention
from recbole.utils import get_model, get_trainer, init_seed
from torch import Tensor
from torch.nn.functional import elu

from benchmarks.peers.common import LOG, Bounded, Clock, Task, begin, finish, timed, trained


def main() -> None:
    task = begin()
    if task.variant == "linrec":
        MultiHeadAttention.forward = released_linrec
    config = Config(model="SASRec", dataset=LOG, config_dict=settings(task))
    init_seed(0, reproducibility=True)
    seconds, (train, test) = timed(lambda: build(config))
    torch.set_num_threads(task.threads)
    model = get_model("SASRec")(config, train.dataset)
    trainer = get_trainer(config["MODEL_TYPE"], "SASRec")(config, model)
    found: dict[str, Any] = {"version": f"RecBole {__version__}", "setup_seconds": seconds}
    if task.seconds:
        clock = Clock(task)
        trainer._train_epoch(Bounded(train, clock, len), 0)
        found |= trained(clock)
    seconds, metrics = timed(lambda: trainer.evaluate(test, load_best_model=False))
    finish(found | {"eval_seconds": seconds, "users": len(test.dataset), "metrics": dict(metrics)})


def build(config: Config) -> tuple[Any, Any]:
    """What RecBole does before it can train: one row per target, each with its history."""
    train, _, test = data_preparation(config, create_dataset(config))
    return train, test


def settings(task: Task) -> dict[str, Any]:
    return {
        "data_path": task.folder,
        "checkpoint_dir": f"{task.folder}/saved",
        "USER_ID_FIELD": "user_id",
        "ITEM_ID_FIELD": "item_id",
        "TIME_FIELD": "timestamp",
        "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
        "MAX_ITEM_LIST_LENGTH": task.length,
        "hidden_size": task.width,
        "inner_size": task.inner,
        "n_layers": task.layers,
        "n_heads": task.heads,
        "hidden_dropout_prob": task.dropout,
        "attn_dropout_prob": task.dropout,
        "train_neg_sample_args": None,
        "loss_type": "CE",
        "train_batch_size": task.batch,
        "eval_batch_size": task.eval_batch,
        "eval_args": {
            "split": {"LS": "valid_and_test"},
            "order": "TO",
            "group_by": "user",
            "mode": "full",
        },
        "metrics": ["Recall", "MRR", "NDCG"],
        "topk": [task.k],
        "valid_metric": f"NDCG@{task.k}",
        "use_gpu": False,
        "show_progress": False,
        "state": "CRITICAL",
        "worker": 0,
    }


def released_linrec(self: MultiHeadAttention, x: Tensor, attention_mask: Tensor) -> Tensor:
    """The formula that LinRec's authors released: unit rows of ELU, no mask of any kind."""
    del attention_mask
    q, k, v = (
        self.transpose_for_scores(part(x)).transpose(1, 2)
        for part in (self.query, self.key, self.value)
    )
    q, k = (unit(elu(rows)) for rows in (q, k))
    context = q @ (k.mT @ v) / math.sqrt(self.attention_head_size)
    mixed = self.dense(context.transpose(1, 2).flatten(2))
    return self.LayerNorm(self.out_dropout(mixed) + x)


def unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=-1, keepdim=True)


if __name__ == "__main__":
    main()
