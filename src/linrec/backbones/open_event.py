"""The newest event of a user stays open until it is known how long it lasted.

The gap to the next event is part of an event. So a user's newest event enters the state only when
the next one closes it; until then a request closes a copy of it at the request's own time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linrec.types import PAD, Events


@dataclass(frozen=True, slots=True)
class OpenEvent:
    """The newest event of each user: [B] each."""

    item: Tensor  # int64, PAD for users without a past
    time: Tensor  # float64, NaN where unknown
    previous: Tensor  # float64, seconds since the event before

    @classmethod
    def none(cls, users: int, device: torch.device | None = None) -> OpenEvent:
        """Of users without a past."""
        unknown = torch.full((users,), torch.nan, dtype=torch.float64, device=device)
        return cls(torch.full((users,), PAD, device=device), unknown, unknown.clone())

    def followed_by(self, items: Tensor, times: Tensor) -> tuple[Events, OpenEvent]:
        """The events that these close, [B, N] as they are, and the one that is open afterwards.

        items, times: [B, N], padding at the end. Each row closes as many events as it has, less one
        if no event was open before.
        """
        items = torch.cat([self.item[:, None], items], 1)
        times = torch.cat([self.time[:, None], times.double()], 1)
        previous = torch.cat([self.previous[:, None], times.diff(dim=1)], 1)
        keep = items != PAD
        places = torch.arange(items.shape[1], device=items.device)
        newest = (places * keep).amax(1, keepdim=True)
        after = OpenEvent(*(x.gather(1, newest)[:, 0] for x in (items, times, previous)))
        closed = (keep & (places < newest))[:, :-1]
        items = items[:, :-1].where(closed, PAD)
        return Events(items, closed, previous[:, :-1], previous[:, 1:]), after

    def at(self, request: Tensor) -> Events:
        """The open event as a request at these times [B] sees it, which changes nothing."""
        gap = request.double() - self.time
        columns = (self.item, self.item != PAD, self.previous, gap)
        return Events(*(column[:, None] for column in columns))
