"""How fast the attention mechanisms and a training step are, each as a ratio to softmax.

    make bench                                  # all lengths
    make bench BENCH_ARGS="--lengths 200 1000"  # some

Every time is the best of several, taken in turns within one run, because a machine's speed drifts.
Run it while nothing else runs. Writes results/benchmarks/attention.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.environment import ROOT, environment
from benchmarks.results import write_json
from linrec import ops
from linrec.backbones import ModelConfig, build
from linrec.data.dataset.item_features import ItemFeatures
from linrec.losses import full_softmax

HEADS, WIDTH, EVENTS = 8, 16, 12_800  # d 128; as many events at each length
ITEMS = 3_416  # the catalogue of ML-1M


def main() -> None:
    args = _arguments()
    torch.set_num_threads(args.threads)
    rows = []
    for length in args.lengths:
        for what, jobs in (("attention", attention(length)), ("training step", steps(length))):
            best = in_turns(jobs, args.repeats)
            rows += [
                {
                    "what": what,
                    "length": length,
                    "mechanism": name,
                    "ms": round(1e3 * best[name], 2),
                    "times_softmax": round(best["softmax"] / best[name], 2),
                }
                for name in jobs
            ]
            for row in rows[-len(jobs) :]:
                print(
                    f"{row['what']:<14} N {length:>6}  {row['mechanism']:<20} {row['ms']:>9.1f} ms"
                    f"  {row['times_softmax']:>6.2f} x as fast as softmax"
                )
    outcome = {"command": "make bench", **environment(), "rows": rows}
    write_json(args.out, outcome)
    print(f"wrote {args.out}")


def attention(length: int) -> dict[str, Callable[[], None]]:
    """Causal attention, forward and backward."""
    batch = max(1, EVENTS // length)
    q, k, v = (torch.randn(batch, HEADS, length, WIDTH, requires_grad=True) for _ in range(3))
    decay = torch.full((HEADS,), -0.1, requires_grad=True)

    def job(name: str) -> Callable[[], None]:
        given = decay if ops.takes_decay(name) else None
        return lambda: _backward(ops.attend(name, q, k, v, causal=True, decay=given).sum())

    return {name: job(name) for name in ops.MECHANISMS}


def steps(length: int) -> dict[str, Callable[[], None]]:
    """One step of SASRec on whole windows of this length: forward, loss, backward, Adam."""
    rng = np.random.default_rng(0)
    shape = (max(1, EVENTS // length), length)
    items, targets = (torch.from_numpy(rng.integers(1, ITEMS + 1, shape)) for _ in range(2))
    keep = torch.ones(shape, dtype=torch.bool)

    def job(name: str) -> Callable[[], None]:
        model = build(ModelConfig(attention=name), ItemFeatures.ids(ITEMS))
        optimizer = torch.optim.Adam(model.parameters(), fused=True)

        def step() -> None:
            optimizer.zero_grad()
            _backward(full_softmax(model(items, keep), model.item_vectors(), targets))
            optimizer.step()

        return step

    return {name: job(name) for name in ("softmax", "linrec", "linrec-decay")}


def in_turns(
    jobs: dict[str, Callable[[], None]], repeats: int, once: float = float("inf")
) -> dict[str, float]:
    """The best seconds of each. What takes longer than `once` has only the first turn."""
    best = dict.fromkeys(jobs, float("inf"))
    for turn in range(repeats + 1):  # the first round warms up, and can only be beaten
        for name, job in jobs.items():
            if turn and best[name] > once:
                continue
            began = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def _backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[200, 1000, 4000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=ROOT / "results/benchmarks/attention.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
