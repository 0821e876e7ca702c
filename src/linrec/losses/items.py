"""The items of a catalogue as a loss sees them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Scored(NamedTuple):
    """A score is the product of a hidden vector with `vectors`, plus `bias`."""

    vectors: Tensor  # [M, d]
    bias: Tensor | None  # [M]


class ItemVectors:
    """The vectors and biases of all items, or of some."""

    def __init__(self, vectors: Tensor, bias: Tensor | None = None) -> None:
        """vectors: [n_items + 1, d], bias: [n_items + 1], PAD first."""
        self._all = Scored(vectors, bias)

    def all(self) -> Scored:
        """[n_items + 1] of them, PAD first."""
        return self._all

    def of(self, ids: Tensor) -> Scored:
        """Those of the items `ids`, [M], in that order."""
        vectors, bias = self._all
        return Scored(vectors[ids], None if bias is None else bias[ids])
