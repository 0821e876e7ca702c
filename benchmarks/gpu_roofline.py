"""What the Triton kernels should take on paper, against FlashAttention-2's causal softmax.

    .venv/bin/python -m benchmarks.gpu_roofline

Nothing is measured. A pass takes at least as long as its bytes at the memory's speed and its
operations at the tensor cores' speed; the larger of both is the roofline. Causal attention in
bfloat16, 16,000 events a batch at each length. Writes results/benchmarks/gpu-roofline.json and the
table of docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment import commit
from benchmarks.results import OUT_FOLDER, PAGE, between, write_json

OUT = OUT_FOLDER / "gpu-roofline.json"
LENGTHS = (200, 1_000, 4_000, 16_000)
WIDTHS = (16, 64)
EVENTS, HEADS = 16_000, 8
FORWARD_CHUNK, BACKWARD_CHUNK = 32, 16  # the configurations of ops/triton/tuning.py
NARROW, WIDE = 2, 4  # bytes of bfloat16 and float32
PROGRAMS = 432  # four for each of an A100's processors: with fewer heads, sequences are divided


@dataclass(frozen=True)
class Device:
    """Its data sheet: bytes a second, and dense bfloat16 operations a second of tensor cores."""

    name: str
    bandwidth: float
    operations: float


DEVICES = (
    Device("A100 SXM 80 GB", 2.039e12, 312e12),
    Device("H100 SXM 80 GB", 3.35e12, 989e12),
)


@dataclass(frozen=True)
class Work:
    """Of one position of one head."""

    bytes: float
    operations: float

    def seconds(self, positions: float, device: Device) -> float:
        return positions * max(self.bytes / device.bandwidth, self.operations / device.operations)


def linear_forward(width: int, divided: bool) -> Work:
    """q, k, v are read and out is written once. A position is multiplied with the state twice (read
    and update) and with its chunk three times (scores, outputs, sums of columns). Where sequences
    are divided into segments, k and v are read and multiplied once more for their states.
    """
    moved = NARROW * width * (6 if divided else 4)
    return Work(moved, 2 * width * ((3 if divided else 2) * width + 3 * FORWARD_CHUNK))


def linear_backward(width: int, divided: bool) -> Work:
    """Two passes, three where blocks are wide. Queries: q, k, v, dout read, dq written, and the
    normalised queries and gradients of the column sums written in float32. Keys: k, v, dout and
    those read, dk, dv written. Products of float32 numbers count three times, those with a bfloat16
    operand twice.
    """
    queries = 5 * NARROW + 2 * WIDE
    keys = 5 * NARROW + 2 * WIDE
    again = 2 * NARROW + WIDE if width > 32 else 0  # k, dout and normalised queries
    state = 2 * width * width * (2 + 2 + 3 + 2 + 2)  # S dout, its update; R f, R v, its update
    chunk = 2 * width * BACKWARD_CHUNK * (1 + 3 + 3 + 3 + 2 + 1 + 3 + 3)
    # states of segments: k and v; then dout, normalised queries and gradients of column sums
    segments = 3 * NARROW + 2 * WIDE if divided else 0
    state += 2 * width * width * (2 + 2) if divided else 0
    return Work(width * (queries + keys + again + segments), state + chunk)


def flash_forward(width: int, length: int) -> Work:
    """Half of the scores are masked: 4 N^2 D / 2 operations for a sequence."""
    return Work(4 * NARROW * width, 2 * length * width)


def flash_backward(width: int, length: int) -> Work:
    """Five products instead of two; q, k, v, out, dout read, dq, dk, dv written."""
    return Work(8 * NARROW * width, 5 * length * width)


def rows() -> list[dict[str, Any]]:
    found = []
    for device in DEVICES:
        for width in WIDTHS:
            for length in LENGTHS:
                positions = EVENTS * HEADS
                divided = max(1, EVENTS // length) * HEADS < PROGRAMS
                forward, backward = linear_forward(width, divided), linear_backward(width, divided)
                softmax = flash_forward(width, length), flash_backward(width, length)
                times = [
                    1e6 * work.seconds(positions, device) for work in (forward, backward, *softmax)
                ]
                ours, theirs = times[0] + times[1], times[2] + times[3]
                found.append({
                    "device": device.name, "width": width, "length": length,
                    "forward_bytes": forward.bytes, "forward_operations": forward.operations,
                    "backward_bytes": backward.bytes, "backward_operations": backward.operations,
                    "forward_us": round(times[0], 1), "backward_us": round(times[1], 1),
                    "flash_forward_us": round(times[2], 1),
                    "flash_backward_us": round(times[3], 1),
                    "times_flash": round(theirs / ours, 2),
                })  # fmt: skip
    return found


def rendered(page: str) -> str:
    """docs/performance.md with the table between its markers replaced."""
    return between(page, "gpu-roofline", table(json.loads(OUT.read_text("utf-8"))))


def table(outcome: dict[str, Any]) -> str:
    lines = [
        "| device | D | N | `linrec-decay`: forward | backward | FlashAttention-2: forward "
        "| backward | expected ratio |",
        "|" + "---|" * 8,
    ]
    lines += [
        f"| {r['device']} | {r['width']} | {r['length']:,} | {r['forward_us']} us "
        f"| {r['backward_us']} us | {r['flash_forward_us']} us | {r['flash_backward_us']} us "
        f"| {r['times_flash']} x |"
        for r in outcome["rows"]
    ]
    lines += [
        "",
        f"Expected, not measured: {EVENTS:,} events a batch, {HEADS} heads, bfloat16, by "
        f"`{outcome['command']}`, commit {outcome['commit']}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    command = " ".join(["python -m benchmarks.gpu_roofline", *sys.argv[1:]])
    write_json(args.out, {"command": command, "commit": commit(), "rows": rows()})
    print(f"wrote {args.out}")
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
