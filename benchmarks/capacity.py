"""Bytes and hours of each stage, for a log of any size: arithmetic on constants measured here.

    python -m benchmarks.capacity --events 10_000_000_000 --users 100_000_000 --items 10_000_000

The constants are read from results/benchmarks/: prepare.json, losses.json and scale.json, each with
its command, machine and commit. Hours are of one worker as it was measured, so divide them by the
workers, and by how much faster a machine is. Writes the table of docs/scale.md with --page.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.environment import ROOT
from benchmarks.results import OUT_FOLDER, between

PAGE = ROOT / "docs" / "scale.md"
SHOWN = (10_000_000_000, 100_000_000, 10_000_000, 128)
FLOAT, ADAM = 4, 16  # bytes of a weight; with its gradient and Adam's two moments
SPARSE = 12  # with Adam's two moments; only touched rows have a gradient
EVENT, USER = 4 + 8, 8  # bytes of DATA: item and time; offset
MEASURED_WIDTH, K = 128, 20  # of losses.json and scale.json


@dataclass(frozen=True)
class Size:
    events: int
    users: int
    items: int
    width: int = MEASURED_WIDTH


@dataclass(frozen=True)
class Constants:
    """Measured on a CPU: prepare and train on two threads, the rest on one."""

    prepare_seconds: float  # per event
    prepare_bytes: float  # of memory per event
    log_bytes: float  # of Parquet per event
    train_seconds: float  # per target, sampled-softmax with sparse items
    encode_seconds: float  # per event
    score_seconds: float  # per user and item
    list_bytes: float  # of Parquet per user, 20 items

    @classmethod
    def read(cls) -> Constants:
        logs = _read("prepare")["rows"]
        log = max(logs, key=lambda row: row["events"])
        steps = _read("losses")
        step = next(
            row for row in reversed(steps["rows"]) if row["loss"] == "sampled-softmax, sparse"
        )
        score = _read("scale")["recommend"]
        return cls(
            prepare_seconds=1 / log["events_a_second"],
            prepare_bytes=log["peak_bytes_an_event"],
            log_bytes=1e6 * log["parquet_mb"] / log["events"],
            train_seconds=step["ms"] / 1e3 / steps["targets"],
            encode_seconds=score["encode_seconds_a_million_events"] / 1e6,
            score_seconds=score["score_seconds_a_billion_pairs"] / 1e9,
            list_bytes=score["bytes_a_list"],
        )


class Stage(NamedTuple):
    name: str
    disk: float  # bytes
    memory: float  # bytes of one process or, where it is divided, of one worker
    hours: float  # of one worker


def stages(size: Size, constants: Constants) -> list[Stage]:
    """Work grows with the width as the products do, in proportion: a rough rule."""
    c, wider = constants, size.width / MEASURED_WIDTH
    table = size.items * size.width
    data = EVENT * size.events + USER * size.users
    reading = size.events * c.encode_seconds * wider
    ranking = size.users * size.items * c.score_seconds * wider
    return [
        Stage("log, Parquet", c.log_bytes * size.events, 0, 0),
        Stage("prepare", data, c.prepare_bytes * size.events,
              c.prepare_seconds * size.events / 3600),
        Stage("train, one epoch", FLOAT * table, SPARSE * table + 2 * USER * size.users,
              c.train_seconds * size.events * wider / 3600),
        Stage("evaluate, all users", 0, FLOAT * table, (reading + ranking) / 3600),
        Stage(f"recommend --all, {K} each", c.list_bytes * size.users, FLOAT * table,
              (reading + ranking) / 3600),
    ]  # fmt: skip


def items_per_gb(width: int, *, sparse: bool) -> int:
    """The largest catalogue whose table, gradient and moments fit into a gigabyte."""
    return int(1e9 // ((SPARSE if sparse else ADAM) * width))


def table(size: Size, constants: Constants) -> str:
    lines = [
        f"{size.events:,} events, {size.users:,} users, {size.items:,} items, width {size.width}:",
        "",
        "| stage | disk | memory | hours of one worker |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {each.name} | {_bytes(each.disk)} | {_bytes(each.memory)} | {_hours(each.hours)} |"
        for each in stages(size, constants)
    ]
    dense, sparse = (items_per_gb(size.width, sparse=some) for some in (False, True))
    lines += [
        "",
        f"A gigabyte holds {dense:,} items of width {size.width} in training, {sparse:,} with "
        "`--sparse-items`.",
    ]
    return "\n".join(lines) + "\n"


def _read(name: str) -> Any:
    return json.loads((OUT_FOLDER / f"{name}.json").read_text("utf-8"))


def _bytes(value: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f} B" if value else ""


def _hours(value: float) -> str:
    return "" if not value else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name, value in zip(("events", "users", "items", "width"), SHOWN, strict=True):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--page", action="store_true", help="write the table of docs/scale.md")
    args = parser.parse_args()
    content = table(Size(args.events, args.users, args.items, args.width), Constants.read())
    print(content, end="")
    if args.page:
        PAGE.write_text(between(PAGE.read_text("utf-8"), "capacity", content), "utf-8")


if __name__ == "__main__":
    main()
