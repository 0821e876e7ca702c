from __future__ import annotations

import numpy as np

from linrec.baselines.baseline import Baseline, FloatArray
from linrec.data.dataset.sequences import Sequences


class Popularity(Baseline):
    definition = "The items with the most training events, for everybody."

    def scores(self, histories: Sequences) -> FloatArray:
        return np.repeat(self.popularity.numpy().astype(np.float64)[None], len(histories), axis=0)
