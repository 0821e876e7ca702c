"""One sentence for each thing that a linear mechanism cannot do, with the remedy in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from linrec.nn import MultiheadAttention
from linrec.types import InputError
from tests.nn.cases import BATCH, HEADS, LENGTH, WIDTH, future, hidden_at_the_end, of, random_input


def refused(match: str, module: MultiheadAttention | None = None, **call: Any) -> None:
    x = random_input()
    with pytest.raises(InputError, match=match) as error:
        (module or of("linrec"))(*call.pop("inputs", [x, x, x]), **call)
    assert "\n" not in str(error.value)


def no_self() -> torch.Tensor:
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(0)


def window() -> torch.Tensor:
    return future() | future().T.logical_and(~torch.ones(LENGTH, LENGTH).bool().tril(-1).triu(-3))


def one_pair() -> torch.Tensor:
    mask = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    mask[2, 4] = True
    return mask


@pytest.mark.parametrize("mask", [no_self(), window(), one_pair(), future().T])
def test_masks_of_single_pairs(mask: torch.Tensor) -> None:
    refused("neither empty, causal nor padding.*softmax", attn_mask=mask)
    numbers = torch.zeros(mask.shape).masked_fill(mask, float("-inf"))
    refused("neither empty, causal nor padding", attn_mask=numbers)


def test_two_sequences_in_one_row() -> None:
    apart = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    apart[:4, :4] = apart[4:, 4:] = False
    refused("neither empty, causal nor padding", attn_mask=apart)
    refused("neither empty, causal nor padding", attn_mask=apart | future())


def test_numbers_that_weigh_pairs() -> None:
    distance = -(torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs().double()
    refused("adds numbers to the scores", attn_mask=distance)
    refused("adds numbers to the scores", key_padding_mask=-torch.rand(BATCH, LENGTH))


def test_masks_that_differ_between_heads() -> None:
    mask = future().repeat(BATCH * HEADS, 1, 1)
    mask[1] = False
    refused("differs between heads", attn_mask=mask)


def test_cross_attention() -> None:
    x = random_input()
    refused("4 queries over 9 keys are cross attention.*softmax", inputs=[x[:, :4], x, x])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        ({"key_padding_mask": hidden_at_the_end()[:2]}, r"key_padding_mask must have the shape"),
        ({"attn_mask": future(4)}, r"attn_mask must have the shape \(9, 9\), not \(4, 4\)"),
        ({"attn_mask": future()[None]}, r"attn_mask must have the shape \(6, 9, 9\)"),
        ({"attn_mask": future().long()}, "bool or floating, not torch.int64"),
        ({"inputs": [torch.zeros(2, 3, 4)] * 3}, "the last of size 16"),
        ({"inputs": [torch.zeros(16)] * 3}, "3 dimensions, or 2 without a batch"),
    ],
)
def test_shapes(call: dict[str, Any], match: str) -> None:
    refused(match, **call)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"num_heads": 3}, "embed_dim 16 must be a multiple of num_heads 3"),
        ({"kdim": 8}, "kdim and vdim must be left out"),
        ({"vdim": 8}, "kdim and vdim must be left out"),
        ({"add_bias_kv": True}, "add_bias_kv and add_zero_attn"),
        ({"add_zero_attn": True}, "add_bias_kv and add_zero_attn"),
        ({"mechanism": "linear"}, "unknown attention 'linear'; choose from"),
        ({"causal": "yes"}, "causal must be 'auto', True or False"),
    ],
)
def test_constructor(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        MultiheadAttention(WIDTH, **{"num_heads": HEADS} | settings)


@pytest.mark.parametrize(
    ("settings", "match"),
    [({"kdim": 8}, "another width"), ({"add_bias_kv": True}, "key that belongs to no event")],
)
def test_what_cannot_be_converted(settings: dict[str, Any], match: str) -> None:
    theirs = torch.nn.MultiheadAttention(WIDTH, HEADS, **settings)
    with pytest.raises(InputError, match=f"cannot be converted: .*{match}"):
        MultiheadAttention.from_torch(theirs)
