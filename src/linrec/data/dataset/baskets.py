"""Training for the next basket: one of its events, drawn in each epoch, from all before it.

Inside a basket nothing came first, so no event of it is predicted from another. Of a basket one
event is drawn where all could be targets: the encoder reads the same history for all of them, and
over the epochs each has its turn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.sequences import IntArray, Sequences


@dataclass(frozen=True, slots=True)
class Baskets:
    """Where the baskets of some rows begin and end, as positions in the array of events."""

    begins: NDArray[np.bool_]  # [events], True on the first event of each basket
    stops: IntArray  # [events], the end of the basket of each event; it never leaves its row

    @classmethod
    def of(cls, begins: NDArray[np.bool_], rows: Sequences) -> Baskets:
        """begins: of the whole array. rows: what is trained on, which may end in a basket."""
        ends = np.zeros(len(begins) + 1, np.bool_)
        ends[:-1] = begins
        ends[rows.ends] = ends[-1] = True
        places = np.flatnonzero(ends)
        return cls(begins, places[np.searchsorted(places, np.arange(len(begins)), side="right")])

    def begin_at(self, events: IntArray) -> NDArray[np.bool_]:
        """Whether a basket begins with each of these events."""
        return np.asarray(self.begins[events], np.bool_)

    def one_of(self, events: IntArray, rng: np.random.Generator) -> IntArray:
        """From each event on, one of its basket at random: [events] -> [events]."""
        return events + rng.integers(0, self.stops[events] - events)
