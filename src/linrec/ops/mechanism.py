"""What every attention mechanism offers, and the one machine behind the linear ones.

B batch, H heads, N positions, D head width. keep [B, N] is True on real events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from linrec.ops.accumulation import Clock, Past, is_traced
from linrec.types import InputError

# added to sums of squares before a root: far below any real energy, yet no division by zero
EPSILON = 1e-8


@dataclass(frozen=True, slots=True)
class State:
    """What one layer remembers of each user's past: all that one more event needs."""

    memory: Tensor  # [B, H, D, D], sum of key-value outer products
    column: Tensor  # [B, H, D], what the mechanism's normaliser sums over the keys
    count: Tensor  # [B, H], events seen, faded like the rest
    peak: Tensor | None = None  # [B, H, D], the largest key so far, where exponents need one


def padded_at_the_end(keep: Tensor) -> bool:
    """True if no real event follows a padded one, so that causal sums never meet padding.

    A graph in the making takes the form that is right either way.
    """
    return not is_traced(*keep.shape) and bool((keep[:, 1:] <= keep[:, :-1]).all())


class LinearMechanism:
    """A feature map for queries, one for keys, a normaliser and a decay.

    The output at t is normalise(query(q_t)) . sum over m of w_tm key(k_m) v_m^T. Subclasses say
    what the two maps and the normaliser are; bidirectional, causal and one-step forms follow.
    """

    takes_decay: ClassVar[bool] = False
    # whether the normaliser divides each feature (then it belongs to K) or each row (then to Q)
    normalises: ClassVar[Literal["columns", "rows"]] = "columns"

    def query(self, q: Tensor) -> Tensor:
        raise NotImplementedError

    def key(self, k: Tensor) -> Tensor:
        raise NotImplementedError

    def column(self, key: Tensor) -> Tensor:
        """What each key adds to the sum that `normalise` divides by."""
        return key.square()

    def normalise(self, x: Tensor, column: Tensor, count: Tensor) -> Tensor:
        """x, column: [B, H, N, D], count: [B, H, N, 1]."""
        raise NotImplementedError

    def keys(
        self, k: Tensor, keep: Tensor | None, peak: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The features of the keys, zero where padded, and the running peak if there is one."""
        del peak
        key = self.key(k)
        return (key if keep is None else key * keep[:, None, :, None]), None

    def start(self, batch: int, heads: int, width: int, **dtype_device: Any) -> State:
        zeros = torch.zeros(batch, heads, width, width, **dtype_device)
        return State(zeros, zeros[..., 0].clone(), zeros[..., 0, 0].clone())

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keep: Tensor | None,
        causal: bool,
        decay: Tensor | None,
    ) -> Tensor:
        if causal:
            whole = keep is None or padded_at_the_end(keep)
            return self._causal(q, k, v, keep, decay, None, steady=whole)[0]
        query, (key, _) = self.query(q), self.keys(k, keep, None)
        if decay is None:
            column, count = self._totals(key, keep)
            return self.normalise(query, column, count) @ (key.mT @ v)
        return self._both_ways(query, key, v, keep, decay)

    def resume(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keep: Tensor | None,
        decay: Tensor | None,
        state: State,
    ) -> tuple[Tensor, State]:
        """The causal form from a given state on, and the state it ends in."""
        return self._causal(q, k, v, keep, decay, state, steady=False)

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, state: State
    ) -> tuple[Tensor, State]:
        """One more event: O(D^2) whatever came before."""
        return self.resume(q, k, v, None, decay, state)

    def factors(self, q: Tensor, k: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        """Q_rho and K_rho of the bidirectional form."""
        if self.takes_decay:
            raise InputError(
                "a decay weighs each pair of events by their distance, so B' is no product of two "
                "factors; ask attention_matrix for B', or factors of linrec, the form without decay"
            )
        query, (key, _) = self.query(q), self.keys(k, keep, None)
        column, count = self._totals(key, keep)
        if self.normalises == "rows":
            return self.normalise(query, column, count), key
        return query, self.normalise(key, column, count)

    def _totals(self, key: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.column(key).sum(2, keepdim=True), _real(keep, key).sum(2, keepdim=True)

    def _both_ways(
        self, query: Tensor, key: Tensor, v: Tensor, keep: Tensor | None, decay: Tensor
    ) -> Tensor:
        """Weights g^|t-m|: what came before and what comes after, the event itself counted once."""
        # padding at the end meets an empty memory from either side
        past = self._past(key, keep, decay, steady=keep is None or padded_at_the_end(keep))
        real = _real(keep, key).expand(*key.shape[:3], 1)
        total = past.sum_around(torch.cat([self.column(key), real], -1))
        query = self.normalise(query, total[..., :-1], total[..., -1:])
        return past.attended_around(query, key, v)

    def _causal(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keep: Tensor | None,
        decay: Tensor | None,
        state: State | None,
        *,
        steady: bool,
    ) -> tuple[Tensor, State]:
        key, peak = self.keys(k, keep, None if state is None else state.peak)
        if peak is None:
            past = self._past(key, keep, decay, steady)
        else:
            # sums of exp(k - peak) shrink by exp(old peak - new peak): each feature has a clock
            first = None if state is None or state.peak is None else state.peak[:, :, None]
            minus = -torch.ones(1, 1, 1, device=key.device, dtype=key.dtype)
            past = Past(key.shape[2], Clock(minus, peak, first), key)
        column, last_column = past.running_sum(
            self.column(key), None if state is None else state.column
        )
        count, last_count = self._counted(past, key, keep, decay, state)
        query = self.normalise(self.query(q), column, count)
        out, memory = past.attended(query, key, v, None if state is None else state.memory)
        return out, State(memory, last_column, last_count, None if peak is None else peak[:, :, -1])

    def _counted(
        self,
        past: Past,
        key: Tensor,
        keep: Tensor | None,
        decay: Tensor | None,
        state: State | None,
    ) -> tuple[Tensor, Tensor]:
        """How many events each position has behind it, itself included: [B, H, N, 1], [B, H]."""
        real = _real(keep, key)
        before = None if state is None else state.count[..., None]
        if decay is None:
            count = real.cumsum(2) if before is None else real.cumsum(2) + before[:, :, None]
        else:
            count = past.running_sum(real.expand(*key.shape[:3], 1), before)[0]
        return count, count[:, :, -1, 0].expand(key.shape[:2])

    def _past(self, key: Tensor, keep: Tensor | None, decay: Tensor | None, steady: bool) -> Past:
        """steady: every position may count as one tick, because padding meets no memory.

        The sums at the end have then aged by padding too, and are not to be resumed from.
        """
        if decay is None:
            return Past(key.shape[2], None, key)
        rate = decay.to(key.dtype)[:, None, None]
        if steady:
            return Past(key.shape[2], Clock(rate), key)
        real = _real(keep, key)
        start = torch.zeros_like(real[:, :, :1])
        return Past(key.shape[2], Clock(rate, real.cumsum(2), start), key)


def _real(keep: Tensor | None, key: Tensor) -> Tensor:
    """One for each real event, zero for padding: [B, 1, N, 1]."""
    if keep is None:
        return key.new_ones(key.shape[0], 1, key.shape[2], 1)
    return keep[:, None, :, None].to(key.dtype)


def no_state(name: str) -> InputError:
    return InputError(
        f"{name} keeps no state of fixed size, so a history cannot be advanced by one event; "
        "re-encode it, or choose a linear mechanism such as linrec-decay"
    )
