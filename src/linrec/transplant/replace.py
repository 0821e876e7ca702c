"""Walk a model and replace the attention modules that are known."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from torch import nn

from linrec import ops
from linrec.nn import Attention, Causal
from linrec.nn.base import checked_causal
from linrec.transplant import huggingface, recbole, torch_nn
from linrec.transplant.adapter import Adapter, NamedModule, qualified
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
    """Replace every known attention of the model by the mechanism, in place.

    Weights, device, dtype and mode are kept: the new modules hold the old parameters themselves.
    Only the decay of linrec-decay is new, so call this before you create the optimizer.

    Args:
        model: Of torch, RecBole, RecTools, RePlay or Hugging Face.
        mechanism: A name in `linrec.ops.MECHANISMS`.
        causal: "auto" does what the masks of each call say; True and False overrule them.
        skip: Dotted names, or patterns such as "decoder.*", of modules to leave alone.
        dry_run: Change nothing, only report.

    Examples:
        >>> layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
        >>> model = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        >>> print(linrec.replace_attention(model, "linrec"))
        1 replaced by linrec
          layers.0.self_attn  torch.nn.modules.activation.MultiheadAttention
    """
    ops.find(mechanism)
    checked_causal(causal)
    known, skipped = _partition(model, tuple(skip))
    if not dry_run:
        _swap(model, known, mechanism, causal)
    replaced = {entry.name: qualified(type(entry.module)) for entry, _ in known}
    if not replaced and not any(isinstance(part, Attention) for part in model.modules()):
        warnings.warn(
            f"nothing was replaced: {type(model).__name__} has no attention that linrec knows and "
            "may replace; the report names what it has",
            stacklevel=2,
        )
    return TransplantReport(mechanism, dry_run, replaced, skipped)


def _partition(
    model: nn.Module, skip: tuple[str, ...]
) -> tuple[list[tuple[NamedModule, Adapter]], dict[str, str]]:
    """What to replace with its adapter, and what stays with the reason."""
    entries = list(_named_modules(model))
    _check_skip(skip, entries)
    known: list[tuple[NamedModule, Adapter]] = []
    skipped: dict[str, str] = {}
    for entry in entries:
        adapter = _adapter(entry.module)
        if adapter is None:
            if _is_unknown_attention(entry.module):
                skipped[entry.name] = f"{qualified(type(entry.module))} is not known to linrec"
            continue
        skipped_by_name = any(fnmatchcase(entry.name, pattern) for pattern in skip)
        reason = "left out by skip" if skipped_by_name else adapter.refusal(entry)
        if reason is None:
            known.append((entry, adapter))
        else:
            skipped[entry.name] = reason
    return known, skipped


def _swap(
    model: nn.Module, known: list[tuple[NamedModule, Adapter]], mechanism: str, causal: Causal
) -> None:
    # all are converted before the first is replaced, so that a failure leaves the model as it
    # was; a shared module is converted once
    new: dict[int, Attention] = {}
    for entry, adapter in known:
        if id(entry.module) not in new:
            attention = adapter.convert(entry.module, mechanism, causal)
            attention.where = entry.name
            new[id(entry.module)] = attention
    for entry, _ in known:
        entry.parent.register_module(entry.child, new[id(entry.module)])
    for adapter in {id(adapter): adapter for _, adapter in known}.values():
        adapter.finish(model)


def _named_modules(model: nn.Module) -> Iterator[NamedModule]:
    """Every module below the model; a shared one under each of its names."""
    if not isinstance(model, nn.Module):
        raise InputError(
            f"replace_attention takes a torch.nn.Module, not a {type(model).__name__}; give it the "
            "network inside (docs/transplant.md shows where each framework keeps it)"
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
            yield NamedModule(name, parents[above], child, module)


def _adapter(module: nn.Module) -> Adapter | None:
    return next((adapter for adapter in ADAPTERS if adapter.base_of(module)), None)


def _is_unknown_attention(module: nn.Module) -> bool:
    """Named like attention, with weights, and neither ours nor a wrapper of a known one."""
    named = "attention" in type(module).__name__.lower()
    if not named or next(module.parameters(), None) is None:
        return False
    return not any(isinstance(part, Attention) or _adapter(part) for part in module.modules())


def _check_skip(skip: tuple[str, ...], entries: list[NamedModule]) -> None:
    for pattern in skip:
        if not any(fnmatchcase(entry.name, pattern) for entry in entries):
            names = [entry.name for entry in entries if _adapter(entry.module)]
            raise InputError(
                f"skip names {pattern!r}, which matches no module of the model; its attention "
                f"modules are {', '.join(names) or 'none'}"
            )
