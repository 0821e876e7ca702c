"""One self-contained page about a run: figures, learning curve, data and settings."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Sequence
from dataclasses import fields
from importlib import resources
from importlib.metadata import version
from typing import Any

from linrec.baselines import BASELINES, BaselineConfig
from linrec.data.dataset.statistics import statistics
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.splitting import SplitConfig
from linrec.evaluation import Evaluation, metric_label
from linrec.evaluation.tables import best_of, figure, gap_metrics, interval, protocol_title
from linrec.losses import LossConfig
from linrec.runs.checkpoint import Progress
from linrec.runs.config import OF_BASELINES, AnyConfig, RunConfig, TrainingConfig
from linrec.runs.samples import Sample

EXPLANATIONS = {
    "recall": "the share of users whose next item is among the first k recommendations, or of each "
    "user's next items where there are several",
    "hit": "the share of users of whose next items at least one is among the first k",
    "ndcg": "the same, but a hit counts less the further down it is: 1 in the first place, 0.63 in "
    "the second, 0.29 in the tenth, and 0 beyond the first k",
    "map": "how early the next items come: at each of them among the first k the share of next "
    "items up to there, averaged",
    "mrr": "1 divided by the place of the next item, so 1, 0.5, 0.33 and so on, and 0 beyond the "
    "first k; without a k every place counts",
    "coverage": "the share of all items that are among the first k of anybody",
    "popularity": "how many training events a recommended item has on average; where it is high, "
    "the lists show what everybody knows",
    "novelty": "how unexpected the recommended items are on average, in bits: minus the logarithm "
    "to base 2 of an item's share of the training events",
    "diversity": "how different the items of a list are: 1 minus their similarity (the cosine of "
    "their features or vectors), averaged over all pairs of its first k",
    "miscalibration": "how far a list is from the popularity of what the user has had: the "
    "Jensen-Shannon divergence of the shares of popular, middling and rare items in the history "
    "and among the first k; 0 is the same mixture, 1 nothing in common",
}

FINAL_NOTE = (
    "these are the figures of the validated model; the run's model was then trained again on all "
    "events, the held-out ones too, and cannot be measured on them"
)


def report_page(
    config: RunConfig,
    progress: Progress,
    evaluation: Evaluation,
    store: SequenceStore,
    curve: bytes | None,
    samples: Sequence[Sample] = (),
) -> str:
    """Everything inside the one page, so that it can be mailed.

    curve: a PNG, None for a baseline, which learns nothing.
    """
    from jinja2 import Environment

    verdict = evaluation.against and evaluation.against.sentence
    source = (resources.files("linrec.runs") / "report.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True).from_string(source).render(
        title=_title(config.model),
        subtitle=f"linrec {version('linrec')}, dataset {store.fingerprint}" + _epochs(progress),
        name=_name(config.model),
        protocol=protocol_title(evaluation),
        baselines={name: BASELINES[name].definition for name in evaluation.baselines},
        verdict=evaluation.against,
        metrics=_metrics(evaluation),
        gap_labels=[metric_label(metric) for metric in gap_metrics(evaluation)],
        gaps=_gaps(evaluation),
        notes=[
            *(note for note in evaluation.notes if note != verdict),
            *([FINAL_NOTE] if config.training.final else []),
        ],
        explanations=explanations(evaluation),
        curve=None if curve is None else b64encode(curve).decode(),
        samples=samples,
        statistics=statistics(store),
        settings=_shown_settings(config),
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


def _title(model: AnyConfig) -> str:
    if isinstance(model, BaselineConfig):
        return f"{model.backbone}, a baseline"
    return f"{model.backbone} with {model.attention}"


def _name(model: AnyConfig) -> str:
    return model.backbone if isinstance(model, BaselineConfig) else model.attention


def _shown_settings(config: RunConfig) -> list[tuple[str, str]]:
    """A baseline has neither loss nor training."""
    if isinstance(config.model, BaselineConfig):
        shown = _settings(config.training, OF_BASELINES)
        return _settings(config.model) + _settings(config.split) + shown
    parts = (config.model, config.loss, config.split, config.training)
    return [setting for part in parts for setting in _settings(part)]


def _settings(
    config: AnyConfig | LossConfig | SplitConfig | TrainingConfig,
    only: Collection[str] | None = None,
) -> list[tuple[str, str]]:
    """Each setting in words; those that another split would have are left out."""
    names = [item.name for item in fields(config) if only is None or item.name in only]
    values = {name: getattr(config, name) for name in names}
    if isinstance(config, SplitConfig):
        values = {name: value for name, value in values.items() if value is not None}
    return [(name, _shown(value)) for name, value in values.items()]


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
        cells[0]["interval"] = interval(result, metric=metric)
        rows.append({"label": metric_label(metric), "cells": cells})
    return rows
