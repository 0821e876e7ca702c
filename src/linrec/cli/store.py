"""`linrec store`: the place where a server keeps its users."""

from __future__ import annotations

from typing import Annotated

import typer

from linrec.types import InputError

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _store() -> None:
    """Look after the store of `linrec serve`.

    Example: linrec store vacuum runs/shop.users.sqlite
    """


@app.command()
def vacuum(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="A file (SQLite) or redis://host:6379/0.")
    ],
) -> None:
    """Remove what deleted users and events left in the store's files. Servers may stay up.

    SQLite: rewrites the file and empties its log; writers wait meanwhile. Redis: rewrites the
    append-only file, or the dump where there is none.

    Examples:

    \b
      linrec store vacuum runs/shop.users.sqlite
      linrec store vacuum redis://localhost:6379/0
    """
    from pathlib import Path

    from linrec.serving import StoreError, open_store

    if "://" not in store and not Path(store).is_file():
        raise InputError(f"{store} is not a file; give the store of a server")
    opened = open_store(store)
    try:
        complete = opened.vacuum()
    except StoreError as error:
        raise InputError(f"cannot vacuum: {error}") from None
    finally:
        opened.close()
    if not complete:
        raise InputError(
            "a reader keeps deleted data in the store's log; run it again, or with the servers "
            "stopped"
        )
    typer.echo("nothing of what was deleted remains in the store's files")
