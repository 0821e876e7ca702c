"""Compiled code that serving calls on numbers, not on tensors that learn: steps and choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linrec.ops import fused

Mask = NDArray[np.bool_]


def step_model_class() -> Any:
    """The class of models that are advanced event by event in C++, or None without kernels."""
    native = fused.native()
    return None if native is None else native.StepModel


def chooses() -> bool:
    """Whether `choose` runs on this machine."""
    return fused.native() is not None


def choose(
    scores: NDArray[np.float32],
    hide: Sequence[NDArray[np.int64]],
    masks: Sequence[Mask | None],
    k: Sequence[int],
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """What `scoring.top_k` gives for each row, after hiding; changes the scores.

    scores: [B, n_items + 1].  hide: of each row the items it must not show.  masks: of each row
    which items it may show, [n_items + 1], None for all.  k: of each row.

    Returns items and scores, [B, max(k)] each, best first; PAD where there are no more.
    """
    native = fused.native()
    assert native is not None
    size = max(k)
    items, values = np.empty((len(k), size), np.int64), np.empty((len(k), size), np.float32)
    counts = np.array([len(some) for some in hide], np.int64)
    given = [None if mask is None else mask.view(np.uint8) for mask in masks]
    native.choose(scores, np.concatenate(hide), counts, given, np.array(k, np.int64), items, values)
    return items, values
