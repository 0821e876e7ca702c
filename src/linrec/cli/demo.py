"""`linrec demo`: from events to recommendations on generated data, in under two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from linrec.data.dataset.store import SequenceStore
    from linrec.recommender import Recommender


def demo(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("linrec-demo"),
    users: Annotated[int, typer.Option(min=50, help="Members of the invented film club.")] = 3000,
    epochs: Annotated[int, typer.Option(min=1, help="Max epochs.")] = 7,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data and the training.")] = 7,
) -> None:
    """Prepare, train, evaluate and recommend on generated data; write a report to open.

    An invented film club: each member has lasting tastes and follows a series (the long range),
    and moves from mood to mood film by film (the short range). Neither popularity nor the last
    film suffices; the model must beat both.

    Examples:

    \b
      linrec demo
      linrec demo --out my-demo --users 1000 --epochs 5
    """
    from rich.console import Console

    from linrec.cli.describe import statistics_table
    from linrec.data.downloads.demo import demo_events
    from linrec.data.preparing.prepare import prepare
    from linrec.evaluation import evaluation_table
    from linrec.files.atomic import write_text
    from linrec.recommender import Recommender
    from linrec.runs.run import Run
    from linrec.training.callbacks import ConsoleProgress

    console = Console()
    events, items = demo_events(users=users, seed=seed)
    for name, table in (("events", events), ("items", as_csv(items))):
        write_text(out / f"{name}.csv", table.write_csv())
    _print_step(
        console,
        f"1. Prepare: linrec prepare {out}/events.csv --items {out}/items.csv --out {out}/data",
    )
    store = prepare(out / "events.csv", out / "data", items=out / "items.csv", overwrite=True)
    console.print(statistics_table(store))

    words = f"{out}/data --out {out}/run --recipe small --epochs {epochs} --seed {seed}"
    _print_step(console, f"2. Train: linrec train {words}")
    recommender = Recommender(recipe="small", epochs=epochs, seed=seed)
    recommender.fit(store, out / "run", overwrite=True, callbacks=[ConsoleProgress(console)])
    evaluation = recommender.test_evaluation
    if evaluation is None:  # Ctrl-C
        raise typer.Exit(130)

    _print_step(console, f"3. Evaluate: linrec evaluate {out}/run")
    console.print(evaluation_table(evaluation, "run"))

    user = store.users.ids[0]
    _print_step(console, f"4. Recommend: linrec recommend {out}/run --user {user} -k 10")
    show_user(recommender, store, user, console)

    report = out / "report.html"
    write_text(report, Run.open(out / "run").report.read_text(encoding="utf-8"))
    _print_step(console, f"Everything is in {report}: open it in a browser.")


def as_csv(table: pl.DataFrame) -> pl.DataFrame:
    """Lists joined by |, because a CSV has no lists."""
    import polars as pl

    return table.with_columns(pl.col(pl.List(pl.String)).list.join("|"))


def show_user(recommender: Recommender, store: SequenceStore, user: Any, console: Console) -> None:
    """Print a user's last events and recommendations."""
    from linrec.cli.recommend import recommendations_table
    from linrec.runs.samples import last_events

    history = last_events(store, user)
    recommendations = recommender.recommend([user], k=10)
    console.print(f"Last events of {user}: {history}", highlight=False, markup=False)
    console.print(recommendations_table(recommendations, show_user=False))


def _print_step(console: Console, sentence: str) -> None:
    console.print(f"\n{sentence}", style="bold", highlight=False, markup=False, soft_wrap=True)
