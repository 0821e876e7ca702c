"""torch.nn.MultiheadAttention in torch's encoders, RecTools, RePlay and models of your own."""

from __future__ import annotations

from torch import nn

from linrec.nn import Attention
from linrec.nn.multihead import MultiheadAttention, why_not
from linrec.transplant.adapter import Adapter, NamedModule


def _why_not(entry: NamedModule) -> str | None:
    if isinstance(entry.parent, nn.TransformerDecoderLayer) and entry.child == "multihead_attn":
        return "cross attention; linear mechanisms attend within one sequence"
    return why_not(entry.module)


def _without_nested_tensors(model: nn.Module) -> None:
    """In eval mode torch's encoder may pass nested tensors, which only its own kernel takes."""
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder) and any(
            isinstance(part, Attention) for part in encoder.modules()
        ):
            encoder.enable_nested_tensor = encoder.use_nested_tensor = False


MULTIHEAD = Adapter(
    "torch.nn.modules.activation.MultiheadAttention",
    MultiheadAttention.from_torch,
    _why_not,
    _without_nested_tensors,
)
