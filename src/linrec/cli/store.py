"""`linrec store`: the place where a server keeps its users."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linrec.cli.flags import Shards
from linrec.types import InputError

if TYPE_CHECKING:
    from linrec.serving import Store

app = typer.Typer(no_args_is_help=True)
StorePlace = Annotated[
    str, typer.Argument(metavar="STORE", help="A file or folder (SQLite), or redis://host:6379/0.")
]
Target = Annotated[Path, typer.Argument(metavar="FILE", help="Where to write; must not exist.")]


@app.callback()
def _store() -> None:
    """Look after the store of `linrec serve`. Servers may stay up meanwhile.

    Example: linrec store check runs/shop.users.sqlite
    """


@contextlib.contextmanager
def _opened(place: str, *, may_be_new: bool = False, shards: int | None = None) -> Iterator[Store]:
    from linrec.serving import StoreError, open_store

    if "://" not in place and not may_be_new and not Path(place).exists():
        raise InputError(f"{place} is not a file or a folder; give the store of a server")
    store = open_store(place, shards)
    try:
        yield store
    except StoreError as error:
        raise InputError(f"the store cannot be used: {error}") from None
    finally:
        store.close()


def _check_target(file: Path) -> None:
    if file.exists():
        raise InputError(f"{file} exists; choose another name")
    if not file.parent.is_dir():
        raise InputError(f"{file.parent} is not a folder; choose another place")


@app.command()
def check(store: StorePlace) -> None:
    """Read every record and report what is damaged; exit code 1 if anything is.

    Example: linrec store check runs/shop.users.sqlite
    """
    from linrec.serving.maintenance import check_store

    with _opened(store) as opened:
        problems = check_store(opened)
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
    typer.echo("every record is as it was written")


@app.command()
def backup(store: StorePlace, file: Target) -> None:
    """Copy the store. SQLite: the same file, or folder of files. Redis: an export.

    Examples:

    \b
      linrec store backup runs/shop.users.sqlite monday.sqlite
      linrec store backup redis://localhost:6379/0 monday.jsonl
    """
    from linrec.serving import maintenance

    _check_target(file)
    with _opened(store) as opened:
        maintenance.backup(opened, file)
    typer.echo(f"wrote {file}")


@app.command()
def export(store: StorePlace, file: Target) -> None:
    """Write users and marks of forgotten ones as JSON lines, to move between kinds of stores.

    Example: linrec store export runs/shop.users.sqlite users.jsonl
    """
    from linrec.serving.maintenance import export_users

    _check_target(file)
    with _opened(store) as opened:
        count = export_users(opened, file)
    typer.echo(f"wrote {count:,} users to {file}")


@app.command(name="import")
def import_(
    store: StorePlace,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What an export wrote.")],
    keep_events: Annotated[
        int, typer.Option(min=1, help="Newest events to keep per user.")
    ] = 100_000,
    resurrect: Annotated[
        bool, typer.Option("--resurrect", help="Also users who were forgotten.")
    ] = False,
    store_shards: Shards = None,
) -> None:
    """Store the users of an export that the store does not have yet.

    Examples:

    \b
      linrec store import redis://localhost:6379/0 users.jsonl
      linrec store import runs/shop.users users.jsonl --store-shards 4
    """
    from linrec.serving.maintenance import import_users

    with _opened(store, may_be_new=True, shards=store_shards) as opened:
        done = import_users(opened, file, keep_events, resurrect=resurrect)
    typer.echo(f"stored {done.users:,} users; {done.left_out:,} were there or are forgotten")
    if not done.marks:
        typer.echo("marks of forgotten users were left out: the store has its own, of another key")


@app.command()
def vacuum(store: StorePlace) -> None:
    """Remove what deleted users and events left in the store's files.

    SQLite: rewrites the file and empties its log; writers wait meanwhile. Redis: rewrites the
    append-only file, or the dump where there is none.

    Examples:

    \b
      linrec store vacuum runs/shop.users.sqlite
      linrec store vacuum redis://localhost:6379/0
    """
    with _opened(store) as opened:
        complete = opened.vacuum()
    if not complete:
        raise InputError(
            "a reader keeps deleted data in the store's log; run it again, or with the servers "
            "stopped"
        )
    typer.echo("nothing of what was deleted remains in the store's files")
