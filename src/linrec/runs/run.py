"""A RUN folder: the only module that knows the names in it and how they are read and written."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from torch import Tensor, nn
from torch.optim import Optimizer

from linrec.backbones import Backbone, build
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.store import SequenceStore
from linrec.evaluation import Evaluation
from linrec.files.atomic import check_free, write_bytes, write_folder
from linrec.files.guard import reading
from linrec.runs import history
from linrec.runs.catalogue import Catalogue
from linrec.runs.checkpoint import Progress, load_checkpoint, pack_checkpoint, read_progress
from linrec.runs.config import RunConfig
from linrec.runs.description import RunDescription, is_description, read_description
from linrec.runs.evaluations import name_of, pack_ranks, read_ranks
from linrec.runs.history import Row
from linrec.runs.report import report_page
from linrec.runs.tensors import TRAIN_AGAIN, last_line, pack_tensors, read_tensors
from linrec.types import InputError, argument

CONFIG, ITEMS, WEIGHTS = "config.json", "items.parquet", "model.safetensors"
CHECKPOINT, HISTORY, CURVE = "checkpoint.safetensors", "history.csv", "learning-curve.png"
EVALUATIONS, REPORT, TENSORBOARD = "evaluation", "report.html", "tensorboard"

MAY_CHANGE = ("epochs", "patience")
"""Settings that may differ when a run is resumed; any other change would make it another run."""


class Run:
    """The folder that a training leaves: model, items, history, evaluations and report.

    Example:
        run = Run.open("runs/shop")
        run.load_model().encode(histories)
        evaluation, ranks = run.load_evaluation("test-full")
    """

    def __init__(self, folder: Path, description: RunDescription, catalogue: Catalogue) -> None:
        """Use `create`, `open` or `resume` instead, which check or make the folder."""
        self.folder, self.description, self.catalogue = folder, description, catalogue

    @classmethod
    def create(
        cls,
        folder: Path,
        description: RunDescription,
        catalogue: Catalogue,
        *,
        overwrite: bool = False,
        model: Backbone | None = None,
        rows: Sequence[Row] = (),
    ) -> Run:
        """Make the folder in one step; with the weights and history of a finished training, too."""
        cls.check_free(folder, overwrite=overwrite)
        with write_folder(folder, overwrite, marker=CONFIG) as draft:
            run = cls(draft, description, catalogue)
            run._write_config()
            run._write_items()
            if model is not None:
                run.save_weights(model)
            if rows:
                run.write_history(rows)
        return cls(folder, description, catalogue)

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Read and check what a run is; nothing in it is ever executed."""
        folder = Path(folder)
        if not (folder / CONFIG).is_file():
            raise InputError(f"{folder} is not a run: it has no {CONFIG}; `linrec train` makes one")
        description = read_description(folder / CONFIG)
        return cls(folder, description, _read_items(folder / ITEMS, description))

    @classmethod
    def resume(cls, folder: Path, description: RunDescription, features: ItemFeatures) -> Run:
        """Open a run to continue its training, which must be the one that is described."""
        run = cls.open(folder)
        _check_same_dataset(run, description)
        _check_same_settings(run, description)
        if not features.same_as(run.features):
            data = description.dataset.get("path") or "the given data"
            raise InputError(
                f"the item features of {data} are no longer those that {folder} was begun with; "
                f"train without {argument('resume', True)} in another folder"
            )
        run.description = description  # epochs and patience may be new
        run._write_config()
        return run

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether linrec made this folder."""
        return is_description(folder / CONFIG)

    @classmethod
    def check_free(cls, folder: Path, *, overwrite: bool) -> None:
        """Refuse a folder that holds anything but, with `overwrite`, an older run."""
        if cls.exists(folder):
            if not overwrite:
                raise InputError(
                    f"{folder} already holds a run; add {argument('resume', True)} to continue it, "
                    f"{argument('overwrite', True)} to replace it, or choose another path"
                )
        elif (folder / CONFIG).exists():  # config.json is a common name
            raise InputError(
                f"{folder} has a {CONFIG} that is not of a linrec run and will not be replaced; "
                "choose another path"
            )
        else:
            check_free(folder, overwrite=overwrite, marker=CONFIG)

    # ------------------------------------------------------------------------------------- model

    @property
    def config(self) -> RunConfig:
        return self.description.config(str(self.folder / CONFIG))

    @property
    def features(self) -> ItemFeatures:
        for field in self.description.features:
            if field.name not in self.catalogue.table.columns:
                raise InputError(
                    f"{self.folder / ITEMS} has no column {field.name!r}; the run is damaged, "
                    f"{TRAIN_AGAIN}"
                )
        return ItemFeatures.of(self.catalogue.table, self.description.features)

    def load_model(self) -> Backbone:
        """The model with its best weights, in evaluation mode."""
        model = build(self.description.model, self.features)
        try:
            model.load_state_dict(self.load_weights())
        except RuntimeError as error:
            raise InputError(
                f"{self.folder / WEIGHTS} does not fit {self.folder / CONFIG} "
                f"({last_line(error)}); the two come from different runs, {TRAIN_AGAIN}"
            ) from None
        return model.eval()

    def load_weights(self) -> dict[str, Tensor]:
        return read_tensors(self.folder / WEIGHTS)

    def save_weights(self, model: nn.Module) -> None:
        """Replace the weights, and remove the evaluations and report of the replaced model."""
        self._write(WEIGHTS, pack_tensors(model.state_dict()))
        shutil.rmtree(self.folder / EVALUATIONS, ignore_errors=True)
        (self.folder / REPORT).unlink(missing_ok=True)

    @staticmethod
    def model_files(folder: Path) -> list[Path]:
        """The files that decide which items the model knows and how it scores them."""
        return [folder / name for name in (CONFIG, ITEMS, WEIGHTS)]

    # ---------------------------------------------------------------------------------- training

    @property
    def progress(self) -> Progress:
        """How far its training is."""
        return self.progress_of(self.folder)

    @staticmethod
    def progress_of(folder: Path) -> Progress:
        """The same for a folder that may not exist yet."""
        return read_progress(folder / CHECKPOINT)

    def load_checkpoint(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        average: nn.Module | None = None,
    ) -> Progress:
        return load_checkpoint(self.folder / CHECKPOINT, model, optimizers, average)

    def save_checkpoint(
        self,
        progress: Progress,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        average: nn.Module | None = None,
    ) -> None:
        self._write(CHECKPOINT, pack_checkpoint(progress, model, optimizers, average))

    def write_history(self, rows: Sequence[Row]) -> None:
        """One row per epoch, as a table and as a learning curve."""
        if rows:
            self._write(HISTORY, history.history_csv(rows).encode())
            self._write(CURVE, history.learning_curve(rows))

    @property
    def tensorboard(self) -> Path:
        """The folder for TensorBoard's event files."""
        return self.folder / TENSORBOARD

    # -------------------------------------------------------------------------------- evaluation

    def has_evaluation(self, name: str) -> bool:
        return (self.folder / EVALUATIONS / f"{name}.parquet").is_file()

    def save_evaluation(self, evaluation: Evaluation, ranks: pl.DataFrame) -> None:
        """Keep figures and ranks under the name of their protocol (`evaluation_name`)."""
        name = f"{EVALUATIONS}/{name_of(evaluation)}"
        self._write(f"{name}.parquet", pack_ranks(ranks, evaluation))
        self._write(f"{name}.json", f"{evaluation.to_json()}\n".encode())

    def load_evaluation(self, name: str) -> tuple[Evaluation, pl.DataFrame]:
        """Figures, and the rank of every user."""
        return read_ranks(self.folder / EVALUATIONS / f"{name}.parquet")

    def write_report(self, evaluation: Evaluation, store: SequenceStore) -> None:
        self._write(REPORT, self.report(evaluation, store).encode())

    def report(
        self, evaluation: Evaluation, store: SequenceStore, shown: dict[str, object] | None = None
    ) -> str:
        """One self-contained HTML page; shown: recommendations to include."""
        curve = (self.folder / CURVE).read_bytes()
        return report_page(self.config, self.progress, evaluation, store, curve, shown)

    # --------------------------------------------------------------------------------- all files

    def _write_config(self) -> None:
        self._write(CONFIG, self.description.to_json().encode())

    def _write_items(self) -> None:
        content = io.BytesIO()
        self.catalogue.table.write_parquet(content)
        self._write(ITEMS, content.getvalue())

    def _write(self, name: str, content: bytes) -> None:
        """Replace one file in one step; every file of a run but TensorBoard's is written here."""
        write_bytes(self.folder / name, content)


