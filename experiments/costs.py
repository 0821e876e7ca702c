"""Tables of what training and evaluation cost."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.cells import BACKBONES, COMPARED, Cell
from experiments.outcomes import Options, Outcome, read
from experiments.tables import PAPER, Layout, Row, table
from experiments.timing import MILLION, timings

MEASURES = ("peak_mb", "train_seconds", "eval_seconds")
HEADINGS = ("memory (GB)", "training (s per epoch)", "evaluation (s)")


def scaling_table(dataset: str, options: Options) -> str:
    """Table 4: each backbone with each attention, the paper's GPU in brackets, then RecBole."""
    rows = []
    for cell in (Cell(dataset, backbone, name) for backbone in BACKBONES for name in COMPARED):
        known = read(options.results / "scaling" / f"{cell.name}.json")
        paper = PAPER["table_4"][dataset][cell.backbone].get(cell.attention, ())
        rows.append(Row((f"`{cell.backbone}`", f"`{cell.attention}`"), _costs(known), paper))
    layout = Layout(("backbone", "attention"), HEADINGS, digits=2, highlight=False)
    return table(layout, [*rows, *_peers(dataset, options)])


def _costs(known: Outcome | None) -> Sequence[float | None]:
    if known is None:
        return [None] * len(MEASURES)
    return [known["peak_mb"] / 1024, known["train_seconds"], known.get("eval_seconds")]


def _peers(dataset: str, options: Options) -> list[Row]:
    """RecBole's SASRec from the benchmark against peers, where it was run on the same data."""
    known = read(options.results / "benchmarks" / f"peers-{dataset}.json")
    counts = read(options.results / dataset / "statistics.json")
    if known is None or counts is None:
        return []
    targets = counts["events"] - 3 * counts["users"]  # two are held out, the first has no history
    rows = []
    for one in [one for one in known["rows"] if one["name"].startswith("recbole")]:
        attention = one["name"].partition("-")[2] or "softmax"
        memory, pace = one.get("train_peak_mb", one.get("peak_mb")), one.get("seconds_a_million")
        values = [
            memory / 1024,
            None if pace is None else pace * targets / MILLION,
            one.get("eval_seconds"),
        ]
        rows.append(Row(("RecBole SASRec", f"`{attention}`"), values))
    return rows


def lengths_table(options: Options) -> str:
    """Seconds for a million events and peak memory, by the length of the histories."""
    known = of_lengths(options)
    columns = tuple(f"{what}, `{name}`" for what in ("s", "GB") for name in COMPARED)
    rows = []
    for length in sorted({length for length, _ in known} | set(options.lengths)):
        some = [known.get((length, name)) for name in COMPARED]
        values = [one[what] if one else None for what in ("seconds", "gigabytes") for one in some]
        rows.append(Row((f"{length:,}",), values))
    return table(Layout(("events",), columns, digits=2, highlight=False), rows)


def of_lengths(options: Options) -> dict[tuple[int, str], dict[str, float]]:
    """(length, attention) -> seconds for a million events, gigabytes at the peak."""
    return {
        (one["length"], one["settings"]["attention"]): {
            "seconds": one["train_seconds"] * MILLION / one["rounds"][0]["targets"],
            "gigabytes": one["peak_mb"] / 1024,
        }
        for one in timings(options.results / "lengths")
    }
