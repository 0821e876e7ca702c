"""RecTools' SASRec and BERT4Rec, converted as RecTools builds them and trained by its fit."""

from __future__ import annotations

import logging
from typing import Any

import pandas as pd
import rectools
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything
from rectools import Columns
from rectools.dataset import Dataset
from rectools.models import BERT4RecModel, SASRecModel
from torch import Tensor, nn

from tests.transplant.runners import common

EPOCHS = 16  # BERT4Rec masks other events in each, so that one epoch's loss says little
SETTINGS: dict[str, Any] = {
    "n_blocks": 2, "n_heads": 2, "n_factors": 32, "session_max_len": common.EVENTS,
    "lr": common.RATE, "batch_size": 16, "epochs": EPOCHS, "deterministic": True,
    "use_key_padding_mask": True,
}  # fmt: skip


class Convert(Callback):
    """A network that RecTools makes within fit is converted before its optimizer is made."""

    def __init__(self, some: list[list[int]]) -> None:
        self.some = some
        self.result: dict[str, Any] = {}
        self.losses: list[float] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:  # noqa: ARG002
        if not self.result:
            self.result = common.examine(pl_module.torch_model, encode, self.some)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        self.losses.append(float(trainer.callback_metrics["train_loss"]))


def main() -> None:
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    some = common.start()
    result = {kind.__name__: trained(kind, some) for kind in (SASRecModel, BERT4RecModel)}
    common.finish({"version": rectools.__version__, "models": result})


def trained(kind: type, some: list[list[int]]) -> dict[str, Any]:
    def trainer() -> Trainer:
        return Trainer(
            max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=[Convert(some)],
        )  # fmt: skip

    seed_everything(0)  # RecTools draws its masks from numpy and random
    model = kind(get_trainer_func=trainer, **SETTINGS)
    dataset = events_of(some)
    model.fit(dataset)
    recommended = model.recommend(range(3), dataset, k=5, filter_viewed=True)
    # RecTools trains with a copy of the trainer, callbacks and all
    convert = next(c for c in model.fit_trainer.callbacks if isinstance(c, Convert))
    laws = common.laws(model.torch_model, encode, some)
    return convert.result | laws | {"losses": convert.losses, "recommended": len(recommended)}


def events_of(some: list[list[int]]) -> Dataset:
    rows = [
        (user, item, 1, pd.Timestamp(time, unit="D"))
        for user, events in enumerate(some)
        for time, item in enumerate(events)
    ]
    names = [Columns.User, Columns.Item, Columns.Weight, Columns.Datetime]
    return Dataset.construct(pd.DataFrame(rows, columns=names))


def encode(model: nn.Module, some: list[list[int]], width: int) -> list[Tensor]:
    sessions = common.padded(some, width, at_the_start=True)
    hidden = model.encode_sessions({"x": sessions}, model.item_model.get_all_embeddings())
    return [row[-len(events) :] for row, events in zip(hidden, some, strict=True)]


if __name__ == "__main__":
    main()
