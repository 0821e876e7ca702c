"""Whether a training hides seen items or keeps them, and the loss that fits."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from linrec.data.dataset.store import SequenceStore, named
from linrec.runs.config import RunConfig
from linrec.runs.run import Run
from linrec.types import InputError, Seen, argument


def with_seen(
    config: RunConfig,
    store: SequenceStore,
    warn: Callable[[str], None],
    requested: Collection[str],
    resumed: Path | None,
) -> RunConfig:
    """The config with "auto" replaced, and without a loss that leaves out what lists keep.

    requested: the settings that were given by name; a loss without seen items that only a recipe
    has is left out with a warning. resumed: the run that is continued, if it is one.
    """
    seen = config.training.seen
    if seen == "auto":
        seen = _decided(config, store, warn, requested, resumed)
        config = replace(config, training=replace(config.training, seen=seen))
    if seen == "hide" or not config.loss.seen_aware:
        return config
    if "seen_aware" in requested:
        raise InputError(
            f"{argument('seen', 'keep')} ranks what a user has had, and {argument('seen_aware')} "
            "would leave it out of the loss; leave one of the two out"
        )
    warn("seen items are kept, so the loss does not leave them out (seen_aware)")
    return replace(config, loss=replace(config.loss, seen_aware=False))


def _decided(
    config: RunConfig,
    store: SequenceStore,
    warn: Callable[[str], None],
    requested: Collection[str],
    resumed: Path | None,
) -> Seen:
    if resumed is not None:
        return Run.open(resumed).config.seen_in()
    if not store.repeats.common:
        return "hide"
    reason = f"in {named(store)}, {store.repeats.reason}"
    if config.loss.seen_aware and "seen_aware" in requested:
        warn(f"{reason}; they are hidden because seen_aware leaves them out of the loss")
        return "hide"
    warn(f"{reason}: seen items are kept")
    return "keep"
