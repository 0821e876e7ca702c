"""What is trained: each cell of a table is one run, identified by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any

from experiments.datasets import ALL, DATASETS, WITH_REPEATS
from linrec import InputError

BACKBONES = ("sasrec", "sasrecf", "core", "fdsa", "bert4rec")  # the fastest learners first
COMPARED = ("softmax", "linrec", "linrec-decay")
EFFICIENT = ("linear-transformer", "efficient", "linrec", "linrec-rowwise")
ABLATED = ("linrec", "linrec-without-norm", "linrec-without-elu")
SEEDED = (*COMPARED, "linear-transformer", "efficient", "linrec-rowwise")
SEEDS = (0, 1, 2)
WITH_FEATURES = ("sasrecf", "fdsa")
SLOW_EPOCHS = {"bert4rec": 100}
"""Backbones that learn from a fifth of the events per epoch, and so need more of them."""


DEFAULT = {"recipe": "default", "precision": "bfloat16"}
"""The default model; the recipe leaves the precision to a timing, which may differ each time."""
DEFAULT_EPOCHS = 24
SHORT_EPOCHS = 4
PARTS: dict[str, dict[str, Any]] = {
    "times": {"time_gaps": False},
    "request-time": {"unknown_time": 1.0},
    "head-norm": {"head_norm": False},
    "seen-aware-loss": {"seen_aware": False},
    "schedule": {"schedule": "constant", "warmup": 0},
}
"""What the default model adds to SASRec with linrec-decay, and how each part is left out."""
ALONE = ("times", "head-norm", "seen-aware-loss", "schedule")
"""The parts that can stand alone."""


READS = (50, 200, 1_000, 0)
"""Newest events of a history that a model reads; 0: all of them."""
REACH_EPOCHS = {
    "ml-1m": 5, "gowalla-checkins": 4, "congress-hashtags": 3, "complete-journey": 4,
}  # fmt: skip
"""Where the reach of a model is measured, and the budget: each epoch has every target once."""


@dataclass(frozen=True)
class Cell:
    dataset: str
    backbone: str
    attention: str
    variant: str = ""  # what else distinguishes it, as part of its name
    overrides: Mapping[str, Any] = field(default_factory=dict, hash=False)
    minutes: float | None = None  # of training, for cells that are compared at equal time
    seed: int = 0
    budget: int | None = None  # epochs, where the table has other ones than its dataset

    @property
    def name(self) -> str:
        """Its run folder, and its file among the results."""
        seed = f"seed-{self.seed}" if self.seed else ""
        parts = (self.dataset, self.backbone, self.attention, self.variant, seed)
        return "-".join(part for part in parts if part)

    @property
    def epochs(self) -> int:
        """The budget that every cell of a table has in common."""
        usual = SLOW_EPOCHS.get(self.backbone, ALL[self.dataset].epochs)
        return usual if self.budget is None else self.budget

    def settings(self, recipe: str | None = None) -> dict[str, Any]:
        """The settings of `linrec train` for this cell; `recipe` replaces its own."""
        dataset = ALL[self.dataset]
        settings: dict[str, Any] = {
            "recipe": dataset.recipe,
            "backbone": self.backbone,
            "attention": self.attention,
            **dataset.settings,
        }
        if self.backbone in WITH_FEATURES and dataset.features:
            settings["features"] = dataset.features
        settings |= dict(self.overrides) | {"seed": self.seed}
        return settings if recipe is None else settings | {"recipe": recipe}


def overall(dataset: str) -> list[Cell]:
    return [Cell(dataset, backbone, name) for backbone in BACKBONES for name in COMPARED]


def efficient(dataset: str) -> list[Cell]:
    return [Cell(dataset, "sasrec", name) for name in ("softmax", *EFFICIENT)]


def ablation(dataset: str) -> list[Cell]:
    return [Cell(dataset, "sasrec", name) for name in ABLATED]


def over_seeds(attention: str | None = None) -> list[Cell]:
    """SASRec on ML-1M with several seeds, all attentions of a seed before the next seed."""
    names = SEEDED if attention is None else (attention,)
    return [Cell("ml-1m", "sasrec", name, seed=seed) for seed in SEEDS for name in names]


def at_equal_time(minutes: float = 15) -> list[Cell]:
    """Causal training of every position against the paper's, one prefix per target."""
    return [
        Cell("ml-1m", "sasrec", name, f"{objective}-timed", {"objective": objective}, minutes)
        for name in ("linrec", "linrec-decay")
        for objective in ("all-positions", "last-position")
    ]


