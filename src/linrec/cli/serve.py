"""`linrec serve`: a run over HTTP."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linrec.cli.flags import Shards, part_of, with_flags
from linrec.serving.http.options import HttpOptions, check_exposure, read_token
from linrec.serving.http.worker import WorkerPlan
from linrec.serving.settings import EngineSettings
from linrec.types import InputError, argument

if TYPE_CHECKING:
    from rich.console import Console

    from linrec.serving import Engine, Store


@with_flags(Engine=EngineSettings, HTTP=HttpOptions)
def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run of `linrec train`.")],
    store: Annotated[
        str | None,
        typer.Option(
            help="Where users are kept: a file or folder (SQLite), redis://host:6379/0, or memory. "
            r"[dim]\[RUN.users.sqlite][/dim]"
        ),
    ] = None,
    store_shards: Shards = None,
    data: Annotated[
        Path | None, typer.Option(help="A dataset whose users the store should have at first.")
    ] = None,
    resurrect: Annotated[
        bool, typer.Option("--resurrect", help="With --data: also users who were forgotten.")
    ] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token to require; or set LINREC_TOKEN.")
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let anybody in, also from other machines.")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of a model call.")] = None,
    **settings: Any,
) -> None:
    """Serve recommendations over HTTP; each event costs the same whatever the history.

    Users are kept across restarts. SIGTERM ends it once all it took is answered, SIGHUP loads RUN
    again. The API is described at /docs; there is a page to look at under /.

    Examples:

    \b
      linrec serve runs/shop
      linrec serve linrec-demo/run --data linrec-demo/data
      linrec serve runs/shop --workers 4 --store runs/shop.users --store-shards 4
      linrec serve runs/shop --host 0.0.0.0 --token-file token.txt --store redis://localhost:6379/0
    """
    from rich.console import Console

    try:
        from linrec.serving.http.server import bound
        from linrec.serving.http.server import serve as serve_http
    except ImportError as error:
        raise InputError(
            f"serving needs the package {error.name}; install it with: pip install linrec[serve]"
        ) from None
    from linrec.runs.run import Run
    from linrec.serving import Engine, open_store

    Run.open(run)  # before a store is made beside a folder that is not a run
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    options = HttpOptions(**part_of(HttpOptions, settings), token=read_token(token_file))
    check_exposure(options.host, options.token, no_token)
    engine_settings = EngineSettings(**part_of(EngineSettings, settings))
    address = bound(options.host, options.port)
    users = store or f"{str(run).rstrip('/')}.users.sqlite"
    _check_shared(users, options.workers)
    opened = open_store(users, store_shards)
    _check_answers(opened, users)
    console = Console(stderr=True)
    engine = Engine(run, opened, engine_settings) if options.workers == 1 else None
    if data is not None:
        _load(opened, engine_settings.keep_events, data, console, resurrect)
    _warn(opened, console)
    where = f"{options.host}:{address.getsockname()[1]}"
    if engine is not None:
        _introduce(engine, users, console, where)
        serve_http(engine, options, address)
        return
    opened.close()  # every worker opens it for itself
    line = f"serving {run} at http://{where} by {options.workers} workers; users are kept in "
    _say(console, line + _shown(users))
    _supervise(WorkerPlan(
        run=run, store=users, engine=engine_settings, http=options,
        threads=threads or max((os.cpu_count() or 1) // options.workers, 1), shared="",
    ), address)  # fmt: skip


def _check_shared(store: str, workers: int) -> None:
    if workers > 1 and store == "memory":
        raise InputError(
            f"users in memory belong to one process, so {argument('workers', str(workers))} cannot "
            f"share them; set {argument('store')} to a file or redis://host:6379/0"
        )


def _supervise(plan: WorkerPlan, address: socket.socket) -> None:
    from linrec.serving.http.supervisor import shared_folder, supervise

    with shared_folder() as folder:
        supervise(replace(plan, shared=folder), address)


def _check_answers(store: Store, address: str) -> None:
    """Refuse to start without users; a store that is only full still serves readers."""
    from linrec.serving import StoreError, StoreFullError

    try:
        store.check()
    except StoreFullError:
        pass  # reported by /readyz
    except StoreError as error:
        store.close()
        trouble = str(error).partition(";")[0]
        if "://" in address:  # a file is named in it
            trouble += f" at {_shown(address)}"
        raise InputError(
            f"{trouble}, so there is nothing to serve users from; start it, or set "
            f"{argument('store')} to another one"
        ) from None


def _load(store: Store, keep: int, data: Path, console: Console, resurrect: bool) -> None:
    from linrec.cli.progress import counting
    from linrec.data.dataset.store import SequenceStore
    from linrec.serving import StoreError
    from linrec.serving.bulk import import_histories

    opened = SequenceStore.open(data)
    try:
        with counting("loading users", console) as progress:
            done = import_histories(opened, store, keep, progress, resurrect=resurrect)
    except StoreError as error:
        raise InputError(f"cannot take over the users of {data}: {error}") from None
    left_out = ""
    if done.forgotten:
        left_out = f"; {done.forgotten:,} were forgotten and stay so without --resurrect"
    _say(console, f"took over {done.users:,} users of {data}{left_out}")


def _warn(store: Store, console: Console) -> None:
    from linrec.serving import StoreError

    with contextlib.suppress(StoreError):  # a store that is away is reported by /readyz
        for warning in store.warnings():
            _say(console, f"warning: {warning}")


def _introduce(engine: Engine, users: str, console: Console, address: str) -> None:
    model = engine.model
    way = model.why_no_state or "each event costs the same whatever the history"
    items = f"{model.n_items:,} items"
    line = f"serving {model.run} at http://{address}: {items}; {way}; users are kept in "
    _say(console, line + _shown(users))


def _shown(store: str) -> str:
    """A file, or where Redis is: its address may hold a password, before the @ or after the ?."""
    scheme, found, rest = store.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}" if found else store


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
