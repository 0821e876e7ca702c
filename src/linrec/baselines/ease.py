from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from linrec.baselines.baseline import Baseline, FloatArray
from linrec.baselines.config import BaselineConfig, EASEConfig
from linrec.baselines.item_knn import TIE_BREAK, who_had_what
from linrec.data.dataset.sequences import Sequences


class EASE(Baseline):
    """Embarrassingly shallow autoencoder (Steck, WWW 2019): ridge regression of each item on all
    others. With P = (X^T X + l2 I)^-1, the weight of item i for item j is -P_ij / P_jj.
    """

    Config = EASEConfig
    definition = (
        "The items that a linear model of all pairs of items predicts from the user's history "
        "(EASE), with its penalty chosen on validation."
    )
    costly = True
    weights: Tensor  # [n_items + 1, n_items + 1] float32

    @classmethod
    def count(cls, train: Sequences, n_items: int, config: BaselineConfig) -> dict[str, Tensor]:
        assert isinstance(config, EASEConfig)
        assert config.l2 is not None, "fit completes the settings"
        had = who_had_what(train, n_items)
        gram = torch.from_numpy((had.T @ had).toarray())  # PAD, which nobody has, is alone
        gram.diagonal().add_(config.l2)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        weights = inverse / -inverse.diagonal()
        weights.fill_diagonal_(0.0)
        return {"weights": weights.float()}

    def with_config(self, config: BaselineConfig, train: Sequences) -> Baseline:
        return self if config == self.config else self.fit(train, self.n_items, config)

    @classmethod
    def count_shapes(cls, n_items: int) -> dict[str, tuple[int, ...] | None]:
        return {"weights": (n_items + 1, n_items + 1)}

    @classmethod
    def check_counts(cls, counts: Mapping[str, Tensor], n_items: int) -> None:
        super().check_counts(counts, n_items)
        if counts["weights"].dtype != torch.float32:
            raise ValueError("the weights are not floating-point numbers")

    def scores(self, histories: Sequences) -> FloatArray:
        had = who_had_what(histories, self.n_items)
        scores = np.asarray(had @ self.weights.numpy(), np.float64)
        return scores + TIE_BREAK * self.tie_break
