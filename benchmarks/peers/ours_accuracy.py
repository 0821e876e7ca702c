"""linrec's default model, trained as `linrec train` does until its validation NDCG@10 is enough."""

from __future__ import annotations

from importlib.metadata import version

import linrec
from benchmarks.peers.common import Goal, begin_goal, finish
from linrec.training.callbacks import Callback, Row


class GoalCallback(Callback):
    def __init__(self, goal: Goal) -> None:
        self.goal = goal

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        del best
        self.goal.epoch(row["seconds"], row["ndcg@10"])
        self.stop_training = self.goal.reached


def main() -> None:
    task, goal = begin_goal()
    data = linrec.SequenceStore.open(f"{task.folder}/data")
    linrec.Recommender(recipe=task.variant).fit(data, callbacks=[GoalCallback(goal)])
    finish({"version": f"linrec {version('linrec')}", **goal.found()})


if __name__ == "__main__":
    main()
