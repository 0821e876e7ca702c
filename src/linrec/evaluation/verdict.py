"""Does the model beat the best baseline? One sentence, from a paired test on the same users."""

from __future__ import annotations

from dataclasses import dataclass

from linrec.data.dataset.sequences import IntArray
from linrec.data.dataset.splits import Owners
from linrec.evaluation.metrics import per_user
from linrec.evaluation.resampling import Interval
from linrec.evaluation.significance import paired

SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstBaseline:
    """The model and the best baseline, user by user."""

    baseline: str
    metric: str  # by which it is the best
    model_mean: float
    baseline_mean: float
    difference: Interval  # model minus baseline
    p: float  # of the paired t-test, two-sided

    @property
    def beaten(self) -> bool:
        """Whether the model is better, and significantly so."""
        return self.difference.mean > 0 and self.p < SIGNIFICANT

    @property
    def sentence(self) -> str:
        label = self.metric.upper()
        figures = (
            f"{label} {self.model_mean:.4f} against {self.baseline_mean:.4f}, difference "
            f"{self.difference.mean:+.4f}, paired t-test p {shown_p(self.p)}"
        )
        if self.beaten:
            return f"the model beats the best baseline, {self.baseline} ({figures})"
        how = "" if self.difference.mean <= 0 else " significantly"
        return (
            f"the model does not beat the best baseline{how}: {self.baseline} ({figures}), which "
            "can be trained and served instead"
        )


def against_best(
    model: IntArray,
    baselines: dict[str, IntArray],
    ks: tuple[int, ...],
    seed: int,
    owners: Owners | None = None,
) -> AgainstBaseline | None:
    """The ranks of a model against those of the baseline with the best NDCG.

    owners: whose the ranks are; None: one of each user.

    None without baselines, or with less than the two users that a test needs.
    """
    if not baselines:
        return None
    metric = f"ndcg@{10 if 10 in ks else max(ks)}"
    values = {name: per_user(metric, ranks, owners) for name, ranks in baselines.items()}
    own = per_user(metric, model, owners)
    if len(own) < 2:
        return None
    best = max(values, key=lambda name: float(values[name].mean()))
    test = paired(values[best], own, seed)
    return AgainstBaseline(
        baseline=best,
        metric=metric,
        model_mean=test.mean_b,
        baseline_mean=test.mean_a,
        difference=test.difference,
        p=test.t_p,
    )


def shown_p(value: float) -> str:
    return "< 1e-4" if value < 1e-4 else f"{value:.4f}"
