"""What a loss knows of a repeat head."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from linrec.types import PastCounts


class Repeats(NamedTuple):
    """What the scores of past items gain: `layers.repeats.additions` of these."""

    weights: Tensor  # [T, 1 + K], of each target
    past: PastCounts
