"""Latency at a fixed rate, and whether lists of a loaded server are those of offline `recommend`.

The rate is 70 % of what the same number of connections reached when each of them asked as fast as
it was answered: one connection cannot carry what 64 do, and its queue would only grow. A latency
counts from when a request was due, so that a stall is not hidden by clients that wait.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import linrec
from linrec.serving import open_store

SHARE = 0.7  # of the rate that this number of connections reached
SAMPLE = 0.005  # of the answers, compared with offline ones


def measure(
    run: Path,
    place: str,
    port: int,
    kinds: dict[str, list[Any]],
    rows: list[dict[str, Any]],
    args: argparse.Namespace,
) -> list[dict[str, Any]]:
    """rows: what each kind of requests reached at each number of connections."""
    from benchmarks.serving import generated

    outcome: list[dict[str, Any]] = []
    for reached in sorted(rows, key=lambda row: row["kind"]):
        requests, rate = kinds[reached["kind"]], SHARE * reached["a_second"]
        plan = {
            "port": port, "connections": reached["connections"], "seconds": args.seconds,
            "most": 10**9, "requests": requests, "rate": rate, "sample": SAMPLE,
            "first": (len(rows) + len(outcome)) * 10**8 + 10**12,
        }  # fmt: skip
        found = generated(plan)
        row = {name: reached[name] for name in ("kind", "connections")}
        row |= {"rate": round(rate, 1)} | found["all"]
        if row["kind"] == "recommendations":
            row |= agreement(run, place, requests, found["samples"])
        outcome.append(row)
        print(row)
    return outcome


def agreement(
    run: Path, place: str, requests: list[Any], samples: list[tuple[int, Any]]
) -> dict[str, int]:
    """How many of the sampled lists are those of offline `recommend` on the same histories."""
    model, store, right = linrec.load(run), open_store(place), 0
    for row, answer in samples:
        history = [event.item for event in store.history(requests[row][1]["user"])]
        expected = model.recommend([history], k=10).to_polars()
        scores = [item["score"] for item in answer["items"]]
        # equal scores may change places, so the scores are compared
        right += np.allclose(scores, expected["score"].to_numpy(), rtol=1e-4, atol=1e-4)
    store.close()
    return {"sampled": len(samples), "agree": int(right)}


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"At a fixed rate, {SHARE:.0%} of what that number of connections reached above; a latency "
        "counts from when a request was due:", "",
        "| requests | connections | a second | p50 ms | p99 ms | lists as offline |",
        "|" + "---|" * 6,
    ]  # fmt: skip
    return lines + [
        f"| {row['kind']} | {row['connections']} | {row['rate']:,.0f} | {row['p50_ms']:.1f} "
        f"| {row['p99_ms']:.1f} "
        f"| {_agreed(row)} |"
        for row in rows
    ]


def _agreed(row: dict[str, Any]) -> str:
    return f"{row['agree']} of {row['sampled']}" if "agree" in row else ""
