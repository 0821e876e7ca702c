"""What a study leaves: the table of its trials, plots, the best settings as a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table

from linrec.evaluation import Evaluation
from linrec.runs.config import RunConfig
from linrec.runs.recipes import recipe_toml
from linrec.tuning.plots import history_plot, importance_plot
from linrec.tuning.search import trial_config
from linrec.tuning.study import TABLE, Study
from linrec.types import InputError, argument

HISTORY, IMPORTANCE = "history.png", "importance.png"
SHOWN = 10  # rows of the table of the best


@dataclass(frozen=True)
class Tuned:
    """What `tune` found.

    `trials` has a row per trial: its number (0 is the recipe as it was given, if the space
    contains it), how it ended, its best validation NDCG@10 (of a trial that was ended early, the
    last one), epochs, seconds and the values that were tried.
    """

    folder: Path
    trials: pl.DataFrame
    best: Mapping[str, Any] | None  # the values of the winner; None before a trial is completed
    value: float | None  # its validation NDCG@10
    importances: Mapping[str, float]
    interrupted: bool = False
    run: Path | None = None  # of the winner
    evaluation: Evaluation | None = None  # of the winner on test

    @property
    def recipe(self) -> Path:
        """The best settings, for `linrec train --recipe`."""
        return self.folder / "best.toml"


def trials_table(study: Study) -> pl.DataFrame:
    rows = [
        {
            "trial": trial.user_attrs["place"],
            "end": trial.user_attrs["end"],
            "ndcg@10": trial.value,
            "best_epoch": trial.user_attrs["best_epoch"] or None,
            "epochs": trial.user_attrs["epochs"],
            "seconds": round(trial.user_attrs["seconds"], 1),
            **trial.params,
        }
        for trial in study.finished
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def write_results(study: Study, config: RunConfig) -> Tuned:
    """Renew table, plots and recipe."""
    table, best, importances = trials_table(study), study.best, study.importances()
    study.write(TABLE, table.write_csv().encode())
    values = [
        (trial.user_attrs["place"], trial.value, trial.user_attrs["end"] == "complete")
        for trial in study.finished
        if trial.value is not None
    ]
    if values:
        study.write(HISTORY, history_plot(values))
    if importances:
        study.write(IMPORTANCE, importance_plot(importances))
    if best is not None:
        words = f"Trial {best.user_attrs['place']} of {len(table)}: validation NDCG@10"
        toml = recipe_toml(trial_config(config, best.params), f"{words} {best.value:.4f}")
        study.write(study.recipe.name, toml.encode())
    return Tuned(
        study.folder, table, None if best is None else dict(best.params),
        None if best is None else best.value, importances,
    )  # fmt: skip


def best_table(tuned: Tuned) -> Table:
    """The best trials for a terminal; the settings that differ, in columns."""
    names = tuned.trials.columns[6:]
    table = Table("trial", "NDCG@10", "epochs", "seconds", *names, title="The best trials")
    complete = tuned.trials.filter(pl.col("end") == "complete")
    for row in complete.sort("ndcg@10", descending=True, maintain_order=True)[:SHOWN].to_dicts():
        figures = [f"{row['ndcg@10']:.4f}", str(row["epochs"]), f"{row['seconds']:.0f}"]
        table.add_row(str(row["trial"]), *figures, *(_shown(row[name]) for name in names))
    return table


def needs_more(tuned: Tuned) -> InputError:
    ended = tuned.trials.group_by("end").len().sort("end").rows() if len(tuned.trials) else []
    words = ", ".join(f"{count} {end}" for end, count in ended) or "none had the time"
    return InputError(
        f"no trial of {tuned.folder} was completed ({words}); give more {argument('trials')} or "
        f"{argument('hours')}, or narrow the space"
    )


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
