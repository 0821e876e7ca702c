"""`linrec evaluate`: the figures of a run, beside their floors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from linrec.evaluation import Evaluation
    from linrec.recommender import Recommender


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run of `linrec train`.")],
    protocol: Annotated[
        str, typer.Option(help="full (all items), pop100 or uni100 (100 drawn ones).")
    ] = "full",
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
    k: Annotated[
        list[int] | None,
        typer.Option("-k", help="Cut of the list; may be repeated. [5, 10, 20]"),
    ] = None,
    keep_seen: Annotated[
        bool, typer.Option("--keep-seen", help="Rank items the user has had, too.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Draws the sampled candidates.")] = 0,
    data: Annotated[
        Path | None,
        typer.Option(help="The dataset, if it has moved."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Rank what really came next: Recall, MRR, NDCG with 95 % intervals, beside two floors.

    The floors are popularity and what most often followed the last item. Ties count against the
    model. The rank of every user is saved in RUN for `linrec compare`.

    Examples:

    \b
      linrec evaluate runs/shop
      linrec evaluate runs/shop --protocol pop100 --split valid -k 10
      linrec evaluate runs/shop --keep-seen --json
    """
    from rich.console import Console

    from linrec.recommender import load

    options = {"protocol": protocol, "split": split, "seed": seed, "hide_seen": not keep_seen}
    if k:
        options["ks"] = tuple(k)
    console = Console(quiet=json)
    found = evaluate_and_save(load(run), run, console, data=data, **options)
    if json:
        typer.echo(found.to_json())


def evaluate_and_save(
    recommender: Recommender, run: Path, console: Console, **options: Any
) -> Evaluation:
    """Evaluate, print the table, and leave figures and ranks in the run folder."""
    from linrec.backbones.saving import RESULTS
    from linrec.cli.progress import counting
    from linrec.evaluation import evaluation_table, save_ranks
    from linrec.files.atomic import write_text

    with counting("ranking users", console) as progress:
        found, ranks = recommender.evaluate_users(progress=progress, **options)
    place = run / RESULTS
    name = result_name(found.split, found.protocol, found.seed, hide_seen=found.hide_seen)
    save_ranks(place / f"{name}.parquet", ranks, found)
    write_text(place / f"{name}.json", found.to_json() + "\n")
    console.print(evaluation_table(found, run.resolve().name))
    return found


def result_name(split: str, protocol: str, seed: int, *, hide_seen: bool) -> str:
    """Each protocol has a file of its own, so that one result never replaces another's."""
    suffix = "-seen" if protocol == "full" and not hide_seen else ""
    return f"{split}-{protocol}{suffix}" + (f"-seed{seed}" if seed else "")
