"""A RUN folder: the only module that knows the names in it and how they are read and written."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from torch import Tensor, nn
from torch.optim import Optimizer

from linrec.data.dataset.ids import check_ids
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.store import SequenceStore
from linrec.evaluation import Evaluation
from linrec.files.atomic import FolderDraft, check_free
from linrec.files.drafts import recover
from linrec.files.expansion import check_parquet
from linrec.files.guard import reading
from linrec.runs import history
from linrec.runs.catalogue import TRAINED, Catalogue
from linrec.runs.checkpoint import Progress, load_checkpoint, pack_checkpoint, read_progress
from linrec.runs.config import RunConfig
from linrec.runs.description import RunDescription, is_description, read_description
from linrec.runs.evaluations import name_of, pack_ranks, read_ranks
from linrec.runs.files import RunFiles
from linrec.runs.history import Row
from linrec.runs.report import report_page
from linrec.runs.resuming import check_same_dataset, check_same_settings, check_same_start
from linrec.runs.samples import Sample
from linrec.runs.tensors import TRAIN_AGAIN, pack_tensors, read_tensors
from linrec.runs.vectors import pack_vectors, reads_vectors, unpack_vectors
from linrec.runs.weights import AnyModel, UnfitWeightsError, build_around, check_values
from linrec.types import InputError, argument

CONFIG, ITEMS, WEIGHTS = "config.json", "items.parquet", "model.safetensors"
VECTORS = "item-vectors.safetensors"  # of a model that reads them
CHECKPOINT, HISTORY, CURVE = "checkpoint.safetensors", "history.csv", "learning-curve.png"
FINAL = "final-checkpoint.safetensors"  # while a run is trained again on all events
EVALUATIONS, REPORT, TENSORBOARD = "evaluation", "report.html", "tensorboard"


class Run:
    """The folder that a training leaves: model, items, history, evaluations and report.

    Example:
        run = Run.open("runs/shop")
        run.load_model().encode(histories)
        evaluation, ranks = run.load_evaluation("test-full")
    """

    def __init__(self, files: RunFiles, description: RunDescription, catalogue: Catalogue) -> None:
        """Use `create`, `open` or `resume` instead, which check or make the folder."""
        self.files, self.description, self.catalogue = files, description, catalogue

    @property
    def folder(self) -> Path:
        """Where it is, or will be once a model is saved."""
        return self.files.path

    @classmethod
    def create(
        cls,
        folder: Path,
        description: RunDescription,
        catalogue: Catalogue,
        *,
        overwrite: bool = False,
        model: AnyModel | None = None,
        rows: Sequence[Row] = (),
    ) -> Run:
        """Make the folder in one step; with the weights and history of a finished training, too.

        An older run there is replaced once there are weights, and stays if there never are any.
        """
        cls.check_free(folder, overwrite=overwrite)
        draft = FolderDraft(folder, overwrite=overwrite, marker=CONFIG)
        run = cls(RunFiles(folder, draft), description, catalogue)
        try:
            run._write_config()
            run._write_items()
            if catalogue.vectors is not None:
                run.files.write(VECTORS, pack_vectors(catalogue.vectors))
            if rows:
                run.write_history(rows)
            if model is not None:
                run.save_weights(model)
            elif not cls.exists(folder):
                run.files.publish()
        except BaseException:
            run.discard()
            raise
        return run

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = True) -> Run:
        """Read and check what a run is; nothing in it is ever executed.

        verify: whether each file that is read must have the checksum in the manifest.
        """
        files = RunFiles(Path(folder), verify=verify)
        recover(files.path)
        return files.steady(lambda: cls._open(files))

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> tuple[Run, AnyModel]:
        """A run and its model, of the same moment even if another process replaces them."""

        def both() -> tuple[Run, AnyModel]:
            run = cls.open(folder, verify=verify)
            return run, run.load_model()

        return RunFiles(Path(folder)).steady(both)

    @classmethod
    def _open(cls, files: RunFiles) -> Run:
        config, items = files.path / CONFIG, files.path / ITEMS
        if not config.is_file():
            raise InputError(
                f"{files.path} is not a run: it has no {CONFIG}; `linrec train` makes one"
            )
        description = read_description(config, files.read(CONFIG))
        description.config(str(config))  # checked here, used later
        catalogue = _read_items(items, files.read(ITEMS), description)
        if reads_vectors(description.model):
            vectors = unpack_vectors(files.path / VECTORS, files.read(VECTORS), len(catalogue))
            catalogue = Catalogue(catalogue.table, vectors)
        files.check(CONFIG, ITEMS, VECTORS)
        return cls(files, description, catalogue)

    @contextmanager
    def kept_with_a_model(self) -> Iterator[None]:
        """If the block fails before it saves a model, an older run in this place stays."""
        try:
            yield
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove a run that has not taken its place yet; the older one there stays."""
        self.files.discard()

    @classmethod
    def resume(cls, folder: Path, description: RunDescription, features: ItemFeatures) -> Run:
        """Open a run to continue its training, which must be the one that is described."""
        run = cls.open(folder)
        check_same_dataset(folder, run.description, description)
        check_same_start(folder, run.description, description)
        check_same_settings(folder, run.config, description)
        if not features.same_as(run.features):
            data = description.dataset.get("path") or "the given data"
            raise InputError(
                f"the features or the context of {data} are no longer those that {folder} was "
                f"begun with; train without {argument('resume', True)} in another folder"
            )
        # epochs and patience may be new
        run.description = description.model_copy(update={"final": run.description.final})
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
        described, catalogue = self.description, self.catalogue
        return ItemFeatures.of(
            catalogue.table, described.features, described.context, catalogue.vectors
        )

    def load_model(self) -> AnyModel:
        """The model with its best weights, in evaluation mode."""
        return self.files.steady(self._load_model)

    def _load_model(self) -> AnyModel:
        weights = read_tensors(self.folder / WEIGHTS, self._read_weights())
        check_values(self.folder / WEIGHTS, weights)
        try:
            model = build_around(weights, self.description.model, self.features)
        except UnfitWeightsError as error:
            raise InputError(
                f"{self.folder / WEIGHTS} does not fit {self.folder / CONFIG} ({error}); the two "
                f"come from different runs, {TRAIN_AGAIN}"
            ) from None
        self.files.check(CONFIG, ITEMS, VECTORS, WEIGHTS)
        model.untrained = self.catalogue.untrained
        return model.eval()

    def load_weights(self) -> dict[str, Tensor]:
        weights = read_tensors(self.folder / WEIGHTS, self._read_weights())
        self.files.check(WEIGHTS)
        return weights

    def _read_weights(self) -> bytes:
        if not (self.files.folder / WEIGHTS).is_file():
            raise InputError(
                f"{self.folder / WEIGHTS} is missing: the training has not saved a model yet"
            )
        return self.files.read(WEIGHTS)

    def save_weights(self, model: nn.Module) -> None:
        """Replace the weights, and remove the evaluations and report of the replaced model.

        A run that replaces an older one takes its place now.
        """
        self.files.remove(EVALUATIONS, REPORT)
        self.files.write(WEIGHTS, pack_tensors(model.state_dict()))
        self.files.publish()

    @property
    def validated(self) -> bool:
        """Whether its training on all events has begun, so that the validated one is over."""
        return self.description.final or (self.files.folder / FINAL).exists()

    @property
    def finished(self) -> bool:
        """Whether its weights are those of a training on all events, to the last step."""
        return self.description.final and not (self.files.folder / FINAL).exists()

    def save_final(self, model: nn.Module) -> None:
        """Replace the weights by those of the training on all events; the figures stay."""
        self.description = self.description.model_copy(update={"final": True})
        self._write_config()  # first: a run that is killed in between must not be evaluated
        self.catalogue = self.catalogue.after_all()
        self._write_items()
        self.files.write(WEIGHTS, pack_tensors(model.state_dict()))
        self.files.remove(FINAL)

    @property
    def model_checksums(self) -> list[str]:
        """Of what was read from `model_files`, in their order."""
        names = (CONFIG, ITEMS, VECTORS, WEIGHTS)
        return [self.files.checksums[name] for name in names if name in self.files.checksums]

    @staticmethod
    def model_files(folder: Path) -> list[Path]:
        """The files that decide which items the model knows and how it scores them."""
        names = (CONFIG, ITEMS, WEIGHTS)
        return [folder / name for name in names] + [
            path for path in (folder / VECTORS,) if path.is_file()
        ]

    # ---------------------------------------------------------------------------------- training

    @property
    def progress(self) -> Progress:
        """How far its training is."""
        return read_progress(self.files.folder / CHECKPOINT)

    @staticmethod
    def progress_of(folder: Path) -> Progress:
        """The same for a folder that may not exist yet."""
        return read_progress(folder / CHECKPOINT)

    def load_checkpoint(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        average: nn.Module | None = None,
        *,
        final: bool = False,
    ) -> Progress:
        """Restore them; without a checkpoint the training starts from the beginning."""
        name = FINAL if final else CHECKPOINT
        path = self.folder / name
        if not path.exists():
            return Progress()
        content = self.files.read(name)
        progress = load_checkpoint(path, content, model, optimizers, average)
        self.files.check(name)
        return progress

    def save_checkpoint(
        self,
        progress: Progress,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        average: nn.Module | None = None,
        *,
        final: bool = False,
    ) -> None:
        self.files.write(
            FINAL if final else CHECKPOINT, pack_checkpoint(progress, model, optimizers, average)
        )

    def write_history(self, rows: Sequence[Row]) -> None:
        """One row per epoch, as a table and as a learning curve."""
        if rows:
            self.files.write(HISTORY, history.history_csv(rows).encode())
            self.files.write(CURVE, history.learning_curve(rows))

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
        self.files.write(f"{name}.parquet", pack_ranks(ranks, evaluation))
        self.files.write(f"{name}.json", f"{evaluation.to_json()}\n".encode())

    def load_evaluation(self, name: str) -> tuple[Evaluation, pl.DataFrame]:
        """Figures, and the rank of every user."""
        path = self.folder / EVALUATIONS / f"{name}.parquet"
        if not path.is_file():
            raise InputError(f"there are no ranks at {path}; make them with `linrec evaluate`")
        file = f"{EVALUATIONS}/{name}.parquet"
        evaluation = read_ranks(path, self.files.read(file))
        self.files.check(file)
        return evaluation

    def write_report(
        self, evaluation: Evaluation, store: SequenceStore, samples: Sequence[Sample] = ()
    ) -> None:
        """One self-contained HTML page about this evaluation; an earlier one is replaced."""
        path = self.files.folder / CURVE  # a run that was saved without its training has none
        curve = path.read_bytes() if path.is_file() else None
        page = report_page(self.config, self.progress, evaluation, store, curve, samples)
        self.files.write(REPORT, page.encode())

    @property
    def report(self) -> Path:
        return self.folder / REPORT

    # --------------------------------------------------------------------------------- all files

    def _write_config(self) -> None:
        self.files.write(CONFIG, self.description.to_json().encode())

    def _write_items(self) -> None:
        content = io.BytesIO()
        self.catalogue.table.write_parquet(content)
        self.files.write(ITEMS, content.getvalue())


def _read_items(path: Path, content: bytes, description: RunDescription) -> Catalogue:
    with reading(str(path), TRAIN_AGAIN):
        check_parquet(str(path), content)
        table = pl.read_parquet(content)
    needed = ["item", "events", *(field.name for field in description.features)]
    missing = [name for name in needed if name not in table.columns]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}; the run is damaged, {TRAIN_AGAIN}")
    if len(table) != description.n_items:
        raise InputError(
            f"{path} holds {len(table)} items where {CONFIG} says {description.n_items}; "
            f"the run is damaged, {TRAIN_AGAIN}"
        )
    check_ids(table["item"], str(path), TRAIN_AGAIN)
    for name in {"events", TRAINED} & set(table.columns):
        counts = table[name]
        if not counts.dtype.is_integer() or counts.has_nulls() or (counts < 0).any():
            raise InputError(
                f"{path}: the column {name!r} must hold whole numbers; the run is damaged, "
                f"{TRAIN_AGAIN}"
            )
    return Catalogue(table)
