"""What every attention mechanism offers, and the one algorithm behind the linear ones.

B batch, H heads, N positions, D head width. keep [B, N] is True on real events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from linrec.ops.accumulation import ChunkedSums, Decay, is_traced
from linrec.ops.rule import Rule
from linrec.types import InputError

# added to sums of squares before a root: far below any real energy, yet no division by zero
EPSILON = 1e-8


@dataclass(frozen=True, slots=True)
class State:
    """What one layer remembers of each user's history: all that the next event needs.

    Examples:
        >>> state = ops.start("linrec", batch=1, heads=2, width=4)
        >>> state.memory.shape, state.column.shape, state.count.shape
        (torch.Size([1, 2, 4, 4]), torch.Size([1, 2, 4]), torch.Size([1, 2]))
    """

    memory: Tensor  # [B, H, D, D], sum of key-value outer products
    column: Tensor  # [B, H, D], what the mechanism's normaliser sums over the keys
    count: Tensor  # [B, H], events seen, decayed like the rest
    peak: Tensor | None = None  # [B, H, D], the largest key so far, where exponents need one


# what the host knows of masks on a GPU, where a look at one would have to be waited for
_known = WeakIdKeyDictionary()


def padded_at_the_end(keep: Tensor) -> bool:
    """True if no real event follows a padded one, so that causal sums never meet padding.

    While a graph is traced this is False: the general form is right either way.
    """
    if is_traced(*keep.shape) or torch.compiler.is_compiling():
        return False
    known: bool | None = _known.get(keep)  # type: ignore[no-untyped-call]
    return bool((keep[:, 1:] <= keep[:, :-1]).all()) if known is None else known


def remember_padding(keep: Tensor, on_host: Tensor) -> None:
    """Nobody has to look where `keep` is padded as long as it lives: it is a copy of this."""
    if keep is not on_host:
        _known[keep] = padded_at_the_end(on_host)


def zero_padding(out: Tensor, keep: Tensor | None) -> Tensor:
    """out: [B, H, N, D]."""
    return out if keep is None else out * keep[:, None, :, None]


class LinearMechanism:
    """A feature map for queries, one for keys, a normaliser and a decay.

    The output at t is normalise(query(q_t)) . sum over m of w_tm key(k_m) v_m^T. Subclasses define
    the two maps and the normaliser; bidirectional, causal and one-step forms follow. One that is a
    `Rule` (see `RuleBased`) needs no methods, and has kernels.
    """

    rule: Rule | None = None

    @property
    def takes_decay(self) -> bool:
        return self.rule is not None and self.rule.decay

    @property
    def normalises(self) -> Literal["columns", "rows"]:
        """Whether the normaliser divides each feature (a part of K) or each row (a part of Q)."""
        return "columns"

    def query(self, q: Tensor) -> Tensor:
        raise NotImplementedError

    def key(self, k: Tensor) -> Tensor:
        raise NotImplementedError

    def column(self, key: Tensor) -> Tensor:
        """What each key adds to the sum that `normalise` divides by."""
        raise NotImplementedError

    def normalise(self, x: Tensor, column: Tensor, count: Tensor) -> Tensor:
        """x, column: [B, H, N, D], count: [B, H, N, 1]."""
        raise NotImplementedError

    def keys(
        self, k: Tensor, keep: Tensor | None, peak: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The features of the keys, zero where padded, and the running peak if there is one."""
        del peak
        return zero_padding(self.key(k), keep), None

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
        """In float32 or wider, whatever the precision of the inputs."""
        with torch.autocast(q.device.type, enabled=False):
            out = self._attend(_wide(q), _wide(k), _wide(v), keep, causal, decay).to(v.dtype)
        return zero_padding(out, keep)

    def resume(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keep: Tensor | None,
        decay: Tensor | None,
        state: State,
    ) -> tuple[Tensor, State]:
        """The causal form that continues from a state, in its precision, and the final state."""
        with torch.autocast(q.device.type, enabled=False):
            wide_q, wide_k, wide_v = (x.to(state.memory.dtype) for x in (q, k, v))
            out, state = self._causal(wide_q, wide_k, wide_v, keep, decay, state, uniform=False)
        return zero_padding(out.to(v.dtype), keep), state

    def factors(self, q: Tensor, k: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        """Q_rho and K_rho of the bidirectional form."""
        if self.takes_decay:
            raise InputError(
                "a decay weighs each pair of events by their distance, so B' is not a product of "
                "two factors; use attention_matrix for B', or factors of linrec, the form without "
                "decay"
            )
        with torch.autocast(q.device.type, enabled=False):
            query, key = (x.to(q.dtype) for x in self._factors(_wide(q), _wide(k), keep))
        return zero_padding(query, keep), key

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keep: Tensor | None,
        causal: bool,
        decay: Tensor | None,
    ) -> Tensor:
        if causal:
            uniform = keep is None or padded_at_the_end(keep)
            return self._causal(q, k, v, keep, decay, None, uniform=uniform)[0]
        query, (key, _) = self.query(q), self.keys(k, keep, None)
        if decay is None:
            column, count = self._totals(key, keep)
            return self.normalise(query, column, count) @ (key.mT @ v)
        return self._bidirectional(query, key, v, keep, decay)

    def _factors(self, q: Tensor, k: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        query, (key, _) = self.query(q), self.keys(k, keep, None)
        column, count = self._totals(key, keep)
        if self.normalises == "rows":
            return self.normalise(query, column, count), key
        return query, self.normalise(key, column, count)

    def _totals(self, key: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.column(key).sum(2, keepdim=True), _ones(keep, key).sum(2, keepdim=True)

    def _bidirectional(
        self, query: Tensor, key: Tensor, v: Tensor, keep: Tensor | None, decay: Tensor
    ) -> Tensor:
        """Weights g^|t-m|: earlier events and later ones, the event itself counted once."""
        # padding at the end meets an empty state from either side
        uniform = keep is None or padded_at_the_end(keep)
        sums = self._chunked_sums(key, keep, decay, uniform)
        ones = _ones(keep, key).expand(*key.shape[:3], 1)
        total = sums.bidirectional_sum(torch.cat([self.column(key), ones], -1))
        query = self.normalise(query, total[..., :-1], total[..., -1:])
        return sums.bidirectional_attention(query, key, v)

    def _causal(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keep: Tensor | None,
        decay: Tensor | None,
        state: State | None,
        *,
        uniform: bool,
    ) -> tuple[Tensor, State]:
        key, peak = self.keys(k, keep, None if state is None else state.peak)
        if peak is None:
            sums = self._chunked_sums(key, keep, decay, uniform)
        else:
            # sums of exp(k - peak) shrink by exp(old peak - new peak): each feature has its decay
            initial = None if state is None or state.peak is None else state.peak[:, :, None]
            minus = -torch.ones(1, 1, 1, device=key.device, dtype=key.dtype)
            sums = ChunkedSums(key.shape[2], Decay(minus, peak, initial), key)
        column, final_column = sums.causal_sum(
            self.column(key), None if state is None else state.column
        )
        count, final_count = self._counts(sums, key, keep, decay, state)
        query = self.normalise(self.query(q), column, count)
        out, memory = sums.causal_attention(query, key, v, None if state is None else state.memory)
        final_peak = None if peak is None else peak[:, :, -1]
        return out, State(memory, final_column, final_count, final_peak)

    def _counts(
        self,
        sums: ChunkedSums,
        key: Tensor,
        keep: Tensor | None,
        decay: Tensor | None,
        state: State | None,
    ) -> tuple[Tensor, Tensor]:
        """Events up to each position, itself included: [B, H, N, 1], and in total: [B, H]."""
        ones = _ones(keep, key)
        before = None if state is None else state.count[..., None]
        if decay is None:
            count = ones.cumsum(2) if before is None else ones.cumsum(2) + before[:, :, None]
        else:
            count = sums.causal_sum(ones.expand(*key.shape[:3], 1), before)[0]
        return count, count[:, :, -1, 0].expand(key.shape[:2])

    def _chunked_sums(
        self, key: Tensor, keep: Tensor | None, decay: Tensor | None, uniform: bool
    ) -> ChunkedSums:
        """uniform: every position may add one to the age, because padding meets an empty state.

        The final state has then decayed over padding too, and must not be resumed from.
        """
        if decay is None:
            return ChunkedSums(key.shape[2], None, key)
        rate = decay.to(key.dtype)[:, None, None]
        if uniform:
            return ChunkedSums(key.shape[2], Decay(rate), key)
        ones = _ones(keep, key)
        initial_age = torch.zeros_like(ones[:, :, :1])
        return ChunkedSums(key.shape[2], Decay(rate, ones.cumsum(2), initial_age), key)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _ones(keep: Tensor | None, key: Tensor) -> Tensor:
    """One for each real event, zero for padding: [B, 1, N, 1]."""
    if keep is None:
        return key.new_ones(key.shape[0], 1, key.shape[2], 1)
    return keep[:, None, :, None].to(key.dtype)


def no_state(name: str) -> InputError:
    return InputError(
        f"{name} keeps no state of fixed size, so a history cannot be advanced by one event; "
        "re-encode it, or choose a linear mechanism such as linrec-decay"
    )
