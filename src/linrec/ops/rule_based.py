"""Linear mechanisms that a rule describes completely, as torch operations."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.ops.mechanism import EPSILON, LinearMechanism
from linrec.ops.rule import FeatureMap, Normaliser, Rule


class RuleBased(LinearMechanism):
    """Subclasses declare `rule`; `RuleBased(rule)` is the mechanism of a rule without a class."""

    rule: Rule

    def __init__(self, rule: Rule | None = None) -> None:
        if rule is not None:
            self.rule = rule

    @property
    def normalises(self) -> Literal["columns", "rows"]:
        return "rows" if self.rule.normaliser == Normaliser.ROW_SUM else "columns"

    def query(self, q: Tensor) -> Tensor:
        x = self._features(q, unit=self.rule.unit_queries)
        return x / math.sqrt(q.shape[-1]) if self.rule.scaled else x

    def key(self, k: Tensor) -> Tensor:
        return self._features(k, unit=self.rule.unit_keys)

    def column(self, key: Tensor) -> Tensor:
        return key if self.rule.normaliser == Normaliser.ROW_SUM else key.square()

    def normalise(self, x: Tensor, column: Tensor, count: Tensor) -> Tensor:
        match self.rule.normaliser:
            case Normaliser.COLUMN_NORM:
                # the column norm of a prefix is a running sum, so it may divide Q instead of K
                return x * torch.rsqrt(count * column + EPSILON)
            case Normaliser.COUNT:
                return x * torch.rsqrt(count.clamp(min=1.0))
            case Normaliser.ROW_SUM:
                return x / ((x * column).sum(-1, keepdim=True) + EPSILON)
            case Normaliser.NONE:
                return x

    def _features(self, x: Tensor, *, unit: bool) -> Tensor:
        if self.rule.feature_map != FeatureMap.IDENTITY:
            x = F.elu(x)
        if self.rule.feature_map == FeatureMap.ELU_PLUS_ONE:
            x = x + 1
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPSILON) if unit else x
