"""`linrec prepare`: from an event log to a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from linrec.types import InputError

COLUMNS, FILTERS, ITEMS = "Columns", "Filters", "Items"


def prepare(
    events: Annotated[
        str,
        typer.Argument(metavar="EVENTS", help="A file, a folder, or a pattern in quotes."),
    ],
    out: Annotated[Path, typer.Option(help="The dataset folder to write.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a dataset there.")
    ] = False,
    format: Annotated[
        str | None,
        typer.Option(
            help="csv, tsv, jsonl, parquet, atomic, movielens, movielens-100k or gowalla; "
            "else guessed."
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="Column of the user id.", rich_help_panel=COLUMNS)
    ] = None,
    item: Annotated[
        str | None, typer.Option(help="Column of the item id.", rich_help_panel=COLUMNS)
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Column of the time.", rich_help_panel=COLUMNS)
    ] = None,
    rating: Annotated[
        str | None, typer.Option(help="Column of the rating.", rich_help_panel=COLUMNS)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only events from this time on, a number or an ISO date.", rich_help_panel=FILTERS
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Only events before this time.", rich_help_panel=FILTERS),
    ] = None,
    rating_at_least: Annotated[
        float | None,
        typer.Option(help="Only events rated so or better.", rich_help_panel=FILTERS),
    ] = None,
    drop_duplicates: Annotated[
        bool,
        typer.Option(
            "--drop-duplicates",
            help="Of events equal in user, item and time keep one.",
            rich_help_panel=FILTERS,
        ),
    ] = False,
    drop_repeats: Annotated[
        bool,
        typer.Option(
            "--drop-repeats",
            help="Drop an event with the item of the one before it.",
            rich_help_panel=FILTERS,
        ),
    ] = False,
    min_user_events: Annotated[
        int,
        typer.Option(min=1, help="Only users with so many events.", rich_help_panel=FILTERS),
    ] = 1,
    min_item_events: Annotated[
        int,
        typer.Option(
            min=1,
            help="Only items with so many events; with --min-user-events, "
            "both are repeated until both hold.",
            rich_help_panel=FILTERS,
        ),
    ] = 1,
    items: Annotated[
        str | None,
        typer.Option(
            help="A file with a row an item; .item, movies.dat and u.item are found beside.",
            rich_help_panel=ITEMS,
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=KIND",
            help="Kind of an item column: categorical, multi, "
            "numeric or text; else guessed. May be repeated.",
            rich_help_panel=ITEMS,
        ),
    ] = None,
) -> None:
    """Turn an event log (user, item, time) into a dataset to train on.

    Reads CSV, TSV, JSON lines, Parquet, RecBole's .inter, MovieLens' ratings.dat
    and u.data, and SNAP's Gowalla check-ins, plain or gzipped.
    Columns are guessed from their names and shown.
    Events of one user with equal times keep the order of the file.
    Filters act in the order they are listed in here.

    Examples:

    \b
      linrec prepare events.csv --out data/shop
      linrec prepare 'logs/*.parquet' --out data/shop --user buyer --item sku
      linrec prepare events.jsonl.gz --out data/shop --items products.csv
      linrec prepare events.csv --out data/new --since 2024-01-01 --drop-repeats
      linrec prepare reviews.csv --out data/liked --rating-at-least 4
      linrec prepare ml-1m/ratings.dat --out data/ml-1m --min-item-events 5
    """
    # typer wants one parameter a flag; from here on they are one set of options
    asked = dict(locals())
    named = {
        key: asked[key] for key in asked if key not in ("events", "out", "overwrite", "feature")
    }
    _prepare(events, out, overwrite, named | {"feature_kinds": feature_kinds(feature or ())})


def _prepare(events: str, out: Path, overwrite: bool, options: dict[str, Any]) -> None:
    from rich.console import Console

    from linrec.cli.describe import notes, statistics_table
    from linrec.data.preparing.prepare import prepare as run

    with Console(stderr=True).status(f"Reading {events} ..."):
        store = run(events, out, overwrite=overwrite, **options)
    Console().print(statistics_table(store), *notes(store), sep="\n")


def feature_kinds(given: Sequence[str]) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for pair in given:
        name, equals, kind = pair.rpartition("=")
        if not equals or not name or not kind:
            raise InputError(f"--feature {pair!r} is not NAME=KIND, such as year=categorical")
        kinds[name] = kind
    return kinds
