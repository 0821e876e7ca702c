"""What an encoder reads of histories: items, the time between events, and their context."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrec.data.dataset.sequences import NO_CONTEXT, Sequences
from linrec.types import PAD, Events

Times = NDArray[np.float64]


def read_events(rows: Sequences) -> Events:
    """The events of each row; the gap after the newest one ends at the row's `until`."""
    items = torch.from_numpy(rows.padded())
    keep = items != PAD
    codes, times = rows.padded_context(), rows.padded_times()
    context = None if codes is None else torch.from_numpy(codes)
    if times is None:
        return Events(items, keep, context=context)
    until = torch.from_numpy(rows.until_or_unknown())
    return Events(items, keep, *gaps_of(torch.from_numpy(times), keep, until), context)


def context_with_mask(rows: Sequences, masked: Tensor) -> Tensor | None:
    """The context of events of which some are masked, and so unknown with all that is known of
    them: [B, N] -> [B, N, fields]."""
    codes = rows.padded_context()
    if codes is None:
        return None
    missing = masked.shape[1] - codes.shape[1]
    wide = np.pad(codes, ((0, 0), (0, missing), (0, 0)), constant_values=NO_CONTEXT)
    return torch.from_numpy(wide).masked_fill(masked[..., None], NO_CONTEXT)


def gaps_with_request(rows: Sequences) -> tuple[Tensor, Tensor] | None:
    """Seconds before and after each event and, in the position after it, the request: [B, N + 1].

    None if the rows have no times.
    """
    times = rows.padded_times()
    if times is None:
        return None
    times = np.pad(times, ((0, 0), (0, 1)), constant_values=np.nan)
    times[np.arange(len(rows)), rows.lengths] = rows.until_or_unknown()
    keep = np.arange(times.shape[1]) <= rows.lengths[:, None]
    nothing_follows = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    return gaps_of(torch.from_numpy(times), torch.from_numpy(keep), nothing_follows)


def gaps_of(
    times: Tensor, keep: Tensor, request: Tensor, before: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Seconds from the previous event to each one, and from each one to the next: [B, N] both.

    times, keep: [B, N], padding at the end. request: [B], where the gap after the newest event
    ends. before: [B], the time of the event before these; none if left out. NaN is unknown.
    """
    times, request = times.double(), request.double()
    start = torch.full_like(request, torch.nan) if before is None else before.double()
    previous = times - torch.cat([start[:, None], times[:, :-1]], 1)
    following = torch.cat([times[:, 1:], request[:, None]], 1)
    newest = (keep.sum(1, keepdim=True) - 1).clamp(min=0)
    return previous, following.scatter(1, newest, request[:, None]) - times


def forget_some(times: Times, share: float, rng: np.random.Generator) -> Times:
    """The same with a share of them unknown, so that a model learns to do without them."""
    return np.where(rng.random(times.shape) < share, np.nan, times)
