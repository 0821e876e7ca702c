"""RecBole's SASRec, SASRecF, BERT4Rec, FDSA and CORE, through RecBole's own data and trainer."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from recbole import __version__
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.utils import get_model, get_trainer, init_seed
from torch import Tensor, nn

from tests.transplant.runners import common

MODELS = ("SASRec", "SASRecF", "BERT4Rec", "FDSA", "CORE")
SETTINGS: dict[str, Any] = {
    "USER_ID_FIELD": "user_id",
    "ITEM_ID_FIELD": "item_id",
    "TIME_FIELD": "timestamp",
    "load_col": {"inter": ["user_id", "item_id", "timestamp"], "item": ["item_id", "genre"]},
    "MAX_ITEM_LIST_LENGTH": common.EVENTS,
    "hidden_size": 32,
    "embedding_size": 32,
    "inner_size": 64,
    "n_layers": 2,
    "n_heads": 2,
    "train_neg_sample_args": None,
    "loss_type": "CE",
    "selected_features": ["genre"],
    "learning_rate": common.RATE,
    "train_batch_size": 256,
    "epochs": 4,
    "use_gpu": False,
    "show_progress": False,
    "state": "CRITICAL",
    "save_dataset": False,
    "worker": 0,
}


def main() -> None:
    some = common.start()
    with tempfile.TemporaryDirectory() as folder:
        write_atomic_files(Path(folder) / "slice", some)
        result = {name: one(name, folder, some) for name in MODELS}
    common.finish({"version": __version__, "models": result})


def one(name: str, folder: str, some: list[list[int]]) -> dict[str, Any]:
    config = Config(
        model=name,
        dataset="slice",
        config_dict=SETTINGS | {"data_path": folder, "checkpoint_dir": f"{folder}/saved"},
    )
    init_seed(0, reproducibility=True)
    dataset = create_dataset(config)
    train, _, _ = data_preparation(config, dataset)
    model = get_model(name)(config, train.dataset)
    result = common.examine(model, encode, some)
    trainer = get_trainer(config["MODEL_TYPE"], name)(config, model)
    trainer.fit(train, valid_data=None, saved=False, verbose=False)
    losses = [trainer.train_loss_dict[epoch] for epoch in sorted(trainer.train_loss_dict)]
    return result | common.laws(model, encode, some) | {"losses": losses}


def encode(model: nn.Module, some: list[list[int]], width: int) -> list[Tensor]:
    """What the Transformers say of each event, and behind it what the whole model says."""
    seen: list[Tensor] = []
    hooks = [
        part.register_forward_hook(lambda _m, _i, out: seen.append(out[-1]))
        for part in model.modules()
        if type(part).__name__ == "TransformerEncoder"
    ]
    items = common.padded(some, width)
    lengths = torch.tensor([len(events) for events in some])
    takes_lengths = type(model).__name__ not in ("BERT4Rec", "CORE")
    out = model(items, lengths) if takes_lengths else model(items)
    for hook in hooks:
        hook.remove()
    hidden = torch.cat(seen, -1)
    if out.dim() == 3:  # BERT4Rec says nothing else
        return [row[: len(events)] for row, events in zip(hidden, some, strict=True)]
    return [
        torch.cat([row[: len(events)], last.expand(1, -1).repeat(1, row.shape[1] // len(last))])
        for row, last, events in zip(hidden, out, some, strict=True)
    ]


def write_atomic_files(folder: Path, some: list[list[int]]) -> None:
    folder.mkdir()
    rows = [
        f"{user}\t{item}\t{time}"
        for user, events in enumerate(some)
        for time, item in enumerate(events)
    ]
    header = "user_id:token\titem_id:token\ttimestamp:float"
    (folder / "slice.inter").write_text("\n".join([header, *rows]) + "\n")
    genres = genres_of(common.histories(common.data())[1])
    items = [f"{item}\t{genre}" for item, genre in enumerate(genres, start=1)]
    (folder / "slice.item").write_text("\n".join(["item_id:token\tgenre:token_seq", *items]) + "\n")


def genres_of(ids: list[str]) -> list[str]:
    lines = (common.data() / "ml-latest-small" / "ml-latest-small.item").read_text("utf-8")
    rows = [line.split("\t") for line in lines.splitlines()]
    genre = {row[0]: row[3] for row in rows}
    return [genre[item] for item in ids]


if __name__ == "__main__":
    main()
