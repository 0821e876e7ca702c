"""Self-attention of Hugging Face's BERT and GPT-2.

B batch, H heads, L queries, S keys, of which L are new and the rest came from the cache.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from linrec.nn import Attention, Causal, Mask, merge_heads, split_heads
from linrec.transplant.adapter import Adapter, NamedModule

CROSS = "cross attention; linear mechanisms attend within one sequence"


class HuggingFaceAttention(Attention):
    """What both have in common: their arguments, masks and cache."""

    def __init__(self, old: Any, mechanism: str, causal: Causal, heads: int) -> None:
        super().__init__(mechanism, heads, causal=causal)
        self.heads = heads
        self.arguments = _arguments(old)[1:]  # in an order that changes between versions
        self.layer_idx = getattr(old, "layer_idx", None)
        self.is_causal = bool(getattr(old, "is_causal", False))

    def forward(self, *args: Any, **named: Any) -> tuple[Tensor, Tensor | None]:
        given = dict(zip(self.arguments, args, strict=False)) | named
        for name in ("head_mask", "encoder_hidden_states"):
            if given.get(name) is not None:
                raise self.refused(f"{self.mechanism} cannot apply {name}; leave it out")
        q, k, v = (split_heads(x, self.heads) for x in self.project(given["hidden_states"]))
        new = q.shape[2]
        k, v = self._with_cached(k, v, given.get("past_key_values"))
        mask = self._mask(given.get("attention_mask"), new, k)
        # cached keys no longer have queries: zeros stand in for them
        q = torch.cat([q.new_zeros(*q.shape[:2], k.shape[2] - new, q.shape[3]), q], 2)
        out, kept = self.attend(q, k, v, mask, self.dropout_rate())
        weights = self.weights(q, k, mask, kept) if given.get("output_attentions") else None
        return (
            self.project_out(merge_heads(out[:, :, -new:])),
            None if weights is None else weights[:, :, -new:],
        )

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        raise NotImplementedError

    def dropout_rate(self) -> float:
        raise NotImplementedError

    def project_out(self, x: Tensor) -> Tensor:
        return x

    def _with_cached(self, k: Tensor, v: Tensor, cache: Any) -> tuple[Tensor, Tensor]:
        if cache is None:
            return k, v
        cache = getattr(cache, "self_attention_cache", cache)
        k, v = cache.update(k, v, self.layer_idx)
        if k.shape[2] != cache.get_seq_length(self.layer_idx):
            raise self.refused(
                "a cache of fixed length holds keys without events, which would count; use the "
                "dynamic cache, or use_cache=False"
            )
        return k, v

    def _mask(self, mask: Any, new: int, k: Tensor) -> Mask:
        if mask is None:
            return Mask(causal=self.is_causal)
        if not isinstance(mask, Tensor):
            raise self.refused(
                f"a {type(mask).__name__} cannot be read as padding and causality; load the "
                "model with attn_implementation='sdpa' or 'eager'"
            )
        if mask.dim() == 2:  # the flash kernels' form: one on real events
            return Mask(padding=mask.bool(), causal=self.is_causal)
        return Mask(pairs=mask if new == k.shape[2] else _square(mask, k.shape[2]))


def _square(mask: Tensor, keys: int) -> Tensor:
    """[B, 1, L, S] -> [B, 1, S, S]: cached queries saw what the newest sees, up to themselves."""
    hidden = ~mask if mask.dtype == torch.bool else mask < 0
    older = hidden[:, :, -1:].expand(-1, -1, keys, -1).clone()
    future = torch.ones(keys, keys, dtype=torch.bool, device=mask.device).triu(1)
    older = (older | future)[:, :, : keys - mask.shape[2]]
    if mask.dtype == torch.bool:
        return torch.cat([~older, mask], 2)
    filled = mask.new_zeros(older.shape).masked_fill(older, float("-inf"))
    return torch.cat([filled, mask], 2)


class BertAttention(HuggingFaceAttention):
    """BertSelfAttention: the projections; what follows them stays BERT's."""

    def __init__(self, old: Any, mechanism: str, causal: Causal) -> None:
        super().__init__(old, mechanism, causal, old.num_attention_heads)
        self.query, self.key, self.value, self.dropout = old.query, old.key, old.value, old.dropout
        self.adopt(old, old.query.weight)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.query(x), self.key(x), self.value(x)

    def dropout_rate(self) -> float:
        return float(self.dropout.p)


class GPT2Attention(HuggingFaceAttention):
    """GPT2Attention: both projections (Conv1D: weights lie the other way) and both dropouts."""

    def __init__(self, old: Any, mechanism: str, causal: Causal) -> None:
        super().__init__(old, mechanism, causal, old.num_heads)
        self.c_attn, self.c_proj = old.c_attn, old.c_proj
        self.attn_dropout, self.resid_dropout = old.attn_dropout, old.resid_dropout
        self.is_causal = True
        self.adopt(old, old.c_attn.weight)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.c_attn(x).chunk(3, -1)
        return q, k, v

    def dropout_rate(self) -> float:
        return float(self.attn_dropout.p)

    def project_out(self, x: Tensor) -> Tensor:
        projected: Tensor = self.resid_dropout(self.c_proj(x))
        return projected


def _why_not_bert(entry: NamedModule) -> str | None:
    if "crossattention" in entry.name.split("."):
        return CROSS
    if getattr(entry.module, "position_embedding_type", "absolute") != "absolute":
        return "relative positions, which belong to single pairs of events"
    return _why_not_plain(entry)


def _why_not_gpt2(entry: NamedModule) -> str | None:
    if entry.module.is_cross_attention:
        return CROSS
    if getattr(entry.module, "scale_attn_by_inverse_layer_idx", False):
        return "scores scaled by layer (scale_attn_by_inverse_layer_idx); linrec has no scores"
    return _why_not_plain(entry)


def _why_not_plain(entry: NamedModule) -> str | None:
    if "past_key_values" not in _arguments(entry.module):
        return "an older transformers passes its cache and results differently; 5.22.2 was tested"
    return "some of its heads were pruned" if getattr(entry.module, "pruned_heads", None) else None


def _arguments(module: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(type(module).forward).parameters)


_BERT, _GPT2 = "transformers.models.bert.modeling_bert", "transformers.models.gpt2.modeling_gpt2"
BERT = Adapter(f"{_BERT}.BertSelfAttention", BertAttention, _why_not_bert)
BERT_CROSS = Adapter(f"{_BERT}.BertCrossAttention", BertAttention, lambda _: CROSS)
GPT2 = Adapter(f"{_GPT2}.GPT2Attention", GPT2Attention, _why_not_gpt2)
