"""Measuring trained attention: the heat map of one user, and figures over all test users.

Scores may be negative in the linear mechanisms. Where a share is needed, for entropy and the
effective count, a score counts by its size: p = |B'| / sum |B'|.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import linrec
from benchmarks.environment import environment
from benchmarks.results import write_json
from experiments.cells import Cell
from experiments.outcomes import Options, Outcome, model_of, read
from linrec.backbones import Backbone
from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.splits import leave_one_out

EVENTS = 50
"""The length of the paper's example."""
ROWS = 32  # users per batch: a matrix of 200 x 200 for each head


def path(cell: Cell, options: Options) -> Path:
    return options.results / "attention" / f"{cell.name}.json"


def is_current(cell: Cell, options: Options) -> bool:
    known, outcome = read(path(cell, options)), options.outcome(cell)
    return known is not None and outcome is not None and known["of"] == model_of(outcome)


def measure(cell: Cell, options: Options, data: linrec.SequenceStore) -> None:
    """Write the figures on the attention of a trained cell."""
    outcome = options.outcome(cell)
    assert outcome is not None
    model = linrec.load(options.folder(cell)).model
    histories = leave_one_out(data.sequences()).test.histories
    user = example(histories)
    figures: Outcome = {
        "name": cell.name,
        "command": f"python -m experiments conditions --cells {cell.name}",
        **environment(),
        "of": model_of(outcome),
        "events": int(histories.lengths[user]),
        "matrices": _matrices(model, histories.take(np.array([user]))),
        "users": len(histories),
        "heads": over_users(model, histories),
    }
    write_json(path(cell, options), figures)


def example(histories: Sequences) -> int:
    """The first user with fifty events, or with as many as come nearest to it."""
    return int(np.abs(histories.lengths - EVENTS).argmin())


def _matrices(model: Backbone, history: Sequences) -> list[Any]:
    """B' of each layer, the mean over its heads: [layers, N, N]."""
    layers = model.attention_matrices(history)
    return [np.round(layer[0].mean(0).numpy(), 5).tolist() for layer in layers]


def over_users(model: Backbone, histories: Sequences) -> list[dict[str, Any]]:
    """One entry per layer and head, over all events of all users that the model reads."""
    order = np.argsort(histories.lengths, kind="stable")
    sums: list[Tensor] | None = None
    extremes: list[Tensor] = []
    for rows in np.array_split(order, max(1, len(order) // ROWS)):
        batch = histories.take(rows)
        lengths = model.read(batch).keep.sum(1)
        matrices = model.attention_matrices(batch)
        sums_and_max = [_sums(layer, lengths, causal=model.config.causal) for layer in matrices]
        totals = [total for total, _ in sums_and_max]
        sums = totals if sums is None else [a + b for a, b in zip(sums, totals, strict=True)]
        extremes.append(torch.stack([high for _, high in sums_and_max]))
    highest = torch.stack(extremes).amax(0)
    return [
        _means(layer, head, total[head], float(highest[layer, head]))
        for layer, total in enumerate(sums or [])
        for head in range(total.shape[0])
    ]


MEASURES = ("rows", "row_sum", "row_size", "scores", "negative", "negative_size", "users",
            "entropy", "effective", "effective_share")  # fmt: skip


def _sums(matrix: Tensor, lengths: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
    """matrix [B, H, N, N] -> sums of MEASURES [H, measures], largest row sum [H].

    Padded rows and columns are zero, so they add nothing to any sum.
    """
    row_sum, below = matrix.sum(-1), matrix.clamp(max=0).sum(-1).abs()
    share = matrix[torch.arange(len(matrix)), :, lengths - 1].abs()  # the row that recommends
    share = share / share.sum(-1, keepdim=True).clamp(min=1e-12)
    entropy = torch.special.entr(share).sum(-1)
    effective = entropy.exp()
    offered = lengths * (lengths + 1) // 2 if causal else lengths**2
    each = torch.ones_like(entropy)
    by_head = {
        "rows": lengths[:, None] * each, "row_sum": row_sum, "row_size": row_sum + 2 * below,
        "scores": offered[:, None] * each, "negative": (matrix < 0).sum((-1, -2)),
        "negative_size": below, "users": each, "entropy": entropy, "effective": effective,
        "effective_share": effective / lengths[:, None],
    }  # fmt: skip
    sums = [by_head[name].transpose(0, 1).flatten(1).double().sum(1) for name in MEASURES]
    return torch.stack(sums, 1), row_sum.amax((0, 2))


def _means(layer: int, head: int, sums: Tensor, highest: float) -> dict[str, Any]:
    total = dict(zip(MEASURES, sums.tolist(), strict=True))
    return {
        "layer": layer + 1,
        "head": head + 1,
        "row_sum": round(total["row_sum"] / total["rows"], 4),
        "row_sum_max": round(highest, 4),
        "negative_share": round(total["negative"] / total["scores"], 4),
        "negative_size": round(total["negative_size"] / max(total["row_size"], 1e-12), 4),
        "entropy": round(total["entropy"] / total["users"], 4),
        "effective": round(total["effective"] / total["users"], 2),
        "effective_share": round(total["effective_share"] / total["users"], 4),
    }
