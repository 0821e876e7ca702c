"""What is trained: each cell of a table is one run, told apart by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from experiments.datasets import DATASETS
from linrec import InputError

BACKBONES = ("sasrec", "sasrecf", "core", "fdsa", "bert4rec")  # the quickest to learn first
COMPARED = ("softmax", "linrec", "linrec-decay")
EFFICIENT = ("linear-transformer", "efficient", "linrec", "linrec-rowwise")
ABLATED = ("linrec", "linrec-without-norm", "linrec-without-elu")
READS_FEATURES = ("sasrecf", "fdsa")


@dataclass(frozen=True)
class Cell:
    dataset: str
    backbone: str
    attention: str
    variant: str = ""  # what else tells it apart, in its name
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    minutes: float | None = None  # of training, for cells that are compared at equal time

    @property
    def name(self) -> str:
        parts = (self.dataset, self.backbone, self.attention, self.variant)
        return "-".join(part for part in parts if part)

    def asked(self, recipe: str | None = None) -> dict[str, Any]:
        """The settings of `linrec train` that make it what it is."""
        dataset = DATASETS[self.dataset]
        asked: dict[str, Any] = {
            "recipe": recipe or dataset.recipe,
            "backbone": self.backbone,
            "attention": self.attention,
            **dataset.settings,
        }
        if self.backbone in READS_FEATURES and dataset.features:
            asked["features"] = dataset.features
        return asked | dict(self.settings)


def overall(dataset: str) -> list[Cell]:
    return [Cell(dataset, backbone, name) for backbone in BACKBONES for name in COMPARED]


def efficient(dataset: str) -> list[Cell]:
    return [Cell(dataset, "sasrec", name) for name in ("softmax", *EFFICIENT)]


def ablation(dataset: str) -> list[Cell]:
    return [Cell(dataset, "sasrec", name) for name in ABLATED]


def at_equal_time(minutes: float = 15) -> list[Cell]:
    """Causal training of every position against the paper's, one prefix a target."""
    return [
        Cell("ml-1m", "sasrec", name, f"{objective}-timed", {"objective": objective}, minutes)
        for name in ("linrec", "linrec-decay")
        for objective in ("all-positions", "last-position")
    ]


def by_reach() -> list[Cell]:
    """The whole history, and the newest 200, 100 and 50 events of it."""
    last = [
        Cell("ml-1m", "sasrec", "linrec-decay", f"last-{n}", {"max_length": n, "positions": n})
        for n in (100, 50)
    ]
    whole = {"max_length": 0, "positions": 256}
    return [
        Cell("ml-1m", "sasrec", "linrec-decay", "whole", whole),
        Cell("ml-1m", "sasrec", "linrec-decay"),  # the recipe's: the last 200
        *last,
    ]


def of_table(table: str) -> list[Cell]:
    """The cells that a table or figure needs, those of ML-1M first."""
    if table == "beyond":
        return [*by_reach(), *at_equal_time()]
    if table in ("heatmap", "conditions"):
        return [Cell("ml-1m", "sasrec", name) for name in COMPARED]
    made = {"overall": overall, "efficient": efficient, "ablation": ablation}.get(table)
    return [] if made is None else [cell for dataset in DATASETS for cell in made(dataset)]


def chosen(tables: Iterable[str], pattern: str | None = None) -> list[Cell]:
    """The cells of several tables, each once, less those whose name does not match."""
    cells = {cell.name: cell for table in tables for cell in of_table(table)}
    if pattern is None:
        return list(cells.values())
    found = [cell for name, cell in cells.items() if fnmatch(name, pattern)]
    if cells and not found:
        raise InputError(f"no cell is named {pattern!r}; there are {', '.join(cells)}")
    return found
