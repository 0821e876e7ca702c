"""One self-contained page about a run: figures, learning curve, data and settings."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
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
from linrec.runs.samples import Sample

EXPLANATIONS = {
    "recall": "the share of users whose next item is among the first k recommendations",
    "ndcg": "the same, but a hit counts less the further down it is: 1 in the first place, 0.63 in "
    "the second, 0.29 in the tenth, and 0 beyond the first k",
    "mrr": "1 divided by the place of the next item, so 1, 0.5, 0.33 and so on, and 0 beyond the "
    "first k; without a k every place counts",
    "coverage": "the share of all items that are among the first k of anybody",
    "popularity": "how many training events a recommended item has on average; where it is high, "
    "the lists show what everybody knows",
}


def report_page(
    config: RunConfig,
    progress: Progress,
    evaluation: Evaluation,
    store: SequenceStore,
    curve: bytes | None,
    samples: Sequence[Sample] = (),
) -> str:
    """Everything inside the one page, so that it can be mailed; curve: a PNG."""
    from jinja2 import Environment

    source = (resources.files("linrec.runs") / "report.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True).from_string(source).render(
        title=f"{config.model.backbone} with {config.model.attention}",
        subtitle=f"linrec {version('linrec')}, dataset {store.fingerprint}" + _epochs(progress),
        name=config.model.attention,
        protocol=protocol_title(evaluation),
        baselines=list(evaluation.baselines),
        metrics=_metrics(evaluation),
        gap_labels=[metric_label(metric) for metric in gap_metrics(evaluation)],
        gaps=_gaps(evaluation),
        notes=evaluation.notes,
        explanations=explanations(evaluation),
        curve=None if curve is None else b64encode(curve).decode(),
        samples=samples,
        statistics=statistics(store),
        settings=[
            setting
            for part in (config.model, config.loss, config.training)
            for setting in _settings(part)
        ],
    )  # fmt: skip


def explanations(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Each family of metrics in the evaluation, and what it says, in a sentence."""
    families = dict.fromkeys(metric.partition("@")[0] for metric in evaluation.metrics)
    return [(metric_label(name), EXPLANATIONS[name]) for name in families if name in EXPLANATIONS]


def _epochs(progress: Progress) -> str:
    """None for a run that was saved without its training."""
    if not progress.epoch:
        return ""
    return f", best of {progress.epoch} epochs: {progress.best_epoch}"


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
