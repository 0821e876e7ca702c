"""The decayed sums that every linear mechanism is made of, written once.

B batch, H heads, N positions, D key width, E value width, M chunks of C positions each.

Event m counts at position t with the weight exp(rate * (age_t - age_m)). Without a decay every
event counts one. The sequence is cut into M chunks: inside a chunk the weights are an explicit
[C, C] matrix, between chunks only a state is carried, so that time and memory grow linearly with
N. All exponents are differences of ages within one chunk, hence never positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor

# per position, a chunk costs C*D work and its state D*E/C numbers: 64 balances both
CHUNK = 64
# weights that differ from feature to feature need a [C, C, D] block, so chunks are smaller there
CHUNK_BY_FEATURE = 16


def is_traced(*sizes: int) -> bool:
    """Whether sizes are symbols of a graph that is being traced, so that no value can be read."""
    return any(isinstance(size, torch.SymInt) for size in sizes)


@dataclass(frozen=True, slots=True)
class Decay:
    """How the weight of an event decays: exp(rate * (age_now - age_then)).

    `age` None means that each position adds one; then one set of weights serves all chunks.
    """

    rate: Tensor  # [H, 1, 1], at most 0
    age: Tensor | None = None  # [1 | B, 1 | H, N, 1 | D], never falling along N
    initial_age: Tensor | None = None  # [1 | B, 1 | H, 1, 1 | D], the age of the initial state

    @property
    def by_feature(self) -> bool:
        return self.age is not None and self.age.shape[-1] > 1


class ChunkedSums:
    """The weights of one decay over N positions, and the sums they make."""

    def __init__(self, length: int, decay: Decay | None, like: Tensor) -> None:
        largest = CHUNK_BY_FEATURE if decay is not None and decay.by_feature else CHUNK
        self.length = length
        if is_traced(length):  # the number of chunks must be known while tracing
            self.chunks, self.size = 1, length
        else:
            self.chunks = max(1, ceil(length / largest))
            # equal chunks waste fewer padded positions than full ones and a remainder
            self.size = max(1, ceil(length / self.chunks))
        order = torch.arange(self.size, device=like.device, dtype=like.dtype)
        self.causal_mask = order[:, None] >= order  # [C, C]
        # the decay from a chunk's start to each position, from each position to the chunk's end,
        # and over the whole chunk; None without a decay
        self.from_start: Tensor | None = None
        self.to_end: Tensor | None = None
        self.inter_chunk: Tensor | None = None
        if decay is None:
            self.intra_chunk = self.causal_mask.to(like.dtype)
        elif decay.age is None:
            self._weigh(decay.rate[None, :, None], order[:, None], order.new_full((1, 1), -1.0))
        else:
            age = self._chunked_age(decay.age)
            first = decay.age[:, :, :1] if decay.initial_age is None else decay.initial_age
            before = torch.cat(
                [first.expand_as(age[:, :, 0, :1])[:, :, None], age[:, :, :-1, -1:]], 2
            )
            self._weigh(decay.rate[:, None], age, before)

    def _weigh(self, rate: Tensor, age: Tensor, before: Tensor) -> None:
        """age: [..., C, 1 | D]; before: [..., 1, 1 | D], the age at the end of the last chunk."""
        ago = age[..., :, None, :] - age[..., None, :, :]  # [..., C, C, 1 | D]
        # masked before exp: a future event's exponent is positive and may overflow
        ago = ago.masked_fill(~self.causal_mask[..., None], 0.0)
        intra_chunk = torch.exp(rate[..., None] * ago) * self.causal_mask[..., None]
        self.intra_chunk = intra_chunk if age.shape[-1] > 1 else intra_chunk[..., 0]
        from_start = torch.exp(rate * (age - before))
        self.from_start = from_start
        self.inter_chunk = from_start[..., -1:, :].mT  # [..., 1 | D, 1]
        self.to_end = torch.exp(rate * (age[..., -1:, :] - age))

    def _chunked_age(self, age: Tensor) -> Tensor:
        # positions that only fill the last chunk add no age, so that nothing decays there
        missing = self.chunks * self.size - self.length
        if missing:
            age = torch.cat([age, age[:, :, -1:].expand(-1, -1, missing, -1)], 2)
        return self._cut(age)

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

    def causal_sum(self, x: Tensor, initial_state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """sum over m <= t of w_tm x_m, at each t, and the final state.

        x: [B, H, N, D], initial_state: [B, H, D]  ->  [B, H, N, D], [B, H, D].
        """
        x = self.chunked(x)
        to_end = x if self.to_end is None else x * self.to_end
        sums = to_end.sum(-2)[..., None]  # [B, H, M, D, 1]
        before, final = self._carry(
            sums, None if initial_state is None else initial_state[..., None]
        )
        carried = before.mT if self.from_start is None else before.mT * self.from_start
        return self.flat(self._mix(x, self.intra_chunk) + carried), final[..., 0]

    def causal_attention(
        self, q: Tensor, k: Tensor, v: Tensor, initial_state: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """q_t . S_t with S_t = sum over m <= t of w_tm k_m v_m^T, at each t, and the final S.

        q, k: [B, H, N, D], v: [B, H, N, E], initial_state: [B, H, D, E]
        -> [B, H, N, E], [B, H, D, E].
        """
        q, k, v = self.chunked(q), self.chunked(k), self.chunked(v)
        if self.intra_chunk.dim() > 5:
            scores = torch.einsum("...id,...ijd,...jd->...ij", q, self.intra_chunk, k)
        else:
            scores = (q @ k.mT) * self.intra_chunk
        to_end = k if self.to_end is None else k * self.to_end
        before, final = self._carry(to_end.mT @ v, initial_state)
        carried = (q if self.from_start is None else q * self.from_start) @ before
        return self.flat(scores @ v + carried), final

    def bidirectional_sum(self, x: Tensor) -> Tensor:
        """sum over all m of w_tm x_m, earlier and later events alike. [B, H, N, D] -> same."""
        from_start, to_end = self._decays()
        x = self.chunked(x)
        before, _ = self._carry((x * to_end).sum(-2)[..., None], None)
        after, _ = self._carry((x * from_start).sum(-2)[..., None], None, backwards=True)
        mixed = self._mix(x, self._bidirectional_weights())
        return self.flat(mixed + before.mT * from_start + after.mT * to_end)

    def bidirectional_attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q_t . S_t with S_t = sum over all m of w_tm k_m v_m^T, earlier and later alike."""
        from_start, to_end = self._decays()
        q, k, v = self.chunked(q), self.chunked(k), self.chunked(v)
        scores = (q @ k.mT) * self._bidirectional_weights()
        # both ways in one product: a matrix twice as wide takes less than twice the time
        ended, begun = (torch.cat([k * to_end, k * from_start], -1).mT @ v).chunk(2, -2)
        before, _ = self._carry(ended, None)
        after, _ = self._carry(begun, None, backwards=True)
        carried = torch.cat([q * from_start, q * to_end], -1) @ torch.cat([before, after], -2)
        return self.flat(scores @ v + carried)

    def _bidirectional_weights(self) -> Tensor:
        """Weights inside a chunk by distance in either direction; an event's own weight is one."""
        return self.intra_chunk + self.intra_chunk.mT.triu(1)

    def _decays(self) -> tuple[Tensor, Tensor]:
        assert self.from_start is not None
        assert self.to_end is not None
        return self.from_start, self.to_end

    def _mix(self, x: Tensor, weights: Tensor) -> Tensor:
        """x: [B, H, M, C, D], weighted inside each chunk."""
        if weights.dim() > 5:
            return torch.einsum("...ijd,...jd->...id", weights, x)
        if weights.dim() == 2:
            return torch.einsum("ij,...jd->...id", weights, x)
        if weights.shape[0] == 1 and weights.shape[2] == 1:
            return torch.einsum("hij,bhmjd->bhmid", weights[0, :, 0], x)
        return weights @ x

    def _carry(
        self, sums: Tensor, initial_state: Tensor | None, *, backwards: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The state before each chunk and after the last; or after each and before the first.

        sums: [B, H, M, D, E].
        """
        state = torch.zeros_like(sums[:, :, 0]) if initial_state is None else initial_state
        if self.inter_chunk is None:
            totals = torch.cumsum(torch.cat([state[:, :, None], sums], 2), 2)
            return totals[:, :, :-1], totals[:, :, -1]
        inter_chunk = self.inter_chunk.expand(*self.inter_chunk.shape[:2], self.chunks, -1, -1)
        # unbind, not indexing: the gradient of each index is as large as all chunks together
        chunks = list(zip(inter_chunk.unbind(2), sums.unbind(2), strict=True))
        carried = []
        for decay, added in reversed(chunks) if backwards else chunks:
            carried.append(state)
            state = state * decay + added
        return torch.stack(carried[::-1] if backwards else carried, 2), state
