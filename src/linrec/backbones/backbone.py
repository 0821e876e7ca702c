"""What training, evaluation and recommendation ask of every backbone."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from linrec.backbones.config import ModelConfig
from linrec.data.sequences import Sequences
from linrec.types import PAD

# the paper initialises all trainable parameters from a Gaussian; this is the usual width of it
INITIAL_STD = 0.02


class Backbone(nn.Module, ABC):
    """Encodes histories into the space of its item vectors."""

    def __init__(self, config: ModelConfig, n_items: int) -> None:
        super().__init__()
        self.config, self.n_items = config, n_items

    @abstractmethod
    def forward(self, items: Tensor, keep: Tensor) -> Tensor:
        """items, keep: [B, N] -> what is known of the user at each position, [B, N, width]."""

    @abstractmethod
    def item_vectors(self) -> Tensor:
        """[n_items + 1, width], row PAD first; a score is the product with a hidden vector."""

    @torch.inference_mode()
    def encode(self, histories: Sequences) -> Tensor:
        """What is known of each user after the whole history: [rows, width]."""
        device = self.item_vectors().device
        items = torch.from_numpy(histories.last(self.config.max_length).padded()).to(device)
        keep = items != PAD
        last = (keep.sum(1) - 1).clamp(min=0)
        hidden: Tensor = self(items, keep)
        return hidden[torch.arange(len(items), device=device), last]


def gaussian_init(module: nn.Module) -> None:
    """Weights from a narrow Gaussian, biases zero, padding zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        with torch.no_grad():
            module.weight[module.padding_idx].zero_()
