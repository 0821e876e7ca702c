"""A linear mechanism as data: what its class declares and what the kernels are given.

The fields are numbers, so that they pass through torch's operator schema and into C++ as they are;
native/problem.hpp has the same fields and enums in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple


class FeatureMap(IntEnum):
    """phi, applied to each number of Q and K."""

    IDENTITY = 0
    ELU = 1
    ELU_PLUS_ONE = 2


class Normaliser(IntEnum):
    """What the output is divided by; n events, K the features of the keys."""

    COLUMN_NORM = 0  # sqrt(n sum K^2), feature by feature
    COUNT = 1  # sqrt(n)
    ROW_SUM = 2  # Q . sum K, so that each row of B' sums to one
    NONE = 3


class Rule(NamedTuple):
    feature_map: FeatureMap
    normaliser: Normaliser
    unit_queries: bool = False  # each query divided by its L2 norm
    unit_keys: bool = False  # each key divided by its L2 norm
    scaled: bool = True  # queries divided by sqrt(D)
    decay: bool = False  # whether a log g per head may be given

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> Rule:
        feature_map, normaliser, *flags = numbers
        return cls(FeatureMap(feature_map), Normaliser(normaliser), *map(bool, flags))
