"""How much a repeat head counts in a trained model: chosen on validation.

Baselines choose their settings there too.

A model is surer of what follows what on its training events than on new ones, because each item has
a vector of its own to learn them by heart. The repeat head has a few weights, and stays as sure as
it should be. So beside scores that are too sure, its additions are too small.
"""

from __future__ import annotations

from collections.abc import Callable

from linrec.layers.repeats import RepeatHead

STEP = 1.25
MAX_STEPS = 8  # from 0.17 to 6


def calibrate(head: RepeatHead, validated: Callable[[], float]) -> tuple[float, float]:
    """Set the scale with the best validation figure; what it was with 1, and what it is now.

    Larger scales are tried as long as they bring something, or else smaller ones.
    """
    head.scale.fill_(1.0)
    plain = best = validated()
    chosen = 1.0
    for factor in (STEP, 1.0 / STEP):
        for power in range(1, MAX_STEPS + 1):
            head.scale.fill_(factor**power)
            found = validated()
            if found <= best:
                break
            best, chosen = found, factor**power
        if chosen != 1.0:
            break
    head.scale.fill_(chosen)
    return plain, best
