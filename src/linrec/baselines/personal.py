from __future__ import annotations

from typing import ClassVar

import numpy as np

from linrec.baselines.baseline import Baseline, FloatArray
from linrec.baselines.config import BaselineConfig, PersonalConfig, PersonalDecayConfig
from linrec.data.dataset.sequences import Sequences, events_of

LEAST = float(np.finfo(np.float64).tiny)


def item_weights(histories: Sequences, n_items: int, decay: float = 1.0) -> FloatArray:
    """The sum of decay^age over the events of each item, [rows, n_items + 1].

    The newest event has age 0. However old it is, an event weighs more than none.
    """
    rows, items = events_of(histories)
    newest = np.cumsum(histories.lengths) - 1  # end to end
    age = newest[rows] - np.arange(len(rows))
    weights = np.maximum(np.power(decay, age), LEAST)
    shape = (len(histories), n_items + 1)
    cells = rows * shape[1] + items
    summed = np.bincount(cells, weights, minlength=shape[0] * shape[1])
    return np.asarray(summed, np.float64).reshape(shape)


class Personal(Baseline):
    Config: ClassVar[type[BaselineConfig]] = PersonalConfig
    definition = "The items that the user has had most often; popularity breaks ties."
    same_if_hidden = "popularity"

    def scores(self, histories: Sequences) -> FloatArray:
        return item_weights(histories, self.n_items) + self.tie_break


class PersonalDecay(Personal):
    """What the user has not had scores below zero, because an old event may weigh very little.

    Only without decay, which is `personal`, do two items of a history weigh the same.
    """

    Config = PersonalDecayConfig
    definition = (
        "The items that the user has had most often, where each event counts less than the one "
        "after it by a factor chosen on validation; popularity breaks ties."
    )
    config: PersonalDecayConfig

    def scores(self, histories: Sequences) -> FloatArray:
        assert self.config.decay is not None, "fit completes the settings"
        if self.config.decay == 1.0:
            return super().scores(histories)
        weights = item_weights(histories, self.n_items, self.config.decay)
        return np.where(weights > 0, weights, self.tie_break - 1.0)
