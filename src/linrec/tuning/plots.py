"""Plots of a study as PNGs: how it went, and which settings mattered."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def history_plot(values: Sequence[tuple[int, float, bool]]) -> bytes:
    """values: of each trial its place, its NDCG@10 and whether it was completed."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = _figure("trial", "validation NDCG@10")
    for complete, marker, label in ((True, "o", "completed"), (False, "x", "ended early")):
        points = [(place, value) for place, value, done in values if done == complete]
        if points:
            colour = "tab:blue" if complete else "tab:gray"
            axes.scatter(*zip(*points, strict=True), marker=marker, color=colour, label=label)
    done = [(place, value) for place, value, complete in values if complete]
    if done:
        places, best = zip(*done, strict=True)
        axes.step(
            places, np.maximum.accumulate(best), where="post", color="tab:orange", label="best"
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return _png(figure)


def importance_plot(importances: Mapping[str, float]) -> bytes:
    """importances: a share for each setting."""
    figure, axes = _figure("share of the importance (PED-ANOVA)", "")
    names = sorted(importances, key=lambda name: importances[name])
    axes.barh(names, [importances[name] for name in names], color="tab:blue")
    return _png(figure)


def _figure(x: str, y: str) -> tuple[Any, Any]:
    # the object interface: pyplot would pick a windowing backend and keep global state
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def _png(figure: Any) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    image = io.BytesIO()
    FigureCanvasAgg(figure).print_png(image)  # type: ignore[no-untyped-call]
    return image.getvalue()
