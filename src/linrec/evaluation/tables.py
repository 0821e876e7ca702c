"""Evaluations and comparisons as tables for a terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from linrec.evaluation.comparison import Comparison
from linrec.evaluation.report import LEAVE_ONE_OUT, NEXT, Evaluation
from linrec.evaluation.resampling import Interval
from linrec.evaluation.verdict import shown_p

BESIDE_INTERVALS = 3
"""Baselines that fit into a terminal of 80 together with a column of intervals."""

_LABELS = {
    "recall": "Recall",
    "hit": "Hit rate",
    "ndcg": "NDCG",
    "map": "MAP",
    "mrr": "MRR",
    "coverage": "Coverage",
    "popularity": "Popularity",
    "novelty": "Novelty",
    "diversity": "Diversity",
    "miscalibration": "Miscalibration",
}

_DECIMALS = {"popularity": 1, "novelty": 2}  # events and bits; all others are from 0 to 1


def evaluation_table(evaluation: Evaluation, name: str = "model") -> Table:
    """The model and its baselines side by side; the best mean of each row is bold."""
    narrow = len(evaluation.baselines) > BESIDE_INTERVALS
    table = Table(title=protocol_title(evaluation), caption=_caption(evaluation))
    table.add_column("metric", no_wrap=True)
    table.add_column(escape(name), justify="right")
    if not narrow:
        table.add_column("95 % interval", justify="right", style="dim", no_wrap=True)
    for baseline in evaluation.baselines:
        table.add_column(_heading(baseline, narrow), justify="right")
    for metric, value in evaluation.metrics.items():
        baselines = [figures[metric] for figures in evaluation.baselines.values()]
        cells = [figure(metric, mean) for mean in (value.mean, *baselines)]
        best = best_of(metric, [value.mean, *baselines])
        if best is not None:
            cells[best] = f"[bold]{cells[best]}[/]"
        shown = interval(value, metric=metric)
        table.add_row(metric_label(metric), *_with_interval(cells, shown, narrow))
    if narrow:
        _narrow(table)
    return table


def _heading(baseline: str, narrow: bool) -> str:
    """Long names in two lines, and where there are many baselines all of two words."""
    before = "-" if narrow else "personal-"
    return baseline.replace(before, f"{before}\n", 1)


def _narrow(table: Table) -> None:
    table.box, table.padding = SIMPLE_HEAD, (0, 0, 0, 0)
    table.pad_edge = table.show_edge = False


def _with_interval(cells: list[str], shown: str, narrow: bool) -> list[str]:
    """The interval after the first cell, or where the table is narrow below it."""
    if not narrow:
        return [cells[0], shown, *cells[1:]]
    below = shown.replace(" to ", "-")
    return [f"{cells[0]}\n[dim]{below}[/]" if below else cells[0], *cells[1:]]


def _caption(evaluation: Evaluation) -> Text | None:
    """The notes, and in colour whether the best baseline is beaten."""
    if not evaluation.notes:
        return None
    caption = Text("\n".join(evaluation.notes), style="table.caption")
    if evaluation.against is not None:
        sentence = evaluation.against.sentence
        colour = "not dim green" if evaluation.against.beaten else "not dim bold red"
        caption.highlight_words([sentence], style=colour)
    return caption


def comparison_table(comparison: Comparison, names: tuple[str, str] = ("A", "B")) -> Table:
    """Both means, their difference, and the p-values of two paired tests."""
    names = (escape(names[0]), escape(names[1]))
    n_users = next(iter(comparison.values())).n_users if comparison else 0
    table = Table(
        title=f"{names[1]} (B) against {names[0]} (A), {n_users:,} users",
        caption="tests: p, the chance of a change at least this large between equally good models",
        pad_edge=False,  # seven columns in a terminal of 80
    )
    for heading in ("metric", "A", "B", "change", "95 % interval", "t-test", "Wilcoxon"):
        side: JustifyMethod = "left" if heading == "metric" else "right"
        table.add_column(heading, justify=side, no_wrap=True)
    for metric, test in comparison.items():
        table.add_row(
            metric_label(metric),
            f"{test.mean_a:.4f}",
            f"{test.mean_b:.4f}",
            f"{test.difference.mean:+.4f}",
            interval(test.difference, "+"),
            shown_p(test.t_p),
            shown_p(test.wilcoxon_p),
        )
    return table


def metric_label(metric: str) -> str:
    """ "ndcg@10" as people write it: "NDCG@10"."""
    family, at, cut = metric.partition("@")
    return _LABELS.get(family, family) + at + cut


def protocol_title(evaluation: Evaluation) -> str:
    """The protocol that the figures were measured under, in words."""
    ranking = {
        "full": "full ranking",
        "pop100": "against 100 popular items",
        "uni100": "against 100 uniform items",
    }[evaluation.protocol]
    if evaluation.protocol == "full":
        ranking += ", seen items hidden" if evaluation.hide_seen else ", seen items kept"
    else:
        ranking += f" (seed {evaluation.seed})"
    if evaluation.request_time is not None:
        ranking += f", request time {evaluation.request_time}"
    return f"{_split_title(evaluation)}, {_counts(evaluation)}, {ranking}"


def _split_title(evaluation: Evaluation) -> str:
    """The part of the split, and how it was made unless it leaves one out."""
    if evaluation.splitting == LEAVE_ONE_OUT and evaluation.targets == NEXT:
        return f"{evaluation.split} split"
    predicted = {"next": "next event", "basket": "next basket", "every": "every event"}
    targets = predicted.get(evaluation.targets, f"next {evaluation.targets} events")
    return f"{evaluation.split} split, {evaluation.splitting}, {targets}"


def _counts(evaluation: Evaluation) -> str:
    users = f"{evaluation.n_users:,} users"
    if evaluation.n_targets is None:
        return users
    return f"{users}, {evaluation.n_targets:,} targets"


def gap_table(evaluation: Evaluation) -> Table:
    """The figures by the time between a target and the event before it."""
    metrics = gap_metrics(evaluation)
    table = Table(title="by the time since the event before the target")
    table.add_column("time")
    table.add_column("users" if evaluation.n_rows is None else "histories", justify="right")
    for metric in metrics:
        table.add_column(metric_label(metric), justify="right")
    for gap, figures in evaluation.by_gap.items():
        cells = [figure(metric, figures.metrics[metric]) for metric in metrics]
        table.add_row(gap, f"{figures.n_users:,}", *cells)
    return table


def seen_table(evaluation: Evaluation) -> Table:
    """NDCG of the model and the baselines on targets that the user had had, and on new ones."""
    metric, narrow = gap_metrics(evaluation)[0], len(evaluation.baselines) > BESIDE_INTERVALS
    table = Table(title=f"{metric_label(metric)} by whether the user had had the target")
    table.add_column("target")
    table.add_column("targets", justify="right")
    table.add_column("model", justify="right")
    for baseline in evaluation.baselines:
        table.add_column(_heading(baseline, narrow), justify="right")
    for kind, figures in evaluation.by_seen.items():
        means = [figures.metrics[metric], *(one[metric] for one in figures.baselines.values())]
        cells = [figure(metric, mean) for mean in means]
        table.add_row(kind, f"{figures.n_targets:,}", *cells)
    if narrow:
        _narrow(table)
    return table


def gap_metrics(evaluation: Evaluation) -> list[str]:
    """What the table shows of each gap: NDCG and Recall at 10, or at the longest list."""
    cut = 10 if 10 in evaluation.ks else max(evaluation.ks)
    return [f"ndcg@{cut}", f"recall@{cut}"]


NEITHER = ("popularity", "novelty", "diversity")
"""More of it is neither better nor worse: random lists have most of the last two."""


def best_of(metric: str, values: list[float]) -> int | None:
    """The index of the best value; None for metrics without a better direction."""
    family = metric.partition("@")[0]
    if family in NEITHER:
        return None
    best = min if family == "miscalibration" else max
    return best(range(len(values)), key=values.__getitem__)


def figure(metric: str, value: float) -> str:
    return f"{value:,.{_decimals(metric)}f}"


def interval(value: Interval, sign: str = "", metric: str = "") -> str:
    """The bounds of an interval; empty if it has none."""
    if value.low is None or value.high is None:
        return ""
    form = f"{sign},.{_decimals(metric)}f"
    return f"{value.low:{form}} to {value.high:{form}}"


def _decimals(metric: str) -> int:
    return _DECIMALS.get(metric.partition("@")[0], 4)
