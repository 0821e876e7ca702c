"""Is one model better than another? Paired tests on the metrics of the same users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linrec.evaluation.resampling import Interval, bootstrap
from linrec.types import InputError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Two means over the same users, their difference (b - a), and two tests of "no difference"."""

    n_users: int
    mean_a: float
    mean_b: float
    difference: Interval
    t_statistic: float
    t_p: float
    wilcoxon_statistic: float
    wilcoxon_p: float


def paired(a: FloatArray, b: FloatArray, seed: int = 0) -> PairedTest:
    """Compare a metric of the same users under two models."""
    if a.shape != b.shape or a.ndim != 1:
        raise InputError(f"paired metrics need the same users: {a.shape} against {b.shape}")
    if len(a) < 2:
        raise InputError(f"a paired test needs at least two users; there is {len(a)}")
    difference = b - a
    return PairedTest(
        len(a),
        float(a.mean()),
        float(b.mean()),
        bootstrap(difference, seed),
        *_t_test(difference),
        *_wilcoxon(difference),
    )


def _t_test(difference: FloatArray) -> tuple[float, float]:
    """Student's paired t and its two-sided p."""
    from scipy import stats  # a slow import that only comparisons need

    if not np.ptp(difference):  # no spread: t is 0/0, or infinite
        constant = float(difference[0])
        return (float(np.copysign(np.inf, constant)), 0.0) if constant else (0.0, 1.0)
    result = stats.ttest_1samp(difference, 0.0)
    return float(result.statistic), float(result.pvalue)


def _wilcoxon(difference: FloatArray) -> tuple[float, float]:
    """Wilcoxon's signed-rank statistic and its two-sided p; zero differences are left out."""
    from scipy import stats

    if not difference.any():
        return 0.0, 1.0
    result = stats.wilcoxon(difference)
    return float(result.statistic), float(result.pvalue)
