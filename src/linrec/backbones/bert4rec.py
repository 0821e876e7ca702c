"""BERT4Rec: bidirectional, predicts masked items; the next item is a mask at the end.

A mask hides the whole event: its context would tell of the item, and of the next event it is not
known yet.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrec.backbones.backbone import Backbone, ClosedState, gaussian_init, stack_of
from linrec.backbones.config import BERT4RecConfig
from linrec.data.dataset.gaps import context_with_mask, gaps_with_request
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.sequences import Sequences
from linrec.types import PAD, Events


class BERT4Rec(Backbone):
    Config: ClassVar[type[BERT4RecConfig]] = BERT4RecConfig
    config: BERT4RecConfig
    per_item = ("item.weight", "bias")

    def __init__(self, config: BERT4RecConfig, features: ItemFeatures) -> None:
        super().__init__(config, features)
        self.item = nn.Embedding(features.n_items + 2, config.width, padding_idx=PAD)
        # the mask follows the newest event, so it needs one more position
        self.stack = stack_of(config, features, more_positions=1)
        self.transform = nn.Linear(config.width, config.width)
        self.transform_norm = nn.LayerNorm(config.width)
        self.bias = nn.Parameter(torch.zeros(features.n_items + 1))
        self.apply(gaussian_init)

    def forward_with_state(
        self, events: Events, state: ClosedState | None
    ) -> tuple[Tensor, ClosedState | None]:
        del state  # `start` refuses to make one
        hidden, _ = self.stack(
            self.embed(events.items), events.keep, None, events.gaps, events.context
        )
        transformed: Tensor = self.transform_norm(F.gelu(self.transform(hidden)))
        return transformed, None

    @property
    def mask_token(self) -> int:
        return self.n_items + 1

    @property
    def mask_ratio(self) -> float:
        return self.config.mask_ratio

    def item_vectors(self) -> Tensor:
        return self.embedding_table()  # without the mask, which is never recommended

    def vectors_of(self, items: Tensor) -> Tensor:
        return self.embed(items)

    def item_bias(self) -> Tensor:
        return self.bias

    def read(self, histories: Sequences) -> Events:
        """The history, then a mask in the position of the next item, at the time of the request."""
        newest = self.newest(histories)
        rows = np.pad(newest.padded(), ((0, 0), (0, 1)), constant_values=PAD)
        rows[np.arange(len(newest)), newest.lengths] = self.mask_token
        items = torch.from_numpy(rows)
        gaps = gaps_with_request(newest) or (None, None)
        context = context_with_mask(newest, items == self.mask_token)
        return Events(items, items != PAD, *gaps)._replace(context=context)
