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
PAPER_EPOCHS = 100
MODEL = ("epochs", "best_epoch", "epoch_share", "fingerprint")


@dataclass(frozen=True)
class Options:
    """Where things lie, and how far to go."""

    data: dict[str, Path] = field(default_factory=dict)
    runs: Path = ROOT / "runs"
    results: Path = ROOT / "results"
    cells: str | None = None
    recipe: str | None = None  # in place of the paper's, to try everything small
    epochs: int | None = None
    patience: int | None = None
    budget: float | None = None  # minutes a cell may train now
    threads: int | None = None
    steps: int = 20  # timed of each training
    rounds: int = 4  # of which the best counts
    lengths: tuple[int, ...] = (140, 160, 180, 200, 220, 240, 500, 1000, 2000, 4000)

    def place(self, cell: Cell) -> Path:
        return self.results / cell.dataset / f"{cell.name}.json"

    def folder(self, cell: Cell) -> Path:
        return self.runs / cell.name

    def outcome(self, cell: Cell) -> Outcome | None:
        return read(self.place(cell))

    def epochs_of(self, cell: Cell) -> int:
        """Asked for now, else when it was trained, else the recipe's."""
        known = self.outcome(cell)
        if self.epochs is not None or known is None:
            return self.epochs or self._recipe(cell).epochs
        return int(known["config"]["training"]["epochs"])

    def patience_of(self, cell: Cell) -> int:
        known = self.outcome(cell)
        if self.patience is not None or known is None or self.epochs is not None:
            return self.patience or self._recipe(cell).patience
        return int(known["config"]["training"]["patience"])

    def _recipe(self, cell: Cell) -> Any:
        return recipe(cell.asked(self.recipe)["recipe"]).training

    def finished(self, cell: Cell) -> bool:
        """Early stopping ended it, its epochs or minutes are reached, or it diverged."""
        known = self.outcome(cell)
        if known is None:
            return False
        if "diverged" in known or known.get("stopped") == "time":
            return True
        stopped = known["epochs"] - known["best_epoch"] >= self.patience_of(cell)
        return stopped or bool(known["epochs"] >= self.epochs_of(cell))


def read(path: Path) -> Outcome | None:
    if not path.exists():
        return None
    found: Outcome = json.loads(path.read_text("utf-8"))
    return found


def model_of(outcome: Outcome) -> Outcome:
    """What tells the model of an outcome apart, for whatever is made of it."""
    return {name: outcome.get(name, 0) for name in MODEL}


def footnote(outcome: Outcome) -> str:
    """What must be said with figures that were not made, or not to their end, as the paper's."""
    if "diverged" in outcome:
        return f"diverged in epoch {outcome['diverged']}"
    training, epochs = outcome["config"]["training"], outcome["epochs"]
    ended = epochs - outcome["best_epoch"] >= training["patience"] or epochs >= PAPER_EPOCHS
    loss = training.get("loss", "softmax")
    said = ["" if ended else f"{_count(outcome)}, not converged", "" if loss == "softmax" else loss]
    return ", ".join(part for part in said if part)


def _count(outcome: Outcome) -> str:
    epochs = outcome["epochs"] + outcome.get("epoch_share", 0.0)
    count = f"{epochs:.2g}" if epochs < 1 else str(int(epochs))
    return f"{count} epoch" if count == "1" else f"{count} epochs"
