"""Whether a graph in onnxruntime gives what the model gives in torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from linrec.backbones import Backbone
from linrec.backbones.state import tensors_of
from linrec.data.dataset.sequences import Sequences
from linrec.scoring import item_scores
from linrec.types import InputError

Scores = NDArray[np.float32]

# rows and events: one and several, both sides of a chunk's end, and many histories of one event,
# whose norms have nothing but their epsilon to rely on where a key is nearly zero
SHAPES = ((1, 1), (256, 1), (3, 7), (2, 64), (5, 65), (1, 200))
STEPS, USERS = 8, 64
# of the largest score: rounding differs from runtime to runtime, and this is far above it
TOLERANCE = 1e-4


def open_session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@torch.no_grad()
def check_scorer(path: Path, model: Backbone) -> float:
    """The largest difference between the scores, relative to the largest score."""
    session, random = open_session(path), np.random.default_rng(0)
    worst = 0.0
    for rows, longest in SHAPES:
        lengths = random.integers(1, longest + 1, rows)
        lengths[0] = longest
        histories = Sequences.of([_items(random, model, int(length)) for length in lengths])
        (found, *_) = session.run(None, {"items": histories.padded()})
        worst = max(worst, _difference(found, _scores(model, model.encode(histories))))
    return _within(worst, path)


@torch.no_grad()
def check_step(path: Path, model: Backbone) -> float:
    """The same, event by event from an empty state on; what encodes at once is the measure."""
    session, random = open_session(path), np.random.default_rng(1)
    items = np.stack([_items(random, model, STEPS) for _ in range(USERS)])
    state = {name: part.numpy() for name, part in tensors_of(model.start_closed(USERS)).items()}
    worst = 0.0
    for now in range(STEPS):
        item = items[:, now].astype(np.int64)
        found, *after = session.run(None, {"item": item, **state})
        state = dict(zip(state, after, strict=True))
        past = Sequences.of(list(items[:, : now + 1]))
        worst = max(worst, _difference(found, _scores(model, model.encode(past))))
    return _within(worst, path)


def _items(random: np.random.Generator, model: Backbone, count: int) -> NDArray[np.int32]:
    return random.integers(1, model.n_items + 1, count).astype(np.int32)


def _scores(model: Backbone, hidden: torch.Tensor) -> Scores:
    scores: Scores = item_scores(hidden, model.item_vectors(), model.item_bias()).numpy()
    return scores


def _difference(found: Scores, expected: Scores) -> float:
    real, wanted = found[:, 1:], expected[:, 1:]  # PAD is -inf in both
    return float(np.abs(real - wanted).max() / max(1.0, float(np.abs(wanted).max())))


def _within(worst: float, path: Path) -> float:
    if not worst <= TOLERANCE:  # NaN is not within anything
        raise InputError(
            f"{path.name} gives scores that differ from torch's by {worst:.1e}, more than "
            f"{TOLERANCE:.0e}, so nothing was written; try other versions of onnxruntime and torch"
        )
    return worst
