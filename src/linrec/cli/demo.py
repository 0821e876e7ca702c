"""`linrec demo`: the whole path on embedded data, in under two minutes."""

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
    users: Annotated[int, typer.Option(min=50, help="Members of the made-up film club.")] = 3000,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs at most.")] = 7,
    seed: Annotated[int, typer.Option(min=0, help="Of the data and the training.")] = 7,
) -> None:
    """Prepare, train, evaluate and recommend on embedded data; write a report to open.

    A made-up film club: each member has lasting tastes and follows a series (the long range),
    and moves from mood to mood film by film (the short range). Neither popularity nor the last
    film suffices; the model must beat both.

    Examples:

    \b
      linrec demo
      linrec demo --out my-demo --users 1000 --epochs 5
    """
    from rich.console import Console

    from linrec.cli.describe import statistics_table
    from linrec.cli.evaluate import evaluate_and_save
    from linrec.cli.report import write_report
    from linrec.data.downloads.demo import demo_events
    from linrec.data.preparing.prepare import prepare
    from linrec.files.atomic import write_text
    from linrec.recommender import Recommender
    from linrec.training.watch import ConsoleWatch

    console = Console()
    events, items = demo_events(users=users, seed=seed)
    for name, table in (("events", events), ("items", as_csv(items))):
        write_text(out / f"{name}.csv", table.write_csv())
    _say(
        console,
        f"1. Prepare: linrec prepare {out}/events.csv --items {out}/items.csv --out {out}/data",
    )
    store = prepare(out / "events.csv", out / "data", items=out / "items.csv", overwrite=True)
    console.print(statistics_table(store))

    said = f"linrec train {out}/data --out {out}/run --recipe small --epochs {epochs} --seed {seed}"
    _say(console, f"2. Train: {said}")
    recommender = Recommender(recipe="small", epochs=epochs, seed=seed)
    recommender.fit(store, out / "run", overwrite=True, watch=ConsoleWatch(console))
    if recommender.trained and recommender.trained.interrupted:
        raise typer.Exit(130)

    _say(console, f"3. Evaluate: linrec evaluate {out}/run")
    evaluation = evaluate_and_save(recommender, out / "run", console)

    user = store.users.ids[0]
    _say(console, f"4. Recommend: linrec recommend {out}/run --user {user} -k 10")
    shown = show_user(recommender, store, user, console)

    report = out / "report.html"
    write_report(report, recommender, evaluation, shown)
    _say(console, f"Everything is in {report}: open it in a browser.")


def as_csv(table: pl.DataFrame) -> pl.DataFrame:
    """Lists spelled as a CSV can hold them."""
    import polars as pl

    return table.with_columns(pl.col(pl.List(pl.String)).list.join("|"))


def show_user(
    recommender: Recommender, store: SequenceStore, user: Any, console: Console
) -> dict[str, Any]:
    """Print a user's last events and recommendations; return them for the report."""
    from linrec.cli.recommend import recommendations_table

    row = int(store.users.index_of([user])[0])
    last = store.sequences()[row][-5:]
    history = ", ".join(store.item_table["title"].gather(last - 1))
    found = recommender.recommend([user], k=10)
    console.print(f"Last events of {user}: {history}", highlight=False, markup=False)
    console.print(recommendations_table(found, show_user=False))
    return {"user": user, "history": history, "rows": found.to_dicts()}


def _say(console: Console, sentence: str) -> None:
    console.print(f"\n{sentence}", style="bold", highlight=False, markup=False, soft_wrap=True)
