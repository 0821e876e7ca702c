"""What training, evaluation, recommendation and serving need of every backbone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from linrec import ops
from linrec.backbones.config import ModelConfig
from linrec.backbones.open_event import OpenEvent
from linrec.data.dataset.gaps import read_events
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.sequences import Sequences
from linrec.layers import MultiHeadAttention, RepeatHead, Stack, StackShape, VectorProjection
from linrec.types import PAD, Events, InputError, argument

# the paper initialises all trainable parameters from a Gaussian; this is the usual deviation
INITIAL_STD = 0.02

# a score so low that its share of a softmax is 0 in any precision, and still a number
LEFT_OUT = -1e4

ClosedState = tuple[Any, ...]
"""After all closed events: one entry for each part of the model that has a state."""


@dataclass(frozen=True, slots=True)
class UserState:
    """All that a model knows of some users."""

    closed: ClosedState
    newest: OpenEvent


class Backbone(nn.Module, ABC):
    """Encodes histories into the space of its item vectors."""

    Config: ClassVar[type[ModelConfig]] = ModelConfig
    """Its settings, with their defaults."""

    config: ModelConfig

    per_item: ClassVar[tuple[str, ...]] = ("item.weight",)
    """Tensors in which row i belongs to item i; a warm start matches them by the items' ids."""

    untrained: Tensor | None = None
    """[n_items + 1], True on items that no training event has had, whose vectors mean nothing."""

    vector_only: Tensor | None = None
    """[n_items + 1], True on items without a training event that have a vector of the data."""

    item: nn.Embedding
    """The input embedding, one row per item."""

    given_vectors: VectorProjection | None
    """Projects the item vectors of the data, if the model reads them."""

    repeat: RepeatHead | None
    """Weighs the counts of past items, if the model has a repeat head."""

    def __init__(self, config: ModelConfig, features: ItemFeatures) -> None:
        super().__init__()
        self.config, self.n_items = config, features.n_items
        self.context = features.context
        self.given_vectors = _projection(config, features)
        self.repeat = (
            RepeatHead(config.width, config.time_gaps) if config.repeat_head == "on" else None
        )

    @abstractmethod
    def forward_with_state(
        self, events: Events, state: ClosedState | None
    ) -> tuple[Tensor, ClosedState | None]:
        """Encode whole histories, or the events that follow a `state`.

        Returns the hidden vectors [B, N, width], and the state after the events if there was one
        before.
        """

    @abstractmethod
    def item_vectors(self) -> Tensor:
        """[n_items + 1, width], row PAD first; a score is the product with a hidden vector."""

    def item_bias(self) -> Tensor | None:
        """[n_items + 1], added to the scores."""
        return None

    def shown_bias(self) -> Tensor | None:
        """The bias with which items are ranked: -inf on untrained ones, which are not shown."""
        bias = self.item_bias()
        if self.untrained is None:
            return bias
        untrained = self.untrained.to(self.device)
        start = torch.zeros(len(untrained), device=self.device) if bias is None else bias
        return start.masked_fill(untrained, -torch.inf)

    def compared_bias(self) -> Tensor | None:
        """The bias with which a loss compares items.

        An item that has only a vector would never be a target and always be compared with one, so
        the model would learn to push away whatever resembles it: such items are left out.
        """
        bias = self.item_bias()
        if self.vector_only is None:
            return bias
        self.vector_only = only = self.vector_only.to(self.device)  # once, not at every step
        start = torch.zeros(len(only), device=self.device) if bias is None else bias
        return start.masked_fill(only, LEFT_OUT)

    @torch.no_grad()
    def place_by_vector(self, untrained: Tensor | None) -> None:
        """Say which items have no training event; those with a vector are placed by that alone.

        untrained: [n_items + 1]. Their own embeddings are zero from now on: in training they are
        neither targets nor compared with one.
        """
        self.vector_only = None
        if self.given_vectors is None or untrained is None:
            return
        only = untrained & (self.given_vectors.vectors[:-1] != 0).any(-1).cpu()
        if only.any():
            self.vector_only = only
            self.item.weight[: len(only)][only.to(self.device)] = 0.0

    def embed(self, items: Tensor) -> Tensor:
        """What is known of each item: its own embedding and its projected vector."""
        embedded: Tensor = self.item(items)
        if self.given_vectors is None:
            return embedded
        projected: Tensor = self.given_vectors(items)
        return self.given_vectors.drop_ids(embedded, items) + projected

    def embedding_table(self) -> Tensor:
        """The same of all items: [n_items + 1, width], row PAD first."""
        table = self.item.weight
        if len(table) > self.n_items + 1:
            table = table[: self.n_items + 1]
        if self.given_vectors is None:
            return table
        return self.given_vectors.drop_ids(table) + self.given_vectors.table()

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

    def forward(
        self,
        items: Tensor,
        keep: Tensor,
        previous: Tensor | None = None,
        following: Tensor | None = None,
        context: Tensor | None = None,
    ) -> Tensor:
        """The fields of `Events`, [B, N] each -> hidden vectors [B, N, width]."""
        return self.forward_with_state(Events(items, keep, previous, following, context), None)[0]

    def read(self, histories: Sequences) -> Events:
        """Whole histories as the encoder reads them: [rows, N], PAD at the end."""
        return read_events(self.newest(histories))

    def newest(self, histories: Sequences) -> Sequences:
        """The events that the model reads, with their times and context if it reads those."""
        newest = self._with_own_context(histories.last(self.config.max_length))
        return newest if self.config.time_gaps else newest.without_times()

    def _with_own_context(self, histories: Sequences) -> Sequences:
        if not self.context or histories.context is None:
            return histories if histories.context is None else replace(histories, context=None)
        if histories.context.shape[1] != len(self.context):
            raise InputError(
                f"the histories have {histories.context.shape[1]} fields of context, and the model "
                f"reads {len(self.context)}; give those of `SequenceStore.read_by(model.context)`"
            )
        return histories

    @torch.no_grad()
    def encode(self, histories: Sequences) -> Tensor:
        """The hidden vector of each user after the whole history: [rows, width]."""
        events = self.read(histories).to(self.device)
        last = (events.keep.sum(1) - 1).clamp(min=0)
        hidden: Tensor = self(*events)
        return hidden[torch.arange(len(last), device=self.device), last]

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
        newest = OpenEvent.none(users, self.device, len(self.context))
        return UserState(self.start_closed(users), newest)

    def start_closed(self, users: int) -> ClosedState:
        """The same without an open event, as `forward_with_state` takes it."""
        self._check_state()
        return tuple(part.start(users) for part in self.memories())

    @torch.no_grad()
    def advance(
        self,
        items: Tensor,
        state: UserState,
        times: Tensor | None = None,
        context: Tensor | None = None,
    ) -> UserState:
        """The state after the next events of each user, however long the history before them.

        items: [B, N], often N = 1, PAD at the end. times: [B, N], seconds, NaN where unknown.
        context: [B, N, fields], codes of the model's fields; missing if left out.
        """
        self._check_events(items)
        times = _unknown_times(items) if times is None else times
        if times.shape != items.shape:
            raise InputError(
                f"times must be [users, events] = {list(items.shape)} as the items are, not "
                f"{list(times.shape)}"
            )
        self._check_context(items, context)
        events, newest = state.newest.followed_by(items, times, context)
        _, closed = self.forward_with_state(events, state.closed)
        assert closed is not None
        return UserState(closed, newest)

    @torch.no_grad()
    def request(self, state: UserState, at: Tensor | float | None = None) -> Tensor:
        """The hidden vector of each user for a request at these times [B], which changes nothing.

        at: seconds, one for all or one for each user; unknown if left out or NaN. Returns what
        `encode` gives for the whole history with `until=at`: [B, width].
        """
        newest = state.newest
        at = torch.nan if at is None else at
        events = newest.at(torch.as_tensor(at, device=self.device).expand(newest.item.shape))
        return self.forward_with_state(events, state.closed)[0][:, 0]

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

    def _check_context(self, items: Tensor, context: Tensor | None) -> None:
        if context is None:
            return
        expected = [*items.shape, len(self.context)]
        sizes = torch.tensor([field.size for field in self.context], device=context.device)
        if list(context.shape) != expected:
            raise InputError(
                f"context must be [users, events, fields] = {expected}, not {list(context.shape)}"
            )
        if ((context < 0) | (context >= sizes)).any():
            raise InputError("context holds codes that the model's fields do not have")

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


def stack_of(config: ModelConfig, features: ItemFeatures, *, more_positions: int = 0) -> Stack:
    return Stack(
        StackShape(
            attention=config.attention, causal=config.causal, width=config.width,
            heads=config.heads, layers=config.layers, inner=config.inner, dropout=config.dropout,
            norm=config.norm, positions=config.positions + more_positions,
            head_norm=config.head_norm, gate=config.gate,
            time_gaps=config.time_gaps, context=features.context,
        )
    )  # fmt: skip


def _projection(config: ModelConfig, features: ItemFeatures) -> VectorProjection | None:
    if config.item_vectors != "on":
        return None
    if features.vectors is None:
        raise InputError(
            f"{argument('item_vectors', 'on')} needs item vectors, and there are none; prepare the "
            f"data with {argument('item_vectors')}, or leave it out"
        )
    return VectorProjection(features.vectors, config.width, config.id_dropout)


def _unknown_times(items: Tensor) -> Tensor:
    return torch.full(items.shape, torch.nan, dtype=torch.float64, device=items.device)


def gaussian_init(module: nn.Module) -> None:
    """Weights from a narrow Gaussian, biases zero, padding zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        with torch.no_grad():
            module.weight[module.padding_idx].zero_()
