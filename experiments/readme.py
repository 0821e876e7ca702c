"""The README's tables between their markers: some cells, a line each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from experiments.cells import Cell, by_max_length, default_seeds
from experiments.default_model import seeds_table
from experiments.outcomes import Options, Outcome
from experiments.seeds import complete
from experiments.tables import line

SASREC = [Cell("ml-1m", "sasrec", name) for name in ("softmax", "linrec", "linrec-decay")]
MARKED = {
    "ml-1m": ([*SASREC, by_max_length()[0]], ("attention", "reads")),
}


def with_tables(page: str, options: Options) -> str:
    """The page with the tables between its markers replaced."""
    for marker, (cells, by) in MARKED.items():
        begin, end = f"<!-- {marker} -->\n", f"<!-- /{marker} -->"
        found = [outcome for cell in cells if (outcome := options.outcome(cell))]
        if begin in page and found:
            before, rest = page.split(begin)
            page = before + begin + _table(found, by) + end + rest.split(end)[1]
    return _with_default(page, options)


def _with_default(page: str, options: Options) -> str:
    """The table of the default model, if one of its seeds is trained."""
    begin, end = "<!-- default -->\n", "<!-- /default -->"
    if begin not in page or not any(complete(cell, options) for cell in default_seeds()):
        return page
    before, rest = page.split(begin)
    return before + begin + seeds_table(options) + "\n" + end + rest.split(end)[1]


def _table(found: list[Outcome], by: tuple[str, ...]) -> str:
    """One line per run, identified by what `by` names, then the baselines."""
    names = (*by, "NDCG@10", "Recall@10", "MRR", "NDCG@10, pop100", "epochs trained (best)")
    lines = [line(names), "|" + "---|" * len(names)]
    for outcome in found:
        figures = [
            {name: interval["mean"] for name, interval in evaluation["metrics"].items()}
            for evaluation in _both(outcome)
        ]
        cells = [_about(outcome["config"]["model"])[name] for name in by]
        epochs = f"{outcome['epochs']} ({outcome['best_epoch']})"
        lines.append(line([*cells, *_figures(*figures), epochs]))
    full, sampled = (evaluation["baselines"] for evaluation in _both(found[0]))
    for baseline in full:
        cells = [f"baseline: {baseline}", *("" for _ in by[1:])]
        lines.append(line([*cells, *_figures(full[baseline], sampled[baseline]), ""]))
    return "\n".join(lines) + "\n"


def _both(outcome: Outcome) -> Iterable[Outcome]:
    return (outcome["evaluations"][f"test-{protocol}"] for protocol in ("full", "pop100"))


def _about(model: dict[str, Any]) -> dict[str, str]:
    length = model["max_length"]
    return {
        "attention": f"`{model['attention']}`",
        "reads": f"last {length}" if length else "whole history",
    }


def _figures(full: dict[str, float], sampled: dict[str, float]) -> list[str]:
    shown = [full["ndcg@10"], full["recall@10"], full["mrr"], sampled["ndcg@10"]]
    return [f"{value:.4f}" for value in shown]
