"""One self-contained page about a run: figures, learning curve, data and settings."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

import linrec
from linrec.backbones import ModelConfig
from linrec.cli.describe import statistics
from linrec.evaluation import Evaluation, metric_label
from linrec.evaluation.tables import best_of, figure, interval, protocol_title
from linrec.files.atomic import write_text
from linrec.losses import LossConfig
from linrec.recommender import Recommender
from linrec.runs.config import TrainingConfig
from linrec.training.history import learning_curve


def write_report(
    path: Path,
    recommender: Recommender,
    evaluation: Evaluation,
    recommendations: dict[str, Any] | None = None,
) -> None:
    """Everything inside the one file: it can be mailed."""
    from jinja2 import Environment

    source = (resources.files("linrec.cli") / "report.html.j2").read_text(encoding="utf-8")
    config, trained, store = recommender.config, recommender.trained, recommender.store
    assert trained is not None
    page = Environment(autoescape=True).from_string(source).render(
        title=f"{config.model.backbone} with {config.model.attention}",
        subtitle=f"linrec {linrec.__version__}, dataset {store.fingerprint}, "
        f"best of {trained.progress.epoch} epochs: {trained.progress.best_epoch}",
        name=config.model.attention,
        protocol=protocol_title(evaluation),
        floors=list(evaluation.floors),
        metrics=_metrics(evaluation),
        notes=evaluation.notes,
        curve=b64encode(learning_curve(trained.progress.history)).decode(),
        recommendations=recommendations,
        statistics=statistics(store),
        settings=[
            setting
            for part in (config.model, config.loss, config.training)
            for setting in _settings(part)
        ],
    )  # fmt: skip
    write_text(path, page)


def _settings(config: ModelConfig | LossConfig | TrainingConfig) -> list[tuple[str, str]]:
    """Each setting in words."""
    return [(item.name, _shown(getattr(config, item.name))) for item in fields(config)]


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    return "all" if value is None else str(value)  # of the history, or of the features


def _metrics(evaluation: Evaluation) -> list[dict[str, Any]]:
    rows = []
    for metric, found in evaluation.metrics.items():
        values = [found.mean, *(floor[metric] for floor in evaluation.floors.values())]
        best = best_of(metric, values)
        cells = [
            {"value": figure(metric, value), "best": place == best, "interval": ""}
            for place, value in enumerate(values)
        ]
        cells[0]["interval"] = interval(found)
        rows.append({"label": metric_label(metric), "cells": cells})
    return rows
