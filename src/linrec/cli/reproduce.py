"""`linrec reproduce`: the paper's tables and figures, from a clone of the repository."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from linrec.types import InputError

Folder = Optional[Path]  # noqa: UP045 - typer reads it at run time
Number = Optional[int]  # noqa: UP045


def reproduce(
    table: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...",
            help="overall, efficient, scaling, lengths, ablation, heatmap, conditions, beyond, all",
        ),
    ],
    data: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="NAME=PATH", help="Events or a dataset: ml-1m=PATH, gowalla=PATH."),
    ] = None,
    runs: Annotated[Folder, typer.Option(help="Where run folders go (runs).")] = None,
    results: Annotated[Folder, typer.Option(help="Where figures go, as JSON (results).")] = None,
    cells: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="GLOB", help="Only the cells so named, e.g. 'ml-1m-sasrec-*'."),
    ] = None,
    epochs: Annotated[
        Number,
        typer.Option(min=1, help="Epochs at most (the recipe's); more than before: goes on."),
    ] = None,
    patience: Annotated[
        Number, typer.Option(min=1, help="Epochs without a better one (the recipe's).")
    ] = None,
    budget: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="MINUTES", min=0, help="Training of each cell now; goes on later."),
    ] = None,
    threads: Annotated[Number, typer.Option(min=1, help="CPU threads of this process.")] = None,
    recipe: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="A recipe in place of the paper's, to try it all small."),
    ] = None,
    render: Annotated[
        bool, typer.Option("--render", help="Train nothing, only write the pages.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is finished and how long the rest takes.")
    ] = False,
) -> None:
    """Make the tables and figures of the LinRec paper, and the report on them.

    Each cell of a table is a run. Finished ones are not repeated, interrupted ones resume, and
    several processes may work side by side: each leaves alone what another is at.

    Examples:

    \b
      linrec reproduce all --data ml-1m=ml-1m.inter.gz --data gowalla=gowalla.inter.gz
      linrec reproduce overall --data ml-1m=ml-1m.inter.gz --cells 'ml-1m-sasrec-*' --threads 1
      linrec reproduce overall efficient --epochs 20 --dry-run
      linrec reproduce all --render
    """
    home = _clone()
    options = import_module("experiments.outcomes").Options(
        data=_places(data or [], import_module("experiments.datasets").DATASETS),
        runs=runs or home / "runs", results=results or home / "results", cells=cells,
        recipe=recipe, epochs=epochs, patience=patience, budget=budget, threads=threads,
    )  # fmt: skip
    run = import_module("experiments.command").reproduce
    if not run(table, options, render=render, dry_run=dry_run):
        typer.echo("Stopped; the same command goes on from here.")
        raise typer.Exit(130)


def _clone() -> Path:
    """The experiments lie beside the library, not in it: nobody who installs it needs them."""
    home = Path(__file__).resolve().parents[3]
    if not (home / "experiments" / "command.py").is_file():
        raise InputError(
            "reproduce runs from a clone of linrec's repository, where experiments/ is; "
            "clone it, `pip install -e .` there, and run it again"
        )
    if str(home) not in sys.path:
        sys.path.insert(0, str(home))
    return home


def _places(given: list[str], known: Any) -> dict[str, Path]:
    places = {}
    for one in given:
        name, sign, place = one.partition("=")
        if not sign or name not in known:
            raise InputError(f"--data {one} is not NAME=PATH with a NAME of {', '.join(known)}")
        if not Path(place).exists():
            raise InputError(f"--data {one}: there is nothing at {place}; check the path")
        places[name] = Path(place)
    return places
