"""What every attention that replaces another one shares: the core, masks and dropout.

B batch, H heads, L queries, S keys, D head width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrec.nn.core import AttentionCore
from linrec.nn.masks import Mask, additive, read
from linrec.types import InputError

Causal = bool | Literal["auto"]


class Attention(AttentionCore):
    """Attends with any mechanism, under any mask that the mechanism can apply.

    Args:
        mechanism: A name in `linrec.ops.MECHANISMS`.
        heads: Attention heads.
        causal: "auto" does what each call's mask says; True and False overrule it.
        device: Of the decay, where the mechanism has one.
        dtype: Of the decay.

    Examples:
        >>> attention = nn.Attention("linrec", heads=2)
        >>> q, k, v = torch.randn(3, 1, 2, 5, 8)
        >>> out, _ = attention.attend(q, k, v, nn.Mask(causal=True))
        >>> torch.allclose(out, ops.attend("linrec", q, k, v, causal=True))
        True
    """

    where = ""  # its name in the model that holds it, for error messages

    def __init__(
        self,
        mechanism: str,
        heads: int,
        *,
        causal: Causal = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(mechanism)
        self.causal = checked_causal(causal)
        self.init_decay(heads, torch.empty(0, device=device, dtype=dtype, requires_grad=True))

    def adopt(self, like: nn.Module, weight: Tensor) -> None:
        """Take that module's mode, and its weight's device, dtype and whether it is trained."""
        self.train(like.training)
        if self.takes_decay:
            self.init_decay(len(self.decay_logit), weight)

    def refused(self, sentence: str) -> InputError:
        return InputError(f"{self.where}: {sentence}" if self.where else sentence)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """[B, H, L, D], and the factor that dropout gave each event's value, [B, H, S, 1]."""
        kept = v.new_ones(*v.shape[:3], 1)
        if self.training and dropout:
            # there is no matrix to drop single weights from: an event is dropped for all queries at
            # once, which for each single query is the same
            kept = F.dropout(kept, dropout)
            v = v * kept
        try:
            return self._masked(q, k, v, self._effective(mask)), kept
        except InputError as error:
            raise self.refused(str(error)) from None

    def weights(self, q: Tensor, k: Tensor, mask: Mask, kept: Tensor) -> Tensor:
        """The explicit matrix [B, H, L, S] with which `attend` multiplied the values."""
        mask = self._effective(mask)
        if self.mechanism == "softmax":
            each = torch.eye(k.shape[2], dtype=k.dtype, device=k.device)
            matrix = _softmax(q, k, each.expand(*k.shape[:2], -1, -1), mask)
        else:
            matrix = self.matrix_of(q, k, *self._keep_and_causal(q, k, mask))
        return matrix * kept.mT

    def _masked(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        if self.mechanism == "softmax":
            return _softmax(q, k, v, mask)
        return self.mix(q, k, v, *self._keep_and_causal(q, k, mask))

    def _effective(self, mask: Mask) -> Mask:
        if self.causal == "auto":
            return mask
        if self.causal:
            return replace(mask, causal=True)
        return Mask(padding=read(mask)[0])

    def _keep_and_causal(self, q: Tensor, k: Tensor, mask: Mask) -> tuple[Tensor | None, bool]:
        if q.shape[2] != k.shape[2]:
            raise InputError(
                f"{q.shape[2]} queries over {k.shape[2]} keys are cross attention, and "
                f"{self.mechanism} attends within one sequence; use mechanism='softmax' here "
                "(replace_attention leaves what `skip` names)"
            )
        keep, causal = read(mask)
        return (None if keep is None else keep.expand(q.shape[0], -1)), causal

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """A checkpoint of the replaced attention has no decay: keep ours."""
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        own = f"{prefix}decay_logit"
        if own in missing_keys:
            missing_keys.remove(own)

    def extra_repr(self) -> str:
        return f"mechanism={self.mechanism!r}, causal={self.causal!r}"


def checked_causal(causal: Causal) -> Causal:
    if causal is True or causal is False or causal == "auto":
        return causal
    raise InputError(f"causal must be 'auto', True or False, not {causal!r}")


def _softmax(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """torch's softmax attention, except that a query without keys gets zeros instead of NaN."""
    bias = additive(mask, (q.shape[2], k.shape[2]), q)
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v)
    nothing = ~bias if bias.dtype == torch.bool else bias == float("-inf")
    blind = nothing.all(-1, keepdim=True)
    bias = bias | blind if bias.dtype == torch.bool else bias.masked_fill(blind, 0.0)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).masked_fill(blind, 0.0)
