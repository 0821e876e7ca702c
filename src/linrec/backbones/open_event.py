"""The newest event of a user stays open until it is known how long it lasted.

The gap to the next event is part of an event. So a user's newest event enters the state only when
the next one closes it; until then a request closes a copy of it at the request's own time. Its
context is known from the start and waits with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linrec.data.dataset.item_features import MISSING, NOTHING
from linrec.types import PAD, Events


@dataclass(frozen=True, slots=True)
class OpenEvent:
    """The newest event of each user: [B] each."""

    item: Tensor  # int64, PAD for users without a past
    time: Tensor  # float64, NaN where unknown
    previous: Tensor  # float64, seconds since the event before
    context: Tensor | None = None  # int64, [B, fields], codes; None if the model reads none

    @classmethod
    def none(
        cls, users: int, device: torch.device | None = None, context_fields: int = 0
    ) -> OpenEvent:
        """Of users without a past."""
        unknown = torch.full((users,), torch.nan, dtype=torch.float64, device=device)
        nothing = torch.full((users, context_fields), NOTHING, device=device)
        item = torch.full((users,), PAD, device=device)
        return cls(item, unknown, unknown.clone(), nothing if context_fields else None)

    def followed_by(
        self, items: Tensor, times: Tensor, context: Tensor | None = None
    ) -> tuple[Events, OpenEvent]:
        """The events that these close, [B, N] as they are, and the one that is open afterwards.

        items, times: [B, N], padding at the end. context: [B, N, fields], missing if left out. Each
        row closes as many events as it has, less one if no event was open before.
        """
        codes = self._with_context(items, context)
        items = torch.cat([self.item[:, None], items], 1)
        times = torch.cat([self.time[:, None], times.double()], 1)
        previous = torch.cat([self.previous[:, None], times.diff(dim=1)], 1)
        keep = items != PAD
        places = torch.arange(items.shape[1], device=items.device)
        newest = (places * keep).amax(1, keepdim=True)
        item, time, before = (x.gather(1, newest)[:, 0] for x in (items, times, previous))
        rows = torch.arange(len(items), device=items.device)
        after = OpenEvent(item, time, before, None if codes is None else codes[rows, newest[:, 0]])
        closed = (keep & (places < newest))[:, :-1]
        items = items[:, :-1].where(closed, PAD)
        read = None if codes is None else codes[:, :-1]
        return Events(items, closed, previous[:, :-1], previous[:, 1:], read), after

    def _with_context(self, items: Tensor, context: Tensor | None) -> Tensor | None:
        """The codes of the open event and of those that follow it: [B, 1 + N, fields]."""
        if self.context is None:
            return None
        if context is None:
            shape = (*items.shape, self.context.shape[1])
            context = torch.full(shape, MISSING, device=items.device)
        return torch.cat([self.context[:, None], context.to(self.context.dtype)], 1)

    def at(self, request: Tensor) -> Events:
        """The open event as a request at these times [B] sees it, which changes nothing."""
        gap = request.double() - self.time
        columns = (self.item, self.item != PAD, self.previous, gap)
        items, keep, previous, following = (column[:, None] for column in columns)
        context = None if self.context is None else self.context[:, None]
        return Events(items, keep, previous, following, context)
