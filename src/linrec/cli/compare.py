"""`linrec compare`: paired tests of two runs on the same users."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linrec.cli.seen import SeenFlag, seen_of
from linrec.types import InputError, argument

if TYPE_CHECKING:
    from linrec.runs.run import Run
    from linrec.types import Seen


def compare(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="A run.")],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="The run to compare it with.")],
    protocol: Annotated[str, typer.Option(help="full, pop100 or uni100.")] = "full",
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
    seed: Annotated[int, typer.Option(help="The seed of the sampled candidates.")] = 0,
    seen: SeenFlag = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compare two runs on the same users: paired t-test, Wilcoxon, mean difference with interval.

    Both are compared under the same protocol, on the same dataset and split; a run without such an
    evaluation is evaluated now. Runs of which one hides seen items and the other keeps them are
    compared only with --seen.

    Examples:

    \b
      linrec compare runs/softmax runs/linrec
      linrec compare runs/softmax runs/linrec --protocol pop100 --json
      linrec compare runs/softmax runs/linrec --seen keep
    """
    from json import dumps

    from rich.console import Console

    from linrec.cli.evaluate import evaluate_and_save
    from linrec.evaluation import compare as compare_ranks
    from linrec.evaluation import comparison_table, comparison_to_dict
    from linrec.recommender import load
    from linrec.runs.evaluations import evaluation_name
    from linrec.runs.run import Run

    runs = Run.open(run_a), Run.open(run_b)
    shown = _seen_in_both(*runs, seen_of(seen), protocol)
    name = evaluation_name(split, protocol, seed, hide_seen=shown == "hide")
    console = Console(quiet=json)
    evaluations = []
    for run in runs:
        if not run.has_evaluation(name):
            options = {"protocol": protocol, "split": split, "seed": seed, "seen": shown}
            evaluate_and_save(load(run.folder), run, console, **options)
        evaluations.append(run.load_evaluation(name))
    comparison = compare_ranks(evaluations[0], evaluations[1])
    if json:
        typer.echo(dumps(comparison_to_dict(comparison), indent=2))
    console.print(comparison_table(comparison, (run_a.resolve().name, run_b.resolve().name)))


def _seen_in_both(a: Run, b: Run, requested: Seen | None, protocol: str) -> Seen:
    """What both runs do with seen items; sampled protocols never hide any."""
    ways = [run.config.seen_in(requested) for run in (a, b)]
    if ways[0] != ways[1] and protocol == "full":
        raise InputError(
            f"{a.folder} was trained to {ways[0]} seen items and {b.folder} to {ways[1]} them, so "
            f"their lists differ; add {argument('seen', 'hide')} or {argument('seen', 'keep')} to "
            "evaluate both alike"
        )
    return ways[0]
