"""From scores to figures: one rank per user, then metrics, baselines, intervals, paired tests."""

from linrec.baselines import BASELINES
from linrec.evaluation.baselines import chosen_baselines, fit_baseline
from linrec.evaluation.by_gap import GapFigures
from linrec.evaluation.by_seen import SeenFigures
from linrec.evaluation.comparison import Comparison, UserRanks, compare, comparison_to_dict
from linrec.evaluation.list_metrics import LIST_METRICS, ListMeasures
from linrec.evaluation.metrics import (
    METRICS,
    coverage,
    intervals,
    means,
    metric_names,
    mrr,
    ndcg,
    per_user,
    recall,
)
from linrec.evaluation.negatives import PROTOCOLS, Protocol, draw_negatives, load_or_draw
from linrec.evaluation.ranks import ProgressCallback, Ranking, RankOptions, Scorer, rank_targets
from linrec.evaluation.report import Evaluation, EvaluationOptions, evaluate
from linrec.evaluation.reranking import Reranker, check_diversity
from linrec.evaluation.resampling import Interval, bootstrap
from linrec.evaluation.significance import PairedTest, paired
from linrec.evaluation.tables import (
    comparison_table,
    evaluation_table,
    gap_table,
    metric_label,
    seen_table,
)
from linrec.evaluation.verdict import AgainstBaseline

__all__ = [
    "BASELINES",
    "LIST_METRICS",
    "METRICS",
    "PROTOCOLS",
    "AgainstBaseline",
    "Comparison",
    "Evaluation",
    "EvaluationOptions",
    "GapFigures",
    "Interval",
    "ListMeasures",
    "PairedTest",
    "ProgressCallback",
    "Protocol",
    "RankOptions",
    "Ranking",
    "Reranker",
    "Scorer",
    "SeenFigures",
    "UserRanks",
    "bootstrap",
    "check_diversity",
    "chosen_baselines",
    "compare",
    "comparison_table",
    "comparison_to_dict",
    "coverage",
    "draw_negatives",
    "evaluate",
    "evaluation_table",
    "fit_baseline",
    "gap_table",
    "intervals",
    "load_or_draw",
    "means",
    "metric_label",
    "metric_names",
    "mrr",
    "ndcg",
    "paired",
    "per_user",
    "rank_targets",
    "recall",
    "seen_table",
]
