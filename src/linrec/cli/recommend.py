"""`linrec recommend`: the items that each user will most likely want next."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linrec.cli.flags import part_of, with_flags
from linrec.cli.seen import SeenFlag, seen_of
from linrec.cluster.options import EngineOptions
from linrec.settings import setting
from linrec.types import InputError, argument

if TYPE_CHECKING:
    from rich.console import Console

    from linrec.batch.recommending import Job
    from linrec.types import Recommendations


@dataclass(frozen=True, kw_only=True)
class FilterFlags:
    """`linrec.runs.filters.Filters` as the command line writes them."""

    only: str | None = setting(None, "Recommend nothing but these items: a,b,c.")
    exclude: str | None = setting(None, "Leave out these items: a,b,c.")
    where: list[str] | None = setting(
        None,
        "Recommend items with this feature: FEATURE=VALUE, or FEATURE=A,B for one of several "
        'values; a value with a comma is quoted: FEATURE="A, B",C. May be repeated; then all must '
        "hold.",
    )

    def filters(self) -> dict[str, Any]:
        given = {"only": self.only, "exclude": self.exclude}
        lists = {name: comma_list(text) for name, text in given.items() if text is not None}
        return {**lists, "where": [_condition(text) for text in self.where or ()]}


@with_flags(Filters=FilterFlags, Engine=EngineOptions)
def recommend(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run of `linrec train`.")],
    user: Annotated[str | None, typer.Option(help="A user of the dataset.")] = None,
    history: Annotated[str | None, typer.Option(help="Item ids, oldest first: a,b,c.")] = None,
    users_file: Annotated[
        Path | None, typer.Option(help="A text file with one user id per line.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Every user of the dataset.")] = False,
    k: Annotated[int, typer.Option("-k", min=1, help="Items per user.")] = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write .parquet, .csv or .jsonl instead of a table; with --all also a folder of "
            "Parquet files, which is completed if it was interrupted."
        ),
    ] = None,
    seen: SeenFlag = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="Time of the request: an ISO date, a number, or unknown; the time of the newest "
            "event in the log if left out."
        ),
    ] = None,
    diversity: Annotated[
        float, typer.Option(help="Re-rank for items that differ by their features: 0 (off) to 1.")
    ] = 0.0,
    data: Annotated[
        Path | None, typer.Option(help="The dataset, if it has moved or grown.")
    ] = None,
    **flags: Any,
) -> None:
    """Recommend from whole histories, in your own ids, with scores and titles.

    Items the model does not know are skipped and counted. Users without a known item get the most
    popular ones (cold start), and the output says so.

    Examples:

    \b
      linrec recommend runs/shop --user 42 -k 10
      linrec recommend runs/shop --history sku-1,sku-7,sku-3
      linrec recommend runs/shop --users-file vips.txt --out vips.csv
      linrec recommend runs/shop --all --out recs.parquet
      linrec recommend runs/shop --all --out recs
      linrec recommend runs/shop --all --out recs --engine ray --workers 4
      linrec recommend runs/shop --user 42 --at 2024-05-31
      linrec recommend runs/shop --user 42 --seen keep
      linrec recommend runs/shop --user 42 --where genre=Comedy,Drama
      linrec recommend runs/shop --user 42 --exclude sku-1,sku-7
      linrec recommend runs/shop --user 42 --diversity 0.3
    """
    from rich.console import Console

    from linrec.batch.recommending import Job
    from linrec.cli.progress import counting

    engine = EngineOptions(**part_of(EngineOptions, flags))
    folder = everyone and out is not None and not out.suffix
    if out is not None and not folder:
        check_ending(out)
    if engine.engine != "local" and not folder:
        raise InputError(
            f"{argument('engine', engine.engine)} writes a folder for everybody; add --all and "
            "--out with the name of a folder"
        )
    who = _who(user, history, users_file, everyone)
    options = {
        "at": _moment(at), "seen": seen_of(seen), "diversity": diversity,
        **FilterFlags(**part_of(FilterFlags, flags)).filters(),
    }  # fmt: skip
    errors = Console(stderr=True)
    if folder:
        assert out is not None
        _write_parts(Job(run=run, out=out, data=data, k=k, options=options), engine, errors)
        return
    from linrec.recommender import load  # the workers do, where there are parts

    recommender = load(run)
    with counting("recommending", errors) as progress:
        result = recommender.recommend(who, k, data=data, progress=progress, **options)
    for note in result.notes:
        errors.print(note, soft_wrap=True, highlight=False, markup=False)
    if out is None:
        Console().print(recommendations_table(result, show_user=everyone or users_file is not None))
    else:
        write(result, out)
        message = f"wrote {len(result):,} recommendations to {out}"
        errors.print(message, soft_wrap=True, highlight=False, markup=False)


def _write_parts(job: Job, engine: EngineOptions, errors: Console) -> None:
    from linrec.batch.recommending import recommend_everybody
    from linrec.cli.progress import counting

    with counting("recommending", errors) as progress:
        written = recommend_everybody(job, engine, progress=progress)
    skipped = f" ({written.skipped:,} were there already)" if written.skipped else ""
    said = f"wrote {written.recommendations:,} recommendations; {job.out} has {written.parts:,}"
    for line in (*written.notes, f"{said} parts{skipped}"):
        errors.print(line, soft_wrap=True, highlight=False, markup=False)


def _who(user: str | None, history: str | None, users_file: Path | None, everyone: bool) -> Any:
    given = [user is not None, history is not None, users_file is not None, everyone]
    if sum(given) != 1:
        raise InputError("give exactly one of --user, --history, --users-file and --all")
    if user is not None:
        return [user]
    if history is not None:
        return [comma_list(history)]
    if users_file is not None:
        return _read_users(users_file)
    return None


def comma_list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _condition(text: str) -> tuple[str, list[str]]:
    feature, _, given = text.partition("=")
    values = _quoted_list(given)
    if not feature.strip() or not values:
        raise InputError(f"{argument('where', text)} is not FEATURE=VALUE, such as genre=Comedy")
    return feature.strip(), values


def _quoted_list(text: str) -> list[str]:
    """As `comma_list`, with values in double quotes that may contain commas, as in a CSV file."""
    rows = csv.reader([text.strip()], skipinitialspace=True)
    return [value.strip() for row in rows for value in row if value.strip()]


def _moment(at: str | None) -> str | float | None:
    try:
        return None if at is None else float(at)
    except ValueError:
        return at


def _read_users(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(f"cannot read {path}: {reason}; give a text file of user ids") from error
    users = [line.strip() for line in lines if line.strip()]
    if not users:
        raise InputError(f"{path} names no users; write one id per line")
    return users


def check_ending(path: Path) -> None:
    if path.suffix not in WRITERS:
        raise InputError(f"cannot tell the format of {path}; end it in {', '.join(WRITERS)}")


def write(result: Recommendations, path: Path) -> None:
    """In one step, so that a reader never sees half a file."""
    import io

    from linrec.files.atomic import write_bytes

    content = io.BytesIO()
    getattr(result.to_polars(), WRITERS[path.suffix])(content)
    write_bytes(path, content.getvalue())


WRITERS = {".parquet": "write_parquet", ".csv": "write_csv", ".jsonl": "write_ndjson"}


def recommendations_table(result: Recommendations, *, show_user: bool) -> Any:
    from rich.markup import escape
    from rich.table import Table

    frame = result.to_polars()
    columns = [name for name in ("user", "rank", "item", "title", "score") if name in frame.columns]
    if not show_user:
        columns.remove("user")
    table = Table(*columns)
    for row in frame.select(columns).iter_rows(named=True):
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    return table


def _cell(value: object) -> str:
    if value is None:  # an item without a title
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)
