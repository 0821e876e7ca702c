"""Attention with the interface of torch.nn, for models that were written around that."""

from linrec.nn.base import Attention, Causal
from linrec.nn.core import AttentionCore, merge_heads, split_heads
from linrec.nn.masks import Mask
from linrec.nn.multihead import MultiheadAttention

__all__ = [
    "Attention",
    "AttentionCore",
    "Causal",
    "Mask",
    "MultiheadAttention",
    "merge_heads",
    "split_heads",
]
