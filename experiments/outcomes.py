"""What is known of a cell: its JSON among the results, its run folder, and whether it is done."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT
from experiments.cells import Cell
from linrec.runs.recipes import recipe

Outcome = dict[str, Any]
MODEL = ("epochs", "best_epoch", "epoch_share", "fingerprint", "commit")


@dataclass(frozen=True)
class Options:
    """Where the files are, and how much to train."""

    data: dict[str, Path] = field(default_factory=dict)
    runs: Path = ROOT / "runs"
    results: Path = ROOT / "results"
    cells: str | None = None
    recipe: str | None = None  # in place of the paper's, to try everything at a small size
    epochs: int | None = None  # in place of the cells' own budget
    hours: float | None = None  # after which this process stops
    threads: int | None = None
    steps: int = 20  # timed steps of each training
    rounds: int = 4  # of which the fastest counts
    lengths: tuple[int, ...] = (140, 160, 180, 200, 220, 240, 500, 1000, 2000, 4000)

    def path(self, cell: Cell) -> Path:
        return self.results / cell.dataset / f"{cell.name}.json"

    def folder(self, cell: Cell) -> Path:
        return self.runs / cell.name

    def outcome(self, cell: Cell) -> Outcome | None:
        return read(self.path(cell))

    def epochs_of(self, cell: Cell) -> int:
        """The budget of a cell; a training of some minutes is not limited by its epochs."""
        if self.epochs is not None:
            return self.epochs
        if self.recipe is None and cell.minutes is None:
            return cell.epochs
        return recipe(cell.settings(self.recipe)["recipe"]).training.epochs

    def finished(self, cell: Cell) -> bool:
        """Its epochs or minutes are used up, or it diverged."""
        known = self.outcome(cell)
        if known is None:
            return False
        if "diverged" in known or known.get("stopped") == "time":
            return True
        return bool(known["epochs"] >= self.epochs_of(cell))

    def note(self, cell: Cell) -> str:
        """What must be stated with the figures of a cell."""
        known = self.outcome(cell)
        if known is None:
            return ""
        return footnote(known, None if cell.minutes is not None else self.epochs_of(cell))


def read(path: Path) -> Outcome | None:
    if not path.exists():
        return None
    outcome: Outcome = json.loads(path.read_text("utf-8"))
    return outcome


def model_of(outcome: Outcome) -> Outcome:
    """What identifies the model of an outcome, for whatever is derived from it."""
    return {name: outcome.get(name, 0) for name in MODEL}


def footnote(outcome: Outcome, budget: int | None = None) -> str:
    """How long it was trained, whether the curve still rose, and what else is unlike the paper."""
    if "diverged" in outcome:
        return f"diverged in epoch {outcome['diverged']}"
    loss = outcome["config"]["training"].get("loss", "softmax")
    gain = last_fifth(outcome)
    parts = [
        _count(outcome, budget),
        "" if gain is None else f"{100 * gain:+.1f} % in the last fifth",
        "" if loss == "softmax" else loss,
    ]
    return ", ".join(part for part in parts if part)


def last_fifth(outcome: Outcome) -> float | None:
    """By how much the best validation NDCG@10 rose in the last fifth of the epochs."""
    curve = [row["ndcg@10"] for row in outcome["history"]]
    if len(curve) < 5:
        return None
    cut = len(curve) - len(curve) // 5
    return float(max(curve) / max(curve[:cut]) - 1)


def _count(outcome: Outcome, budget: int | None) -> str:
    epochs = outcome["epochs"] + outcome.get("epoch_share", 0.0)
    count = f"{epochs:.2g}" if epochs < 1 else str(int(epochs))
    if budget is not None and epochs < budget:
        count += f" of {budget}"
    return f"{count} epoch" if count == "1" else f"{count} epochs"
