"""A column that describes items, and the kinds of such columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FeatureKind = Literal["categorical", "multi", "numeric", "text"]


@dataclass(frozen=True, slots=True)
class Feature:
    """A column of the item table and its kind."""

    name: str
    kind: FeatureKind
