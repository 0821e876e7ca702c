"""RecBole's attention: SASRec, SASRecF, BERT4Rec, FDSA, CORE and every other model that uses it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from linrec.nn import Attention, Causal, Mask, merge_heads, split_heads
from linrec.transplant.adapter import Adapter


class RecBoleAttention(Attention):
    """Attention, residual, LayerNorm and both dropouts, under RecBole's names for its weights.

    `attention_mask` is added to scores: [B, 1, 1, N] for padding, [B, 1, N, N] with causality.
    """

    def __init__(self, old: Any, mechanism: str, causal: Causal) -> None:
        super().__init__(mechanism, old.num_attention_heads, causal=causal)
        self.heads = old.num_attention_heads
        self.query, self.key, self.value = old.query, old.key, old.value
        self.attn_dropout, self.dense = old.attn_dropout, old.dense
        self.out_dropout, self.LayerNorm = old.out_dropout, old.LayerNorm
        self.adopt(old, old.query.weight)

    def forward(self, input_tensor: Tensor, attention_mask: Tensor) -> Tensor:
        q, k, v = (
            split_heads(project(input_tensor), self.heads)
            for project in (self.query, self.key, self.value)
        )
        out, _ = self.attend(q, k, v, Mask(pairs=attention_mask), self.attn_dropout.p)
        hidden = self.out_dropout(self.dense(merge_heads(out)))
        normed: Tensor = self.LayerNorm(hidden + input_tensor)
        return normed


MULTIHEAD = Adapter("recbole.model.layers.MultiHeadAttention", RecBoleAttention)
