"""What is exported: whole histories to scores, and one event with a state to the next state.

B batch, N length, C events per chunk. All are the backbone's own code; what is added here is only
what Python does around it otherwise: cutting, padding, popularity for whoever has no history.
"""

from __future__ import annotations

from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from linrec.backbones import Backbone
from linrec.backbones.backbone import UserState
from linrec.backbones.state import state_of, tensors_of
from linrec.data.dataset.gaps import gaps_of
from linrec.export.repeats import repeat_additions
from linrec.layers import FeatureEmbedding
from linrec.scoring import HIDDEN, item_scores
from linrec.types import PAD, Events, Seen

StateT = TypeVar("StateT")
CHUNK = 64
"""Events that a graph reads at once; between chunks it carries the state."""


class HistoryScorer(nn.Module):
    """items [B, N], PAD after each history's end -> scores [B, n_items + 1].

    Models that read time also take times [B, N] and the request's, at [B]: seconds, NaN if unknown.
    With top_k also the best items, seen ones hidden or kept, and their scores, [B, top_k] each.
    Whoever has no event gets the popularity of the items, as from `linrec recommend`.
    """

    popularity: Tensor

    def __init__(
        self, model: Backbone, popularity: Tensor, top_k: int | None = None, seen: Seen = "hide"
    ) -> None:
        super().__init__()
        self.model, self.top_k, self.seen = model, top_k, seen
        self.register_buffer("popularity", popularity)

    def forward(
        self, items: Tensor, times: Tensor | None = None, at: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        events = self._read(items, times, at)
        streams = self.model.why_no_state() is None
        hidden = self._by_chunks(events) if streams else self._at_once(events)
        scores = _scores(self.model, hidden)
        if self.model.repeat is not None:
            moments = None if times is None or at is None else (times, at)
            weights = self.model.repeat(hidden)
            scores = scores + repeat_additions(weights, items, moments, self.model.n_items)
        scores = torch.where((items != PAD).any(1, keepdim=True), scores, self.popularity)
        if self.top_k is None:
            return (scores,)
        shown = scores.scatter(1, items, HIDDEN) if self.seen == "hide" else scores
        best, places = shown.topk(self.top_k, dim=1)
        return scores, torch.where(best > HIDDEN, places, PAD), best

    def _read(self, items: Tensor, times: Tensor | None, at: Tensor | None) -> Events:
        """As `Backbone.read`: the newest events, the mask if there is one, and the gaps."""
        count, mask = self.model.config.max_length, self.model.mask_token
        if times is not None:
            times = newest_times(items, times, count)
        items = newest(items, count)
        if mask is not None:
            if times is not None and at is not None:  # the mask is at the request's time
                ends = (items != PAD).sum(1, keepdim=True)
                times = F.pad(times, (0, 1), value=torch.nan).scatter(1, ends, at[:, None])
                at = torch.full_like(at, torch.nan)
            items = asking(items, mask)
        keep = items != PAD
        if times is None or at is None:
            return Events(items, keep)
        return Events(items, keep, *gaps_of(times, keep, at))

    def _at_once(self, events: Events) -> Tensor:
        hidden: Tensor = self.model(*events)
        return _last(hidden, events.keep)

    def _by_chunks(self, events: Events) -> Tensor:
        """A state after each chunk instead of an [N, N] matrix: linear in N, exact."""
        batch = events.items.shape[0]
        cut = [_cut(events.items, PAD), *(_cut(gap, torch.nan) for gap in events.gaps or ())]
        start = self.model.start_closed(batch)
        width = self.model.item_vectors().shape[1]

        def read(carried: list[Tensor], chunk: list[Tensor]) -> tuple[list[Tensor], Tensor]:
            *remembered, known = carried
            items, *gaps = chunk
            keep = items != PAD
            events, before = Events(items, keep, *gaps), _state(start, remembered)
            hidden, after = self.model.forward_with_state(events, before)
            known = torch.where(keep.any(1, keepdim=True), _last(hidden, keep), known)
            # a scan must also give something at each step; this is the least
            carried = [part.contiguous() for part in (*tensors_of(after).values(), known)]
            return carried, known.new_zeros(1)

        before = [*tensors_of(start).values(), self.popularity.new_zeros(batch, width)]
        carried, _ = scan(read, before, cut)
        return cast("Tensor", carried[-1])


class Step(nn.Module):
    """item [B] and a state -> scores [B, n_items + 1] and the state after it; O(1) per event.

    PAD leaves a user's state as it was. For models that read no time.
    """

    def __init__(self, model: Backbone) -> None:
        super().__init__()
        self.model = model

    def forward(self, item: Tensor, state: list[Tensor]) -> tuple[Tensor, ...]:
        items = item[:, None]
        before = _state(self.model.start_closed(item.shape[0]), state)
        hidden, after = self.model.forward_with_state(Events(items, items != PAD), before)
        return (_scores(self.model, hidden[:, 0]), *tensors_of(after).values())


class TimedStep(nn.Module):
    """item [B], time [B] and a state -> the state after it, in which this event is open.

    PAD leaves a user's state as it was. For models that read time; scores come from `Request`.
    """

    def __init__(self, model: Backbone) -> None:
        super().__init__()
        self.model = model

    def forward(self, item: Tensor, time: Tensor, state: list[Tensor]) -> tuple[Tensor, ...]:
        before = _state(self.model.start(item.shape[0]), state)
        events, newest = before.newest.followed_by(item[:, None], time[:, None])
        _, closed = self.model.forward_with_state(events, before.closed)
        assert closed is not None
        return tuple(tensors_of(UserState(closed, newest)).values())


class Request(nn.Module):
    """at [B] and a state -> scores [B, n_items + 1]; the popularity of the items without events."""

    popularity: Tensor

    def __init__(self, model: Backbone, popularity: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("popularity", popularity)

    def forward(self, at: Tensor, state: list[Tensor]) -> Tensor:
        before = _state(self.model.start(at.shape[0]), state)
        hidden, _ = self.model.forward_with_state(before.newest.at(at), before.closed)
        known = (before.newest.item != PAD)[:, None]
        return torch.where(known, _scores(self.model, hidden[:, 0]), self.popularity)


class FeatureTable(nn.Module):
    """What a feature field says of each item, looked up instead of computed for each event."""

    vectors: Tensor  # [n_items + 1, width]

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.register_buffer("vectors", vectors)

    def forward(self, items: Tensor) -> Tensor:
        return F.embedding(items, self.vectors)


@torch.no_grad()
def bake_features(model: Backbone) -> Backbone:
    """Replace, in place, the vocabularies of features by one vector per item of the catalogue."""
    everything = torch.arange(model.n_items + 1)[None]
    for part in list(model.modules()):
        if isinstance(part, FeatureEmbedding):
            part.fields = nn.ModuleList(FeatureTable(field(everything)[0]) for field in part.fields)
    return model


def newest(items: Tensor, count: int | None) -> Tensor:
    """The last `count` events of each row: [B, N] -> [B, count], PAD at the end. None is all."""
    if count is None:
        return items
    places, lengths = _newest_places(items, count)
    found = items.gather(1, places.clamp(max=items.shape[1] - 1))
    return torch.where(places < lengths, found, PAD)


def _newest_places(items: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Where the last `count` events of each row are, [B, count], and its length, [B, 1]."""
    lengths = (items != PAD).sum(1, keepdim=True)
    return (lengths - count).clamp(min=0) + torch.arange(count, device=items.device), lengths


def _cut(column: Tensor, padding: float) -> Tensor:
    """[B, N] -> [chunks, B, C], with padding at the end."""
    batch, length = column.shape
    chunks = (length + CHUNK - 1) // CHUNK
    places = torch.arange(chunks * CHUNK, device=column.device)
    padded = torch.where(places < length, column[:, places.clamp(max=length - 1)], padding)
    return padded.reshape(batch, chunks, CHUNK).transpose(0, 1)


def newest_times(items: Tensor, times: Tensor, count: int | None) -> Tensor:
    """The times of the same events; those of padding mean nothing."""
    if count is None:
        return times
    places, _ = _newest_places(items, count)
    return times.gather(1, places.clamp(max=items.shape[1] - 1))


def asking(items: Tensor, mask_token: int) -> Tensor:
    """The history, then the mask that asks for the next item: [B, N] -> [B, N + 1]."""
    longer = F.pad(items, (0, 1), value=PAD)
    ends = (items != PAD).sum(1, keepdim=True)
    return longer.scatter(1, ends, mask_token)


def _state(like: StateT, tensors: list[Tensor]) -> StateT:
    state: StateT = state_of(like, dict(zip(tensors_of(like), tensors, strict=True)))
    return state


def _scores(model: Backbone, hidden: Tensor) -> Tensor:
    return item_scores(hidden, model.item_vectors(), model.shown_bias())


def _last(hidden: Tensor, keep: Tensor) -> Tensor:
    """[B, N, width] -> [B, width], at each row's last event."""
    last = (keep.sum(1) - 1).clamp(min=0)
    return hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[2]))[:, 0]
