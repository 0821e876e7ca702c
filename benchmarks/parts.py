"""The time of a training step by the part of the model, in the forward and the backward pass.

Modules mark their operations of the forward pass. Every operation of the backward pass carries the
sequence number of the forward operation it belongs to, which identifies its part.
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
from linrec.losses import LOSSES

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
    """Within this context the parts write their names into the profile."""
    call = nn.Module.__call__

    def marked_module(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        part = PARTS.get(type(self))
        if part is None:
            return call(self, *args, **kwargs)
        with record_function(MARK + part):
            return call(self, *args, **kwargs)

    with contextlib.ExitStack() as patches:
        patches.enter_context(patch.object(nn.Module, "__call__", marked_module))
        _mark(patches, TrainingBatches, "__getitem__", "batch assembly")
        for loss in LOSSES.values():
            _mark(patches, loss, "__call__", "loss")
        yield


def _mark(patches: contextlib.ExitStack, owner: type, name: str, part: str) -> None:
    function = getattr(owner, name)

    def recorded(*args: Any, **kwargs: Any) -> Any:
        with record_function(MARK + part):
            return function(*args, **kwargs)

    patches.enter_context(patch.object(owner, name, recorded))


def shares(job: Callable[[], None], repeats: int) -> list[tuple[str, float]]:
    """Each part and its share of the time, the largest first."""
    job()
    with marked(), profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(repeats):
            job()
    seconds = by_part(profiled.events())
    total = sum(seconds.values())
    return sorted(((part, time / total) for part, time in seconds.items()), key=lambda one: -one[1])


def by_part(events: Any) -> dict[str, float]:
    part_of: dict[int, str] = {}  # by the sequence number that links the two passes
    seconds: dict[str, float] = defaultdict(float)
    for event in sorted(events, key=lambda one: one.time_range.start):
        part = _part(event)
        if event.name.startswith(MARK):
            continue
        if event.sequence_nr >= 0 and not _is_backward(event):
            # several operations may carry a number; it belongs to the last of them
            part_of[event.sequence_nr] = part
        seconds[_backward_part(event, part_of) or part] += event.self_cpu_time_total
    return seconds


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


def _backward_part(event: Any, part_of: dict[int, str]) -> str | None:
    for above in (event, *_above(event)):
        if above.name.startswith(BACK):
            if "AccumulateGrad" in above.name:
                return REST
            return part_of.get(above.sequence_nr, REST)
    return None


def _is_backward(event: Any) -> bool:
    return any(above.name.startswith(BACK) for above in (event, *_above(event)))


def _above(event: Any) -> Iterator[Any]:
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event
