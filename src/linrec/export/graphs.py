"""What is exported: whole histories to scores, and one event with a state to scores and a state.

B batch, N length, C events a chunk. Both are the backbone's own code; what is added here is only
what Python does around it otherwise: cutting, padding, popularity for whoever has no history.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from linrec.backbones import Backbone
from linrec.backbones.backbone import ClosedState
from linrec.backbones.state import State, state_of, tensors_of
from linrec.layers import FeatureEmbedding
from linrec.scoring import HIDDEN, item_scores
from linrec.types import PAD, Events

CHUNK = 64
"""Events that a graph reads at once; between chunks it carries the state."""


class HistoryScorer(nn.Module):
    """items [B, N], PAD after each history's end -> scores [B, n_items + 1].

    With top_k also the best unseen items and their scores, [B, top_k] each. Whoever has no event
    gets the popularity of the items, as from `linrec recommend`.
    """

    popularity: Tensor

    def __init__(self, model: Backbone, popularity: Tensor, top_k: int | None = None) -> None:
        super().__init__()
        self.model, self.top_k = model, top_k
        self.register_buffer("popularity", popularity)

    def forward(self, items: Tensor) -> tuple[Tensor, ...]:
        read = newest(items, self.model.config.max_length)
        streams = self.model.why_no_state() is None
        hidden = self._by_chunks(read) if streams else self._at_once(read)
        scores = _scores(self.model, hidden)
        scores = torch.where((items != PAD).any(1, keepdim=True), scores, self.popularity)
        if self.top_k is None:
            return (scores,)
        unseen = scores.scatter(1, items, HIDDEN)
        best, places = unseen.topk(self.top_k, dim=1)
        return scores, torch.where(best > HIDDEN, places, PAD), best

    def _at_once(self, items: Tensor) -> Tensor:
        if self.model.mask_token is not None:
            items = asking(items, self.model.mask_token)
        keep = items != PAD
        hidden: Tensor = self.model(items, keep)
        return _last(hidden, keep)

    def _by_chunks(self, items: Tensor) -> Tensor:
        """A state after each chunk instead of an [N, N] matrix: linear in N, exact."""
        batch, length = items.shape
        chunks = (length + CHUNK - 1) // CHUNK
        places = torch.arange(chunks * CHUNK, device=items.device)
        padded = torch.where(places < length, items[:, places.clamp(max=length - 1)], PAD)
        cut = padded.reshape(batch, chunks, CHUNK).transpose(0, 1)
        start = self.model.start_closed(batch)
        width = self.model.item_vectors().shape[1]

        def read(carried: list[Tensor], chunk: Tensor) -> tuple[list[Tensor], Tensor]:
            *remembered, known = carried
            keep = chunk != PAD
            events, before = Events(chunk, keep), _state(start, remembered)
            hidden, after = self.model.forward_with_state(events, before)
            known = torch.where(keep.any(1, keepdim=True), _last(hidden, keep), known)
            # a scan must also give something at each step; this is the least
            carried = [part.contiguous() for part in (*tensors_of(after).values(), known)]
            return carried, known.new_zeros(1)

        before = [*tensors_of(start).values(), self.popularity.new_zeros(batch, width)]
        carried, _ = scan(read, before, cut)
        return cast("Tensor", carried[-1])


class Step(nn.Module):
    """item [B] and a state -> scores [B, n_items + 1] and the state after it; O(1) an event.

    PAD leaves a user's state as it was.
    """

    def __init__(self, model: Backbone) -> None:
        super().__init__()
        self.model = model

    def forward(self, item: Tensor, state: list[Tensor]) -> tuple[Tensor, ...]:
        items = item[:, None]
        before = _state(self.model.start_closed(item.shape[0]), state)
        hidden, after = self.model.forward_with_state(Events(items, items != PAD), before)
        return (_scores(self.model, hidden[:, 0]), *tensors_of(after).values())


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
    lengths = (items != PAD).sum(1, keepdim=True)
    places = (lengths - count).clamp(min=0) + torch.arange(count, device=items.device)
    found = items.gather(1, places.clamp(max=items.shape[1] - 1))
    return torch.where(places < lengths, found, PAD)


def asking(items: Tensor, mask_token: int) -> Tensor:
    """The history, then the mask that asks for the next item: [B, N] -> [B, N + 1]."""
    longer = F.pad(items, (0, 1), value=PAD)
    ends = (items != PAD).sum(1, keepdim=True)
    return longer.scatter(1, ends, mask_token)


def _state(like: State, tensors: list[Tensor]) -> ClosedState:
    found: ClosedState = state_of(like, dict(zip(tensors_of(like), tensors, strict=True)))
    return found


def _scores(model: Backbone, hidden: Tensor) -> Tensor:
    return item_scores(hidden, model.item_vectors(), model.item_bias())


def _last(hidden: Tensor, keep: Tensor) -> Tensor:
    """[B, N, width] -> [B, width], at each row's last event."""
    last = (keep.sum(1) - 1).clamp(min=0)
    return hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[2]))[:, 0]
