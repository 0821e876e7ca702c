"""What holds for every mechanism behind torch.nn's face."""

from __future__ import annotations

import io

import pytest
import torch

from linrec import ops
from tests.nn.cases import (
    BATCH,
    BOTH,
    CAUSAL,
    HEADS,
    LENGTH,
    PADDING,
    WIDTH,
    Masked,
    future,
    hidden_at_the_end,
    of,
    random_input,
)
from tests.ops.cases import LINEAR, TOLERANCE, assert_close

pytestmark = pytest.mark.parametrize("mechanism", LINEAR)


def kept(masked: Masked) -> torch.Tensor:
    hidden = hidden_at_the_end()
    return ~(hidden.flip(1) if "start" in masked.name else hidden)


@pytest.mark.parametrize("masked", CAUSAL, ids=repr)
def test_the_future_changes_nothing(mechanism: str, masked: Masked) -> None:
    module, x = of(mechanism), random_input()
    before, _ = module(x, x, x, **masked.make())
    x[:, 5:] = random_input(seed=1)[:, 5:]
    after, _ = module(x, x, x, **masked.make())
    assert_close(after[:, :5], before[:, :5])
    assert not torch.allclose(after[:, 5:], before[:, 5:])


@pytest.mark.parametrize("masked", PADDING + BOTH, ids=repr)
def test_padding_changes_nothing(mechanism: str, masked: Masked) -> None:
    """Neither what is in it, nor that it is there."""
    module, x, keep = of(mechanism), random_input(), kept(masked)
    before, _ = module(x, x, x, **masked.make())
    x = torch.where(keep[..., None], x, random_input(seed=1))
    assert_close(module(x, x, x, **masked.make())[0][keep], before[keep])
    causal = masked in BOTH
    for row in range(BATCH):
        alone = x[row : row + 1, keep[row]]
        assert_close(module(alone, alone, alone, is_causal=causal)[0][0], before[row][keep[row]])


@pytest.mark.parametrize("masked", BOTH[1:], ids=repr)
def test_each_form_of_a_mask_means_the_same(mechanism: str, masked: Masked) -> None:
    module, x, keep = of(mechanism), random_input(), kept(masked)
    plain = {"attn_mask": future(), "key_padding_mask": ~keep}
    assert_close(module(x, x, x, **masked.make())[0][keep], module(x, x, x, **plain)[0][keep])


def test_batch_mates_change_nothing(mechanism: str) -> None:
    module, x = of(mechanism), random_input()
    hidden = hidden_at_the_end()
    together, _ = module(x, x, x, key_padding_mask=hidden)
    for row in range(BATCH):
        one = slice(row, row + 1)
        alone, _ = module(x[one], x[one], x[one], key_padding_mask=hidden[one])
        assert_close(alone, together[one])


@pytest.mark.parametrize("causal", [True, False])
def test_weights_are_what_multiplied_the_values(mechanism: str, causal: bool) -> None:
    module, x = of(mechanism), random_input()
    call = {"key_padding_mask": hidden_at_the_end(), "is_causal": causal}
    out, each = module(x, x, x, average_attn_weights=False, **call)
    assert each.shape == (BATCH, HEADS, LENGTH, LENGTH)
    value = torch.nn.functional.linear(
        x, module.in_proj_weight.chunk(3)[2], module.in_proj_bias.chunk(3)[2]
    )
    heads = each @ value.view(BATCH, LENGTH, HEADS, -1).transpose(1, 2)
    assert_close(module.out_proj(heads.transpose(1, 2).flatten(-2)), out)
    assert_close(module(x, x, x, **call)[1], each.mean(1))
    if causal:
        assert not each.triu(1).any()


