"""Multi-head attention: any mechanism by name, trained end to end."""

from __future__ import annotations

import pytest
import torch

from linrec import ops
from linrec.layers import MultiHeadAttention
from linrec.nn import MultiheadAttention
from linrec.ops.head_norm import EPSILON
from linrec.types import InputError

EVERY_MECHANISM = pytest.mark.parametrize("mechanism", list(ops.MECHANISMS))
EITHER_WAY = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])


def events(batch: int = 2, length: int = 9, width: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    keep = torch.arange(length) < torch.tensor([[length], [length - 4]])
    return torch.randn(batch, length, width), keep


@EITHER_WAY
@EVERY_MECHANISM
def test_one_step_trains_every_parameter(mechanism: str, causal: bool) -> None:
    x, keep = events()
    layer = MultiHeadAttention(mechanism, width=12, heads=3, causal=causal)
    out = layer(x, keep)
    assert out.shape == x.shape
    before = {name: value.detach().clone() for name, value in layer.named_parameters()}
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    out[keep].square().sum().backward()
    optimizer.step()
    for name, value in layer.named_parameters():
        assert value.grad is not None, f"{name} gets no gradient"
        assert value.grad.isfinite().all()
        assert not torch.equal(value, before[name]), f"{name} does not move"
    assert hasattr(layer, "decay_logit") == (mechanism == "linrec-decay")


@EVERY_MECHANISM
def test_heads_are_apart(mechanism: str) -> None:
    """Each head reads its own slice of the fused projection: by hand, one head at a time."""
    x, keep = events()
    layer = MultiHeadAttention(mechanism, width=12, heads=3, causal=True)
    q, k, v = layer.project_in(x).chunk(3, -1)
    heads = []
    for head in range(3):
        part = [y[..., 4 * head : 4 * head + 4][:, None] for y in (q, k, v)]
        decay = None if layer.log_decay() is None else layer.log_decay()[head : head + 1]
        out = ops.attend(mechanism, *part, keep=keep, causal=True, decay=decay)
        heads.append(out[:, 0])
    torch.testing.assert_close(layer(x, keep), layer.project_out(torch.cat(heads, -1)))


@pytest.mark.parametrize("head_norm", [False, True])
@EITHER_WAY
@EVERY_MECHANISM
def test_norm_and_gate_are_the_formula(mechanism: str, causal: bool, head_norm: bool) -> None:
    """W_o(norm(attend(q, k, v)) * silu(W_g x)), number by number."""
    x, keep = events()
    layer = MultiHeadAttention(
        mechanism, width=12, heads=3, causal=causal, head_norm=head_norm, gate=True
    ).double()
    x = x.double()
    if head_norm:
        torch.nn.init.normal_(layer.head_norm.scale)
    q, k, v = layer.project_in(x).view(2, 9, 3, 3, 4).permute(2, 0, 3, 1, 4)
    out = ops.attend(mechanism, q, k, v, keep=keep, causal=causal, decay=layer.log_decay())
    heads = []
    for head in range(3):
        part = out[:, head]
        if head_norm:
            part = part / (part.square().mean(-1, keepdim=True) + EPSILON).sqrt()
            part = part * layer.head_norm.scale[head]
        heads.append(part)
    gate = x @ layer.gate.weight.T + layer.gate.bias
    expected = layer.project_out(torch.cat(heads, -1) * gate * torch.sigmoid(gate))
    torch.testing.assert_close(layer(x, keep)[keep], expected[keep])


def test_norm_and_gate_are_off_unless_asked_for() -> None:
    layer = MultiHeadAttention("linrec", width=12, heads=3, causal=True)
    assert layer.head_norm is None
    assert layer.gate is None


@pytest.mark.parametrize("heads", [2, 4, 8])
def test_heads_begin_with_spans_from_two_events_to_thousands(heads: int) -> None:
    layer = MultiHeadAttention("linrec-decay", width=16, heads=heads, causal=True)
    spans = -1 / layer.log_decay().detach()
    assert spans[0].item() == pytest.approx(2, rel=1e-3)
    assert spans[-1].item() == pytest.approx(2048, rel=1e-2)
    ratios = spans[1:] / spans[:-1]
    torch.testing.assert_close(ratios, ratios[:1].expand(heads - 1), rtol=1e-2, atol=0)


def test_one_head_begins_in_the_middle() -> None:
    span = -1 / MultiHeadAttention("linrec-decay", 4, 1, causal=True).log_decay().item()
    assert 2 < span < 2048


def test_a_width_that_the_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(InputError, match="width 10 must be a multiple of heads 3"):
        MultiHeadAttention("linrec", width=10, heads=3, causal=True)


def test_an_unknown_mechanism_is_refused() -> None:
    with pytest.raises(InputError, match="choose from softmax, linrec"):
        MultiHeadAttention("flash", width=4, heads=1, causal=True)


def test_mixed_precision_keeps_the_decay_wide() -> None:
    """bfloat16 cannot tell a span of 2,048 events from no decay."""
    x, keep = events()
    layer = MultiHeadAttention("linrec-decay", width=12, heads=3, causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.log_decay().dtype == torch.float32
        out = layer(x, keep)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), layer(x, keep), rtol=0.05, atol=0.02)


def test_a_narrow_model_keeps_the_decay_wide() -> None:
    """As linrec.nn does: both share one core."""
    layer = MultiHeadAttention("linrec-decay", width=12, heads=3, causal=True).to(torch.bfloat16)
    theirs = MultiheadAttention(12, 3, mechanism="linrec-decay").to(torch.bfloat16)
    assert layer.log_decay().dtype == torch.float32
    assert torch.equal(layer.log_decay(), theirs.log_decay())
