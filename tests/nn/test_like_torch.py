"""With softmax, ours is torch.nn.MultiheadAttention: values, gradients, weights and names."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linrec.nn import MultiheadAttention
from tests.nn.cases import (
    BATCH,
    EVERY,
    HEADS,
    LENGTH,
    WIDTH,
    Masked,
    future,
    hidden_at_the_end,
    pair,
    random_input,
)


def values_and_grads(module: nn.Module, inputs: list[Tensor], **call: Any) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    module.zero_grad()
    out, weights = module(*leaves, **call)
    rng = torch.Generator().manual_seed(5)
    cotangent = torch.randn(out.shape, generator=rng, dtype=torch.float64)
    (out * cotangent).sum().backward()
    grads = [x.grad for x in [*leaves, *module.parameters()]]
    actual = [out, *grads] + ([] if weights is None else [weights])
    return [x for x in actual if x is not None]


def assert_same(ours: nn.Module, theirs: nn.Module, inputs: list[Tensor], **call: Any) -> None:
    actual, expected = (values_and_grads(module, inputs, **call) for module in (ours, theirs))
    assert len(actual) == len(expected) >= len(inputs) + 2
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masked", EVERY, ids=repr)
def test_softmax_is_torchs(masked: Masked, need_weights: bool) -> None:
    theirs, ours = pair()
    x = random_input()
    assert_same(ours, theirs, [x, x, x], need_weights=need_weights, **masked.make())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_layouts_and_biases(batch_first: bool, bias: bool) -> None:
    theirs, ours = pair(batch_first=batch_first, bias=bias)
    inputs = [random_input(seed) for seed in range(3)]
    if not batch_first:
        inputs = [x.transpose(0, 1) for x in inputs]
    call = {"key_padding_mask": hidden_at_the_end(), "attn_mask": future()}
    assert_same(ours, theirs, inputs, average_attn_weights=False, **call)


def test_one_tensor_thrice_is_three_tensors() -> None:
    theirs, ours = pair()
    x = random_input()
    torch.testing.assert_close(ours(x, x, x)[0], theirs(x, x.clone(), x.clone())[0])
    torch.testing.assert_close(ours(x, x, x)[0], ours(x, x.clone(), x.clone())[0])


@pytest.mark.parametrize("batch_first", [True, False])
def test_without_a_batch(batch_first: bool) -> None:
    theirs, ours = pair(batch_first=batch_first)
    x = random_input()[0]
    call = {"key_padding_mask": hidden_at_the_end()[0], "attn_mask": future()}
    assert_same(ours, theirs, [x, x, x], **call)


def test_softmax_takes_cross_attention_and_any_mask() -> None:
    theirs, ours = pair()
    query, key = random_input(0)[:, :4], random_input(1)
    rng = torch.Generator().manual_seed(0)
    bias = torch.randn(4, LENGTH, generator=rng, dtype=torch.float64)
    assert_same(ours, theirs, [query, key, key], attn_mask=bias)


def test_is_causal_is_enough() -> None:
    theirs, ours = pair()
    x = random_input()
    torch.testing.assert_close(
        ours(x, x, x, is_causal=True)[0], theirs(x, x, x, attn_mask=future())[0]
    )


def test_who_may_see_nothing_gets_zeros() -> None:
    _, ours = pair()
    x = random_input().requires_grad_()
    hidden = hidden_at_the_end()
    hidden[1] = True
    out, weights = ours(x, x, x, key_padding_mask=hidden)
    torch.testing.assert_close(out[1], ours.out_proj.bias.expand(LENGTH, -1))
    assert weights is not None
    assert not weights[1].any()
    out.sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    assert not x.grad[1].any()


def test_parameters_begin_as_torchs() -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(WIDTH, HEADS)
    torch.manual_seed(0)
    ours = MultiheadAttention(WIDTH, HEADS, mechanism="softmax")
    assert [name for name, _ in ours.named_parameters()] == [
        name for name, _ in theirs.named_parameters()
    ]
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("mechanism", ["softmax", "linrec-decay"])
def test_torchs_weights_load_strictly(mechanism: str) -> None:
    theirs = nn.MultiheadAttention(WIDTH, HEADS)
    ours = MultiheadAttention(WIDTH, HEADS, mechanism=mechanism)
    before = ours.state_dict().get("decay_logit", torch.zeros(0)).clone()
    given = theirs.state_dict()
    ours.load_state_dict(given)
    assert set(given) == set(theirs.state_dict()), "the caller's weights must stay as they were"
    torch.testing.assert_close(ours.state_dict().get("decay_logit", torch.zeros(0)), before)
    for name, value in given.items():
        torch.testing.assert_close(ours.state_dict()[name], value)


def test_other_missing_weights_are_still_missed() -> None:
    weights = nn.MultiheadAttention(WIDTH, HEADS).state_dict()
    del weights["out_proj.bias"]
    with pytest.raises(RuntimeError, match=r"out_proj\.bias"):
        MultiheadAttention(WIDTH, HEADS).load_state_dict(weights)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_from_torch_keeps_what_it_finds(dtype: torch.dtype, training: bool) -> None:
    theirs = nn.MultiheadAttention(WIDTH, HEADS, 0.3, batch_first=True, dtype=dtype).train(training)
    theirs.requires_grad_(training)
    state = torch.get_rng_state()
    ours = MultiheadAttention.from_torch(theirs, "linrec-decay")
    assert torch.equal(torch.get_rng_state(), state), "the caller's randomness must go on as it was"
    assert ours.in_proj_weight is theirs.in_proj_weight
    assert ours.out_proj.bias is theirs.out_proj.bias
    assert (ours.training, ours.dropout, ours.batch_first) == (training, 0.3, True)
    assert {p.dtype for p in ours.parameters()} == {dtype}
    assert {p.device.type for p in ours.parameters()} == {"cpu"}
    assert {p.requires_grad for p in ours.parameters()} == {training}
    out, _ = ours(*[random_input(dtype=dtype)] * 3)
    assert out.dtype == dtype
    assert out.shape == (BATCH, LENGTH, WIDTH)


def test_copies_do_not_share() -> None:
    _, ours = pair("linrec-decay")
    twin = copy.deepcopy(ours)
    x = random_input()
    torch.testing.assert_close(twin(x, x, x)[0], ours(x, x, x)[0])
    with torch.no_grad():
        twin.in_proj_weight.zero_()
    assert ours.in_proj_weight.any()
