"""One self-contained page about a run: figures, learning curve, data and settings."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import fields
from importlib import resources
from importlib.metadata import version
from typing import Any

from linrec.backbones import ModelConfig
from linrec.data.dataset.statistics import statistics
from linrec.data.dataset.store import SequenceStore
from linrec.evaluation import Evaluation, metric_label
from linrec.evaluation.tables import best_of, figure, gap_metrics, interval, protocol_title
from linrec.losses import LossConfig
from linrec.runs.checkpoint import Progress
from linrec.runs.config import RunConfig, TrainingConfig

FINAL_NOTE = (
    "these are the figures of the validated model; the run's model was then trained again on all "
    "events, the held-out ones too, and cannot be measured on them"
)


def report_page(
    config: RunConfig,
    progress: Progress,
    evaluation: Evaluation,
    store: SequenceStore,
    curve: bytes,
    recommendations: dict[str, Any] | None = None,
) -> str:
    """Everything inside the one page, so that it can be mailed; curve: a PNG."""
    from jinja2 import Environment

    source = (resources.files("linrec.runs") / "report.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True).from_string(source).render(
        title=f"{config.model.backbone} with {config.model.attention}",
        subtitle=f"linrec {version('linrec')}, dataset {store.fingerprint}, "
        f"best of {progress.epoch} epochs: {progress.best_epoch}",
        name=config.model.attention,
        protocol=protocol_title(evaluation),
        baselines=list(evaluation.baselines),
        metrics=_metrics(evaluation),
        gap_labels=[metric_label(metric) for metric in gap_metrics(evaluation)],
        gaps=_gaps(evaluation),
        notes=(*evaluation.notes, *([FINAL_NOTE] if config.training.final else [])),
        curve=b64encode(curve).decode(),
        recommendations=recommendations,
        statistics=statistics(store),
        settings=[
            setting
            for part in (config.model, config.loss, config.training)
            for setting in _settings(part)
        ],
    )  # fmt: skip


def _settings(config: ModelConfig | LossConfig | TrainingConfig) -> list[tuple[str, str]]:
    """Each setting in words."""
    return [(item.name, _shown(getattr(config, item.name))) for item in fields(config)]


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    return "all" if value is None else str(value)  # of the history, or of the features


def _gaps(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """Each gap with its users and figures."""
    metrics = gap_metrics(evaluation)
    return [
        (gap, f"{part.n_users:,}", *(figure(metric, part.metrics[metric]) for metric in metrics))
        for gap, part in evaluation.by_gap.items()
    ]


def _metrics(evaluation: Evaluation) -> list[dict[str, Any]]:
    rows = []
    for metric, result in evaluation.metrics.items():
        values = [result.mean, *(means[metric] for means in evaluation.baselines.values())]
        best = best_of(metric, values)
        cells = [
            {"value": figure(metric, value), "best": column == best, "interval": ""}
            for column, value in enumerate(values)
        ]
        cells[0]["interval"] = interval(result)
        rows.append({"label": metric_label(metric), "cells": cells})
    return rows
