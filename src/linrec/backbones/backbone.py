"""What training, evaluation, recommendation and serving need of every backbone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from linrec import ops
from linrec.backbones.config import ModelConfig
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.sequences import Sequences
from linrec.layers import MultiHeadAttention, Stack, StackShape
from linrec.types import PAD, InputError

# the paper initialises all trainable parameters from a Gaussian; this is the usual deviation
INITIAL_STD = 0.02

UserState = tuple[Any, ...]
"""The state of some users: one entry for each part of the model that has a state."""


class Backbone(nn.Module, ABC):
    """Encodes histories into the space of its item vectors."""

    Config: ClassVar[type[ModelConfig]] = ModelConfig
    """Its settings, with their defaults."""

    config: ModelConfig

    item: nn.Embedding
    """The input embedding, one row per item."""

    def __init__(self, config: ModelConfig, features: ItemFeatures) -> None:
        super().__init__()
        self.config, self.n_items = config, features.n_items

    @abstractmethod
    def forward_with_state(
        self, items: Tensor, keep: Tensor, state: UserState | None
    ) -> tuple[Tensor, UserState | None]:
        """Encode whole histories, or the events that follow a `state`.

        items, keep: [B, N], True on real events. Returns the hidden vectors [B, N, width], and the
        state after the events if there was one before.
        """

    @abstractmethod
    def item_vectors(self) -> Tensor:
        """[n_items + 1, width], row PAD first; a score is the product with a hidden vector."""

    def item_bias(self) -> Tensor | None:
        """[n_items + 1], added to the scores."""
        return None

    def vectors_of(self, items: Tensor) -> Tensor:
        """Some of the item vectors, as many as `items`: [M] -> [M, width]."""
        return self.item_vectors()[items]

    @property
    def mask_token(self) -> int | None:
        """The item index of a masked event, in models that are trained on masks."""
        return None

    @property
    def mask_ratio(self) -> float:
        """Share of the events that training masks, besides the last one."""
        return 0.0

    def forward(self, items: Tensor, keep: Tensor) -> Tensor:
        return self.forward_with_state(items, keep, None)[0]

    def read(self, histories: Sequences) -> Tensor:
        """Whole histories as the encoder reads them: [rows, N], PAD at the end."""
        return torch.from_numpy(histories.last(self.config.max_length).padded())

    @torch.no_grad()
    def encode(self, histories: Sequences) -> Tensor:
        """The hidden vector of each user after the whole history: [rows, width]."""
        items = self.read(histories).to(self.device)
        keep = items != PAD
        last = (keep.sum(1) - 1).clamp(min=0)
        hidden: Tensor = self(items, keep)
        return hidden[torch.arange(len(items), device=self.device), last]

    @torch.no_grad()
    def attention_matrices(self, histories: Sequences) -> list[Tensor]:
        """B' of every attention layer in its order, each [rows, heads, N, N], for analysis."""
        matrices: list[Tensor] = []

        def record(layer: nn.Module, given: tuple[Any, ...], _: Any) -> None:
            assert isinstance(layer, MultiHeadAttention)
            matrices.append(layer.matrix(*given))

        layers = [part for part in self.modules() if isinstance(part, MultiHeadAttention)]
        hooks = [layer.register_forward_hook(record) for layer in layers]
        try:
            self.encode(histories)
        finally:
            for hook in hooks:
                hook.remove()
        return matrices

    def memories(self) -> tuple[Any, ...]:
        """The parts that have a state, in the order of its entries."""
        raise NotImplementedError

    def start(self, users: int) -> UserState:
        """The initial state of users without events."""
        self._check_state()
        return tuple(part.start(users) for part in self.memories())

    @torch.no_grad()
    def advance(
        self, items: Tensor, state: UserState, keep: Tensor | None = None
    ) -> tuple[Tensor, UserState]:
        """The next events of each user: [B, N], often N = 1; a long history makes no difference.

        Returns the hidden vectors after each event, [B, N, width], and the state after the last.
        """
        self._check_events(items)
        hidden, after = self.forward_with_state(
            items, items != PAD if keep is None else keep, state
        )
        assert after is not None
        return hidden, after

    def _check_state(self) -> None:
        reason = self.why_no_state()
        if reason is not None:
            raise InputError(reason)

    def _check_events(self, items: Tensor) -> None:
        self._check_state()
        if items.dim() != 2:
            raise InputError(f"events must be [users, events], not {list(items.shape)}")
        if items.numel() and (items.min() < PAD or items.max() > self.n_items):
            wrong = items[(items < PAD) | (items > self.n_items)][0].item()
            raise InputError(
                f"{wrong} is not the index of an item, which are 1 to {self.n_items}; leave out "
                "items that the model does not know"
            )

    def why_no_state(self) -> str | None:
        """One sentence on why the model cannot be advanced event by event, or None if it can."""
        config = self.config
        if not config.causal:
            return (
                f"{config.backbone} trained on {config.objective} reads a history both ways, so a "
                "new event changes how every other is read; it re-encodes the whole history"
            )
        if not ops.has_state(config.attention):
            return (
                f"{config.attention} attention keeps no state of fixed size; it re-encodes the "
                "whole history, a linear mechanism such as linrec-decay need not"
            )
        if config.max_length is not None:
            return (
                f"with max_length {config.max_length} an event is forgotten whenever one is added; "
                "it re-encodes the newest events, a model trained on whole histories "
                "need not"
            )
        return None

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


def stack_of(config: ModelConfig, *, more_positions: int = 0) -> Stack:
    return Stack(
        StackShape(
            attention=config.attention, causal=config.causal, width=config.width,
            heads=config.heads, layers=config.layers, inner=config.inner, dropout=config.dropout,
            norm=config.norm, positions=config.positions + more_positions,
            head_norm=config.head_norm, gate=config.gate,
        )
    )  # fmt: skip


def gaussian_init(module: nn.Module) -> None:
    """Weights from a narrow Gaussian, biases zero, padding zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        with torch.no_grad():
            module.weight[module.padding_idx].zero_()