def _read_items(path: Path, description: RunDescription) -> Catalogue:
    with reading(str(path), TRAIN_AGAIN):
        # not by its path: polars would take a name with * or ? for a pattern
        table = pl.read_parquet(path.read_bytes())
    missing = [name for name in ("item", "events") if name not in table.columns]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}; the run is damaged, {TRAIN_AGAIN}")
    if len(table) != description.n_items:
        raise InputError(
            f"{path} holds {len(table)} items where {CONFIG} says {description.n_items}; "
            f"the run is damaged, {TRAIN_AGAIN}"
        )
    return Catalogue(table)


def _check_same_dataset(run: Run, description: RunDescription) -> None:
    before = run.description.dataset
    if before.get("fingerprint") != description.dataset.get("fingerprint"):
        raise InputError(
            f"{run.folder} was begun on another dataset ({before.get('path')}); "
            "resume it with that one, or choose another path"
        )


def _check_same_settings(run: Run, description: RunDescription) -> None:
    before, now = run.config.as_dict(), description.config("the settings").as_dict()
    epochs = [settings["training"]["epochs"] for settings in (before, now)]
    if before["training"]["schedule"] == "linear" and epochs[0] != epochs[1]:
        raise InputError(
            f"the learning rate of {run.folder} falls to zero over {epochs[0]} epochs, and another "
            f"number would be another schedule; resume with {argument('epochs', epochs[0])}, or "
            f"train without {argument('resume', True)} in another folder"
        )
    for part in ("model", "training"):
        for name, old in before[part].items():
            new = now[part].get(name)  # another loss or backbone has other settings
            if name not in MAY_CHANGE and old != new:
                raise InputError(
                    f"{run.folder} was begun with other settings: {name} was {_shown(old)} and now "
                    f"is {_shown(new)}; only {' and '.join(MAY_CHANGE)} may change when a run is "
                    "resumed"
                )


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
