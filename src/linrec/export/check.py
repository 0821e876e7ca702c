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
from linrec.evaluation.scorer import model_scorer
from linrec.types import InputError

Scores = NDArray[np.float32]
Seconds = NDArray[np.float64]

# rows and events: one and several, both sides of a chunk's end, and many histories of one event,
# whose norms have nothing but their epsilon to rely on where a key is nearly zero
SHAPES = ((1, 1), (256, 1), (3, 7), (2, 64), (5, 65), (1, 200))
STEPS, USERS = 8, 64
SHARE_AT_ONCE, SHARE_UNKNOWN = 0.3, 0.1  # of the gaps, and of the times
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
        items = [_items(random, model, int(length)) for length in lengths]
        times, at = _moments([len(row) for row in items])
        histories = Sequences.of(items, times, at)
        given: dict[str, Any] = {"items": histories.padded()}
        if model.config.time_gaps:
            given |= {"times": histories.padded_times(), "at": np.array(at)}
        (found, *_) = session.run(None, given)
        worst = max(worst, _difference(found, _scores(model, histories)))
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
        worst = max(worst, _difference(found, _scores(model, past)))
    return _within(worst, path)


@torch.no_grad()
def check_timed_step(step: Path, request: Path, model: Backbone) -> float:
    """The same for models that read time, with a request after each event."""
    advance, respond = open_session(step), open_session(request)
    random = np.random.default_rng(1)
    items = np.stack([_items(random, model, STEPS) for _ in range(USERS)])
    clock = np.stack(_moments([STEPS] * USERS)[0])
    waits = np.exp(random.uniform(-2, 20, clock.shape))
    state = {name: part.numpy() for name, part in tensors_of(model.start(USERS)).items()}
    worst = 0.0
    for now in range(STEPS):
        item, time = items[:, now].astype(np.int64), clock[:, now]
        after = advance.run(None, {"item": item, "time": time, **state})
        state = dict(zip(state, after, strict=True))
        at = time + waits[:, now]
        (found,) = respond.run(None, {"at": at, **state})
        past = Sequences.of(list(items[:, : now + 1]), list(clock[:, : now + 1]), list(at))
        worst = max(worst, _difference(found, _scores(model, past)))
    return _within(worst, request)


def _moments(lengths: list[int]) -> tuple[list[Seconds], list[float]]:
    """Times of the events of each row, and of its request: gaps of all sizes, 0 and unknown."""
    random = np.random.default_rng(2)
    gaps = [np.exp(random.uniform(-2, 20, length + 1)) for length in lengths]
    for row in gaps:
        row[random.random(len(row)) < SHARE_AT_ONCE] = 0.0
    clock = [1.7e9 + np.cumsum(row) for row in gaps]
    for row in clock:
        row[random.random(len(row)) < SHARE_UNKNOWN] = np.nan
    return [row[:-1] for row in clock], [float(row[-1]) for row in clock]


def _items(random: np.random.Generator, model: Backbone, count: int) -> NDArray[np.int32]:
    return random.integers(1, model.n_items + 1, count).astype(np.int32)


def _scores(model: Backbone, histories: Sequences) -> Scores:
    scores: Scores = model_scorer(model)(histories).numpy()
    return scores


def _difference(found: Scores, expected: Scores) -> float:
    differ = found != expected  # PAD, and items that are not shown, are -inf in both
    real, wanted = found[differ], expected[differ]
    largest = np.abs(expected, where=np.isfinite(expected), out=np.zeros_like(expected)).max()
    return float(np.abs(real - wanted).max(initial=0.0) / max(1.0, float(largest)))


def _within(worst: float, path: Path) -> float:
    if not worst <= TOLERANCE:  # NaN is not within anything
        raise InputError(
            f"{path.name} gives scores that differ from torch's by {worst:.1e}, more than "
            f"{TOLERANCE:.0e}, so nothing was written; try other versions of onnxruntime and torch"
        )
    return worst
