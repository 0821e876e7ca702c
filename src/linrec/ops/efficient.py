"""Efficient Attention (Shen et al. 2021): softmax of Q over features, of K over positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linrec.ops.accumulation import is_traced
from linrec.ops.mechanism import LinearMechanism, State

# below every real key, yet finite: two of them differ by zero and not by NaN
NO_KEY = -1e30
# keys of a feature that differ by less need only one peak: the backward pass squares the
# exponential of this, and float32 ends at exp(88)
NARROW = 30.0


class EfficientAttention(LinearMechanism):
    """The column sum of exp(K) over a prefix is a running sum, so it divides the query.

    Exponents are taken relative to the largest key (the peak), so they never overflow: to that of
    the whole sequence if no event underflows by it; to the largest so far, at several times the
    cost, if one would or if more events follow. The softmax does not depend on what is subtracted,
    hence no gradient passes through the peak.
    """

    def query(self, q: Tensor) -> Tensor:
        return q.softmax(-1)

    def column(self, key: Tensor) -> Tensor:
        return key

    def normalise(self, x: Tensor, column: Tensor, count: Tensor) -> Tensor:
        del count
        return x / column.clamp(min=torch.finfo(column.dtype).tiny)

    def keys(
        self, k: Tensor, keep: Tensor | None, peak: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        masked = k if keep is None else k.masked_fill(~keep[:, None, :, None], NO_KEY)
        if peak is None:
            overall = masked.detach().amax(2, keepdim=True)
            if _narrow(k, keep, overall):
                return _exponential(masked, overall, keep), None
        peaks = masked.detach().cummax(2).values
        if peak is not None:
            peaks = torch.maximum(peaks, peak[:, :, None])
        return _exponential(masked, peaks, keep), peaks

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
            return super()._attend(q, k, v, keep, causal, decay)
        query, key = self._factors(q, k, keep)
        return query @ (key.mT @ v)

    def _factors(self, q: Tensor, k: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        if keep is None:
            return self.query(q), k.softmax(2)
        visible = keep[:, None, :, None]
        return self.query(q), k.masked_fill(~visible, NO_KEY).softmax(2) * visible

    def start(self, batch: int, heads: int, width: int, **dtype_device: Any) -> State:
        empty = super().start(batch, heads, width, **dtype_device)
        return State(empty.memory, empty.column, empty.count, torch.full_like(empty.column, NO_KEY))


def _exponential(masked: Tensor, peak: Tensor, keep: Tensor | None) -> Tensor:
    key = torch.exp(masked - peak)
    return key if keep is None else key * keep[:, None, :, None]


def _narrow(k: Tensor, keep: Tensor | None, peak: Tensor) -> bool:
    """Whether no real key lies far below the peak; a traced graph cannot tell."""
    if is_traced(*k.shape):
        return False
    masked = k.detach() if keep is None else torch.where(keep[:, None, :, None], k.detach(), peak)
    return bool(((peak - masked) < NARROW).all())
