"""Softmax attention, the quadratic baseline, through torch's fused kernels."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.ops.mechanism import padded_at_the_end, zero_padding


class Softmax:
    rule: ClassVar[None] = None
    takes_decay: ClassVar[bool] = False

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keep: Tensor | None,
        causal: bool,
        decay: Tensor | None,
    ) -> Tensor:
        del decay
        if q.device.type == "cpu" and q.dtype is torch.bfloat16:
            # torch's bfloat16 kernel takes three times as long backwards here as its float32 one
            with torch.autocast("cpu", enabled=False):
                out = self._attend(q.float(), k.float(), v.float(), keep, causal).bfloat16()
        else:
            out = self._attend(q, k, v, keep, causal)
        return zero_padding(out, keep)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, causal: bool) -> Tensor:
        if keep is None or (causal and padded_at_the_end(keep)):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        mask = keep[:, None, None, :].expand(-1, 1, keep.shape[1], -1)
        if causal:
            mask = mask & torch.ones_like(mask[0, 0]).tril()
        # a padded event may attend to itself: the softmax of an empty row is NaN
        mask = mask | torch.eye(keep.shape[1], dtype=torch.bool, device=keep.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
