"""Training losses: they take tensors, never models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linrec.losses.full_softmax import FullSoftmax, full_softmax
from linrec.losses.gbce import GBCE
from linrec.losses.loss import Candidates, Loss
from linrec.losses.sampled_softmax import SampledSoftmax
from linrec.types import InputError

__all__ = ["LOSSES", "Candidates", "Loss", "full_softmax", "own_settings_of"]

LOSSES: dict[str, type[Loss]] = {
    "softmax": FullSoftmax,
    "sampled-softmax": SampledSoftmax,
    "gbce": GBCE,
}


def own_settings_of(loss: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was left open (None) filled in by the loss; what it has no use for refused."""
    own = LOSSES[loss].own_settings
    for name, value in given.items():
        if value is not None and name not in own:
            users = [other for other, found in LOSSES.items() if name in found.own_settings]
            raise InputError(
                f"the loss {loss} has no use for {name}; leave --{name.replace('_', '-')} out, or "
                f"choose --loss {' or '.join(users)}"
            )
    return {name: own[name] if given.get(name) is None else given[name] for name in own}
