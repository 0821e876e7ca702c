"""The time of a training step by the part of the model it is spent for, on the way back too.

Modules mark their own stretch of the way forward. Every step of the way back carries the number of
the operation forward that it belongs to, and so finds the same part.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from linrec.data.dataset.batches import TrainingBatches
from linrec.layers import Dropout, FeedForward, MultiHeadAttention
from linrec.training.step import Step

MARK, BACK = "part: ", "autograd::engine::evaluate_function: "
REST = "sums, indexing, the rest"
PARTS: dict[type[nn.Module], str] = {
    nn.Embedding: "embedding",
    MultiHeadAttention: "attention",
    FeedForward: "feed-forward",
    nn.LayerNorm: "norms",
    Dropout: "dropout",
    nn.Linear: "projections",
}


@contextlib.contextmanager
def marked() -> Iterator[None]:
    """While entered, parts write their names into the profile."""
    usual = nn.Module.__call__

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        part = PARTS.get(type(self))
        if part is None:
            return usual(self, *args, **kwargs)
        with record_function(MARK + part):
            return usual(self, *args, **kwargs)

    loss = Step.compute_loss

    def marked_loss(self: Step, *args: Any) -> Any:
        with record_function(MARK + "loss"):
            return loss(self, *args)

    batch = TrainingBatches.__getitem__

    def marked_batch(self: TrainingBatches, index: int) -> Any:
        with record_function(MARK + "batch assembly"):
            return batch(self, index)

    with (
        patch.object(nn.Module, "__call__", call),
        patch.object(Step, "compute_loss", marked_loss),
        patch.object(TrainingBatches, "__getitem__", marked_batch),
    ):
        yield


def shares(job: Callable[[], None], repeats: int) -> list[tuple[str, float]]:
    """Each part and its share of the time, the largest first."""
    job()
    with marked(), profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(repeats):
            job()
    spent = by_part(seen.events())
    total = sum(spent.values())
    return sorted(((part, time / total) for part, time in spent.items()), key=lambda one: -one[1])


def by_part(events: Any) -> dict[str, float]:
    part_of: dict[int, str] = {}  # by the number that links an operation with its way back
    spent: dict[str, float] = defaultdict(float)
    for event in sorted(events, key=lambda one: one.time_range.start):
        part = _part(event)
        if event.name.startswith(MARK):
            continue
        if event.sequence_nr >= 0 and not _on_the_way_back(event):
            # the last operation with a number is the one that was given it
            part_of[event.sequence_nr] = part
        spent[_back(event, part_of) or part] += event.self_cpu_time_total
    return spent


def _part(event: Any) -> str:
    """The innermost mark around an operation; a feed-forward owns its projections."""
    marks = [above.name[len(MARK) :] for above in _above(event) if above.name.startswith(MARK)]
    if "feed-forward" in marks:
        return "feed-forward"
    if marks:
        return marks[0]
    if any("Optimizer" in above.name for above in (event, *_above(event))):
        return "optimizer"
    return REST


def _back(event: Any, part_of: dict[int, str]) -> str | None:
    for above in (event, *_above(event)):
        if above.name.startswith(BACK):
            if "AccumulateGrad" in above.name:
                return REST
            return part_of.get(above.sequence_nr, REST)
    return None


def _on_the_way_back(event: Any) -> bool:
    return any(above.name.startswith(BACK) for above in (event, *_above(event)))


def _above(event: Any) -> Iterator[Any]:
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event
