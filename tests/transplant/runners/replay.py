"""RePlay's SASRec, by its own schema, masks and loss."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import torch
from replay.data import FeatureHint, FeatureSource, FeatureType
from replay.data.nn import TensorFeatureInfo, TensorFeatureSource, TensorSchema
from replay.nn.sequential import SasRec
from torch import Tensor, nn

from tests.transplant.runners import common


def main() -> None:
    some = common.start()
    count = common.count_items(some)
    schema = TensorSchema(
        [
            TensorFeatureInfo(
                "item_id",
                is_seq=True,
                feature_type=FeatureType.CATEGORICAL,
                embedding_dim=32,
                padding_value=0,
                cardinality=count + 1,
                feature_hint=FeatureHint.ITEM_ID,
                feature_sources=[TensorFeatureSource(FeatureSource.INTERACTIONS, "item_id")],
            )
        ]
    )
    model = SasRec.from_params(
        schema, embedding_dim=32, num_heads=2, max_sequence_length=common.EVENTS, dropout=0.2
    )
    result: dict[str, Any] = common.examine(model, encode, some)
    batch = training_batch(some)
    result["losses"] = common.descend(model, lambda: model(**batch)["loss"])
    result |= common.laws(model, encode, some)
    common.finish({"version": version("replay-rec"), "models": {"SasRec": result}})


def training_batch(some: list[list[int]]) -> dict[str, Any]:
    rows = common.padded(some, common.EVENTS + 1, at_the_start=True)
    items, following = rows[:, :-1], rows[:, 1:]
    return {
        "feature_tensors": {"item_id": items},
        "padding_mask": items > 0,
        "positive_labels": following[..., None],
        "target_padding_mask": ((items > 0) & (following > 0))[..., None],
    }


def encode(model: nn.Module, some: list[list[int]], width: int) -> list[Tensor]:
    items = common.padded(some, width, at_the_start=True)
    hidden: Tensor = model.body({"item_id": items}, torch.as_tensor(items > 0))
    return [row[-len(events) :] for row, events in zip(hidden, some, strict=True)]


if __name__ == "__main__":
    main()
