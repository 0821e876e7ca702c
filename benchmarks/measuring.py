"""What the benchmarks of training share: the step they time, and how they measure."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.environment import ROOT, environment
from benchmarks.results import write_json
from linrec.backbones import ModelConfig, build
from linrec.data.dataset.batches import all_position_batches
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.sequences import Sequences
from linrec.runs.config import parse
from linrec.training.step import Step

ITEMS = 3_416  # the catalogue of ML-1M
TARGETS = 4_000  # of a step: the default's batch in whole windows of 200
PAPER = ModelConfig(positions=200)  # d 128, 8 heads, 2 layers, inner 256: the paper's on ML-1M
SECONDS = 3_600


def training_step(
    window: int,
    n_items: int,
    *,
    targets: int = TARGETS,
    model: ModelConfig = PAPER,
    **training: Any,
) -> Callable[[], None]:
    """A step of the real loop on whole windows of random items, as many targets at any window."""
    torch.manual_seed(0)
    content = {"model": asdict(model), "training": {"device": "cpu", **training}}
    config = parse(content)
    rng = np.random.default_rng(0)
    step = Step(
        build(config.model, ItemFeatures.ids(n_items)), config, np.ones(n_items + 1, np.int64)
    )
    step.module.train()
    rows = rng.integers(1, n_items + 1, (max(1, targets // window), window + 1))
    batches = all_position_batches(
        Sequences.of([row.astype(np.int32) for row in rows]),
        window=window,
        tokens=rows.size,
        rng=rng,
    )
    assert len(batches) == 1
    return lambda: _no_result(step(batches[0], seed=0))


def _no_result(loss: torch.Tensor) -> None:
    assert np.isfinite(loss.item())


def seconds_of(job: Callable[[], None]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def alone(module: str, **arguments: Any) -> dict[str, Any]:
    """Run a module in its own process, because a peak of memory never falls; read its JSON."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in arguments.items()]
    done = subprocess.run(
        [sys.executable, "-m", module, *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{module} {' '.join(given)} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def write(out: Path, what: dict[str, Any]) -> None:
    command = " ".join(["python", "-m", f"benchmarks.{out.stem}", *sys.argv[1:]])
    write_json(out, {"command": command, **environment(), **what})
    print(f"wrote {out}")


def arguments(description: str | None, out: Path) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--targets", type=int, default=TARGETS, help="targets per step")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=out)
    return parser
