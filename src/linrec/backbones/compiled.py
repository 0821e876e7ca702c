"""A backbone whose states are advanced by one compiled call, on packed states.

The weights are copied once; then an event costs its arithmetic, where the torch form costs a few
hundred small calls. The torch form stays the oracle and the fallback: without the compiled kernels,
in another precision, for a model that reads context, or for a backbone that is not listed here.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from linrec import ops
from linrec.backbones.backbone import Backbone
from linrec.backbones.core import CORE
from linrec.backbones.fdsa import FDSA
from linrec.backbones.sasrec import SASRec
from linrec.layers import Stack
from linrec.layers.block import Block
from linrec.layers.time import GAP_BOUNDS
from linrec.ops.compiled import step_model_class
from linrec.types import PAD

ITEMS_AT_ONCE = 4096  # whose vectors are computed together


@torch.no_grad()
def step_model(model: Backbone) -> Any:
    """The compiled form of a model that has a state; None where there is none."""
    kind = step_model_class()
    floats = all(weight.dtype == torch.float32 for weight in model.parameters())
    if kind is None or model.why_no_state() is not None or not floats or model.device.type != "cpu":
        return None
    if model.context:  # what an event is does not follow from its item alone
        return None
    parts = _stacks_and_vectors(model)
    if parts is None:
        return None
    bounds = GAP_BOUNDS.numpy() if model.config.time_gaps else None
    made = kind(model.config.width, model.n_items, bounds)
    for stack, vectors in parts:
        _add_stack(made, stack, vectors.contiguous(), model.config.attention)
    if isinstance(model, CORE):
        made.add_mean(_array(model.mean.weigh.weight[0]), model.config.temperature)
    if isinstance(model, FDSA):
        made.add_fusion(_linear(model.fuse_stacks))
    return made


def _stacks_and_vectors(model: Backbone) -> list[tuple[Stack, Tensor]] | None:
    """Each stack with what it reads of every item: [n_items + 1, width]."""
    if type(model).forward_with_state is SASRec.forward_with_state:
        assert isinstance(model, SASRec)
        return [(model.stack, _of_all_items(model, model.vectors))]
    if type(model) is CORE:
        return [(model.stack, model.embedding_table())]
    if type(model) is FDSA:
        fused = _of_all_items(model, lambda items: model.fuse_fields(model.features(items)))
        return [(model.item_stack, model.embedding_table()), (model.feature_stack, fused)]
    return None


def _of_all_items(model: Backbone, vectors: Any) -> Tensor:
    """They follow from the item alone, so they are computed once."""
    end = model.n_items + 1
    pieces = [
        vectors(torch.arange(first, min(first + ITEMS_AT_ONCE, end))[None])[0]
        for first in range(PAD, end, ITEMS_AT_ONCE)
    ]
    return torch.cat(pieces)


def _add_stack(made: Any, stack: Stack, vectors: Tensor, mechanism: str) -> None:
    rule = ops.find(mechanism).rule
    gaps = stack.gaps
    final = stack.final_norm
    made.add_stack(
        rule=None if rule is None else tuple(int(field) for field in rule),
        heads=cast("Block", stack.blocks[0]).attention.heads,
        pre_norm=isinstance(final, nn.LayerNorm),
        item=_array(vectors),
        position=_array(stack.position.weight),
        previous=None if gaps is None else _array(gaps.previous.weight),
        following=None if gaps is None else _array(gaps.next.weight),
        norm=_norm(stack.norm),
        epsilon=stack.norm.eps,
        final_norm=_norm(final) if isinstance(final, nn.LayerNorm) else None,
    )
    for block in stack.blocks:
        _add_layer(made, cast("Block", block))


def _add_layer(made: Any, block: Block) -> None:
    attention, feed_forward = block.attention, block.feed_forward
    decay, scale = attention.log_decay(), attention.head_norm
    made.add_layer(
        project_in=_linear(attention.project_in),
        project_out=_linear(attention.project_out),
        widen=_linear(feed_forward.widen),
        narrow=_linear(feed_forward.narrow),
        gate=None if attention.gate is None else _linear(attention.gate),
        attention=_norm(block.attention_norm),
        feed_forward=_norm(block.feed_forward_norm),
        epsilon=block.attention_norm.eps,
        head_scale=None if scale is None else _array(scale.scale.flatten()),
        kept=None if decay is None else _array(decay.exp()),
    )


def _linear(layer: nn.Linear) -> tuple[Any, Any]:
    return _array(layer.weight), _array(layer.bias)


def _norm(norm: nn.LayerNorm) -> Any:
    return _array(torch.stack([norm.weight, norm.bias]))


def _array(x: Tensor) -> Any:
    return x.detach().contiguous().numpy()
