"""`linrec train`: from a dataset to a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linrec.backbones.config import CONFIGS as BACKBONES
from linrec.baselines.config import CONFIGS as BASELINES
from linrec.cli.flags import with_flags
from linrec.cluster.options import EngineOptions
from linrec.data.preparing.splitting import SplitConfig
from linrec.losses.config import CONFIGS as LOSSES
from linrec.runs.config import TrainingConfig
from linrec.runs.recipes import settings_in
from linrec.training.world import World

if TYPE_CHECKING:
    from rich.console import Console

    from linrec.distributed.worker import Finished
    from linrec.evaluation import Evaluation
    from linrec.training.loop import Trained


@with_flags(
    settings_in("default"),
    Model=BACKBONES,
    Loss=LOSSES,
    Split=SplitConfig,
    Training=TrainingConfig,
    Baselines=BASELINES,
)
def train(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A dataset of `linrec prepare`.")],
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    recipe: Annotated[str, typer.Option(help="A shipped recipe or a .toml file.")] = "default",
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Start from the weights and settings of this run, for at most 5 epochs; items "
            "and feature values are matched by name.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run there.")] = False,
    max_minutes: Annotated[
        float | None,
        typer.Option(help="Stop after so many minutes, as Ctrl-C would; --resume continues."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Train in so many processes, one per GPU or core: each step's batch is divided "
            "over them, and the result stays the same. `torchrun -m linrec train` does it on "
            "several machines."
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="Where the workers run: local, on this machine, or ray (linrec\\[ray]), with one "
            "CPU or GPU each; as many as there are if --workers is left out."
        ),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="With --engine ray, a running Ray cluster as HOST:PORT, or auto for the one of "
            "this machine; without it Ray is started here and ended with the command."
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            help="Log settings, curves and figures to mlflow or wandb, which are extras of linrec. "
            "May be repeated."
        ),
    ] = None,
    **settings: Any,
) -> None:
    """Train a model, keep the best of it, evaluate it and save it all in one folder.

    Stops by itself when validation NDCG@10 no longer rises. Ctrl-C ends cleanly with the best
    model so far; the same command with --resume continues from there. A baseline (--backbone
    popularity, personal ...) is counted in one pass, and is served as any other model.

    Examples:

    \b
      linrec train data/shop --out runs/shop
      linrec train data/ml-1m --out runs/paper --recipe paper-ml-1m --attention linrec
      linrec train data/shop --out runs/softmax --attention softmax --max-length 200
      linrec train data/shop --out runs/fdsa --backbone fdsa --features genre,year
      linrec train data/ml-1m --out runs/bert4rec --recipe bert4rec
      linrec train data/shop --out runs/may --split temporal \\
        --valid-from 2024-05-01 --test-from 2024-06-01
      linrec train data/shop --out runs/baskets --targets basket
      linrec train data/shop --out runs/bought --context type,price \\
        --targets-where type=purchase --weight price
      linrec train data/shop --out runs/shop --final
      linrec train data/shop --out runs/shop --resume
      linrec train data/tuesday --from runs/monday --out runs/tuesday
      linrec train data/shop --out runs/shop --track mlflow --max-minutes 90
      linrec train data/shop --out runs/habits --backbone personal-decay
      linrec train data/shop --out runs/shop --workers 4
      linrec train data/shop --out runs/shop --engine ray --workers 16 --address auto
      torchrun --nproc-per-node 8 -m linrec train data/shop --out runs/shop
    """
    place = EngineOptions(
        engine=engine, workers=workers if engine == "ray" else None, address=address
    )
    if place.engine == "local":
        _start_workers(workers)
    from rich.console import Console

    from linrec.distributed.training import train_on_ray
    from linrec.distributed.worker import Job, train_here
    from linrec.training.callbacks import ConsoleProgress, TimeLimit
    from linrec.training.trackers import tracker

    console = Console()
    shown = ConsoleProgress(console)
    run, trackers = out.resolve().name, dict.fromkeys(track or ())  # each once
    callbacks = [shown, *(tracker(name, run, shown.on_message) for name in trackers)]
    if max_minutes is not None:
        callbacks.append(TimeLimit(max_minutes))
    job = Job(
        data=Path(data), out=out, recipe=recipe, start=start, settings=settings,
        resume=resume, overwrite=overwrite,
    )  # fmt: skip
    done = (
        train_on_ray(job, place, callbacks) if place.engine == "ray" else train_here(job, callbacks)
    )
    trained, evaluation = done.trained, done.evaluation
    if not World.of_environment().is_first:
        sys.exit(130 if trained.interrupted else 0)
    if evaluation is None or trained.interrupted:
        shown.on_message(f"{_stopped(trained)} is in {out}. Continue with --resume.")
        sys.exit(130)
    shown.on_message(f"{_summary(done)}; the run is in {out}")
    _show(evaluation, out, console)


def _start_workers(workers: int | None) -> None:
    """Here, if there are to be several: then this process only waits for them."""
    from linrec.training.launching import check_workers, end_with_parent, launch

    if workers is not None:
        check_workers(workers)
        if workers > 1:
            command = [sys.executable, "-m", "linrec", *_without_workers(sys.argv[1:])]
            sys.exit(launch(command, workers))
    end_with_parent()


def _show(evaluation: Evaluation, out: Path, console: Console) -> None:
    from linrec.evaluation import evaluation_table, gap_table, seen_table

    console.print(evaluation_table(evaluation, out.resolve().name))
    if evaluation.by_gap:
        console.print(gap_table(evaluation))
    if evaluation.by_seen:
        console.print(seen_table(evaluation))


def _without_workers(words: list[str]) -> list[str]:
    """The command line of each worker."""
    kept, skip = [], False
    for word in words:
        if not skip and not word.startswith("--workers="):
            skip = word == "--workers"
            if not skip:
                kept.append(word)
        else:
            skip = False
    return kept


def _stopped(trained: Trained) -> str:
    if trained.progress.best_epoch:
        return "Stopped; the best model so far"
    return "Stopped before the first epoch was validated; a model that has learned little"


def _summary(done: Finished) -> str:
    """What the training came to; of a baseline also what was chosen on validation."""
    from dataclasses import asdict

    progress = done.trained.progress
    if progress.epoch:
        where = f" in epoch {progress.best_epoch} of {progress.epoch}"
        return f"Best validation NDCG@10 {progress.best:.4f}{where}"
    settings = asdict(done.model)
    name = settings.pop("backbone")
    chosen = "".join(f", {key} {value}" for key, value in settings.items())
    return f"Counted {name}{chosen}: validation NDCG@10 {progress.best:.4f}"
