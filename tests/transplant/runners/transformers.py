"""Hugging Face's BERT and GPT-2, tiny and random, with each way they make their masks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    __version__,
    set_seed,
)

from tests.transplant.runners import common

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
MASKS = ("eager", "sdpa")


def main() -> None:
    some = common.start()
    result = {}
    for masks in MASKS:
        result[f"BERT, {masks}"] = trained(bert(some, masks), some)
        result[f"GPT-2, {masks}"] = trained(gpt2(some, masks), some)
    common.finish({"version": __version__, "models": result})


def trained(model: nn.Module, some: list[list[int]]) -> dict[str, Any]:
    result = common.examine(model, encode, some)
    items, keep = common.padded(some, common.EVENTS), kept(some, common.EVENTS)
    requested = items.masked_fill(~keep, -100)
    if isinstance(model, BertForMaskedLM):
        hidden = torch.arange(common.EVENTS) % 4 == 1  # a quarter is to be filled in
        items = items.masked_fill(hidden & keep, common.count_items(some) + 1)
        requested = requested.masked_fill(~hidden, -100)
    result["losses"] = common.descend(
        model, lambda: model(items, attention_mask=keep.long(), labels=requested).loss
    )
    if isinstance(model, GPT2LMHeadModel):
        result["cache_changes"] = cache_changes(model, some)
    return result | common.laws(model, encode, some)


def bert(some: list[list[int]], masks: str) -> BertForMaskedLM:
    set_seed(0)
    return BertForMaskedLM(
        BertConfig(
            vocab_size=common.count_items(some) + 2, intermediate_size=64,
            max_position_embeddings=64, attn_implementation=masks, **SIZES,
        )
    )  # fmt: skip


def gpt2(some: list[list[int]], masks: str) -> GPT2LMHeadModel:
    set_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=common.count_items(some) + 2, n_positions=64, attn_implementation=masks,
            bos_token_id=0, eos_token_id=0, pad_token_id=0, **SIZES,
        )
    )  # fmt: skip


def encode(model: nn.Module, some: list[list[int]], width: int) -> list[Tensor]:
    mask = kept(some, width).long()
    out = model.base_model(common.padded(some, width), attention_mask=mask).last_hidden_state
    return [row[: len(events)] for row, events in zip(out, some, strict=True)]


def cache_changes(model: GPT2LMHeadModel, some: list[list[int]]) -> int:
    """How many of the items that follow, one at a time, are others without the cache."""
    model.eval()
    items = common.padded(some[:8], common.EVENTS, at_the_start=True)
    call = {"attention_mask": (items > 0).long(), "max_new_tokens": 6, "do_sample": False}
    with_it, without = (model.generate(items, use_cache=use, **call) for use in (True, False))
    return int((with_it != without).sum())


def kept(some: list[list[int]], width: int) -> Tensor:
    return common.padded(some, width) > 0


if __name__ == "__main__":
    main()
