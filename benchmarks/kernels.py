"""Attention alone: compiled kernels, the chunked torch form and torch's causal softmax attention.

    .venv/bin/python -m benchmarks.kernels                                 # all
    .venv/bin/python -m benchmarks.kernels --lengths 200 1000 --widths 16  # some
    .venv/bin/python -m benchmarks.kernels --threads 2

Forward, and forward with backward, float32, 8 heads, as many events at each length. Times are the
best of several, taken in turns within one run. Run it while nothing else runs. Writes
results/benchmarks/kernels.json and kernels.png, the table of docs/performance.md and its line in
README.md.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import speed
from benchmarks.environment import environment
from benchmarks.results import OUT_FOLDER, PAGE, between, picture, where, write_json
from benchmarks.run import in_turns
from linrec import ops

HEADS = 8
OUT, PLOT = OUT_FOLDER / "kernels.json", OUT_FOLDER / "kernels.png"
FORMS = {
    "softmax": "torch's causal softmax",
    "chunked": "linrec-decay, chunked torch form",
    "kernel": "linrec-decay, kernel",
}
# rows of D numbers that must cross memory at least once for each event and head: q, k, v and out;
# then q, k, v, dout and dq, dk, dv
ROWS = {"forward": 4, "both": 11}


def main() -> None:
    args = _arguments()
    torch.set_num_threads(args.threads)
    if ops.kernels().startswith("off"):
        raise SystemExit(f"the kernels are {ops.kernels()}")
    copied, multiplied = limits(args.repeats)
    rows = []
    for width in args.widths:
        for length in args.lengths:
            for what in ROWS:
                best = in_turns(jobs(what, length, width, args.events), args.repeats)
                rows.append(row(what, length, width, args.events, best, copied, multiplied))
                print(sentence(rows[-1]))
    outcome = {
        "command": "python -m benchmarks.kernels " + " ".join(sys.argv[1:]),
        **environment(),
        "kernels": ops.kernels(),
        "copy_gb_a_second": round(copied / 1e9, 1),
        "multiply_gflops": round(multiplied / 1e9, 1),
        "slopes": slopes(rows),
        "rows": rows,
    }
    write_json(args.out, outcome)
    print(f"wrote {args.out}")
    if args.out == OUT:
        plot(rows)
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
        speed.write()


def jobs(what: str, length: int, width: int, events: int) -> dict[str, Callable[[], None]]:
    shape = (max(1, events // length), HEADS, length, width)
    q, k, v = (torch.randn(shape, requires_grad=what == "both") for _ in range(3))
    decay = torch.full((HEADS,), -0.1, requires_grad=what == "both")
    dout = torch.randn(shape)

    def done(out: Tensor) -> None:
        if what == "both":  # not .backward(): adding to .grad is nobody's attention
            torch.autograd.grad(out, (q, k, v), dout)

    def linear() -> None:
        done(ops.attend("linrec-decay", q, k, v, causal=True, decay=decay))

    def chunked() -> None:
        with ops.without_kernels():
            linear()

    def softmax() -> None:
        done(F.scaled_dot_product_attention(q, k, v, is_causal=True))

    return {"softmax": softmax, "chunked": chunked, "kernel": linear}


def limits(repeats: int) -> tuple[float, float]:
    """Bytes a second of a copy, read and written; multiplications and additions of a product."""
    source = torch.randn(1 << 25)
    target = torch.empty_like(source)
    a = torch.randn(1024, 1024)
    best = in_turns(
        {"copy": lambda: _drop(target.copy_(source)), "product": lambda: _drop(a @ a)},
        repeats,
    )
    return 2 * source.nbytes / best["copy"], 2 * 1024**3 / best["product"]


def _drop(x: Tensor) -> None:
    del x


def row(
    what: str,
    length: int,
    width: int,
    events: int,
    best: dict[str, float],
    copied: float,
    multiplied: float,
) -> dict[str, Any]:
    positions = max(1, events // length) * length * HEADS
    seconds = best["kernel"]
    # a state is updated and args once forwards, and three of them backwards
    operations = positions * width**2 * 4 * (1 if what == "forward" else 4)
    return {
        "what": what,
        "length": length,
        "width": width,
        **{f"{name}_ms": round(1e3 * best[name], 3) for name in FORMS},
        "times_softmax": round(best["softmax"] / seconds, 2),
        "times_chunked": round(best["chunked"] / seconds, 2),
        "ns_a_position": round(1e9 * seconds / positions, 1),
        "of_copy_bandwidth": round(positions * width * 4 * ROWS[what] / seconds / copied, 3),
        "of_product_speed": round(operations / seconds / multiplied, 3),
    }


def slopes(rows: list[dict[str, Any]]) -> dict[str, float]:
    """How time for one sequence grows with its length, as an exponent, at the longest two."""
    found = {}
    for width in dict.fromkeys(r["width"] for r in rows):
        both = [r for r in rows if r["width"] == width and r["what"] == "both"][-2:]
        if len(both) == 2:
            steps = math.log(both[1]["length"] / both[0]["length"])
            for name in FORMS:
                grown = math.log(both[1][f"{name}_ms"] / both[0][f"{name}_ms"])
                # batches hold as many events at each length, so one sequence's share grows by one
                found[f"{name} D {width}"] = round(1 + grown / steps, 2)
    return found


def rendered(page: str) -> str:
    """docs/performance.md with the table between its markers replaced."""
    return between(page, "kernels", table(json.loads(OUT.read_text("utf-8"))))


def table(outcome: dict[str, Any]) -> str:
    lines = [
        "| D | N | softmax | chunked | kernel | against softmax | against chunked | forward alone "
        "| of copy bandwidth | of product speed |",
        "|" + "---|" * 10,
    ]
    forward = {(r["width"], r["length"]): r for r in outcome["rows"] if r["what"] == "forward"}
    for r in outcome["rows"]:
        if r["what"] == "both":
            alone = forward[r["width"], r["length"]]["times_softmax"]
            lines.append(
                f"| {r['width']} | {r['length']:,} | {r['softmax_ms']:.1f} ms "
                f"| {r['chunked_ms']:.1f} ms | {r['kernel_ms']:.1f} ms | {r['times_softmax']} x "
                f"| {r['times_chunked']} x | {alone} x | {r['of_copy_bandwidth']:.0%} "
                f"| {r['of_product_speed']:.0%} |"
            )
    lines += [
        "",
        f"Kernel: {outcome['kernels']}; torch {outcome['torch']}; a copy runs at "
        f"{outcome['copy_gb_a_second']} GB/s, a matrix product at {outcome['multiply_gflops']} "
        f"GFLOPS. {where(outcome)}",
        "",
        picture("Time over the length, both axes logarithmic", PLOT),
    ]
    return "\n".join(lines) + "\n"


def plot(rows: list[dict[str, Any]]) -> None:
    """Time for a batch of as many events, forward and backward, over the length."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullFormatter

    widths, growth = list(dict.fromkeys(r["width"] for r in rows)), slopes(rows)
    figure, axes = pyplot.subplots(1, len(widths), figsize=(4 * len(widths), 3.6), squeeze=False)
    for axis, width in zip(axes[0], widths, strict=True):
        both = [r for r in rows if r["width"] == width and r["what"] == "both"]
        for name, title in FORMS.items():
            power = growth.get(f"{name} D {width}", "?")
            axis.loglog([r["length"] for r in both], [r[f"{name}_ms"] for r in both], "o-",
                        label=f"{title}: N^{power}")  # fmt: skip
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set(title=f"D {width}", xlabel="events of a sequence", ylabel="ms for a batch")
        axis.legend(fontsize="x-small", title="one sequence grows as", title_fontsize="x-small")
    figure.tight_layout()
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PLOT, dpi=120)


def sentence(r: dict[str, Any]) -> str:
    return (
        f"{r['what']:<8} D {r['width']:>3}  N {r['length']:>6}  kernel {r['kernel_ms']:>8.2f} ms"
        f"  {r['times_softmax']:>6.2f} x softmax  {r['times_chunked']:>6.2f} x chunked"
        f"  {r['of_copy_bandwidth']:.0%} of bandwidth  {r['of_product_speed']:.0%} of a product"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    lengths = [100, 200, 500, 1000, 2000, 4000, 16000]
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--events", type=int, default=16_000, help="of a batch, at any length")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
