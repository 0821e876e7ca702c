"""`linrec compare`: is one run better than another, user by user?"""

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

    Both must have been evaluated under the same protocol, on the same dataset and split; what is
    missing is evaluated now.

    Examples:

    \b
      linrec compare runs/softmax runs/linrec
      linrec compare runs/softmax runs/linrec --protocol pop100 --json
    """
    from json import dumps

    from rich.console import Console

    from linrec.backbones.saving import RESULTS
    from linrec.cli.evaluate import evaluate_and_save, result_name
    from linrec.evaluation import compare as compare_ranks
    from linrec.evaluation import comparison_table, comparison_to_dict, load_ranks
    from linrec.recommender import load

    name = result_name(split, protocol, seed, hide_seen=not keep_seen)
    console = Console(quiet=json)
    found = []
    for run in (run_a, run_b):
        saved = run / RESULTS / f"{name}.parquet"
        if not saved.exists():
            options = {"protocol": protocol, "split": split, "seed": seed}
            evaluate_and_save(load(run), run, console, hide_seen=not keep_seen, **options)
        found.append(load_ranks(saved))
    comparison = compare_ranks(found[0], found[1])
    if json:
        typer.echo(dumps(comparison_to_dict(comparison), indent=2))
    console.print(comparison_table(comparison, (run_a.resolve().name, run_b.resolve().name)))
