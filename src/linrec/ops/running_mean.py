"""Weighted means over every prefix: a causal softmax over positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linrec.ops.accumulation import ChunkedSums, Decay
from linrec.ops.efficient import NO_KEY


@dataclass(frozen=True, slots=True)
class MeanState:
    """Weighted sums of each user's history, relative to the largest weight so far.

    Examples:
        >>> ops.start_mean(batch=2, width=4).total.shape
        torch.Size([2, 5])
    """

    total: Tensor  # [B, D + 1], the sum of the weighted vectors, then that of the weights
    peak: Tensor  # [B], the largest logit


def start_mean(batch: int, width: int, **dtype_device: torch.dtype | torch.device) -> MeanState:
    """The state of users without events.

    Examples:
        >>> state = ops.start_mean(batch=1, width=1)
        >>> mean, state = ops.running_mean(torch.ones(1, 1, 1), torch.zeros(1, 1), state=state)
        >>> mean.item()
        1.0
    """
    total = torch.zeros(batch, width + 1, **dtype_device)  # type: ignore[call-overload]
    return MeanState(total, torch.full_like(total[:, 0], NO_KEY))


def running_mean(
    x: Tensor, logit: Tensor, *, keep: Tensor | None = None, state: MeanState | None = None
) -> tuple[Tensor, MeanState]:
    """At each position the mean of x up to it, weighted by exp(logit), and the state at the end.

    x: [B, N, D], logit: [B, N], keep: [B, N]  ->  [B, N, D]. Exponents are taken relative to the
    largest logit so far, so that none overflows and no later event pushes an earlier mean to 0 / 0.

    Examples:
        >>> x = torch.tensor([[[1.0], [3.0], [8.0]]])
        >>> mean, state = ops.running_mean(x, torch.zeros(1, 3))
        >>> mean.flatten().tolist()
        [1.0, 2.0, 4.0]
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    if not x.shape[1]:
        empty = start_mean(x.shape[0], x.shape[2], dtype=wide, device=x.device)
        return x, empty if state is None else state
    with torch.autocast(x.device.type, enabled=False):
        values, real = x.to(wide), logit.to(wide)
        if keep is not None:
            real = real.masked_fill(~keep, NO_KEY)
        # the mean does not depend on what is subtracted, so no gradient passes through the peak
        peak = real.detach().cummax(1).values
        if state is not None:
            peak = torch.maximum(peak, state.peak[:, None])
        weight = torch.exp(real - peak) if keep is None else torch.exp(real - peak) * keep
        initial_age = None if state is None else state.peak[:, None, None, None]
        decay = Decay(-values.new_ones(1, 1, 1), peak[:, None, :, None], initial_age)
        summed = torch.cat([values * weight[..., None], weight[..., None]], -1)[:, None]
        initial_state = None if state is None else state.total[:, None]
        sums = ChunkedSums(x.shape[1], decay, values)
        total, final_state = sums.causal_sum(summed, initial_state)
        # the largest weight so far counts one, so a smaller total means that there is no event
        mean = total[:, 0, :, :-1] / total[:, 0, :, -1:].clamp(min=0.5)
    return mean.to(x.dtype), MeanState(final_state[:, 0], peak[:, -1])
