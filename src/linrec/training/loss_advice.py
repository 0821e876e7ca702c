"""Many items: whether a sampled loss would train faster, by a short timing of real steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import torch

from linrec.backbones import Backbone
from linrec.data.dataset.splits import Split
from linrec.losses.config import LossConfig, SampledSoftmaxConfig
from linrec.runs.config import RunConfig
from linrec.training.loop import epoch_batches
from linrec.training.step import Step
from linrec.types import PAD

MANY_ITEMS = 20_000
WARM_UP = 256  # tokens of the steps before the one that counts
WORTHWHILE = 0.8  # a sample has noise of its own, so it must be clearly faster


def advise_loss(
    config: RunConfig, model: Backbone, split: Split, say: Callable[[str], None]
) -> None:
    """Say what an epoch takes with either loss, if the full one is slow because of the items.

    The model and the random numbers of the training stay as they are.
    """
    if config.loss.samples_items or model.n_items <= MANY_ITEMS:
        return
    sampled = SampledSoftmaxConfig(seen_aware=config.loss.seen_aware)
    full, fast = (epoch_seconds(config, loss, model, split) for loss in (config.loss, sampled))
    if fast < WORTHWHILE * full:
        say(
            f"the catalogue has {model.n_items:,} items: an epoch takes about {in_words(full)} "
            f"with the loss {config.loss.loss} and about {in_words(fast)} with {sampled.loss} "
            "(short timings on this machine), which compares each target with a sample of them; to "
            f"take it, train again with --loss {sampled.loss}, in Python loss={sampled.loss!r}"
        )


def epoch_seconds(config: RunConfig, loss: LossConfig, model: Backbone, split: Split) -> float:
    """What the targets of an epoch take, going by one of its batches."""
    with torch.random.fork_rng():
        training = replace(config.training, compile=False)
        config = replace(config, loss=loss, training=training)
        counts = split.train.item_counts(model.n_items)
        step = Step(deepcopy(model), config, counts)
        small = replace(config, training=replace(training, batch_tokens=WARM_UP))
        step(epoch_batches(model, split, small, 0)[0], seed=0).item()  # the first step allocates
        batches = epoch_batches(model, split, config, 0)
        batch = batches[0]
        began = time.perf_counter()
        step(batch, seed=0).item()  # waits for the device
        seconds = time.perf_counter() - began
    return seconds * batches.n_targets / max(int((batch.targets != PAD).sum()), 1)


def in_words(seconds: float) -> str:
    """A duration in the unit that a person would take."""
    if seconds < 1.5:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
