"""The sums over the past that every linear mechanism is made of, written once.

B batch, H heads, N positions, D key width, E value width, M chunks of C positions each.

Event m counts at position t with the weight exp(rate * (tick_t - tick_m)). Without a clock every
event counts one. The sequence is cut into M chunks: inside a chunk the weights are an explicit
[C, C] matrix, between chunks only the sums so far are carried on, so that time and memory grow
linearly with N. All exponents are differences of ticks within one chunk, hence never positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor

# one chunk costs C*D work a position, one chunk's memory D*E/C numbers a position: 64 balances both
CHUNK = 64
# weights that differ from feature to feature need a [C, C, D] block, so chunks are smaller there
CHUNK_BY_FEATURE = 16


def is_traced(*sizes: int) -> bool:
    """Whether sizes are the symbols of a graph in the making, for which no value can be read."""
    return any(isinstance(size, torch.SymInt) for size in sizes)


@dataclass(frozen=True, slots=True)
class Clock:
    """How the weight of an event fades: exp(rate * (tick_now - tick_then)).

    `ticks` None means that each position is one tick; then one set of weights serves all chunks.
    """

    rate: Tensor  # [H, 1, 1], at most 0
    ticks: Tensor | None = None  # [1 | B, 1 | H, N, 1 | D], never falling along N
    start: Tensor | None = None  # [1 | B, 1 | H, 1, 1 | D], the tick of the state resumed from

    @property
    def by_feature(self) -> bool:
        return self.ticks is not None and self.ticks.shape[-1] > 1


class Past:
    """The weights of one clock over N positions, and the sums they make."""

    def __init__(self, length: int, clock: Clock | None, like: Tensor) -> None:
        largest = CHUNK_BY_FEATURE if clock is not None and clock.by_feature else CHUNK
        self.length = length
        if is_traced(length):  # nobody can say how many chunks there will be
            self.chunks, self.size = 1, length
        else:
            self.chunks = max(1, ceil(length / largest))
            # equal chunks waste fewer padded positions than full ones and a remainder
            self.size = max(1, ceil(length / self.chunks))
        order = torch.arange(self.size, device=like.device, dtype=like.dtype)
        self.past = order[:, None] >= order  # [C, C]
        # how much the sums so far have faded at each position, how much each event will have faded
        # at its chunk's end, and how much all fades over a chunk; None where nothing ever fades
        self.since: Tensor | None = None
        self.until: Tensor | None = None
        self.across: Tensor | None = None
        if clock is None:
            self.within = self.past.to(like.dtype)
        elif clock.ticks is None:
            self._weigh(clock.rate[None, :, None], order[:, None], order.new_full((1, 1), -1.0))
        else:
            ticks = self._chunked_ticks(clock.ticks)
            first = clock.ticks[:, :, :1] if clock.start is None else clock.start
            before = torch.cat(
                [first.expand_as(ticks[:, :, 0, :1])[:, :, None], ticks[:, :, :-1, -1:]], 2
            )
            self._weigh(clock.rate[:, None], ticks, before)

    def _weigh(self, rate: Tensor, ticks: Tensor, before: Tensor) -> None:
        """ticks: [..., C, 1 | D]; before: [..., 1, 1 | D], the tick that ended the last chunk."""
        ago = ticks[..., :, None, :] - ticks[..., None, :, :]  # [..., C, C, 1 | D]
        # masked before exp: a future event's exponent is positive and may overflow
        ago = ago.masked_fill(~self.past[..., None], 0.0)
        within = torch.exp(rate[..., None] * ago) * self.past[..., None]
        self.within = within if ticks.shape[-1] > 1 else within[..., 0]
        since = torch.exp(rate * (ticks - before))
        self.since, self.across = since, since[..., -1:, :].mT  # the latter [..., 1 | D, 1]
        self.until = torch.exp(rate * (ticks[..., -1:, :] - ticks))

    def _chunked_ticks(self, ticks: Tensor) -> Tensor:
        # the clock stands still where only chunking pads, so that nothing ages there
        missing = self.chunks * self.size - self.length
        if missing:
            ticks = torch.cat([ticks, ticks[:, :, -1:].expand(-1, -1, missing, -1)], 2)
        return self._cut(ticks)

    def chunked(self, x: Tensor) -> Tensor:
        """[B, H, N, D] -> [B, H, M, C, D], zeros after the end."""
        missing = self.chunks * self.size - self.length
        if missing:
            x = F.pad(x, (0, 0, 0, missing))
        return self._cut(x)

    def _cut(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], self.chunks, self.size, x.shape[-1])

    def flat(self, x: Tensor) -> Tensor:
        return x.flatten(2, 3)[:, :, : self.length]

    def running_sum(self, x: Tensor, initial: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """sum over m <= t of w_tm x_m, at each t and at the end.

        x: [B, H, N, D], initial: [B, H, D]  ->  [B, H, N, D], [B, H, D].
        """
        x = self.chunked(x)
        ended = x if self.until is None else x * self.until
        sums = ended.sum(-2)[..., None]  # [B, H, M, D, 1]
        before, final = self._carry(sums, None if initial is None else initial[..., None])
        carried = before.mT if self.since is None else before.mT * self.since
        return self.flat(self._mix(x, self.within) + carried), final[..., 0]

    def attended(
        self, q: Tensor, k: Tensor, v: Tensor, initial: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """q_t . S_t with S_t = sum over m <= t of w_tm k_m v_m^T, at each t, and S at the end.

        q, k: [B, H, N, D], v: [B, H, N, E], initial: [B, H, D, E] -> [B, H, N, E], [B, H, D, E].
        """
        q, k, v = self.chunked(q), self.chunked(k), self.chunked(v)
        if self.within.dim() > 5:
            scores = torch.einsum("...id,...ijd,...jd->...ij", q, self.within, k)
        else:
            scores = (q @ k.mT) * self.within
        ended = k if self.until is None else k * self.until
        before, final = self._carry(ended.mT @ v, initial)
        carried = (q if self.since is None else q * self.since) @ before
        return self.flat(scores @ v + carried), final

    def sum_around(self, x: Tensor) -> Tensor:
        """sum over all m of w_tm x_m, earlier and later events alike. [B, H, N, D] -> same."""
        since, until = self._fading()
        x = self.chunked(x)
        before, _ = self._carry((x * until).sum(-2)[..., None], None)
        after, _ = self._carry((x * since).sum(-2)[..., None], None, backwards=True)
        mixed = self._mix(x, self._around())
        return self.flat(mixed + before.mT * since + after.mT * until)

    def attended_around(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q_t . S_t with S_t = sum over all m of w_tm k_m v_m^T, earlier and later alike."""
        since, until = self._fading()
        q, k, v = self.chunked(q), self.chunked(k), self.chunked(v)
        scores = (q @ k.mT) * self._around()
        # both ways in one product: a matrix twice as wide takes less than twice the time
        ended, begun = (torch.cat([k * until, k * since], -1).mT @ v).chunk(2, -2)
        before, _ = self._carry(ended, None)
        after, _ = self._carry(begun, None, backwards=True)
        carried = torch.cat([q * since, q * until], -1) @ torch.cat([before, after], -2)
        return self.flat(scores @ v + carried)

    def _around(self) -> Tensor:
        """Weights inside a chunk by distance whichever way; an event's own weight is one."""
        return self.within + self.within.mT.triu(1)

    def _fading(self) -> tuple[Tensor, Tensor]:
        assert self.since is not None
        assert self.until is not None
        return self.since, self.until

    def _mix(self, x: Tensor, within: Tensor) -> Tensor:
        """x: [B, H, M, C, D], weighted inside each chunk."""
        if within.dim() > 5:
            return torch.einsum("...ijd,...jd->...id", within, x)
        if within.dim() == 2:
            return torch.einsum("ij,...jd->...id", within, x)
        if within.shape[0] == 1 and within.shape[2] == 1:
            return torch.einsum("hij,bhmjd->bhmid", within[0, :, 0], x)
        return within @ x

    def _carry(
        self, sums: Tensor, initial: Tensor | None, *, backwards: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The sums before each chunk and after the last; or after each and before the first.

        sums: [B, H, M, D, E].
        """
        start = torch.zeros_like(sums[:, :, 0]) if initial is None else initial
        if self.across is None:
            totals = torch.cumsum(torch.cat([start[:, :, None], sums], 2), 2)
            return totals[:, :, :-1], totals[:, :, -1]
        across = self.across.expand(*self.across.shape[:2], self.chunks, -1, -1)
        # unbind, not indexing: the gradient of each index is as large as all chunks together
        chunks = list(zip(across.unbind(2), sums.unbind(2), strict=True))
        carried, state = [], start
        for fade, added in reversed(chunks) if backwards else chunks:
            carried.append(state)
            state = state * fade + added
        return torch.stack(carried[::-1] if backwards else carried, 2), state
