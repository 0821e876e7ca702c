"""linrec's SASRec, with the attention that the task names or as a recipe has it, trained and
evaluated by linrec itself.
"""

from __future__ import annotations

import tempfile
from functools import partial
from importlib.metadata import version
from typing import Any

from benchmarks.peers.common import Clock, Task, begin, finish, timed, trained
from linrec.backbones import Backbone, ModelConfig, build
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.splits import Split, leave_one_out
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.evaluation import RankOptions, rank_targets
from linrec.evaluation.metrics import means
from linrec.evaluation.scorer import model_scorer
from linrec.runs.config import RunConfig, TrainingConfig
from linrec.runs.recipes import recipe
from linrec.training.callbacks import Callback, CallbackList
from linrec.training.loop import Trainer
from linrec.training.precision import with_precision

RECIPES = ("default",)  # variants that are no attention: a recipe as it ships


class Enough(Exception):  # noqa: N818 - nothing is wrong
    """The training was long enough."""


class Timekeeper(Callback):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_batch_end(self, loss: float, targets: int) -> None:
        del loss
        if self.clock.step(targets):
            raise Enough

    def on_validation_batch_end(self, done: int, total: int) -> None:  # noqa: ARG002
        raise Enough  # no peer's figure holds a validation


def main() -> None:
    task = begin()
    with tempfile.TemporaryDirectory() as folder:
        # the log's times are places in the history; a model that reads times takes as long on them
        seconds, store = timed(lambda: prepare(task.inter, f"{folder}/data", times="real"))
        split = leave_one_out(store.sequences())
        config = run_config(task)
        model = build(config.model, ItemFeatures.ids(store.n_items))
        config = with_precision(config, model, split, None)
        found: dict[str, Any] = {"version": f"linrec {version('linrec')}", "setup_seconds": seconds}
        if task.seconds:
            clock = Clock(task)
            try:
                timekeeper = CallbackList([Timekeeper(clock)])
                Trainer(model, store, split, config, timekeeper).fit()
            except Enough:
                found |= trained(clock)
        for protocol, name in (("full", "eval"), ("pop100", "pop100"), ("uni100", "uni100")):
            job = partial(evaluated, model, store, split, task, protocol)
            seconds, metrics = timed(job)
            found[f"{name}_seconds"] = seconds
            found.setdefault("metrics", metrics)
        finish(found | {"users": len(split.test)})


def run_config(task: Task) -> RunConfig:
    if task.variant in RECIPES:
        changes = {"repeat_head": "off", "seen": "hide", "device": "cpu"}
        return recipe(task.variant, changes)
    model = ModelConfig(
        attention=task.variant, width=task.width, heads=task.heads, layers=task.layers,
        inner=task.inner, dropout=task.dropout, positions=task.length, max_length=task.length,
    )  # fmt: skip
    return RunConfig(model=model, training=TrainingConfig(batch_tokens=task.batch, device="cpu"))


def evaluated(
    model: Backbone, store: SequenceStore, split: Split, task: Task, protocol: str
) -> dict[str, float]:
    """Full ranking with seen items hidden, or the sampled protocols; negatives drawn again."""
    reads = None if task.variant in RECIPES else task.length
    options = RankOptions(reads=reads)
    ranking = rank_targets(model_scorer(model), store, split.test, protocol, options)
    found = means(ranking.ranks, (task.k,))
    return {name: value for name, value in found.items() if name != "mrr"}


if __name__ == "__main__":
    main()
