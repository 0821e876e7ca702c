"""`linrec download`: the public datasets, from where they are published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linrec.types import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from linrec.data.downloads.download import Downloaded
    from linrec.data.downloads.sources import Source


def download(
    dataset: Annotated[
        str | None,
        typer.Argument(metavar="DATASET", help="One of those that --list shows, such as ml-1m."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write; else one named as the dataset.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a download there.")
    ] = False,
    place: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="A mirror, or a folder, that has the archive under its official name.",
        ),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="Show what there is, with sizes and terms.")
    ] = False,
) -> None:
    """Fetch a public dataset from its official source, check it and unpack it.

    Shows the terms of its licence, and at the end the `linrec prepare` to run next.
    An interrupted download resumes when the command is run again.
    Proxies are taken from http_proxy, https_proxy and no_proxy.

    Examples:

    \b
      linrec download --list
      linrec download ml-1m --out ml-1m
      linrec download gowalla --out raw/gowalla
      linrec download ml-20m --from https://mirror.example.org/movielens
      linrec download ml-1m --from ~/archives --overwrite
    """
    from rich.console import Console

    from linrec.data.downloads.sources import source, sources

    console = Console(highlight=False, markup=False, soft_wrap=True)
    if show_list:
        _show_list(list(sources().values()))
    elif dataset is None:
        raise InputError(f"say which dataset: {', '.join(sources())}; --list tells more of them")
    else:
        _download(source(dataset), out or Path(dataset), place, overwrite, console)


def _download(
    chosen: Source, out: Path, place: str | None, overwrite: bool, console: Console
) -> None:
    from linrec.cli.progress import arriving
    from linrec.data.downloads.download import download as run

    console.print(f"{chosen.name}: {chosen.what}")
    console.print(f"Terms: {chosen.licence} In full: {chosen.terms}")
    with arriving(chosen.archive, console) as progress:
        record = run(chosen, out, from_=place, overwrite=overwrite, progress=progress)
    console.print(f"{out} holds {', '.join(chosen.files)}. {_vouched(record)}")
    console.print(f"Next: {chosen.next_command(out)}", style="bold")


def _vouched(record: Downloaded) -> str:
    """What is known about the archive's being the right one, and no more."""
    size = f"{record.bytes:,} bytes"
    if record.checked == "known":
        return f"The archive ({size}) has the md5 it is known by, {record.md5}."
    if record.checked == "published":
        return f"The archive ({size}) has the md5 published beside it, {record.md5}."
    return (
        f"No checksum is published beside the archive ({size}): it is whole by those it carries "
        f"inside, and its sha256 is {record.sha256}."
    )


def _show_list(known: list[Source]) -> None:
    from rich.console import Console
    from rich.filesize import decimal
    from rich.table import Column, Table

    terms = Column("terms", overflow="fold")  # an address is of no use without its end
    table = Table("dataset", "what it is", "size", terms, title="Datasets")
    for one in known:
        table.add_row(one.name, one.what, decimal(one.bytes), f"{one.licence} {one.terms}")
    Console().print(table)
