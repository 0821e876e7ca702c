"""What each worker of a test runs: a training, and its losses as JSON from the first of them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from linrec.recommender import Recommender
from linrec.training.callbacks import Callback


class Losses(Callback):
    def __init__(self, steps: int) -> None:
        self.steps, self.losses = steps, list[float]()

    def on_batch_end(self, loss: float, targets: int) -> None:
        del targets
        self.losses.append(loss)
        self.stop_training = len(self.losses) >= self.steps


def main(data: str, out: str, settings: str) -> None:
    recorded = Losses(steps=20)
    model = Recommender(**json.loads(settings)).fit(data, callbacks=[recorded])
    assert model.trained is not None
    rows = [row["ndcg@10"] for row in model.trained.progress.history]
    if os.environ.get("RANK", "0") == "0":
        Path(out).write_text(json.dumps({"losses": recorded.losses, "ndcg": rows}))


if __name__ == "__main__":
    main(*sys.argv[1:])
