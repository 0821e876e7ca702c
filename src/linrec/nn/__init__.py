"""Attention with the face of torch.nn's, for models that were written around that."""

from linrec.nn.base import Attention, Causal, merge_heads, split_heads
from linrec.nn.masks import Mask
from linrec.nn.multihead import MultiheadAttention

__all__ = [
    "Attention",
    "Causal",
    "Mask",
    "MultiheadAttention",
    "merge_heads",
    "split_heads",
]
