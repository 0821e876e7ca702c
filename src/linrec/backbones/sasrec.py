"""SASRec: item and position embeddings, Transformer blocks, tied output embeddings."""

from __future__ import annotations

from torch import Tensor, nn

from linrec.backbones.backbone import Backbone, gaussian_init
from linrec.backbones.config import ModelConfig
from linrec.layers import Block, EventEmbedding, FeedForward, MultiHeadAttention


class SASRec(Backbone):
    def __init__(self, config: ModelConfig, n_items: int) -> None:
        super().__init__(config, n_items)
        self.embedding = EventEmbedding(n_items, config.width, config.positions, config.dropout)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.layers))
        # post-norm blocks end in a norm already; a pre-norm stack leaves its sum unnormalised
        self.final_norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()
        self.apply(gaussian_init)

    def forward(self, items: Tensor, keep: Tensor) -> Tensor:
        x = self.embedding(items)
        for block in self.blocks:
            x = block(x, keep)
        hidden: Tensor = self.final_norm(x)
        return hidden

    def item_vectors(self) -> Tensor:
        return self.embedding.item.weight


def _block(config: ModelConfig) -> Block:
    attention = MultiHeadAttention(
        config.attention, config.width, config.heads, causal=config.causal
    )
    feed_forward = FeedForward(config.width, config.inner)
    return Block(config.width, attention, feed_forward, config.dropout, config.norm)
