"""Walk a model and swap the attentions that are known."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from torch import nn

from linrec import ops
from linrec.nn import Attention, Causal
from linrec.nn.base import checked_causal
from linrec.transplant import huggingface, recbole, torch_nn
from linrec.transplant.adapter import Adapter, Place, qualified
from linrec.transplant.report import TransplantReport
from linrec.types import InputError

ADAPTERS = (
    torch_nn.MULTIHEAD,
    recbole.MULTIHEAD,
    huggingface.BERT,
    huggingface.BERT_CROSS,
    huggingface.GPT2,
)


def replace_attention(
    model: nn.Module,
    mechanism: str = "linrec-decay",
    *,
    causal: Causal = "auto",
    skip: Iterable[str] = (),
    dry_run: bool = False,
) -> TransplantReport:
    """Swap every attention of the model that is known for the mechanism, in place.

    Weights, device, dtype and mode are kept: the new modules hold the old parameters themselves.
    What is new is the decay of linrec-decay, so call this before an optimizer is made.

    causal: "auto" does what the masks of each call say; True and False overrule them.
    skip: dotted names, or patterns such as "decoder.*", of what shall stay.
    dry_run: change nothing, only report.
    """
    ops.find(mechanism)
    checked_causal(causal)
    known, skipped = _sorted_out(model, tuple(skip))
    if not dry_run:
        _swap(model, known, mechanism, causal)
    replaced = {place.name: qualified(type(place.module)) for place, _ in known}
    if not replaced and not any(isinstance(part, Attention) for part in model.modules()):
        warnings.warn(
            f"nothing was replaced: {type(model).__name__} has no attention that linrec knows and "
            "may replace; the report says what was found",
            stacklevel=2,
        )
    return TransplantReport(mechanism, dry_run, replaced, skipped)


def _sorted_out(
    model: nn.Module, skip: tuple[str, ...]
) -> tuple[list[tuple[Place, Adapter]], dict[str, str]]:
    """What to replace and by what, and the reasons of what stays."""
    places = list(_places(model))
    _check_skip(skip, places)
    known: list[tuple[Place, Adapter]] = []
    skipped: dict[str, str] = {}
    for place in places:
        adapter = _adapter(place.module)
        if adapter is None:
            if _is_unknown_attention(place.module):
                skipped[place.name] = f"{qualified(type(place.module))} is not known to linrec"
            continue
        asked = any(fnmatchcase(place.name, pattern) for pattern in skip)
        reason = "left out by skip" if asked else adapter.refusal(place)
        if reason is None:
            known.append((place, adapter))
        else:
            skipped[place.name] = reason
    return known, skipped


def _swap(
    model: nn.Module, known: list[tuple[Place, Adapter]], mechanism: str, causal: Causal
) -> None:
    # all are made before the first is put in: a failure leaves the model as it was; a module
    # that stands in two places is made once
    new: dict[int, Attention] = {}
    for place, adapter in known:
        if id(place.module) not in new:
            made = adapter.convert(place.module, mechanism, causal)
            made.where = place.name
            new[id(place.module)] = made
    for place, _ in known:
        place.parent.register_module(place.child, new[id(place.module)])
    for adapter in {id(adapter): adapter for _, adapter in known}.values():
        adapter.settle(model)


def _places(model: nn.Module) -> Iterator[Place]:
    """Every module below the model, also those that stand in two places."""
    if not isinstance(model, nn.Module):
        raise InputError(
            f"replace_attention takes a torch.nn.Module, not a {type(model).__name__}; give it the "
            "network inside (docs/transplant.md says where each framework keeps it)"
        )
    if _adapter(model) is not None:
        raise InputError(
            f"{type(model).__name__} is itself the attention, and a module cannot replace itself; "
            "give replace_attention the model around it, or take "
            "linrec.nn.MultiheadAttention.from_torch(module)"
        )
    parents = dict(model.named_modules(remove_duplicate=False))
    for name, module in parents.items():
        if name:
            above, _, child = name.rpartition(".")
            yield Place(name, parents[above], child, module)


def _adapter(module: nn.Module) -> Adapter | None:
    return next((adapter for adapter in ADAPTERS if adapter.base_of(module)), None)


def _is_unknown_attention(module: nn.Module) -> bool:
    """Named like one and with weights, and neither ours nor a wrapper around one that is known."""
    named = "attention" in type(module).__name__.lower()
    if not named or next(module.parameters(), None) is None:
        return False
    return not any(isinstance(part, Attention) or _adapter(part) for part in module.modules())


def _check_skip(skip: tuple[str, ...], places: list[Place]) -> None:
    for pattern in skip:
        if not any(fnmatchcase(place.name, pattern) for place in places):
            names = [place.name for place in places if _adapter(place.module)]
            raise InputError(
                f"skip names {pattern!r}, which no module of the model is called; its attentions "
                f"are {', '.join(names) or 'none'}"
            )
