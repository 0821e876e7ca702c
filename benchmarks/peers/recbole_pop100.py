"""RecBole's own pop100 evaluation of scores that another model gave.

Reads scores.npy, [users, items + 1], from the folder of the task. RecBole splits the log, draws the
candidates, ranks and computes the metrics; only `predict` is replaced, by a look into the scores.
What it drew and the rank it gave each user are left in recbole-pop100.npz.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from recbole import __version__
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.utils import get_model, get_trainer, init_seed
from torch import Tensor

from benchmarks.peers.common import LOG, begin, finish
from benchmarks.peers.recbole import settings

SEED = 0
DRAWS = 100


def main() -> None:
    task = begin()
    scores = np.load(Path(task.folder) / "scores.npy")
    longest = min(DRAWS + 1, scores.shape[1] - 1)
    mode = {"eval_args": settings(task)["eval_args"] | {"mode": "pop100"}}
    # a list of all candidates and the target shows the rank of every user
    wanted = {"topk": [task.k, longest], "metrics": ["Recall", "MRR", "NDCG"]}
    config = Config(
        model="SASRec", dataset=LOG, config_dict={**settings(task), **mode, **wanted, "seed": SEED}
    )
    init_seed(SEED, reproducibility=True)
    _, _, test = data_preparation(config, create_dataset(config))
    model = get_model("SASRec")(config, test.dataset)
    trainer = get_trainer(config["MODEL_TYPE"], "SASRec")(config, model)
    given = Given(scores, test.dataset)
    model.predict = given.predict
    ranks = Ranks(trainer.evaluator)
    metrics = trainer.evaluate(test, load_best_model=False)
    asked = given.asked()
    np.savez(Path(task.folder) / "recbole-pop100.npz", ranks=ranks.ranks, **asked)
    found = {name: metrics[name] for name in (f"recall@{task.k}", f"ndcg@{task.k}")}
    found["mrr"] = metrics[f"mrr@{longest}"]
    finish({"version": f"RecBole {__version__}", "metrics": found})


class Given:
    """A model whose scores are known already; it remembers what it was asked for."""

    def __init__(self, scores: np.ndarray, dataset: Any) -> None:
        self.scores = scores
        self.fields = (dataset.uid_field, dataset.iid_field)
        # our numbers are RecBole's tokens; its padding has none
        self.numbers = [
            np.array([0, *(int(token) for token in dataset.field2id_token[field][1:])])
            for field in self.fields
        ]
        self.pairs: list[tuple[np.ndarray, np.ndarray]] = []

    def predict(self, interaction: Any) -> Tensor:
        users, items = (
            numbers[interaction[field].numpy()]
            for numbers, field in zip(self.numbers, self.fields, strict=True)
        )
        self.pairs.append((users, items))
        return torch.from_numpy(self.scores[users - 1, items])

    def asked(self) -> dict[str, np.ndarray]:
        """Per user, in RecBole's order: the user, the target and the candidates that were drawn."""
        users, items = (np.concatenate(part) for part in zip(*self.pairs, strict=True))
        rows = users.reshape(-1, DRAWS + 1)
        if (rows != rows[:, :1]).any():
            raise SystemExit("RecBole did not ask for one target and 100 candidates per user")
        items = items.reshape(-1, DRAWS + 1)
        return {"users": rows[:, 0] - 1, "targets": items[:, 0], "candidates": items[:, 1:]}


class Ranks:
    """The place of each user's target in RecBole's list, taken from what its metrics are of."""

    def __init__(self, evaluator: Any) -> None:
        self.ranks = np.zeros(0, np.int64)
        computed = evaluator.evaluate

        def evaluate(collected: Any) -> Any:
            hits = collected.get("rec.topk").numpy()[:, :-1]
            self.ranks = np.where(hits.any(1), hits.argmax(1), DRAWS + 1)
            return computed(collected)

        evaluator.evaluate = evaluate


if __name__ == "__main__":
    main()
