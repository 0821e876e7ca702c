"""Which float type trains faster on this machine: a short timing of real steps decides."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch

from linrec.backbones import Backbone
from linrec.data.dataset.splits import Split
from linrec.runs.config import Precision, RunConfig
from linrec.runs.run import Run
from linrec.training.loop import epoch_batches
from linrec.training.step import Step
from linrec.training.world import World
from linrec.types import InputError, argument

# small, because a CPU without units for bfloat16 takes twenty times as long for a step in it; on a
# GPU a batch must be as large as in the training, or only the launches of kernels would be timed
TOKENS = 512
ROUNDS = 4
# bfloat16 rounds more, so it must be clearly faster
GAIN = 0.95


def with_precision(
    config: RunConfig, model: Backbone, split: Split, resumed: Path | None
) -> RunConfig:
    """The config with "auto" replaced: by what a resumed run was begun with, or by a timing."""
    if config.training.precision != "auto":
        return config
    if resumed is not None:
        chosen = Run.open(resumed).config.training.precision
    elif World.of_environment().count > 1:
        raise InputError(
            f"workers could time {argument('precision', 'auto')} differently and then disagree; "
            f"give {argument('precision', 'float32')} or {argument('precision', 'bfloat16')}"
        )
    else:
        chosen = faster_precision(config, model, split)
    return replace(config, training=replace(config.training, precision=chosen))


def faster_precision(config: RunConfig, model: Backbone, split: Split) -> Precision:
    """bfloat16 or float32; the model and the random numbers of the training stay as they are."""
    with torch.random.fork_rng():
        seconds = _seconds(config, model, split)
    return "bfloat16" if seconds["bfloat16"] < GAIN * seconds["float32"] else "float32"


def _seconds(config: RunConfig, model: Backbone, split: Split) -> dict[Precision, float]:
    """The fastest step in each precision, in turns, because other work slows both alike."""
    training = replace(config.training, compile=False)
    counts = split.train.item_counts(model.n_items)
    kinds: tuple[Precision, ...] = ("float32", "bfloat16")
    steps = {
        kind: Step(
            deepcopy(model), replace(config, training=replace(training, precision=kind)), counts
        )
        for kind in kinds
    }
    if steps["float32"].fabric.device.type == "cpu":
        training = replace(training, batch_tokens=TOKENS)
    batch = epoch_batches(model, split, replace(config, training=training), 0)[0]
    fastest = dict.fromkeys(steps, float("inf"))
    for turn in range(ROUNDS):
        for kind, step in steps.items():
            began = time.perf_counter()
            step(batch, seed=0).item()  # waits for the device
            if turn:  # the first step allocates
                fastest[kind] = min(fastest[kind], time.perf_counter() - began)
    return fastest
