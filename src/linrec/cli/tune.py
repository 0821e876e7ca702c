"""`linrec tune`: from a dataset to the best settings that a budget finds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linrec.backbones.config import CONFIGS as BACKBONES
from linrec.cli.flags import with_flags
from linrec.data.preparing.splitting import SplitConfig
from linrec.losses.config import CONFIGS as LOSSES
from linrec.runs.config import TrainingConfig
from linrec.runs.recipes import settings_in
from linrec.settings import settings_of
from linrec.tuning.options import TuneOptions
from linrec.types import InputError, argument

if TYPE_CHECKING:
    from rich.console import Console

    from linrec.tuning.results import Tuned


@with_flags(
    settings_in("default"),
    Tuning=TuneOptions,
    Model=BACKBONES,
    Loss=LOSSES,
    Split=SplitConfig,
    Training=TrainingConfig,
)
def tune(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A dataset of `linrec prepare`.")],
    out: Annotated[Path | None, typer.Option(help="The study folder to write or continue.")] = None,
    recipe: Annotated[str, typer.Option(help="A shipped recipe or a .toml file.")] = "default",
    space: Annotated[
        Path | None,
        typer.Option(help="A .toml file of the settings to search; a default space if left out."),
    ] = None,
    print_space: Annotated[
        bool, typer.Option("--print-space", help="Print the space as TOML and end.")
    ] = False,
    **settings: Any,
) -> None:
    """Search for the settings with the highest validation NDCG@10, within a budget.

    Each trial is a training of at most --epochs epochs; one that stays behind is ended early. A
    setting that is given by name is fixed, the others are those of the recipe or searched. The
    test split is evaluated once, for the winner. Ctrl-C ends cleanly, and the same command
    continues, also with a larger budget. STUDY gets a table of all trials, plots, the winner as a
    run, and best.toml for `linrec train --recipe`. Needs optuna, the extra `tune`.

    Examples:

    \b
      linrec tune data/shop --out studies/shop --trials 50
      linrec tune data/shop --out studies/shop --hours 8 --backbone core --attention linrec
      linrec tune data/shop --recipe small --print-space > space.toml
      linrec tune data/shop --out studies/own --space space.toml --epochs 10 --no-final
      linrec tune data/shop --out studies/shop --engine ray --concurrent 8 --address auto
      linrec train data/shop --out runs/shop --recipe studies/shop/best.toml --final
    """
    from rich.console import Console

    from linrec.cli.tuning_progress import TuningProgress
    from linrec.training.callbacks import ConsoleProgress

    if print_space:
        _print_space(data, recipe, space, settings)
        return
    if out is None:
        raise InputError(f"a study needs a folder; give it as {argument('out')}")
    from linrec.tuning.tune import tune as search

    console = Console()
    with TuningProgress(console) as shown:
        tuned = search(
            data, out, recipe=recipe, space=space, callbacks=[shown],
            final_callbacks=[ConsoleProgress(console)], **settings,
        )  # fmt: skip
    _show(tuned, console)
    if tuned.interrupted:
        shown.on_message(f"Stopped; the same command continues the study in {out}.")
        sys.exit(130)


def _print_space(data: str, recipe: str, space: Path | None, settings: dict[str, Any]) -> None:
    from linrec.tuning.search import Search
    from linrec.tuning.space import space_toml

    own = {name: value for name, value in settings.items() if name not in settings_of(TuneOptions)}
    found = Search.of(data, recipe, space, own, lambda message: typer.echo(message, err=True))
    typer.echo(space_toml(found.space), nl=False)


def _show(tuned: Tuned, console: Console) -> None:
    from linrec.evaluation import evaluation_table
    from linrec.tuning.results import best_table

    if tuned.best is not None:
        console.print(best_table(tuned))
        words = [f"{name} {share:.0%}" for name, share in tuned.importances.items()]
        if words:
            console.print(f"What mattered: {', '.join(words)}", highlight=False)
        console.print(
            f"Best validation NDCG@10 {tuned.value:.4f}; its settings are in {tuned.recipe}",
            highlight=False, soft_wrap=True, markup=False,
        )  # fmt: skip
    if tuned.evaluation is not None and tuned.run is not None:
        console.print(evaluation_table(tuned.evaluation, tuned.run.name))
