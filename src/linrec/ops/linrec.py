"""LinRec (SIGIR '23): ELU, then L2-normalised rows of Q and columns of K; and its variants."""

from __future__ import annotations

from linrec.ops.rule import FeatureMap, Normaliser, Rule
from linrec.ops.rule_based import RuleBased


class LinRec(RuleBased):
    """rho1(Q)_i = phi(Q_i) / (sqrt(D) |phi(Q_i)|), rho2(K)_j = phi(K_j) / (sqrt(N) |phi(K_j)|)."""

    rule = Rule(FeatureMap.ELU, Normaliser.COLUMN_NORM, unit_queries=True)


class LinRecDecay(RuleBased):
    """Each head forgets at its own pace: event m counts g^(t-m) at t.

    With log g = 0 this is the paper's mechanism; a small g sees the last few events alone.
    """

    rule = LinRec.rule._replace(decay=True)


class LinRecRowwise(RuleBased):
    """The formula of the authors' released code: K normalised per event, no 1/sqrt(N).

    Not the paper's equation: rows of B' may sum to more than 1, and grow with the history.
    """

    rule = LinRec.rule._replace(unit_keys=True, normaliser=Normaliser.NONE)


class LinRecWithoutNorm(RuleBased):
    """The paper's ablation "w/o L2 norm"; the factors 1/sqrt(D) and 1/sqrt(N) stay."""

    rule = LinRec.rule._replace(unit_queries=False, normaliser=Normaliser.COUNT)


class LinRecWithoutElu(RuleBased):
    """The paper's ablation "w/o ELU": both L2 norms on plain Q and K, so B' may have any sign."""

    rule = LinRec.rule._replace(feature_map=FeatureMap.IDENTITY)
