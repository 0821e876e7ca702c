"""The history of a training as a CSV table and a plot: one row per epoch."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

Row = dict[str, float]


def history_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    # runs of older versions begin with rows that lack some of the columns
    columns = dict.fromkeys(name for row in rows for name in row)
    table = csv.DictWriter(text, list(columns), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def learning_curve(rows: Sequence[Row]) -> bytes:
    """Training loss and validation NDCG@10 over the epochs, as a PNG."""
    # the object interface: pyplot would pick a windowing backend and keep global state
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    epochs = [row["epoch"] for row in rows]
    quality = [row["ndcg@10"] for row in rows]
    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.add_subplot()
    left.plot(epochs, [row["loss"] for row in rows], color="tab:gray", label="training loss")
    left.set_xlabel("epoch")
    left.set_ylabel("training loss", color="tab:gray")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    right = left.twinx()
    right.plot(epochs, quality, color="tab:blue", marker=".", label="validation NDCG@10")
    right.set_ylabel("validation NDCG@10", color="tab:blue")
    best = max(range(len(rows)), key=lambda index: quality[index])
    right.plot(epochs[best], quality[best], "o", color="tab:orange")
    # towards the middle: at the right edge the label would run over the axis
    side, shift = ("left", 8) if best < len(rows) / 2 else ("right", -8)
    right.annotate(
        f"best {quality[best]:.4f}",
        (epochs[best], quality[best]),
        xytext=(shift, 2),
        textcoords="offset points",
        ha=side,
        va="bottom",
        color="tab:orange",
    )
    right.margins(y=0.12)
    image = io.BytesIO()
    FigureCanvasAgg(figure).print_png(image)  # type: ignore[no-untyped-call]
    return image.getvalue()
