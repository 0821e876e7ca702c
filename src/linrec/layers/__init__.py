"""The parts backbones are made of."""

from linrec.layers.attention import MultiHeadAttention
from linrec.layers.block import Block, FeedForward
from linrec.layers.embedding import EventEmbedding

__all__ = ["Block", "EventEmbedding", "FeedForward", "MultiHeadAttention"]
