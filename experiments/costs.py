"""Tables of what training and evaluation cost."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.cells import BACKBONES, COMPARED, Cell
from experiments.outcomes import Options, Outcome, read
from experiments.tables import PAPER, Layout, Row, table
from experiments.timing import MILLION, timings

MEASURES = ("peak_mb", "train_seconds", "eval_seconds")
HEADINGS = ("memory (GB)", "training (s an epoch)", "evaluation (s)")


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
    """RecBole's figures, where the benchmark against it has been run on the same data."""
    known = read(options.results / "benchmarks" / "peers.json")
    rows = [] if known is None else known.get("rows", [])
    return [
        Row(
            (f"RecBole `{one['model']}`", f"`{one.get('attention', 'softmax')}`"),
            [_gigabytes(one.get("peak_mb")), one.get("train_seconds"), one.get("eval_seconds")],
        )
        for one in rows
        if str(one.get("library", "")).lower() == "recbole" and one.get("dataset") == dataset
    ]


def _gigabytes(megabytes: float | None) -> float | None:
    return None if megabytes is None else megabytes / 1024


def lengths_table(options: Options) -> str:
    """Seconds for a million events and peak memory, by the length of the histories."""
    found = of_lengths(options)
    columns = tuple(f"{what}, `{name}`" for what in ("s", "GB") for name in COMPARED)
    rows = []
    for length in sorted({length for length, _ in found} | set(options.lengths)):
        known = [found.get((length, name)) for name in COMPARED]
        seconds = [one and one["seconds"] for one in known]
        memory = [one and one["gigabytes"] for one in known]
        rows.append(Row((f"{length:,}",), [*seconds, *memory]))
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
