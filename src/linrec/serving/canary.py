"""Whether a new model can go live: finite scores, known items, a sample of stored users."""

from __future__ import annotations

import torch

from linrec.serving.messages import UnfitError
from linrec.serving.model import STRETCH, ServedModel
from linrec.serving.past import UNKNOWN, Past
from linrec.serving.stores import Store
from linrec.types import PAD, InputError

SAMPLE = 8  # stored users


@torch.inference_mode()
def check_canary(new: ServedModel, old: ServedModel, store: Store) -> None:
    """Raise InputError if the new model must not replace the old one."""
    weights = [part for part in (new.vectors, new.bias) if part is not None]
    if not all(torch.isfinite(each[1:]).all() for each in weights):
        raise InputError(_refusal(new, "its weights are not finite"))
    histories, items = _sample(new, store)
    if items and not histories and any(old.index(item) is not None for item in items):
        raise InputError(_refusal(new, "it knows no item of a sample of stored users"))
    histories = histories or [Past.of([(1, UNKNOWN)])]
    if not _finite_scores(new, histories):
        raise InputError(_refusal(new, "its scores for a sample of stored users are not finite"))


@torch.inference_mode()
def check_finite(model: ServedModel) -> None:
    """Raise UnfitError if a model that is served gives scores that are not numbers."""
    if not _finite_scores(model, [Past.of([(1, UNKNOWN)])]):
        raise UnfitError(f"the scores of the model in {model.run.name} are not finite; replace it")


def _finite_scores(model: ServedModel, histories: list[Past]) -> bool:
    moments = [UNKNOWN] * len(histories)
    counts = [model.counts(past) for past in histories]
    scores = model.scores(model.encode(histories, moments), counts, moments)
    shown = torch.from_numpy(model.may_be_shown)[PAD + 1 :]
    return bool(torch.isfinite(scores[:, PAD + 1 :][:, shown]).all())


def _sample(model: ServedModel, store: Store) -> tuple[list[Past], set[str]]:
    """Histories of some stored users, as far as the model knows their items, and all the items."""
    histories: list[Past] = []
    items: set[str] = set()
    for user in store.users("", SAMPLE):
        newest = store.history(user, STRETCH)
        items.update(event.item for event in newest)
        known = model.past(newest)
        if len(known):
            histories.append(known)
    return histories, items


def _refusal(model: ServedModel, reason: str) -> str:
    return f"the model in {model.run} does not go live: {reason}; the old one stays"
