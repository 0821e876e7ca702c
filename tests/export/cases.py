"""Runs that were never trained, which is all that an export needs, and their graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from linrec.data.dataset.sequences import Sequences
from linrec.evaluation.scorer import model_scorer
from linrec.export.check import open_session
from linrec.layers import MultiHeadAttention
from linrec.recommender import Recommender
from linrec.runs.catalogue import Catalogue
from linrec.runs.description import RunDescription
from linrec.runs.run import Run
from tests.contracts.cases import cycle, model, what_is_known

pytest.importorskip("onnxruntime", reason="the extra linrec[onnx] is not installed")


def run_of(
    folder: Path,
    backbone: str,
    attention: str,
    training: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """Its keys lack a feature altogether: only an epsilon keeps that column's norm from 0 / 0."""
    made = model(backbone, attention, **changes).float()
    for part in made.modules():
        if isinstance(part, MultiHeadAttention):
            first_of_keys = part.project_out.in_features
            with torch.no_grad():
                part.project_in.weight[first_of_keys] = 0
                part.project_in.bias[first_of_keys] = 0
    description = RunDescription(
        linrec="0", model=made.config, n_items=made.n_items,
        features=what_is_known(made.config).fields, training=training or {},
    )  # fmt: skip
    Run.create(folder, description, Catalogue.of(cycle()), model=made)
    return folder


class Deployed:
    """An export as its user meets it: files, numpy and onnxruntime."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.message = json.loads((folder / "export.json").read_text("utf-8"))
        self.items = json.loads((folder / "items.json").read_text("utf-8"))["item"]
        self.model = open_session(folder / "model.onnx")

    def scores(self, *histories: list[int]) -> Any:
        longest = max(map(len, histories)) or 1
        rows = np.array([row + [0] * (longest - len(row)) for row in histories], np.int64)
        return self.model.run(None, {"items": rows})

    def timed_scores(self, histories: Sequences) -> Any:
        given = (histories.padded(), histories.padded_times(), histories.until)
        return self.model.run(None, dict(zip(("items", "times", "at"), given, strict=True)))

    def start(self, users: int) -> dict[str, Any]:
        """From the description alone."""
        kinds = {
            "tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(double)": np.float64
        }  # fmt: skip
        first = {
            name: np.nan if number is None else number
            for name, number in self.message["start"].items()
        }
        return {
            port["name"]: np.full(
                (users, *port["shape"][1:]), first[port["name"]], kinds[port["type"]]
            )
            for port in self.message["graphs"]["step.onnx"]["inputs"]
            if port["name"] in first
        }


def torch_scores(run: Path, *histories: list[int]) -> Any:
    return scores_of(run, Sequences.of(list(histories)))


def scores_of(run: Path, histories: Sequences) -> Any:
    score = model_scorer(Recommender.load(run).model)
    with torch.inference_mode():
        return score(histories).numpy()
