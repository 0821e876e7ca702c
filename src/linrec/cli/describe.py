"""`linrec describe`: what a dataset holds."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from linrec.data.dataset.store import SequenceStore

# numbers in between are taken for unix seconds: from 1973 to 5138
_UNIX_SECONDS = (1e8, 1e11)


def describe(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A folder `linrec prepare` made.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything that is known as JSON.")
    ] = False,
) -> None:
    """Show the statistics of a prepared dataset.

    Examples:

    \b
      linrec describe data/shop
      linrec describe data/shop --json
    """
    from rich.console import Console

    from linrec.data.dataset.store import SequenceStore

    store = SequenceStore.open(data)
    if as_json:
        typer.echo(as_text(store))
    else:
        Console().print(statistics_table(store), *notes(store), sep="\n")


def as_text(store: SequenceStore) -> str:
    import json

    features = {feature.name: feature.kind for feature in store.features}
    known = {"path": str(store.path), "fingerprint": store.fingerprint, "features": features}
    return json.dumps(known | store.summary, indent=2)


def statistics_table(store: SequenceStore) -> Table:
    """The paper's Table 1 for this dataset, with lengths, times and ties."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=escape(str(store.path or "dataset")), title_justify="left", show_header=False
    )
    table.add_column(style="bold")
    table.add_column(justify="right", overflow="fold")
    for section in (_counts(store), _lengths(store), _origin(store)):
        for name, value in section:
            table.add_row(escape(name), escape(value))
        table.add_section()
    return table


def statistics(store: SequenceStore) -> list[tuple[str, str]]:
    """The rows of that table, for other pages."""
    return [*_counts(store), *_lengths(store), *_origin(store)]


def notes(store: SequenceStore) -> list[str]:
    from rich.markup import escape

    return [f"[yellow]note:[/] {escape(note)}" for note in store.summary["notes"]]


def _counts(store: SequenceStore) -> list[tuple[str, str]]:
    summary = store.summary
    return [
        ("users", f"{summary['users']:,}"),
        ("items", f"{summary['items']:,}"),
        ("events", f"{summary['events']:,}"),
        ("sparsity", f"{summary['sparsity']:.2f} %"),
    ]


def _lengths(store: SequenceStore) -> list[tuple[str, str]]:
    lengths = store.summary["lengths"]
    spread = ("min", "median", "p90", "p99", "max")
    return [
        ("events a user, mean", f"{lengths['mean']:.1f}"),
        (" / ".join(spread), " / ".join(f"{lengths[name]:,.10g}" for name in spread)),
        ("neighbours with equal times", f"{store.summary['tied_share']:.1%}"),
        ("time", f"{_moment(store, 'first')} to {_moment(store, 'last')}"),
    ]


def _origin(store: SequenceStore) -> list[tuple[str, str]]:
    source = store.summary["source"]
    guessed = source["columns_guessed"]
    columns = ", ".join(
        f"{role} = {name}" + (" (guessed)" if role in guessed else "")
        for role, name in source["columns"].items()
    )
    rows = [("source", f"{source['name']} ({source['format']})"), ("columns", columns)]
    for name, value in source["filters"].items():
        removed = source["removed"].get(name, 0)
        rows.append((f"filter {name} = {value}", f"removed {removed:,} events"))
    if store.features:
        kinds = ", ".join(f"{feature.name} ({feature.kind})" for feature in store.features)
        rows.append(("item features", kinds))
    rows.append(("fingerprint", store.fingerprint))
    return rows


def _moment(store: SequenceStore, which: str) -> str:
    value = float(store.summary["time"][which])
    last = float(store.summary["time"]["last"])
    if _UNIX_SECONDS[0] <= last < _UNIX_SECONDS[1] and abs(value) < _UNIX_SECONDS[1]:
        return datetime.fromtimestamp(value, tz=timezone.utc).strftime("%Y-%m-%d")
    return f"{value:,.10g}"
