"""The figures, as PNG, from the results alone."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.cells import ABLATED, BACKBONES, COMPARED, READS, Cell, by_max_length
from experiments.costs import of_lengths
from experiments.datasets import ALL, DATASETS
from experiments.default_model import by_gap
from experiments.outcomes import Options, Outcome
from experiments.quality import reads, span
from experiments.reach import reach_figures
from experiments.smoothness import measured

COLOURS = {"softmax": "tab:gray", "linrec": "tab:blue", "linrec-decay": "tab:orange",
           "linrec-without-norm": "tab:red", "linrec-without-elu": "tab:purple"}  # fmt: skip
METRIC = "ndcg@10"

Bar = tuple[float, float, float, int]
"""Mean, low, high, and after how many epochs."""


def all_figures(options: Options) -> dict[str, bytes]:
    """Name -> PNG, for every figure with something to show."""
    drawn = {
        "quality": quality(options),
        "cost": cost(options),
        "ablation": ablation(options),
        "heatmap": heatmap(options),
        "conditions": conditions(options),
        "reach": reach(options),
        "default": default(options),
        "long": long(options),
    }
    return {name: _png(figure) for name, figure in drawn.items() if figure is not None}


def quality(options: Options) -> Figure | None:
    """NDCG@10 of each backbone without LinRec, with it and with decay."""
    return _bars(options, BACKBONES, COMPARED)


def ablation(options: Options) -> Figure | None:
    """NDCG@10 of SASRec with LinRec, and with parts of it left out."""
    return _bars(options, ("sasrec",), ABLATED)


def _bars(options: Options, backbones: Sequence[str], names: Sequence[str]) -> Figure | None:
    found = {
        (dataset, backbone, name): bar
        for dataset in DATASETS
        for backbone in backbones
        for name in names
        if (bar := _bar(options.outcome(Cell(dataset, backbone, name)))) is not None
    }
    shown = [name for name in DATASETS if any(name == dataset for dataset, _, _ in found)]
    if len(found) < 2:  # one bar is not compared with anything
        return None
    figure, labels = _figure(max(5.0, 1.6 + len(backbones)) * len(shown), 3.6), {}
    for axes, dataset in zip(np.atleast_1d(figure.subplots(1, len(shown))), shown, strict=True):
        there = [one for one in backbones if any((dataset, one, name) in found for name in names)]
        width = 0.8 / len(names)
        for place, name in enumerate(names):
            shift = (place - (len(names) - 1) / 2) * width
            bars = [
                (at + shift, found[dataset, backbone, name])
                for at, backbone in enumerate(there)
                if (dataset, backbone, name) in found
            ]
            if bars:
                labels[name] = _draw(axes, bars, width, name)
        axes.set_xlim(-0.6, len(there) - 0.4)
        axes.set_xticks(range(len(there)), there)
        title = f"{DATASETS[dataset].title}, 95 % intervals over users; epochs at the foot"
        axes.set_title(title, fontsize=10)
        _plain(axes, "test NDCG@10, full ranking")
    figure.legend(labels.values(), labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _draw(axes: Any, bars: list[tuple[float, Bar]], width: float, name: str) -> Any:
    means = [mean for _, (mean, _, _, _) in bars]
    spread = [
        [mean - low for _, (mean, low, _, _) in bars],
        [high - mean for _, (mean, _, high, _) in bars],
    ]
    for at, (_, _, _, epochs) in bars:
        axes.annotate(str(epochs), (at, 0), (0, 2), textcoords="offset points",
                      ha="center", fontsize=7, color="white")  # fmt: skip
    return axes.bar([at for at, _ in bars], means, width * 0.95, yerr=spread,
                    color=COLOURS[name], capsize=2, error_kw={"lw": 0.8})  # fmt: skip


def _bar(outcome: Outcome | None) -> Bar | None:
    if outcome is None or "evaluations" not in outcome:
        return None
    found = outcome["evaluations"]["test-full"]["metrics"][METRIC]
    return found["mean"], found["low"], found["high"], outcome["epochs"]


def cost(options: Options) -> Figure | None:
    """Time and memory over the length of the histories."""
    found = of_lengths(options)
    if not found:
        return None
    figure = _figure(10, 3.8)
    labels = {"seconds": "seconds to train on a million events",
              "gigabytes": "peak memory of the process (GB)"}  # fmt: skip
    for axes, (measure, label) in zip(figure.subplots(1, 2), labels.items(), strict=True):
        for name in COMPARED:
            points = sorted((n, one[measure]) for (n, which), one in found.items() if which == name)
            axes.plot(*zip(*points, strict=True), marker=".", color=COLOURS[name], label=name)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        lengths = sorted({length for length, _ in found})
        axes.set_xticks([n for n in lengths if n in (140, 240, 500, 1000, 2000, 4000)] or lengths)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("events in a history (log scale)")
        _plain(axes, label)
        axes.legend(fontsize=8)
    return figure


def heatmap(options: Options) -> Figure | None:
    """One user's attention: a row for each mechanism, a column for each layer."""
    known = measured(options)
    if not known:
        return None
    layers = max(len(found["matrices"]) for found in known.values())
    figure = _figure(4.2 * layers, 3.7 * len(known))
    grid = figure.subplots(len(known), layers, squeeze=False)
    for row, (cell, found) in zip(grid, known.items(), strict=True):
        for layer, axes in enumerate(row):
            matrix = np.array(found["matrices"][layer])
            # the first rows have few events to look at and would outshine all others
            top = np.quantile(np.abs(matrix[len(matrix) // 5 :]), 0.995)
            image = axes.imshow(matrix, cmap="RdBu_r", vmin=-top, vmax=top)
            axes.set_title(f"{cell.attention}, layer {layer + 1}", fontsize=10)
            axes.set_xlabel("attended event")
            axes.set_ylabel("attending event")
            figure.colorbar(image, ax=axes, shrink=0.8, extend="both")
    return figure


def conditions(options: Options) -> Figure | None:
    """Row sums and negative scores, a dot per head."""
    known = measured(options)
    if not known:
        return None
    figure = _figure(10, 3.8)
    measures = {"row_sum": "mean row sum", "negative_share": "share of negative scores",
                "effective_share": "effective share of the history"}  # fmt: skip
    for axes, (measure, label) in zip(figure.subplots(1, 3), measures.items(), strict=True):
        ticks: list[str] = []
        for cell, found in known.items():
            for layer in sorted({head["layer"] for head in found["heads"]}):
                heads = [one[measure] for one in found["heads"] if one["layer"] == layer]
                axes.plot([len(ticks)] * len(heads), heads, "o", alpha=0.6,
                          color=COLOURS[cell.attention])  # fmt: skip
                ticks.append(f"{cell.attention}\nlayer {layer}")
        axes.set_xticks(range(len(ticks)), ticks, fontsize=7, rotation=60)
        _plain(axes, label)
    return figure


def reach(options: Options) -> Figure | None:
    """Does reading more events help users with longer histories?"""
    known = {cell: found for cell in by_max_length()
             if (found := options.outcome(cell)) and "by_length" in found}  # fmt: skip
    if not known:
        return None
    figure = _figure(7, 3.8)
    axes = figure.subplots()
    for cell, found in known.items():
        groups = found["by_length"]
        label = f"{reads(cell)} ({found['epochs']} epochs)"
        axes.plot([group[METRIC] for group in groups], marker="o", label=label)
    axes.set_xticks(range(len(groups)), [f"{span(group['from'], group['to'])}\n"
                    f"{group['users']:,} users" for group in groups], fontsize=8)  # fmt: skip
    axes.set_xlabel("length of the user's history")
    _plain(axes, "test NDCG@10, full ranking")
    axes.legend(fontsize=8, title="reads", title_fontsize=8)
    return figure


def default(options: Options) -> Figure | None:
    """The default model by the time between the target and the event before it."""
    found = {label: groups for label, groups in by_gap(options).items() if "default" in label}
    if not found:
        return None
    figure = _figure(8, 3.4)
    axes, width = figure.subplots(), 0.8 / len(found)
    for place, (label, groups) in enumerate(found.items()):
        shift = (place - (len(found) - 1) / 2) * width
        means = [one["metrics"][METRIC] for one in groups.values()]
        bars = axes.bar(np.arange(len(means)) + shift, means, width * 0.95,
                        label=label.removeprefix("default, "))  # fmt: skip
        axes.bar_label(bars, fmt="%.3f", fontsize=7)
    ticks = [f"{gap}\n{one['n_users']:,} users" for gap, one in groups.items()]
    axes.set_xticks(range(len(ticks)), ticks, fontsize=8)
    axes.set_xlabel("time between the target and the event before it")
    _plain(axes, "test NDCG@10, full ranking")
    axes.legend(fontsize=8)
    return figure


def long(options: Options) -> Figure | None:
    """Do long histories pay? By what the default model reads, a panel per dataset."""
    known = reach_figures(options)
    if not known:
        return None
    figure = _figure(3.1 * len(known), 3.2)
    panels = np.atleast_1d(figure.subplots(1, len(known)))
    for axes, (dataset, attentions) in zip(panels, known.items(), strict=True):
        ticks = [f"{length:,}" if length else "all" for length in READS]
        for name, points in attentions.items():
            axes.plot([ticks.index(length) for length, _ in points],
                      [value for _, value in points], marker="o",
                      color=COLOURS[name], label=name)  # fmt: skip
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_xlabel("newest events read")
        axes.set_title(ALL[dataset].title, fontsize=10)
        _plain(axes, "test NDCG@10")
        axes.legend(fontsize=8)
    return figure


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), dpi=130, layout="constrained")


def _plain(axes: Any, label: str) -> None:
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)


def _png(figure: Figure) -> bytes:
    image = io.BytesIO()
    # without the version of matplotlib: the same figures give the same file
    FigureCanvasAgg(figure).print_png(image, metadata={"Software": None})
    return image.getvalue()