def test_weights_after_dropout_too(mechanism: str) -> None:
    module, x = of(mechanism, dropout=0.5).train(), random_input()
    torch.manual_seed(0)
    out, each = module(x, x, x, average_attn_weights=False)
    value = torch.nn.functional.linear(
        x, module.in_proj_weight.chunk(3)[2], module.in_proj_bias.chunk(3)[2]
    )
    heads = each @ value.view(BATCH, LENGTH, HEADS, -1).transpose(1, 2)
    assert_close(module.out_proj(heads.transpose(1, 2).flatten(-2)), out)
    dropped = (each == 0).all(2)  # [B, H, S]: an event is dropped for all queries, or for none
    assert 0 < dropped.double().mean() < 1
    assert torch.equal(each == 0, dropped[:, :, None].expand_as(each))


def test_dropout_is_right_on_average_and_off_in_eval(mechanism: str) -> None:
    module = of(mechanism, dropout=0.25)
    x = random_input()[:1].expand(4000, -1, -1)
    torch.manual_seed(0)
    many = module.train()(x, x, x, need_weights=False)[0]
    module.eval()
    expected = module(x[:1], x[:1], x[:1])[0]
    assert torch.equal(module(x[:1], x[:1], x[:1])[0], expected)
    assert many.std(0).max() > 0
    # a mean of 4,000 is this close with a probability beyond doubt, and a wrong scale is not
    assert (many.mean(0) - expected[0]).abs().max() < 6 * many.std(0).max() / 4000**0.5


def test_bfloat16(mechanism: str) -> None:
    wide, narrow = of(mechanism), of(mechanism).to(torch.bfloat16)
    wide.load_state_dict(narrow.state_dict())
    x = random_input().bfloat16()
    call = {"key_padding_mask": hidden_at_the_end(), "attn_mask": future()}
    actual = narrow(x, x, x, **call)[0]
    assert actual.dtype == torch.bfloat16
    expected = wide(*[x.double()] * 3, **call)[0]
    # projections round too: an input, a head and an output, each once
    error = (actual.double() - expected).abs().max()
    assert error < 4 * TOLERANCE[torch.bfloat16] * expected.abs().max()


def test_saved_and_loaded(mechanism: str) -> None:
    module, x = of(mechanism), random_input()
    if ops.takes_decay(mechanism):
        torch.nn.init.normal_(module.decay_logit)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    again = of(mechanism)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(again(x, x, x)[0], module(x, x, x)[0])


def test_every_parameter_learns(mechanism: str) -> None:
    module, x = of(mechanism), random_input()
    out, _ = module(x, x, x, is_causal=True, need_weights=False)
    (out * random_input(seed=2)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_nothing_to_attend_to(mechanism: str) -> None:
    module = of(mechanism)
    x = random_input()
    everything = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    out, weights = module(x, x, x, key_padding_mask=everything)
    assert_close(out, module.out_proj.bias.expand_as(out))
    assert not weights.any()
    assert module(*[x[:, :0]] * 3)[0].shape == (BATCH, 0, WIDTH)


@pytest.mark.parametrize("causal", [True, False])
def test_a_given_causality_overrules_the_mask(mechanism: str, causal: bool) -> None:
    module, x = of(mechanism), random_input()
    hidden = hidden_at_the_end()
    expected, _ = module(x, x, x, key_padding_mask=hidden, is_causal=causal)
    module.causal = causal
    for mask in (None, future()):
        actual, _ = module(x, x, x, key_padding_mask=hidden, attn_mask=mask)
        assert_close(actual, expected)


def test_a_mask_changed_in_place_is_read_again(mechanism: str) -> None:
    """Masks are read once for all layers; the same tensor may yet come to say something else."""
    module, x = of(mechanism), random_input()
    mask = future()
    causal, _ = module(x, x, x, attn_mask=mask)
    mask.fill_(False)
    around, _ = module(x, x, x, attn_mask=mask)
    assert_close(around, module(x, x, x)[0])
    assert not torch.allclose(around, causal)
    del mask  # its place in memory may be the next one's
    assert_close(module(x, x, x, attn_mask=future())[0], causal)
