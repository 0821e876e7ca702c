"""`linrec ingest`: many events into the store of a server."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linrec.cli.flags import Shards, with_flags
from linrec.serving.ingest_settings import IngestSettings
from linrec.types import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from linrec.serving.ingesting import Ingest
    from linrec.serving.sources import Source


@with_flags(Ingest=IngestSettings)
def ingest(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run that is served.")],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="JSON lines of a file, of a pipe (-), or a stream "
            "(redis-stream://host:6379/stream?group=linrec&consumer=NAME).",
        ),
    ],
    store: Annotated[
        str | None,
        typer.Option(
            help="A file or folder (SQLite), or redis://host:6379/0. "
            r"[dim]\[RUN.users.sqlite][/dim]"
        ),
    ] = None,
    store_shards: Shards = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Read a file from its start, also if it was read.")
    ] = False,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when a stream has no more entries.")
    ] = False,
    **settings: Any,
) -> None:
    """Store events, one JSON object per line: user, item and, if known, time and id.

    Servers may use the store meanwhile. Events are stored at least once, and once only if they
    have ids; an event of a file or a stream without an id gets one from its position. Run the
    command again to continue where it ended. Lines that are not events are counted and sampled.

    Examples:

    \b
      linrec ingest runs/shop --from events.jsonl
      kafkacat -C -t events | linrec ingest runs/shop --from -
      linrec ingest runs/shop --from redis-stream://localhost:6379/events --store redis://localhost
    """
    from rich.console import Console

    from linrec.runs.run import Run
    from linrec.serving import StoreError, open_store
    from linrec.serving.ingesting import Ingest
    from linrec.serving.model import ServedModel
    from linrec.serving.sources import open_source

    Run.open(run)  # before a store is made beside a folder that is not a run
    given, console = IngestSettings(**settings), Console(stderr=True)
    place = store or f"{str(run).rstrip('/')}.users.sqlite"
    if place == "memory":
        raise InputError("users in memory end with this command; give a file or a Redis as --store")
    opened = open_store(place, store_shards)
    try:
        reading = open_source(source, opened, restart=restart, until_empty=until_empty)
        ingesting = Ingest(opened, given, ServedModel(run) if given.states == "now" else None)
        _read(ingesting, reading, console)
    except StoreError as error:
        raise InputError(f"{error}; run the command again to continue") from None
    finally:
        opened.close()
    if ingesting.done.bad and not ingesting.done.stored and not ingesting.done.duplicates:
        raise InputError(f"no line of {source} could be stored")


def _read(ingesting: Ingest, source: Source, console: Console) -> None:
    from linrec.cli.progress import counting

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # what the batch in progress has not stored comes again
        with suppress(KeyboardInterrupt), counting("storing events", console) as progress:
            ingesting.run(source, progress)
    finally:
        signal.signal(signal.SIGTERM, before)
    done = ingesting.done
    parts = [f"stored {done.stored:,} events", f"{done.duplicates:,} were stored before"]
    if done.too_old:
        parts.append(f"{done.too_old:,} were older than all that is kept")
    if done.bad:
        parts.append(f"{done.bad.total():,} lines were left out")
    typer.echo("; ".join(parts))
    for reason, line in done.samples:
        typer.echo(f"  {done.bad[reason]:,} x {reason}, such as: {line[:200]}")
