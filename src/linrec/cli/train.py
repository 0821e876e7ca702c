"""`linrec train`: from a dataset to a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from linrec.backbones.config import CONFIGS as BACKBONES
from linrec.cli.flags import with_flags
from linrec.losses.config import CONFIGS as LOSSES
from linrec.runs.config import TrainingConfig
from linrec.runs.recipes import settings_in


@with_flags(settings_in("default"), Model=BACKBONES, Loss=LOSSES, Training=TrainingConfig)
def train(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A dataset of `linrec prepare`.")],
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    recipe: Annotated[str, typer.Option(help="A shipped recipe or a .toml file.")] = "default",
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run there.")] = False,
    **settings: Any,
) -> None:
    """Train a model, keep the best of it, evaluate it and save it all in one folder.

    Stops by itself when validation NDCG@10 no longer rises. Ctrl-C ends cleanly with the best
    model so far; the same command with --resume continues from there.

    Examples:

    \b
      linrec train data/shop --out runs/shop
      linrec train data/ml-1m --out runs/paper --recipe paper-ml-1m --attention linrec
      linrec train data/shop --out runs/softmax --attention softmax --max-length 200
      linrec train data/shop --out runs/fdsa --backbone fdsa --features genre,year
      linrec train data/ml-1m --out runs/bert4rec --recipe bert4rec
      linrec train data/shop --out runs/shop --resume
    """
    from rich.console import Console

    from linrec.evaluation import evaluation_table, gap_table
    from linrec.recommender import Recommender
    from linrec.training.callbacks import ConsoleProgress

    console = Console()
    recommender = Recommender(recipe=recipe, **settings)
    shown = ConsoleProgress(console)
    recommender.fit(data, out, resume=resume, overwrite=overwrite, callbacks=[shown])
    trained, evaluation = recommender.trained, recommender.test_evaluation
    assert trained is not None
    if evaluation is None:
        shown.on_message(f"Stopped; the best model so far is in {out}. Continue with --resume.")
        sys.exit(130)
    progress = trained.progress
    shown.on_message(
        f"Best validation NDCG@10 {progress.best:.4f} in epoch {progress.best_epoch} of "
        f"{progress.epoch}; the run is in {out}"
    )
    console.print(evaluation_table(evaluation, out.resolve().name))
    if evaluation.by_gap:
        console.print(gap_table(evaluation))
