"""torch.nn.MultiheadAttention, wherever it is: torch's encoders, RecTools, RePlay, one's own."""

from __future__ import annotations

from torch import nn

from linrec.nn import Attention
from linrec.nn.multihead import MultiheadAttention, why_not
from linrec.transplant.adapter import Adapter, Place


def _why_not(place: Place) -> str | None:
    if isinstance(place.parent, nn.TransformerDecoderLayer) and place.child == "multihead_attn":
        return "cross attention; linear mechanisms attend within one sequence"
    return why_not(place.module)


def _without_nested_tensors(model: nn.Module) -> None:
    """In eval mode torch's encoder may hand its layers nested tensors, for a kernel of its own."""
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
