from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from linrec.baselines.baseline import FloatArray, newest
from linrec.baselines.config import BaselineConfig, PersonalLastItemConfig
from linrec.baselines.last_item import Transitions
from linrec.baselines.personal import item_weights
from linrec.data.dataset.sequences import Sequences


class PersonalLastItem(Transitions):
    """(1 - s) p(item | history) + s p(item | last item), with s chosen on validation.

    The first is the decayed frequency as a share of the history. The second is the share among what
    followed the last item, with popularity as one observation more: it decides alone after an item
    that nothing has followed.
    """

    Config = PersonalLastItemConfig
    definition = (
        "Decayed personal frequency mixed with what followed the last item, with factor and share "
        "chosen on validation."
    )
    same_if_hidden = "last-item"
    config: PersonalLastItemConfig

    def __init__(self, config: BaselineConfig, counts: Mapping[str, Tensor]) -> None:
        super().__init__(config, counts)
        popularity = self.popularity.numpy().astype(np.float64)
        self.prior = popularity / max(popularity.sum(), 1.0)
        self.followers = np.asarray(self.follows.sum(axis=1), np.float64)

    def scores(self, histories: Sequences) -> FloatArray:
        decay, share = self.config.decay, self.config.transition_share
        assert decay is not None, "fit completes the settings"
        assert share is not None, "fit completes the settings"
        scores = item_weights(histories, self.n_items, decay)
        scores *= (1.0 - share) / np.maximum(scores.sum(1, keepdims=True), 1.0)
        last = newest(histories)
        following = self.follows[last].toarray() + self.prior
        scores += following * (share / (self.followers[last, None] + 1.0))
        return scores
