"""The peers on docs/performance.md: their tables between the markers, and the plot."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.results import OUT_FOLDER, PAGE, between, picture, where

PLOT = OUT_FOLDER / "peers-ml-1m.png"
OURS = "linrec-decay"
TITLES = {
    "recbole": "RecBole, SASRec",
    "recbole-linrec": "RecBole, SASRec + the authors' LinRec layer",
    "rectools": "RecTools, SASRec (softmax loss)",
    "replay": "RePlay, SASRec",
    "softmax": "linrec, `softmax`",
    "linrec": "linrec, `linrec`",
    "linrec-decay": "linrec, `linrec-decay`",
    "default": "linrec, recipe `default`: 4 layers, whole histories, times",
}
# figure -> its column; each is shown with its multiple of ours
FIGURES = {
    "seconds_a_million": "s per million targets",
    "train_peak_mb": "peak of training, MB",
    "eval_seconds": "evaluation, s",
    "setup_seconds": "building the dataset, s",
}


def with_ratios(found: dict[str, dict[str, Any]], ours: str) -> list[dict[str, Any]]:
    """Rows with every figure as a multiple of ours, where ours was measured too."""
    own = found.get(ours, {})
    return [
        {"name": name}
        | {key: _rounded(value) for key, value in row.items()}
        | {f"{key}_ratio": _rounded(row[key] / own[key]) for key in FIGURES if key in row and own}
        for name, row in found.items()
    ]


def table(outcome: dict[str, Any]) -> str:
    shown = {key: title for key, title in FIGURES.items() if any(key in r for r in outcome["rows"])}
    lines = [f"| | versions | {' | '.join(shown.values())} |", "|---" * (2 + len(shown)) + "|"]
    for row in outcome["rows"]:
        cells = [_cell(row, key) for key in shown]
        versions = f"{row['version']}, torch {row['torch']}"
        lines.append(f"| {TITLES[row['name']]} | {versions} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _caption(outcome)]) + "\n"


def sentence(name: str, found: dict[str, Any]) -> str:
    texts = [f"{title} {found[key]:,.1f}" for key, title in FIGURES.items() if key in found]
    return f"{name:<16} {',  '.join(texts)}"


def prepare_table(outcome: dict[str, Any]) -> str:
    titles = (
        "events",
        "ids",
        "seconds",
        "events per second",
        "peak, MB",
        "bytes per event",
        "where",
    )
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in outcome["rows"]:
        ids = "strings" if row["text_ids"] else "integers"
        machine = f"{row['threads']} threads of {row['machine']}, {row['date']}"
        lines.append(
            f"| {row['events']:,} | {ids} | {row['seconds']:,.0f} | {row['events_a_second']:,} "
            f"| {row['peak_mb']:,} | {row['peak_bytes_an_event']} | {machine} |"
        )
    return "\n".join(lines) + "\n"


def with_plot(outcome: dict[str, Any]) -> str:
    return table(outcome) + f"\n{picture('The same as bars on a logarithmic axis', PLOT)}\n"


def with_protocols(outcome: dict[str, Any]) -> str:
    """The table, and what the sampled protocols take of ours beside full ranking."""
    own = next((row for row in outcome["rows"] if row["name"] == OURS), {})
    texts = [f"{protocol} {short(own[key])} s" for protocol, key in PROTOCOLS.items() if key in own]
    return table(outcome) + (
        f"\n{TITLES[OURS]} by protocol: {', '.join(texts)}.\n" if texts else ""
    )


PROTOCOLS = {  # of evaluation -> their figure
    "full ranking": "eval_seconds",
    "`pop100`": "pop100_seconds",
    "`uni100`": "uni100_seconds",
}
TABLES = {"peers-ml-1m": with_plot, "peers-gowalla": with_protocols, "prepare": prepare_table}


def rendered(page: str) -> str:
    """The page with the tables of all results that there are."""
    for name, make in TABLES.items():
        place = OUT_FOLDER / f"{name}.json"
        if place.is_file():
            page = between(page, name, make(json.loads(place.read_text("utf-8"))))
    return page


def write() -> None:
    page = rendered(PAGE.read_text("utf-8"))
    training = OUT_FOLDER / "peers-ml-1m.json"
    if training.is_file():
        plot(json.loads(training.read_text("utf-8"))["rows"])
    PAGE.write_text(page, "utf-8")


def plot(rows: list[dict[str, Any]]) -> None:
    """Bars on a logarithmic axis: a factor is a length."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    keys = [key for key in FIGURES if any(key in row for row in rows)]
    size = (3 + 2.6 * len(keys), 1 + 0.32 * len(rows))
    figure, panels = plt.subplots(1, len(keys), figsize=size, sharey=True, squeeze=False)
    names = [TITLES[row["name"]].replace("`", "") for row in rows]
    colours = ["C0" if name.startswith("linrec") else "0.6" for name in names]
    for panel, key in zip(panels[0], keys, strict=True):
        values = [row.get(key, float("nan")) for row in rows]
        known = [row[key] for row in rows if key in row]
        bars = panel.barh(names, values, color=colours)
        labels = [short(row[key]) if key in row else "" for row in rows]
        panel.bar_label(bars, labels=labels, padding=2, fontsize=8)
        panel.set(xscale="log", xlabel=FIGURES[key], xlim=(min(known) / 3, max(known) * 12))
        panel.xaxis.set_minor_formatter(NullFormatter())
    panels[0][0].invert_yaxis()  # as in the table
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(PLOT, dpi=120, metadata={"Software": None})
    plt.close(figure)


def _cell(row: dict[str, Any], key: str) -> str:
    if key not in row:
        return "-"
    value = short(row[key])
    ratio = row.get(f"{key}_ratio")
    return value if ratio is None else f"{value} ({times(ratio)})"


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times(ratio: float) -> str:
    return f"{ratio:,.0f} x" if ratio >= 10 else f"{ratio:.2g} x"


def _caption(outcome: dict[str, Any]) -> str:
    data, shape = outcome["dataset"], outcome["shape"]
    return (
        f"{data['name']}: {data['users']:,} users, {data['items']:,} items, {data['events']:,} "
        f"events. N = {shape['length']}, d = {shape['width']}, h = {shape['heads']}, "
        f"L = {shape['layers']}, inner {shape['inner']}; {where(outcome)}"
    )


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
