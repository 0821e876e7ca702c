"""Tables of ranking quality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments import comparisons
from experiments.cells import Cell, ablation, at_equal_time, by_max_length, efficient, overall
from experiments.datasets import DATASETS
from experiments.outcomes import Options, Outcome, read
from experiments.tables import MISSING, PAPER, Layout, Row, line, table
from experiments.training import METRICS
from linrec.evaluation import metric_label

COLUMNS = tuple((protocol, metric) for protocol in ("pop100", "full") for metric in METRICS)
HEADINGS = tuple(f"{metric_label(metric)}, {protocol}" for protocol, metric in COLUMNS)
SIGNIFICANT = 0.05


def statistics(options: Options) -> str:
    """Table 1, the paper's figures in brackets."""
    names = ("users", "items", "events", "sparsity %", "mean length", "median", "p90", "max")
    lines = [line(("dataset", *names)), "|" + "---|" * (1 + len(names))]
    for name, dataset in DATASETS.items():
        known = read(options.results / name / "statistics.json")
        if known is None:
            lines.append(line((dataset.title, *(MISSING for _ in names))))
            continue
        ours = [known[key] for key in ("users", "items", "events", "sparsity")]
        pairs = zip(ours, PAPER["table_1"][name], ("d", "d", "d", ".2f"), strict=True)
        lengths = [f"{known['lengths'][key]:,.10g}" for key in ("median", "p90", "max")]
        beside = [f"{mine:,{form}} ({paper:,{form}})" for mine, paper, form in pairs]
        lines.append(line((dataset.title, *beside, f"{known['lengths']['mean']:.1f}", *lengths)))
    return "\n".join(lines)


def overall_table(dataset: str, options: Options) -> str:
    """Table 2: backbones without and with LinRec; signs against the same without."""
    cells, rows = overall(dataset), []
    for cell in cells:
        labels = (f"`{cell.backbone}`", f"`{cell.attention}`")
        paper = PAPER["table_2"][dataset][cell.backbone].get(cell.attention)
        rows.append(_row(cell, labels, options, replace(cell, attention="softmax"), paper))
    return table(Layout(("backbone", "attention"), HEADINGS), [*rows, *_baselines(cells, options)])


def efficient_table(dataset: str, options: Options) -> str:
    """Table 3: signs against LinRec."""
    paper = PAPER["table_3"][dataset] | {"softmax": PAPER["table_2"][dataset]["sasrec"]["softmax"]}
    return _of_attention(efficient(dataset), options, paper)


def ablation_table(dataset: str, options: Options) -> str:
    """RQ4: signs against LinRec as it is."""
    return _of_attention(ablation(dataset), options, {})


def _of_attention(cells: Sequence[Cell], options: Options, paper: dict[str, Any]) -> str:
    rows = []
    for cell in cells:
        label, linrec = (f"`{cell.attention}`",), replace(cell, attention="linrec")
        rows.append(_row(cell, label, options, linrec, paper.get(cell.attention)))
    return table(Layout(("attention",), HEADINGS), rows)


def equal_time_table(options: Options) -> str:
    """Every position against one prefix per target, after the same time."""
    rows = []
    for cell in at_equal_time():
        labels = (f"`{cell.attention}`", str(cell.overrides["objective"]))
        first = next(one for one in at_equal_time() if one.attention == cell.attention)
        row = _row(cell, labels, options, first)
        known = options.outcome(cell)
        minutes = "" if known is None else f", {known['seconds'] / 60:.0f} minutes"
        rows.append(replace(row, note=row.note + minutes if row.note else ""))
    return table(Layout(("attention", "trained on"), HEADINGS), rows)


def reach_table(options: Options) -> str:
    """NDCG@10 under full ranking by what a model reads and by how long the user's history is."""
    known = {cell: outcome for cell in by_max_length() if (outcome := options.outcome(cell))}
    grouped = [outcome["by_length"] for outcome in known.values() if "by_length" in outcome]
    bounds = [(group["from"], group["to"], group["users"]) for group in (grouped or [[]])[0]]
    columns = ("all", *(f"{span(low, high)} ({users:,})" for low, high, users in bounds))
    rows = []
    for cell in by_max_length():
        outcome = known.get(cell)
        values: list[float | None] = [_mean(outcome, "full", "ndcg@10")]
        groups = (outcome or {}).get("by_length") or [{}] * len(bounds)
        values += [group.get("ndcg@10") for group in groups]
        against = _signs(cell, replace(cell, variant="", overrides={}), options)
        signs = [against[COLUMNS.index(("full", "ndcg@10"))], *("" for _ in bounds)]
        rows.append(Row((reads(cell),), values, signs=signs, note=options.note(cell)))
    return table(Layout(("reads",), columns), rows)


def reads(cell: Cell) -> str:
    if cell.variant == "whole":
        return "whole history"
    return cell.variant.replace("-", " ") or "last 200"


def span(low: int, high: int | None) -> str:
    return f"{low} and more" if high is None else f"{low} to {high - 1}"


def _row(
    cell: Cell,
    labels: tuple[str, ...],
    options: Options,
    other: Cell,
    paper: Sequence[float] | None = None,
) -> Row:
    outcome = options.outcome(cell)
    beside = [*paper, None, None, None] if paper else ()
    values = [_mean(outcome, protocol, metric) for protocol, metric in COLUMNS]
    signs = _signs(cell, other, options)
    return Row(labels, values, beside, signs, note=options.note(cell))


def _mean(outcome: Outcome | None, protocol: str, metric: str) -> float | None:
    if outcome is None or "evaluations" not in outcome:
        return None
    return mean_of(outcome, protocol, metric)


def mean_of(outcome: Outcome, protocol: str, metric: str) -> float:
    return float(outcome["evaluations"][f"test-{protocol}"]["metrics"][metric]["mean"])


def _signs(cell: Cell, other: Cell, options: Options) -> list[str]:
    """An arrow where users have significantly better or worse figures than with the other."""
    known = comparisons.comparison(cell, other, options)
    if known is None:
        return [""] * len(COLUMNS)
    tests = [known["tests"][f"test-{protocol}"][metric] for protocol, metric in COLUMNS]
    return [arrow(test["t_p"], test["difference"]["mean"]) for test in tests]


def arrow(p: float, difference: float) -> str:
    return "" if p >= SIGNIFICANT else "▲" if difference > 0 else "▼"


def _baselines(cells: Sequence[Cell], options: Options) -> list[Row]:
    """What needs no model, from any cell of the dataset."""
    known = [found for cell in cells if (found := options.outcome(cell)) and "evaluations" in found]
    if not known:
        return []
    evaluations = known[0]["evaluations"]
    return [
        Row(("baseline", name), [evaluations[f"test-{protocol}"]["baselines"][name][metric]
                                 for protocol, metric in COLUMNS], ranked=False)
        for name in evaluations["test-full"]["baselines"]
    ]  # fmt: skip
