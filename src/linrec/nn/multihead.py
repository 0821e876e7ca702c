"""torch.nn.MultiheadAttention, with the mechanisms of linrec."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrec.nn.base import Attention, Causal
from linrec.nn.core import merge_heads, split_heads
from linrec.nn.masks import Mask
from linrec.types import InputError


class MultiheadAttention(Attention):
    """Constructor, `forward` and parameter names of torch's, so that its weights load.

    What differs: `mechanism`; an `attn_mask` must be empty, causal or padding unless that is
    softmax; `is_causal` needs no mask beside it; dropout drops events for all queries at once; a
    position whose key is masked, or that has no visible key, gets zeros.

    Examples:
        >>> attention = nn.MultiheadAttention(16, 2, batch_first=True, mechanism="linrec")
        >>> x = torch.randn(3, 10, 16)
        >>> out, _ = attention(x, x, x, is_causal=True, need_weights=False)
        >>> out.shape
        torch.Size([3, 10, 16])
    """

    # torch's encoder layers bypass this module with a fused kernel of their own, unless the
    # attention they hold has three separate projections
    _qkv_same_embed_dim: ClassVar[bool] = False
    bias_k = bias_v = None
    add_zero_attn: ClassVar[bool] = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        mechanism: str = "linrec-decay",
        causal: Causal = "auto",
    ) -> None:
        _check_sizes(embed_dim, num_heads, kdim, vdim)
        if add_bias_kv or add_zero_attn:
            raise InputError(
                "add_bias_kv and add_zero_attn add a key that belongs to no event, which linrec "
                "does not compute; leave them False"
            )
        super().__init__(mechanism, num_heads, causal=causal, device=device, dtype=dtype)
        self.embed_dim = self.kdim = self.vdim = embed_dim
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.dropout, self.batch_first = dropout, batch_first
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.in_proj_weight = nn.Parameter(
            torch.empty(3 * embed_dim, embed_dim, device=device, dtype=dtype)
        )
        in_bias = torch.empty(3 * embed_dim, device=device, dtype=dtype) if bias else None
        self.register_parameter("in_proj_bias", None if in_bias is None else nn.Parameter(in_bias))
        self._reset_parameters()

    in_proj_bias: nn.Parameter | None

    def _reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.in_proj_weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)

    @classmethod
    def from_torch(
        cls,
        module: nn.MultiheadAttention,
        mechanism: str = "linrec-decay",
        causal: Causal = "auto",
    ) -> MultiheadAttention:
        """The same parameters, not copies: ties to other modules and optimizers hold."""
        reason = why_not(module)
        if reason is not None:
            raise InputError(f"this torch.nn.MultiheadAttention cannot be converted: {reason}")
        weight = module.in_proj_weight
        new = cls(
            module.embed_dim, module.num_heads, module.dropout, module.in_proj_bias is not None,
            batch_first=module.batch_first, device=torch.device("meta"), dtype=weight.dtype,
            mechanism=mechanism, causal=causal,
        )  # fmt: skip
        new.in_proj_weight, new.in_proj_bias = weight, module.in_proj_bias
        new.out_proj = module.out_proj
        new.adopt(module, weight)
        return new

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        self._check_inputs(query, key, value)
        batched = query.dim() == 3
        mask = self._mask(key_padding_mask, attn_mask, is_causal, query, key)
        q, k, v = self._projected(query, key, value)
        heads, kept = self.attend(q, k, v, mask, self.dropout)
        out: Tensor = self.out_proj(merge_heads(heads))
        weights = None
        if need_weights:
            weights = self.weights(q, k, mask, kept)
            weights = weights.mean(1) if average_attn_weights else weights
        if not batched:
            return out[0], None if weights is None else weights[0]
        return (out if self.batch_first else out.transpose(0, 1)), weights

    def _projected(self, *inputs: Tensor) -> list[Tensor]:
        """q, k and v, each [B, heads, N, width / heads]."""
        query, key, value = inputs
        if query is key is value:  # one product instead of three
            projected = F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            weights = self.in_proj_weight.chunk(3)
            biases = [None] * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
            projected = tuple(map(F.linear, inputs, weights, biases))
        return [split_heads(self._batch_first(x), self.num_heads) for x in projected]

    def _batch_first(self, x: Tensor) -> Tensor:
        if x.dim() == 2:
            return x[None]
        return x if self.batch_first else x.transpose(0, 1)

    def _mask(
        self,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        is_causal: bool,
        query: Tensor,
        key: Tensor,
    ) -> Mask:
        batch, queries = self._batch_first(query).shape[:2]
        keys, source = self._batch_first(key).shape[1], attn_mask
        if key_padding_mask is not None:
            if query.dim() == 2 and key_padding_mask.dim() == 1:
                key_padding_mask = key_padding_mask[None]
            _check_shape("key_padding_mask", key_padding_mask, (batch, keys))
        if attn_mask is not None and attn_mask.dim() == 3:
            _check_shape("attn_mask", attn_mask, (batch * self.num_heads, queries, keys))
            attn_mask = attn_mask.reshape(batch, self.num_heads, queries, keys)
        elif attn_mask is not None:
            _check_shape("attn_mask", attn_mask, (queries, keys))
            # torch's meaning of is_causal: this mask is the causal one, and need not be read
            attn_mask = None if is_causal and queries == keys else attn_mask
        return Mask(_as_allowed(key_padding_mask), _as_allowed(attn_mask), is_causal, source)

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.is_nested or key.is_nested or value.is_nested:
            raise InputError(
                "nested tensors are for torch's own attention; build the TransformerEncoder with "
                "enable_nested_tensor=False (replace_attention switches it off)"
            )
        shapes = [x.shape for x in (query, key, value)]
        one_kind = query.dim() in (2, 3) and query.dim() == key.dim() == value.dim()
        if not one_kind or any(shape[-1] != self.embed_dim for shape in shapes):
            raise InputError(
                f"query, key and value must have 3 dimensions, or 2 without a batch, the last of "
                f"size {self.embed_dim}, not {', '.join(str(tuple(shape)) for shape in shapes)}"
            )

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, {super().extra_repr()}"


def why_not(module: nn.MultiheadAttention) -> str | None:
    """What this attention has that linrec's lacks, or None."""
    if not module._qkv_same_embed_dim:
        return "keys or values of another width than the queries' (kdim, vdim)"
    if module.bias_k is not None or module.add_zero_attn:
        return "an extra key that belongs to no event (add_bias_kv, add_zero_attn)"
    return None


def _as_allowed(mask: Tensor | None) -> Tensor | None:
    """torch.nn's bool masks are True on what is hidden, ours on what is visible."""
    if mask is None or mask.is_floating_point():
        return mask
    if mask.dtype != torch.bool:
        raise InputError(f"a mask must be bool or floating, not {mask.dtype}")
    return ~mask


def _check_sizes(embed_dim: int, num_heads: int, kdim: int | None, vdim: int | None) -> None:
    if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
        raise InputError(f"embed_dim {embed_dim} must be a multiple of num_heads {num_heads}")
    if (kdim or embed_dim) != embed_dim or (vdim or embed_dim) != embed_dim:
        raise InputError(
            f"kdim and vdim must be left out or be embed_dim {embed_dim}, not {kdim} and {vdim}: "
            "linrec attends within one sequence, which has one width"
        )


def _check_shape(name: str, mask: Tensor, expected: tuple[int, ...]) -> None:
    if mask.shape != expected:
        raise InputError(f"{name} must have the shape {expected}, not {tuple(mask.shape)}")
