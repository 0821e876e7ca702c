"""Linear Transformer (Katharopoulos et al. 2020): feature map ELU + 1, rows sum to one."""

from __future__ import annotations

from linrec.ops.rule import FeatureMap, Normaliser, Rule
from linrec.ops.rule_based import RuleBased


class LinearTransformer(RuleBased):
    """phi(Q) (sum phi(K) V^T) / phi(Q) . sum phi(K)."""

    rule = Rule(FeatureMap.ELU_PLUS_ONE, Normaliser.ROW_SUM, scaled=False)
