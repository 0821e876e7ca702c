"""Which of the drawn items a user has seen: for a target these count as not drawn."""

from __future__ import annotations

import torch
from torch import Tensor

from linrec.types import SeenItems


def seen_among(seen: SeenItems, drawn: Tensor, together: int, before: int = 0) -> Tensor:
    """[T, K] bool, for targets of which every `together` share a row of `drawn` [G, K].

    before: targets of the first row that are not among these.

    An item's place in its user's list says when it was first seen. So it is looked up once per user
    and drawn item, and each target only compares that place with the length of its own list.
    """
    begins, user = torch.unique(seen.starts, return_inverse=True)
    items, column = torch.unique(drawn, return_inverse=True)  # column: [G, K]
    place = torch.arange(len(seen.items), device=drawn.device)
    owner = torch.searchsorted(begins, place, right=True) - 1
    slot = torch.searchsorted(items, seen.items).clamp(max=len(items) - 1)
    hit = items[slot] == seen.items
    first = torch.full((len(begins), len(items)), len(place), device=drawn.device)
    first[owner[hit], slot[hit]] = (place - begins[owner])[hit]
    group = (before + torch.arange(len(user), device=drawn.device)) // together
    return first[user[:, None], column[group]] < seen.counts[:, None]
