"""The command line: one file per command, each parses, calls and prints."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from linrec.cli.compare import compare
from linrec.cli.demo import demo
from linrec.cli.describe import describe
from linrec.cli.download import download
from linrec.cli.evaluate import evaluate
from linrec.cli.export import export
from linrec.cli.ingest import ingest
from linrec.cli.prepare import prepare
from linrec.cli.recipes import recipes
from linrec.cli.recommend import recommend
from linrec.cli.serve import serve
from linrec.cli.store import app as store_app
from linrec.cli.train import train
from linrec.cli.tune import tune
from linrec.training.world import WorkerLostError
from linrec.types import InputError, LinrecError

app = typer.Typer(
    name="linrec",
    help="Recommendations from whole long histories, with linear attention.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Start with [bold]linrec demo[/bold], or: linrec prepare events.csv --out data && "
    "linrec train data --out run && linrec recommend run --user 42",
)


# typer's own click, or click itself where typer is older
_UsageError: Any = typer.BadParameter.__base__


def _version(wanted: bool) -> None:
    if wanted:
        from linrec import __version__

        typer.echo(f"linrec {__version__}")
        raise typer.Exit


@app.callback()
def _linrec(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    del version


_COMMANDS = (
    download, prepare, describe, train, tune, recipes, evaluate, compare, recommend, serve, ingest,
    export, demo,
)  # fmt: skip
for _command in _COMMANDS:
    app.command()(_command)
app.add_typer(store_app, name="store")


def main() -> None:
    """Run the command line; an error is one sentence, a user's mistake exit code 2."""
    try:
        sys.exit(app(prog_name="linrec", standalone_mode=False))
    except LinrecError as error:
        _fail(error.render(_flag) if _speaks(error) else "", error.exit_code)
    except _UsageError as error:
        message = error.format_message().rstrip(".")  # empty where it has shown the help instead
        command = error.ctx.command_path if error.ctx else "linrec"
        _fail(f"{message}; try `{command} --help`" if message else "")
    except typer.Abort:  # Ctrl-C, in a command that does not handle it
        sys.exit(130)
    except OSError as error:  # nothing a traceback would help with
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}; check the path and run it again")


def _speaks(error: LinrecError) -> bool:
    """Whether no other process of a training says the same."""
    if isinstance(error, InputError):  # all have it, so the first of each machine tells
        return os.environ.get("LOCAL_RANK", "0") == "0"
    return "LINREC_SUPERVISED" not in os.environ or not isinstance(error, WorkerLostError)


def _flag(name: str, value: str | None) -> str:
    """An argument as the command line spells it."""
    name = "from" if name == "start" else name  # which is no name for an argument in Python
    flag = f"--{name.replace('_', '-')}"
    return flag if value in (None, "True") else f"{flag} {value}"


def _fail(sentence: str, code: int = 2) -> None:
    if sentence:
        typer.echo(f"linrec: {' '.join(sentence.split())}", err=True)
    sys.exit(code)
