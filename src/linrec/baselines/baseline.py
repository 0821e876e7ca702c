"""What evaluation, recommendation and serving need of every baseline.

All count the training part of a split only. The history that is scored is the user's whole past: in
a test it ends in the validation event, but that event was never counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from linrec.baselines.config import LIMITS, BaselineConfig
from linrec.data.dataset.sequences import IntArray, Sequences
from linrec.scoring import HIDDEN
from linrec.types import PAD

FloatArray = NDArray[np.float64]


class Baseline(nn.Module, ABC):
    """A scorer: histories of B users -> their scores of all items, [B, n_items + 1] float64.

    What it has counted are its buffers, so it is saved and read as the weights of a model are.
    """

    Config: ClassVar[type[BaselineConfig]] = BaselineConfig
    definition: ClassVar[str]
    """What it recommends, in one sentence."""
    costly: ClassVar[bool] = False
    """Whether it takes too long to be computed with every evaluation."""
    same_if_hidden: ClassVar[str | None] = None
    """The baseline that it equals where seen items are hidden."""

    popularity: Tensor  # [n_items + 1], training events of each item

    def __init__(self, config: BaselineConfig, counts: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.config = config
        for name, value in counts.items():
            self.register_buffer(name, value)
        self.n_items = len(self.popularity) - 1
        popularity = self.popularity.numpy().astype(np.float64)
        self.tie_break: FloatArray = popularity / (popularity.max() + 1.0)
        """Popularity as less than one count."""

    @classmethod
    def fit(cls, train: Sequences, n_items: int, config: BaselineConfig | None = None) -> Baseline:
        """Count; a setting that is left open gets the first value of its grid."""
        config = (config or cls.Config()).complete()
        popularity = torch.from_numpy(train.item_counts(n_items))
        return cls(config, {"popularity": popularity, **cls.count(train, n_items, config)})

    @classmethod
    def count(cls, train: Sequences, n_items: int, config: BaselineConfig) -> dict[str, Tensor]:
        """What it counts besides popularity, by the name of its buffer."""
        del train, n_items, config
        return {}

    def with_config(self, config: BaselineConfig, train: Sequences) -> Baseline:
        """The same counts under other settings; only what depends on those is counted again."""
        del train
        return type(self)(config, dict(self.named_buffers()))

    @classmethod
    def check_counts(cls, counts: Mapping[str, Tensor], n_items: int) -> None:
        """Raise ValueError about counts, read from a file, that `count` cannot have made."""
        shapes = {"popularity": (n_items + 1,), **cls.count_shapes(n_items)}
        if counts.keys() != shapes.keys():
            raise ValueError(f"it has {sorted(counts)} where {sorted(shapes)} are expected")
        for name, shape in shapes.items():
            if shape is not None and counts[name].shape != shape:
                raise ValueError(f"{name} is {list(counts[name].shape)}, not {list(shape)}")
        popularity = counts["popularity"]
        if popularity.dtype != torch.int64 or popularity.min() < 0 or popularity[PAD] != 0:
            raise ValueError("popularity holds values that are not counts")

    @classmethod
    def count_shapes(cls, n_items: int) -> dict[str, tuple[int, ...] | None]:
        """The shape of each buffer besides popularity, None where it depends on the data."""
        del n_items
        return {}

    @classmethod
    def why_not(cls, n_items: int) -> str | None:
        """Why it does not fit in memory; None if it does."""
        limit = LIMITS.get(cls.Config.backbone)
        if limit is None or n_items <= limit:
            return None
        return f"{n_items:,} items are more than the {limit:,} that it keeps in memory"

    @abstractmethod
    def scores(self, histories: Sequences) -> FloatArray:
        """[rows, n_items + 1]; column PAD is overwritten."""

    def forward(self, histories: Sequences) -> Tensor:
        scores = self.scores(histories)
        scores[:, PAD] = HIDDEN
        return torch.from_numpy(scores)

    def similar(self, item: int) -> Tensor | None:
        """How similar each item is to this one, [n_items + 1]; None if it does not know."""
        del item
        return None


def newest(histories: Sequences) -> IntArray:
    """The newest item of each history; PAD, which nothing follows, for an empty one."""
    nonempty = histories.lengths > 0
    last = np.full(len(histories), PAD, np.int64)
    last[nonempty] = histories.items[histories.ends[nonempty] - 1]
    return last
