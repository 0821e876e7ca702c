"""`linrec prepare`: from an event log to a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from linrec.cli.flags import part_of, with_flags
from linrec.cluster.options import EngineOptions
from linrec.data.preparing.options import ITEMS, PrepareOptions
from linrec.settings import settings_of
from linrec.types import InputError, argument


@with_flags(Options=PrepareOptions, Engine=EngineOptions)
def prepare(
    events: Annotated[
        str,
        typer.Argument(
            metavar="EVENTS", help="A file, a folder, or a pattern in quotes, also s3:// or gs://."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The dataset folder to write, also s3:// or gs://.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a dataset there.")
    ] = False,
    shard_events: Annotated[
        int | None,
        typer.Option(
            min=1, help="Write shards of whole users with at most so many events; one if left out."
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=KIND",
            help="Kind of an item column: categorical, multi, numeric or text; guessed if left "
            "out. May be repeated.",
            rich_help_panel=ITEMS,
        ),
    ] = None,
    **flags: Any,
) -> None:
    """Turn an event log (user, item, time) into a dataset to train on.

    Reads CSV, TSV, JSON lines, Parquet, RecBole's .inter, MovieLens' ratings.dat
    and u.data, and SNAP's Gowalla check-ins, plain or gzipped.
    Columns are guessed from their names and shown.
    Events of one user with equal times keep the order of the file,
    unless it is sorted by item id and --ties shuffle is given.
    Filters act in the order they are listed in here.

    Examples:

    \b
      linrec prepare events.csv --out data/shop
      linrec prepare 'logs/*.parquet' --out data/shop --user buyer --item sku
      linrec prepare events.jsonl.gz --out data/shop --items products.csv
      linrec prepare events.csv --out data/new --since 2024-01-01 --drop-repeats
      linrec prepare reviews.csv --out data/liked --rating-at-least 4
      linrec prepare clicks.csv --out data/shop --context type,price=numeric
      linrec prepare receipts.csv --out data/shop --group receipt --ties shuffle
      linrec prepare big.parquet --out data/big --shard-events 50000000
      linrec prepare 'logs/*.parquet' --out data/shop --engine ray --workers 8
      linrec prepare 's3://shop/logs/*.parquet' --out s3://shop/data
      linrec prepare ml-1m/ratings.dat --out data/ml-1m --min-item-events 5
    """
    from rich.console import Console

    from linrec.cli.describe import notes, statistics_table
    from linrec.data.preparing.prepare import prepare as run

    kinds = feature_kinds(feature or ())
    engine = EngineOptions(**part_of(EngineOptions, flags))
    options = {name: value for name, value in flags.items() if name not in settings_of(engine)}
    with Console(stderr=True).status(f"Reading {events} ..."):
        store = run(
            events, out, overwrite=overwrite, feature_kinds=kinds, shard_events=shard_events,
            engine=engine, **options,
        )  # fmt: skip
    Console().print(statistics_table(store), *notes(store), sep="\n")


def feature_kinds(given: Sequence[str]) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for pair in given:
        name, equals, kind = pair.rpartition("=")
        if not equals or not name or not kind:
            raise InputError(
                f"{argument('feature', pair)} is not NAME=KIND, such as year=categorical"
            )
        kinds[name] = kind
    return kinds
