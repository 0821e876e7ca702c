"""SASRec on MovieLens-1M with softmax, linrec and linrec-decay: train, evaluate, write it down.

    python -m experiments.ml_1m --events ../shared/data/ml-1m/ml-1m.inter.gz

Each run is what `linrec train` does with the settings below. Finished runs are not repeated and an
interrupted one is resumed. Outcomes go to results/ml-1m/, one JSON a run; --render alone writes the
tables of README.md and docs/results.md from them.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import linrec
from benchmarks.surroundings import ROOT, commit, surroundings
from linrec.training.history import Row
from linrec.training.watch import ConsoleWatch

RESULTS = ROOT / "results" / "ml-1m"
RECIPE = "paper-ml-1m"
WHOLE = {"max_length": 0, "positions": 256}
# the recipe's patience of ten and its hundred epochs would take a day on two cores
PATIENCE = 3

RUNS: dict[str, dict[str, Any]] = {
    "ml-1m-softmax": {"attention": "softmax", "epochs": 24},
    "ml-1m-linrec": {"attention": "linrec", "epochs": 18},
    "ml-1m-linrec-decay": {"attention": "linrec-decay", "epochs": 16},
    "ml-1m-linrec-decay-whole": {"attention": "linrec-decay", **WHOLE, "epochs": 16},
}
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
        page.write_text(rendered(page.read_text("utf-8"), outcomes()), "utf-8")


def prepared(events: Path, place: Path) -> linrec.SequenceStore:
    """Items with at least five events: the sequences most papers publish on."""
    if place.exists():
        return linrec.SequenceStore.open(place)
    return linrec.prepare(events, place, min_item_events=5)


def run(name: str, data: linrec.SequenceStore, folder: Path, trained_with: str) -> dict[str, Any]:
    recommender = linrec.Recommender(recipe=RECIPE, patience=PATIENCE, **RUNS[name])
    recommender.fit(data, folder, resume=folder.exists(), watch=ConsoleWatch())
    assert recommender.trained is not None
    progress = recommender.trained.progress
    return {
        "name": name,
        "command": command(name),
        "data": "linrec prepare ml-1m.inter.gz --out runs/data-ml-1m --min-item-events 5",
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
        f"--{setting.replace('_', '-')} {value}" for setting, value in RUNS[name].items()
    )
    return (
        f"linrec train runs/data-ml-1m --out runs/{name} "
        f"--recipe {RECIPE} --patience {PATIENCE} {flags}"
    )


def outcomes() -> list[dict[str, Any]]:
    return [
        json.loads(path.read_text("utf-8"))
        for name in RUNS
        if (path := RESULTS / f"{name}.json").exists()
    ]


def rendered(page: str, found: list[dict[str, Any]]) -> str:
    """The page with the table between its two markers made anew."""
    begin, end = "<!-- ml-1m -->\n", "<!-- /ml-1m -->"
    if begin not in page:
        return page
    before, rest = page.split(begin)
    return before + begin + table(found) + end + rest.split(end)[1]


def table(found: list[dict[str, Any]]) -> str:
    lines = [
        "| attention | reads | NDCG@10 | Recall@10 | MRR | NDCG@10, pop100 | epochs (best) |",
        "|---|---|---|---|---|---|---|",
    ]
    for outcome in found:
        full = outcome["evaluations"]["test-full"]
        sampled = outcome["evaluations"]["test-pop100"]
        length = outcome["config"]["model"]["max_length"]
        lines.append(
            f"| `{outcome['config']['model']['attention']}` "
            f"| {f'last {length}' if length else 'whole history'} "
            f"| {_cell(full['metrics']['ndcg@10'])} | {_cell(full['metrics']['recall@10'])} "
            f"| {_cell(full['metrics']['mrr'])} | {_cell(sampled['metrics']['ndcg@10'])} "
            f"| {outcome['epochs']} ({outcome['best_epoch']}) |"
        )
    for floor, figures in (found[0]["evaluations"]["test-full"]["floors"] if found else {}).items():
        sampled = found[0]["evaluations"]["test-pop100"]["floors"][floor]
        lines.append(
            f"| floor: {floor} | | {figures['ndcg@10']:.4f} | {figures['recall@10']:.4f} "
            f"| {figures['mrr']:.4f} | {sampled['ndcg@10']:.4f} | |"
        )
    return "\n".join(lines) + "\n"


def _cell(value: dict[str, float]) -> str:
    return f"{value['mean']:.4f}"


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
