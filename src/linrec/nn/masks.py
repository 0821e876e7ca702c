"""Masks as other libraries write them, read as padding and causality.

B batch, H heads, L queries, S keys, N positions where L = S. A mask follows the convention of
torch's scaled_dot_product_attention: bool, True where a query may see a key, or a number that is
added to the pair's score.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

from linrec.types import InputError

# what people add to a score to forbid a pair: -inf, the lowest float, or -10,000, which bfloat16
# rounds; exp(-1,000) is zero in every precision, whatever the score
FORBIDDEN = -1_000.0


@dataclass(frozen=True, slots=True)
class Mask:
    """Three ways to restrict which keys a query sees; all of them apply.

    Examples:
        >>> mask = nn.Mask(padding=torch.tensor([[True, True, False]]), causal=True)
        >>> mask.causal
        True
    """

    padding: Tensor | None = None  # [B, S]
    pairs: Tensor | None = None  # broadcasts to [B, H, L, S]
    causal: bool = False  # no query sees a later key
    source: Tensor | None = None  # what `pairs` was made from, where it is not the caller's own


def allowed(mask: Tensor) -> Tensor:
    """The mask as bool; one that weighs pairs instead of forbidding them is refused."""
    if mask.dtype == torch.bool:
        return mask
    seen = mask == 0
    if not torch.equal(seen, mask > FORBIDDEN):
        raise InputError(
            "the mask adds numbers to the scores of pairs, and a linear mechanism has no such "
            f"scores; use a mask of 0 and -inf (or anything below {FORBIDDEN:,.0f}), or "
            "mechanism='softmax'"
        )
    return seen


def read(mask: Mask) -> tuple[Tensor | None, bool]:
    """keep [B, N] (None where nothing is padded) and whether the future is forbidden."""
    keep = None if mask.padding is None else allowed(mask.padding)
    causal = mask.causal
    if mask.pairs is not None:
        kept, forbids_future = _read_once(mask.pairs, mask.source)
        keep = kept if keep is None else keep & kept
        causal = causal or forbids_future
    return (None if keep is None or bool(keep.all()) else keep), causal


def additive(mask: Mask, scores: tuple[int, int], like: Tensor) -> Tensor | None:
    """All of a mask as one tensor for scaled_dot_product_attention; scores: (L, S)."""
    parts = [] if mask.padding is None else [mask.padding[:, None, None, :]]
    parts += [] if mask.pairs is None else [mask.pairs]
    if mask.causal:
        parts.append(torch.ones(scores, dtype=torch.bool, device=like.device).tril())
    if not parts:
        return None
    if all(part.dtype == torch.bool for part in parts):
        return _product(parts)
    return _sum([_added(part, like.dtype) for part in parts])


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, float("-inf"))


def _product(parts: list[Tensor]) -> Tensor:
    first, *rest = parts
    for part in rest:
        first = first & part
    return first


def _sum(parts: list[Tensor]) -> Tensor:
    first, *rest = parts
    for part in rest:
        first = first + part
    return first


# the last mask that was read: all layers of a model receive the same one, and reading it is the
# only step here whose cost grows with N^2
_last: tuple[weakref.ref[Tensor], tuple[object, ...], tuple[Tensor, bool]] | None = None


def _read_once(pairs: Tensor, source: Tensor | None) -> tuple[Tensor, bool]:
    global _last  # noqa: PLW0603 - one slot, checked by identity and version before it is used
    source = pairs if source is None else source
    if source.is_inference() or torch.compiler.is_compiling():  # no version counter
        return _read_pairs(pairs)
    last, form = _last, (source._version, pairs.shape, pairs is source)
    if last is not None and last[0]() is source and last[1] == form:
        return last[2]
    result = _read_pairs(pairs)
    _last = (weakref.ref(source), form, result)
    return result


def _read_pairs(pairs: Tensor) -> tuple[Tensor, bool]:
    seen = _one_for_all_heads(allowed(pairs))  # [B or 1, L or 1, N]
    if seen.shape[1] == 1:  # the same for every query: padding
        return seen[:, 0], False
    causal = not bool(seen.triu(1).any())
    itself = seen.diagonal(dim1=1, dim2=2)
    # where padding may see itself (its softmax would be empty), a real key is one that others see
    for keep in (itself, _seen_by_others(seen, itself, causal)):
        if _explains(keep, causal, seen):
            return keep, causal
    raise InputError(
        "the mask is neither empty, causal nor padding, and a linear mechanism cannot apply it: "
        "its sums hold no single pairs; use such a mask, or mechanism='softmax' "
        "(replace_attention leaves what `skip` names)"
    )


def _one_for_all_heads(seen: Tensor) -> Tensor:
    seen = seen.reshape((1,) * (4 - seen.dim()) + seen.shape)
    if not torch.equal(seen, seen[:, :1].expand_as(seen)):
        raise InputError(
            "the mask differs between heads, and a linear mechanism cannot apply it; give all "
            "heads the same causal or padding mask, or use mechanism='softmax'"
        )
    return seen[:, 0]


def _seen_by_others(seen: Tensor, itself: Tensor, causal: bool) -> Tensor:
    """[B, N]: keys that some other query sees, and in a causal mask the newest, which none can."""
    length = seen.shape[2]
    eye = torch.eye(length, dtype=torch.bool, device=seen.device)
    others = (seen & ~eye).any(1)
    if not causal:
        return others
    positions = torch.arange(length, device=seen.device)
    last = torch.where(others, positions, -1).amax(1, keepdim=True)
    # a row without any holds a single event; only batches padded at the start have such masks, so
    # that event is the last
    newest = torch.where(last < 0, length - 1, last + 1)
    return others | ((positions == newest) & itself)


def _explains(keep: Tensor, causal: bool, seen: Tensor) -> bool:
    """Whether kept queries see exactly the kept keys (or those up to themselves), others no more.

    A padded query may see kept keys, itself or nothing: its output is zero in any case.
    """
    visible = keep[:, None, :].expand_as(seen)
    expected = visible.tril() if causal else visible
    if torch.equal(seen, expected):  # the usual case, and much cheaper than what follows
        return True
    eye = torch.eye(seen.shape[2], dtype=torch.bool, device=seen.device)
    if bool((seen & ~visible & ~eye).any()):
        return False
    return not bool(((seen != expected) & keep[:, :, None]).any())
