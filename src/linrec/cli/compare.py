"""`linrec compare`: paired tests of two runs on the same users."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="A run.")],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="The run to compare it with.")],
    protocol: Annotated[str, typer.Option(help="full, pop100 or uni100.")] = "full",
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
    seed: Annotated[int, typer.Option(help="The seed of the sampled candidates.")] = 0,
    keep_seen: Annotated[
        bool, typer.Option("--keep-seen", help="Compare results that rank seen items too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compare two runs on the same users: paired t-test, Wilcoxon, mean difference with interval.

    Both are compared under the same protocol, on the same dataset and split; a run without such an
    evaluation is evaluated now.

    Examples:

    \b
      linrec compare runs/softmax runs/linrec
      linrec compare runs/softmax runs/linrec --protocol pop100 --json
    """
    from json import dumps

    from rich.console import Console

    from linrec.cli.evaluate import evaluate_and_save
    from linrec.evaluation import compare as compare_ranks
    from linrec.evaluation import comparison_table, comparison_to_dict
    from linrec.recommender import load
    from linrec.runs.evaluations import evaluation_name
    from linrec.runs.run import Run

    name = evaluation_name(split, protocol, seed, hide_seen=not keep_seen)
    console = Console(quiet=json)
    evaluations = []
    for run in (Run.open(run_a), Run.open(run_b)):
        if not run.has_evaluation(name):
            options = {"protocol": protocol, "split": split, "seed": seed}
            recommender = load(run.folder)
            evaluate_and_save(recommender, run, console, hide_seen=not keep_seen, **options)
        evaluations.append(run.load_evaluation(name))
    comparison = compare_ranks(evaluations[0], evaluations[1])
    if json:
        typer.echo(dumps(comparison_to_dict(comparison), indent=2))
    console.print(comparison_table(comparison, (run_a.resolve().name, run_b.resolve().name)))
