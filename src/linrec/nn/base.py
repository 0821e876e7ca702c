"""What every attention that replaces another one shares: a mechanism, its decay and its masks.

B batch, H heads, L queries, S keys, D head width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrec import ops
from linrec.nn.masks import Mask, additive, read
from linrec.types import InputError

Causal = bool | Literal["auto"]


class Attention(nn.Module):
    """Attends with any mechanism, under any mask that the mechanism can apply.

    causal: "auto" does what each call's mask says; True and False overrule it.
    """

    where = ""  # its name in the model that it was put into, for sentences about its masks

    def __init__(
        self,
        mechanism: str,
        heads: int,
        *,
        causal: Causal = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        takes_decay = ops.takes_decay(mechanism)
        self.mechanism, self.causal = mechanism, checked_causal(causal)
        if takes_decay:
            logits = ops.initial_decay_logits(heads).to(device=device, dtype=dtype)
            self.decay_logit = nn.Parameter(logits)

    def adopt(self, like: nn.Module, weight: Tensor) -> None:
        """Go where that module's weight is, as trainable as it, in that module's mode."""
        self.train(like.training)
        if ops.takes_decay(self.mechanism):
            logits = ops.initial_decay_logits(len(self.decay_logit)).to(weight)
            self.decay_logit = nn.Parameter(logits, requires_grad=weight.requires_grad)

    def refused(self, sentence: str) -> InputError:
        return InputError(f"{self.where}: {sentence}" if self.where else sentence)

    def log_decay(self) -> Tensor | None:
        """log g of each head, or None for a mechanism that forgets nothing."""
        if not ops.takes_decay(self.mechanism):
            return None
        logit = self.decay_logit
        return F.logsigmoid(logit.to(torch.promote_types(logit.dtype, torch.float32)))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """[B, H, L, D], and what dropout multiplied each event's value by, [B, H, S, 1]."""
        kept = v.new_ones(*v.shape[:3], 1)
        if self.training and dropout:
            # no matrix to drop single weights from: an event is dropped for all queries at once,
            # which for each of them is what dropping its weights is
            kept = F.dropout(kept, dropout)
            v = v * kept
        try:
            return self._mixed(q, k, v, self._ruled(mask)), kept
        except InputError as error:
            raise self.refused(str(error)) from None

    def weights(self, q: Tensor, k: Tensor, mask: Mask, kept: Tensor) -> Tensor:
        """The explicit matrix [B, H, L, S] with which `attend` multiplied the values."""
        mask = self._ruled(mask)
        if self.mechanism == "softmax":
            each = torch.eye(k.shape[2], dtype=k.dtype, device=k.device)
            matrix = _softmax(q, k, each.expand(*k.shape[:2], -1, -1), mask)
        else:
            keep, causal = self._seen(q, k, mask)
            decay = self.log_decay()
            matrix = ops.attention_matrix(
                self.mechanism, q, k, keep=keep, causal=causal, decay=decay
            )
        return matrix * kept.mT

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        if self.mechanism == "softmax":
            return _softmax(q, k, v, mask)
        keep, causal = self._seen(q, k, mask)
        decay = self.log_decay()
        return ops.attend(self.mechanism, q, k, v, keep=keep, causal=causal, decay=decay)

    def _ruled(self, mask: Mask) -> Mask:
        if self.causal == "auto":
            return mask
        if self.causal:
            return replace(mask, causal=True)
        return Mask(padding=read(mask)[0])

    def _seen(self, q: Tensor, k: Tensor, mask: Mask) -> tuple[Tensor | None, bool]:
        if q.shape[2] != k.shape[2]:
            raise InputError(
                f"{q.shape[2]} queries over {k.shape[2]} keys are cross attention, and "
                f"{self.mechanism} attends within one sequence; use mechanism='softmax' here "
                "(replace_attention leaves out what its `skip` names)"
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
        """Weights of the attention that was replaced have no decay: ours stays as it is."""
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


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, N, width] -> [B, heads, N, width / heads]."""
    return x.view(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(-2)


def _softmax(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """torch's own; unlike torch's, a query that may see nothing gets zeros instead of NaN."""
    bias = additive(mask, (q.shape[2], k.shape[2]), q)
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v)
    nothing = ~bias if bias.dtype == torch.bool else bias == float("-inf")
    blind = nothing.all(-1, keepdim=True)
    bias = bias | blind if bias.dtype == torch.bool else bias.masked_fill(blind, 0.0)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).masked_fill(blind, 0.0)