def by_max_length() -> list[Cell]:
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


def default_seeds(dataset: str | None = None) -> list[Cell]:
    """The default model on both forms of ML-1M, one dataset and seed after the other."""
    names = ("ml-1m", "ml-1m-all") if dataset is None else (dataset,)
    return [_default(name, seed=seed) for name in names for seed in SEEDS]


def default_mechanisms() -> list[Cell]:
    """The default model with other attention, all else equal."""
    return [
        replace(_short(), attention=name)
        for name in ("linrec-decay", "softmax", "linrec", "linear-transformer")
    ]


def default_parts() -> list[Cell]:
    """The default model as it is, without each of its parts, and with each of them alone."""
    without = [_short(f"without-{part}", off) for part, off in PARTS.items()]
    nothing = {name: value for part in ALONE for name, value in PARTS[part].items()}
    alone = [
        _short(
            f"only-{part}",
            {name: value for name, value in nothing.items() if name not in PARTS[part]},
        )
        for part in ALONE
    ]
    tried = [_short("with-gate", {"gate": True}), _short("in-float32", {"precision": "float32"})]
    return [_short(), *without, *tried, _short("plain", nothing), *alone]


def _default(dataset: str, *, seed: int = 0) -> Cell:
    return Cell(dataset, "sasrec", "linrec-decay", "default", DEFAULT, seed=seed,
                budget=DEFAULT_EPOCHS)  # fmt: skip


def _short(variant: str = "", changes: Mapping[str, Any] | None = None) -> Cell:
    """The default model with some changes and a smaller budget, the same for all of these."""
    named = "-".join(part for part in ("short", variant) if part)
    settings = DEFAULT | dict(changes or {})
    return Cell("ml-1m", "sasrec", "linrec-decay", named, settings, budget=SHORT_EPOCHS)


def repeats(dataset: str | None = None) -> list[Cell]:
    """The model with a repeat head and without, on data where users come back to items."""
    names = tuple(WITH_REPEATS) if dataset is None else (dataset,)
    return [
        Cell(name, "sasrec", "linrec-decay", variant, {"repeat_head": head})
        for name in names
        for variant, head in (("repeat-head", "on"), ("no-repeat-head", "off"))
    ]


def reach(dataset: str | None = None) -> list[Cell]:
    """The default model reading the newest events or all of them, and the same with softmax.

    Without a repeat head, which counts the whole history whatever the encoder reads. Softmax over
    more than a thousand events would take longer than all others together.
    """
    cells = []
    for name in REACH_EPOCHS if dataset is None else (dataset,):
        common = DEFAULT | dict(ALL[name].settings) | {"repeat_head": "off"}
        for attention, lengths in (("linrec-decay", READS), ("softmax", READS[1:-1])):
            cells += [
                Cell(name, "sasrec", attention, f"reads-{length or 'all'}",
                     common | {"max_length": length}, budget=REACH_EPOCHS[name])
                for length in lengths
            ]  # fmt: skip
    return cells


def of_table(table: str) -> list[Cell]:
    """The cells that a table or figure needs, those of ML-1M first."""
    if table == "beyond":
        return [*by_max_length(), *at_equal_time()]
    if table == "seeds":
        return over_seeds()
    if table == "default":
        return [*default_seeds(), *default_mechanisms(), *default_parts()]
    if table == "repeats":
        return repeats()
    if table == "reach":
        return reach()
    if table in ("heatmap", "conditions"):
        return [Cell("ml-1m", "sasrec", name) for name in COMPARED]
    per_dataset = {"overall": overall, "efficient": efficient, "ablation": ablation}.get(table)
    return [] if per_dataset is None else [cell for name in DATASETS for cell in per_dataset(name)]


def select(tables: Iterable[str], pattern: str | None = None) -> list[Cell]:
    """The cells of several tables, each once; only those whose name matches the pattern."""
    cells = {cell.name: cell for table in tables for cell in of_table(table)}
    if pattern is None:
        return list(cells.values())
    matches = [cell for name, cell in cells.items() if fnmatch(name, pattern)]
    if cells and not matches:
        raise InputError(f"no cell is named {pattern!r}; there are {', '.join(cells)}")
    return matches
