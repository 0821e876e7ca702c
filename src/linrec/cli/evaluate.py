"""`linrec evaluate`: the figures of a run, beside those of the baselines."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linrec.cli.flags import part_of, with_flags
from linrec.cli.seen import SeenFlag, seen_of
from linrec.cluster.options import EngineOptions

if TYPE_CHECKING:
    from rich.console import Console

    from linrec.evaluation import Evaluation
    from linrec.recommender import Recommender
    from linrec.runs.run import Run


@with_flags(Engine=EngineOptions)
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run of `linrec train`.")],
    protocol: Annotated[
        str, typer.Option(help="full (all items), pop100 or uni100 (100 sampled items).")
    ] = "full",
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
    k: Annotated[
        list[int] | None,
        typer.Option("-k", help="Length of the list; may be repeated. [5, 10, 20]"),
    ] = None,
    seen: SeenFlag = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampled candidates.")] = 0,
    request_time: Annotated[
        str,
        typer.Option(help="known (a model that reads times is given the target's) or unknown."),
    ] = "known",
    targets_where: Annotated[
        str | None,
        typer.Option(
            help="Predict only those of the held-out events that match, as type=purchase or "
            "rating>=4 of a context column."
        ),
    ] = None,
    baselines: Annotated[
        str,
        typer.Option(
            help="quick, all (with item-knn and ease), none, or names as personal,last-item."
        ),
    ] = "quick",
    diversity: Annotated[
        float, typer.Option(help="Re-rank the model's lists for diversity, from 0 (off) to 1.")
    ] = 0.0,
    data: Annotated[
        Path | None,
        typer.Option(help="The dataset, if it has moved."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    **flags: Any,
) -> None:
    """Rank the held-out items: Recall, MRR, NDCG with 95 % intervals, beside baselines.

    The baselines are popularity and what most often followed the last item, and where seen items
    are kept also what the user has had most often. One sentence says whether the model beats the
    best of them. Ties count against the model. The rank of every user is saved in RUN for
    `linrec compare`, and RUN/report.html is written again with this evaluation.

    Of the lists themselves: coverage, popularity, novelty, diversity by item features, and how far
    their popularity is from that of the user's history (miscalibration).

    Examples:

    \b
      linrec evaluate runs/shop
      linrec evaluate runs/shop --protocol pop100 --split valid -k 10
      linrec evaluate runs/shop --seen keep --json
      linrec evaluate runs/shop --request-time unknown
      linrec evaluate runs/shop --seen keep --baselines all
      linrec evaluate runs/shop --targets-where type=purchase
      linrec evaluate runs/shop --diversity 0.3
      linrec evaluate runs/shop --engine ray --workers 4
    """
    from rich.console import Console

    options: dict[str, Any] = {
        "protocol": protocol,
        "split": split,
        "seed": seed,
        "seen": seen_of(seen),
        "request_time": request_time,
        "baselines": baselines,
        "targets_where": targets_where,
        "diversity": diversity,
    }
    if k:
        options["ks"] = tuple(k)
    engine = EngineOptions(**part_of(EngineOptions, flags))
    with ExitStack() as workers:
        if engine.engine != "local":
            from linrec.batch.evaluating import PoolRanker

            ranker = PoolRanker(engine, run, data, dict(options))
            options["rank"] = workers.enter_context(ranker.begun())
        from linrec.recommender import load  # while the workers do
        from linrec.runs.run import Run

        console, recommender, opened = Console(quiet=json), load(run), Run.open(run)
        evaluation = evaluate_and_save(recommender, opened, console, data=data, **options)
    recommender.write_report(opened, evaluation, data)
    if json:
        typer.echo(evaluation.to_json())


def evaluate_and_save(
    recommender: Recommender, run: Run, console: Console, **options: Any
) -> Evaluation:
    """Evaluate, save figures and ranks in the run, and print the table."""
    from linrec.cli.progress import counting
    from linrec.evaluation import evaluation_table, gap_table, seen_table

    with counting("ranking users", console) as progress:
        evaluation, ranks = recommender.evaluate_users(progress=progress, **options)
    run.save_evaluation(evaluation, ranks)
    console.print(evaluation_table(evaluation, run.folder.resolve().name))
    if evaluation.by_gap:
        console.print(gap_table(evaluation))
    if evaluation.by_seen:
        console.print(seen_table(evaluation))
    return evaluation
