"""Vectors of items that came with the data, projected into the space of the item embeddings."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

# as large as the item embeddings at the start (`backbones.backbone.INITIAL_STD`)
INITIAL_STD = 0.02


class VectorProjection(nn.Module):
    """A learned linear map of each item's vector; zero for an item without one."""

    vectors: Tensor  # [n_items + 2, given width], of RMS 1 or 0; the last row is a mask's

    def __init__(self, vectors: NDArray[np.float32], width: int, id_dropout: float) -> None:
        """vectors: [n_items + 1, given width], as given.

        id_dropout: share of the items with a vector whose own embedding is left out in training.
        """
        super().__init__()
        self.id_dropout = id_dropout
        given = vectors.shape[1]
        # of the common scale of embeddings, whatever the vectors were made with
        self.weight = nn.Parameter(torch.empty(width, given).normal_(std=INITIAL_STD / given**0.5))
        # not part of the weights: a run keeps the vectors as they were given
        self.register_buffer("vectors", unit_rms(vectors), persistent=False)

    def forward(self, items: Tensor) -> Tensor:
        """[...] -> [..., width]."""
        return nn.functional.linear(self.vectors[items], self.weight)

    def table(self) -> Tensor:
        """Of all items, PAD first: [n_items + 1, width]."""
        return nn.functional.linear(self.vectors[:-1], self.weight)

    def drop_ids(self, embedded: Tensor, items: Tensor | None = None) -> Tensor:
        """In training, leave out some of the embeddings `embedded` of `items` (None: of all).

        The model learns from the others what an item is that has nothing but its vector.
        """
        if not self.training or not self.id_dropout:
            return embedded
        vectors = self.vectors[:-1] if items is None else self.vectors[items]
        drawn = torch.rand(embedded.shape[:-1], device=embedded.device) < self.id_dropout
        return embedded.masked_fill((drawn & (vectors != 0).any(-1))[..., None], 0.0)


def unit_rms(vectors: NDArray[np.float32]) -> Tensor:
    """Each row divided by its root mean square, and a row of zeros after the last."""
    rows = torch.from_numpy(np.array(vectors, np.float32))
    rms = rows.square().mean(-1, keepdim=True).sqrt()
    scaled = torch.where(rms > 0, rows / rms.clamp(min=torch.finfo(rms.dtype).tiny), 0.0)
    return nn.functional.pad(scaled, (0, 0, 0, 1))
