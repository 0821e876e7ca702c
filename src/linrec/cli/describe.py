"""`linrec describe`: the statistics of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from linrec.data.dataset.store import SequenceStore


def describe(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A folder `linrec prepare` made.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print all statistics as JSON.")] = False,
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
    content = {"path": str(store.path), "fingerprint": store.fingerprint, "features": features}
    return json.dumps(content | store.full_summary, indent=2)


def statistics_table(store: SequenceStore) -> Table:
    """The paper's Table 1 for this dataset, with lengths, times and ties."""
    from rich.markup import escape
    from rich.table import Table

    from linrec.data.dataset.statistics import sections

    table = Table(
        title=escape(str(store.path or "dataset")), title_justify="left", show_header=False
    )
    table.add_column(style="bold")
    table.add_column(justify="right", overflow="fold")
    for section in sections(store):
        for name, value in section:
            table.add_row(escape(name), escape(value))
        table.add_section()
    return table


def notes(store: SequenceStore) -> list[str]:
    from rich.markup import escape

    return [f"[yellow]note:[/] {escape(note)}" for note in store.full_summary["notes"]]
