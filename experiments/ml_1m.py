"""Mechanisms and backbones on MovieLens-1M: train, evaluate, write it down.

    python -m experiments.ml_1m --events ../shared/data/ml-1m/ml-1m.inter.gz

Each run is what `linrec train` does with the settings below. Finished runs are not repeated and an
interrupted one is resumed. Outcomes go to results/ml-1m/, one JSON a run; --render alone writes the
tables of README.md and docs/results.md from them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import linrec
from benchmarks.surroundings import ROOT, commit, surroundings
from linrec.training.history import Row
from linrec.training.watch import ConsoleWatch

RESULTS = ROOT / "results" / "ml-1m"
WHOLE = {"max_length": 0, "positions": 256}
FEATURES = {"features": "genre,year"}
# the recipe's patience of ten and its hundred epochs would take a day on two cores
USUAL = {"recipe": "paper-ml-1m", "patience": 3}

MECHANISMS: dict[str, dict[str, Any]] = {
    "ml-1m-softmax": {"attention": "softmax", "epochs": 24},
    "ml-1m-linrec": {"attention": "linrec", "epochs": 18},
    "ml-1m-linrec-decay": {"attention": "linrec-decay", "epochs": 16},
    "ml-1m-linrec-decay-whole": {"attention": "linrec-decay", **WHOLE, "epochs": 16},
}
BACKBONES: dict[str, dict[str, Any]] = {
    "ml-1m-linrec-decay": MECHANISMS["ml-1m-linrec-decay"],
    "ml-1m-sasrecf": {"backbone": "sasrecf", **FEATURES, "epochs": 22, "patience": 8},
    "ml-1m-fdsa": {"backbone": "fdsa", **FEATURES, "epochs": 14},
    "ml-1m-bert4rec": {"recipe": "bert4rec", "patience": 20, "epochs": 37},
    "ml-1m-core": {"backbone": "core", "epochs": 5},
}
RUNS = MECHANISMS | BACKBONES
PROTOCOLS = ("full", "pop100")


def main() -> None:
    asked = _arguments()
    if not asked.render:
        data = prepared(asked.events, asked.runs / "data-ml-1m")
        for name in asked.only or RUNS:
            outcome = run(name, data, asked.runs / name, asked.commit)
            RESULTS.mkdir(parents=True, exist_ok=True)
            (RESULTS / f"{name}.json").write_text(json.dumps(outcome, indent=1) + "\n")
    for page in (ROOT / "README.md", ROOT / "docs" / "results.md"):
        page.write_text(rendered(page.read_text("utf-8")), "utf-8")


def prepared(events: Path, place: Path) -> linrec.SequenceStore:
    """Items with at least five events: the sequences most papers publish on."""
    if place.exists():
        return linrec.SequenceStore.open(place)
    items = events.parent / "ml-1m.item"
    return linrec.prepare(events, place, items=items, min_item_events=5)


def run(name: str, data: linrec.SequenceStore, folder: Path, trained_with: str) -> dict[str, Any]:
    recommender = linrec.Recommender(**USUAL | RUNS[name])
    recommender.fit(data, folder, resume=folder.exists(), watch=ConsoleWatch())
    assert recommender.trained is not None
    progress = recommender.trained.progress
    return {
        "name": name,
        "command": command(name),
        "data": "linrec prepare ml-1m.inter.gz --items ml-1m.item --out runs/data-ml-1m "
        "--min-item-events 5",
        "fingerprint": data.fingerprint,
        "seed": recommender.config.training.seed,
        "config": asdict(recommender.config),
        "linrec": linrec.__version__,
        **surroundings(),
        "commit": trained_with,
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "history": [_without_time(row) for row in progress.history],
        "evaluations": {
            f"test-{protocol}": recommender.evaluate(protocol=protocol).to_dict()
            for protocol in PROTOCOLS
        },
    }


def command(name: str) -> str:
    flags = " ".join(
        f"--{setting.replace('_', '-')} {value}" for setting, value in (USUAL | RUNS[name]).items()
    )
    return f"linrec train runs/data-ml-1m --out runs/{name} {flags}"


def outcomes(names: Iterable[str] = RUNS) -> list[dict[str, Any]]:
    return [
        json.loads(path.read_text("utf-8"))
        for name in names
        if (path := RESULTS / f"{name}.json").exists()
    ]


def rendered(page: str) -> str:
    """The page with the tables between its markers made anew."""
    page = _between("ml-1m", page, table(outcomes(MECHANISMS), ("attention", "reads")))
    told = table(outcomes(BACKBONES), ("backbone", "trained on", "features"))
    return _between("ml-1m-backbones", page, told)


def _between(marker: str, page: str, content: str) -> str:
    begin, end = f"<!-- {marker} -->\n", f"<!-- /{marker} -->"
    before, rest = page.split(begin)
    return before + begin + content + end + rest.split(end)[1]


def table(found: list[dict[str, Any]], by: tuple[str, ...]) -> str:
    """One line a run, told apart by what `by` names, then the floors."""
    names = (*by, "NDCG@10", "Recall@10", "MRR", "NDCG@10, pop100", "epochs (best)")
    lines = [_line(names), "|" + "---|" * len(names)]
    for outcome in found:
        figures = [
            {name: interval["mean"] for name, interval in evaluation["metrics"].items()}
            for evaluation in _both(outcome)
        ]
        told = [_about(outcome["config"]["model"])[name] for name in by]
        epochs = f"{outcome['epochs']} ({outcome['best_epoch']})"
        lines.append(_line([*told, *_figures(*figures), epochs]))
    full, sampled = (evaluation["floors"] for evaluation in _both(found[0]))
    for floor in full:
        told = [f"floor: {floor}", *("" for _ in by[1:])]
        lines.append(_line([*told, *_figures(full[floor], sampled[floor]), ""]))
    return "\n".join(lines) + "\n"


def _both(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    return [outcome["evaluations"][f"test-{protocol}"] for protocol in PROTOCOLS]


def _about(model: dict[str, Any]) -> dict[str, str]:
    length = model["max_length"]
    return {
        "attention": f"`{model['attention']}`",
        "reads": f"last {length}" if length else "whole history",
        "backbone": f"`{model['backbone']}`",
        "trained on": model["objective"],
        "features": ", ".join(model.get("features") or ()),
    }


def _figures(full: dict[str, float], sampled: dict[str, float]) -> list[str]:
    shown = [full["ndcg@10"], full["recall@10"], full["mrr"], sampled["ndcg@10"]]
    return [f"{value:.4f}" for value in shown]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _without_time(row: Row) -> Row:
    """Seconds depend on what else the machine did; speed is measured in benchmarks/."""
    return {name: round(value, 6) for name, value in row.items() if not name.endswith("seconds")}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--events", type=Path, default=ROOT.parent / "shared/data/ml-1m/ml-1m.inter.gz"
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="where run folders go")
    parser.add_argument("--only", nargs="*", choices=list(RUNS), help="just these runs")
    parser.add_argument("--commit", default=commit(), help="the commit the runs were trained with")
    parser.add_argument("--render", action="store_true", help="only write the tables")
    return parser.parse_args()


if __name__ == "__main__":
    main()
