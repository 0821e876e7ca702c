"""The few figures of README.md, from the results of the peers and of the kernels."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.environment import ROOT
from benchmarks.peers.page import OURS, short, times
from benchmarks.results import OUT_FOLDER, between, where

README = ROOT / "README.md"
ROWS = {
    "default": "linrec's default model, four layers on whole histories in the precision it chooses",
    "rectools": "RecTools",
    "replay": "RePlay",
    "recbole": "RecBole",
    "recbole-linrec": "RecBole + the authors' LinRec layer",
    OURS: f"linrec (`{OURS}`)",
}
ONE_TARGET_PER_ROW = (
    "RecBole's factor is so large because it trains one target per row, each prefix of a history "
    "being a row of its own, where the others train every position of a row."
)
WIDTH, LENGTHS = 16, (200, 1_000, 4_000)


def rendered(readme: str) -> str:
    """README.md with what stands between its markers `speed` rendered again."""
    return between(readme, "speed", figures())


def write() -> None:
    README.write_text(rendered(README.read_text("utf-8")), "utf-8")


def figures() -> str:
    texts, missing = [], []
    for name, (make, command) in PARTS.items():
        place = OUT_FOLDER / f"{name}.json"
        text = make(json.loads(place.read_text("utf-8"))) if place.is_file() else ""
        texts += [text] if text else []
        missing += [] if text else [f"`{command}`"]
    if missing:
        texts.append(f"Not measured yet: {', '.join(missing)}.")
    return "\n\n".join(texts) + "\n"


def peers(outcome: dict[str, Any]) -> str:
    """Seconds per million training targets, each as a multiple of ours, with the reason."""
    key, found = "seconds_a_million", {row["name"]: row for row in outcome["rows"]}
    known = {name: row for name in ROWS if f"{key}_ratio" in (row := found.get(name, {}))}
    if OURS not in known:
        return ""
    factors = [
        f"{ROWS[name]} {short(row[key])} ({times(row[f'{key}_ratio'])})"
        for name, row in known.items()
        if name != OURS
    ]
    reason = f" {ONE_TARGET_PER_ROW}" if "recbole" in known else ""
    ours = f"{ROWS[OURS]} {short(known[OURS][key])}"
    return (
        f"Seconds to train SASRec on ML-1M per million training targets: {ours}; "
        f"{', '.join(factors)}.{reason} {where(outcome)}"
    )


def attention(outcome: dict[str, Any]) -> str:
    """How many times as fast as torch's softmax attention, forward and backward."""
    found = {
        row["length"]: f"{row['times_softmax']:.1f} x at N = {row['length']:,}"
        for row in outcome["rows"]
        if row["what"] == "both" and row["width"] == WIDTH and row["length"] in LENGTHS
    }
    if not found:
        return ""
    return (
        f"Attention alone, forward and backward, times as fast as torch's causal "
        f"`scaled_dot_product_attention`, heads {WIDTH} wide: {', '.join(found.values())}; "
        f"{where(outcome)}"
    )


# result -> what tells it, and the command that makes it
PARTS = {
    "peers-ml-1m": (peers, "make bench-peers"),
    "kernels": (attention, "python -m benchmarks.kernels"),
}
