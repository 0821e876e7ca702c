"""The attention that `linrec.layers` and `linrec.nn` share: a mechanism by name and its decay.

B batch, H heads, N positions, D head width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrec import ops


class AttentionCore(nn.Module):
    """What is left of an attention module without its projections and masks.

    Examples:
        >>> core = nn.AttentionCore("linrec-decay")
        >>> core.init_decay(heads=2)
        >>> q, k, v = torch.randn(3, 1, 2, 5, 8)
        >>> core.mix(q, k, v, keep=None, causal=True).shape
        torch.Size([1, 2, 5, 8])
    """

    decay_logit: nn.Parameter  # [H], only for a mechanism that takes a decay

    def __init__(self, mechanism: str) -> None:
        super().__init__()
        ops.find(mechanism)
        self.mechanism = mechanism

    @property
    def takes_decay(self) -> bool:
        return ops.takes_decay(self.mechanism)

    def init_decay(self, heads: int, like: Tensor | None = None) -> None:
        """A decay per head, on the device, in the dtype and as trainable as `like`."""
        if self.takes_decay:
            logits = ops.initial_decay_logits(heads)
            trainable = like is None or like.requires_grad
            self.decay_logit = nn.Parameter(
                logits if like is None else logits.to(like), requires_grad=trainable
            )

    def log_decay(self) -> Tensor | None:
        """log g per head, or None for a mechanism that forgets nothing.

        In float32 or wider: bfloat16 cannot tell a span of 2,048 events from no decay.
        """
        if not self.takes_decay:
            return None
        wide = torch.promote_types(self.decay_logit.dtype, torch.float32)
        return F.logsigmoid(self.decay_logit.to(wide))

    def mix(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, causal: bool) -> Tensor:
        """q, k, v: [B, H, N, D] -> [B, H, N, D]."""
        decay = self.log_decay()
        return ops.attend(self.mechanism, q, k, v, keep=keep, causal=causal, decay=decay)

    def mix_projected(self, projected: Tensor, keep: Tensor | None, causal: bool) -> Tensor:
        """projected: q, k and v as one projection leaves them, [B, N, 3, H, D] -> [B, H, N, D]."""
        decay = self.log_decay()
        return ops.attend_projected(
            self.mechanism, projected, keep=keep, causal=causal, decay=decay
        )

    def matrix_of(self, q: Tensor, k: Tensor, keep: Tensor | None, causal: bool) -> Tensor:
        """The explicit B' [B, H, N, N] with mix(...) = B' V. For analysis: O(N^2) memory."""
        decay = self.log_decay()
        return ops.attention_matrix(self.mechanism, q, k, keep=keep, causal=causal, decay=decay)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, N, width] -> [B, heads, N, width / heads].

    Examples:
        >>> nn.split_heads(torch.randn(1, 5, 16), heads=2).shape
        torch.Size([1, 2, 5, 8])
    """
    return x.view(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, heads, N, width / heads] -> [B, N, width].

    Examples:
        >>> nn.merge_heads(torch.randn(1, 2, 5, 8)).shape
        torch.Size([1, 5, 16])
    """
    return x.transpose(1, 2).flatten(-2)
