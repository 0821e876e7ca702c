"""`linrec serve`: a run over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from linrec.types import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from linrec.serving import Engine

Text = Optional[str]  # noqa: UP045 - typer reads it at run time
Place = Optional[Path]  # noqa: UP045
Seconds = Optional[float]  # noqa: UP045
Whole = Optional[int]  # noqa: UP045


def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run of `linrec train`.")],
    store: Annotated[
        Text,
        typer.Option(
            help="Where users are kept: a file (SQLite), redis://host:6379/0, or memory. "
            r"[dim]\[RUN.users.sqlite][/dim]"
        ),
    ] = None,
    data: Annotated[
        Place, typer.Option(help="A dataset whose users the store should have from the start.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    token_file: Annotated[
        Place, typer.Option(help="A file with the token to ask for; or set LINREC_TOKEN.")
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let anybody in, also from other machines.")
    ] = False,
    late: Annotated[
        str, typer.Option(help="Events older than the newest: insert, append or refuse.")
    ] = "insert",
    keep_events: Annotated[
        int, typer.Option(min=1, help="Events kept of a user, the newest.")
    ] = 100_000,
    ann_from: Annotated[
        Whole, typer.Option(help="Search approximately from so many items on (linrec\\[ann]).")
    ] = None,
    watch: Annotated[
        Seconds, typer.Option(min=0.1, help="Look so often for a new model in RUN.")
    ] = None,
    threads: Annotated[Whole, typer.Option(min=1, help="Threads of a model call.")] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 1_048_576,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds of a request.")] = 30.0,
) -> None:
    """Serve recommendations over HTTP; each event costs the same whatever the history.

    Users are kept across restarts. SIGTERM ends it once all it took is answered, SIGHUP loads RUN
    again. The API is described at /docs; there is a page to look at under /.

    Examples:

    \b
      linrec serve runs/shop
      linrec serve linrec-demo/run --data linrec-demo/data
      linrec serve runs/shop --host 0.0.0.0 --token-file token.txt --store redis://localhost:6379/0
    """
    from rich.console import Console

    try:
        from linrec.serving.http.options import HttpOptions, check_exposure, read_token
        from linrec.serving.http.server import bound
        from linrec.serving.http.server import serve as serve_http
    except ImportError as error:
        raise InputError(
            f"serving needs the package {error.name}; install it with: pip install linrec[serve]"
        ) from None
    from linrec.backbones.saving import read_description
    from linrec.serving import Engine, EngineSettings, open_store

    read_description(run)  # before a store is made beside what is no run
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    token = read_token(token_file)
    check_exposure(host, token, no_token)
    address = bound(host, port)
    settings = EngineSettings(keep_events=keep_events, late=late, ann_from=ann_from)  # type: ignore[arg-type]
    place = store or f"{str(run).rstrip('/')}.users.sqlite"
    engine = Engine(run, open_store(place), settings)
    console = Console(stderr=True)
    if data is not None:
        _load(engine, data, console)
    _introduce(engine, place, console, f"{host}:{address.getsockname()[1]}")
    options = HttpOptions(host=host, token=token, most_body=max_body, timeout=timeout, watch=watch)
    serve_http(engine, options, address)


def _load(engine: Engine, data: Path, console: Console) -> None:
    from linrec.cli.progress import counting
    from linrec.data.dataset.store import SequenceStore
    from linrec.serving import StoreError
    from linrec.serving.bulk import import_histories

    opened, keep = SequenceStore.open(data), engine.settings.keep_events
    try:
        with counting("loading users", console) as progress:
            taken = import_histories(opened, engine.store, keep, progress)
    except StoreError as error:
        raise InputError(f"cannot take over the users of {data}: {error}") from None
    console.print(f"took over {taken:,} users of {data}", highlight=False, markup=False)


def _introduce(engine: Engine, place: str, console: Console, address: str) -> None:
    model = engine.model
    way = model.why_no_state or "each event costs the same whatever the history"
    # an address of Redis may hold a password
    where = place if "://" not in place else place.split("://")[0]
    told = (
        f"serving {model.run} at http://{address}: {model.n_items:,} items; {way}; users are kept "
        f"in {where}"
    )
    console.print(told, highlight=False, markup=False, soft_wrap=True)
