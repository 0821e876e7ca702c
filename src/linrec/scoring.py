"""From hidden states to ranked items: one code path for metrics and recommendations.

Scores are [B, n_items + 1], one column per item index. A score of -inf means "not to be shown": PAD
always, and the items that `hide_seen` hides. NaN never helps: an item with such a score is never
shown, a target with it is a miss, and no target ranks before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import pad

from linrec.data.dataset.pasts import past_items
from linrec.data.dataset.sequences import Sequences
from linrec.layers.repeats import additions
from linrec.types import PAD, PastCounts

HIDDEN = float("-inf")
MISS = 2**31 - 1
"""The rank of a target that is not shown at all: beyond the end of every list."""
CACHED_SCORES = 1 << 20
EXACT_IN_FLOAT = 1 << 24  # float32 counts exactly up to here


def item_scores(hidden: Tensor, item_vectors: Tensor, bias: Tensor | None = None) -> Tensor:
    """Score every item for every row, in float32 whatever the model runs in.

    hidden: [B, d].  item_vectors: [n_items + 1, d].  bias: [n_items + 1].  Returns a fresh
    [B, n_items + 1].
    """
    # the 8 bits of bfloat16 would give many of thousands of items the same score
    with torch.autocast(hidden.device.type, enabled=False):
        scores = hidden.float() @ item_vectors.float().T
    if bias is not None:
        scores = scores + bias.float()
    scores[:, PAD] = HIDDEN
    return scores


def add_repeats(scores: Tensor, weights: Tensor, past: PastCounts) -> Tensor:
    """The scores with what past items gain; no item that is hidden is shown by it.

    scores: [B, n_items + 1].  weights: [B, 1 + K], of a `RepeatHead`.
    """
    gained = additions(weights, past)
    values = gained.values.to(scores.dtype)
    return scores.index_put((gained.rows, gained.items), values, accumulate=True)


def hide_seen(scores: Tensor, histories: Sequences) -> Tensor:
    """A copy of `scores` in which no row shows an item of its own history."""
    rows, items = past_items(histories)
    hidden = scores.clone(memory_format=torch.contiguous_format)  # a scorer may expand one row
    device = scores.device
    hidden[torch.from_numpy(rows).to(device), torch.from_numpy(items).to(device)] = HIDDEN
    return hidden


@contextmanager
def seen_hidden(scores: Tensor, histories: Sequences) -> Iterator[Tensor]:
    """`hide_seen` as a context: in place where possible, and restored afterwards.

    Copying all scores would take longer than ranking by them.
    """
    if not scores.is_contiguous():  # perhaps one row, expanded
        yield hide_seen(scores, histories)
        return
    rows, items = (torch.from_numpy(part).to(scores.device) for part in past_items(histories))
    own = scores[rows, items]
    scores[rows, items] = HIDDEN
    try:
        yield scores
    finally:
        scores[rows, items] = own


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best items of each row and their scores, best first, [B, k] each.

    Equal scores are in the order of their item index. Where fewer than k items may be shown, the
    rest is PAD with -inf.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    real = scores[:, PAD + 1 :]
    if real.isnan().any():
        real = real.nan_to_num(nan=HIDDEN, posinf=float("inf"), neginf=HIDDEN)
    count = min(k, real.shape[1])
    # one more than needed shows whether the last position is tied; topk itself breaks ties in an
    # order that depends on the hardware
    best, columns = real.topk(min(count + 1, real.shape[1]), dim=1)
    columns = columns[:, :count]
    if best.shape[1] > count:
        last = best[:, count - 1]
        tied = (best[:, count] == last) & (last > HIDDEN)
        if tied.any():
            columns = columns.clone()
            columns[tied] = _earliest(real[tied], last[tied], count)
    return _in_order(real, columns, k)


def rank_of_target(scores: Tensor, targets: Tensor, rows: Tensor | None = None) -> Tensor:
    """The number of items before each target, [T] int64: 0 = best.

    rows: [T], the row of scores of each target; None: one target for each row.

    Ties count against the target, so constant scores earn nothing. A target that is hidden or NaN
    gets the rank MISS, a miss at every k, because the user would not see it.
    """
    own = _own_score(scores, targets, rows)
    n_items = scores.shape[1] - 1
    # every item but the target that is not below it ranks before it: NaN is not below
    before = n_items - 1 - _count_below(scores[:, PAD + 1 :], own, rows)
    return before.where(own > HIDDEN, MISS)


def rank_among(
    scores: Tensor, targets: Tensor, candidates: Tensor, rows: Tensor | None = None
) -> Tensor:
    """The number of its candidates before each target, [T] int64: 0 = best.

    candidates: [T, C] item indices. Duplicates count once; PAD and the target do not count. Rows,
    ties, hidden targets and NaN as in `rank_of_target`.
    """
    own = _own_score(scores, targets, rows)
    ordered = candidates.long().sort(dim=1).values
    counts = (ordered != targets[:, None]) & (ordered != PAD)
    counts[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    given = scores.gather(1, ordered) if rows is None else scores[rows[:, None], ordered]
    before = (counts & ~(given < own[:, None])).sum(1)
    return before.where(own > HIDDEN, MISS)


def _own_score(scores: Tensor, targets: Tensor, rows: Tensor | None) -> Tensor:
    if (targets == PAD).any():
        raise ValueError("a target is PAD, which is not an item; leave such rows out")
    return scores.gather(1, targets[:, None])[:, 0] if rows is None else scores[rows, targets]


def _count_below(scores: Tensor, bounds: Tensor, row_of: Tensor | None = None) -> Tensor:
    """The number of scores below each bound, in its own row or in row_of[bound]: [T] int64.

    On a CPU in pieces that fit its cache, and as floats: summing the booleans of a large matrix
    takes longer than computing it.
    """
    count = torch.zeros(len(bounds), dtype=torch.int64, device=scores.device)
    piece = CACHED_SCORES if scores.device.type == "cpu" else EXACT_IN_FLOAT
    rows = max(1, piece // max(scores.shape[1], 1))
    for start in range(0, len(bounds), rows):
        chunk = slice(start, start + rows)
        some = scores[chunk] if row_of is None else scores[row_of[chunk]]
        for left in range(0, scores.shape[1], piece):
            part = some[:, left : left + piece]
            below = torch.empty(part.shape, device=scores.device)
            count[chunk] += torch.lt(part, bounds[chunk, None], out=below).sum(1).long()
    return count


def _earliest(scores: Tensor, last: Tensor, k: int) -> Tensor:
    """Columns of all scores above the k-th and of the first ones equal to it, [B, k]."""
    above, equal = scores > last[:, None], scores == last[:, None]
    missing = k - above.sum(1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(1, dtype=torch.int32) <= missing))
    return chosen.nonzero()[:, 1].view(-1, k)


def _in_order(scores: Tensor, columns: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Sort chosen columns by score, then by index, and fill up to k."""
    columns = columns.sort(dim=1).values
    best, order = scores.gather(1, columns).sort(dim=1, descending=True, stable=True)
    items = (columns.gather(1, order) + PAD + 1).where(best > HIDDEN, PAD)
    missing = (0, k - items.shape[1])
    return pad(items, missing, value=PAD), pad(best, missing, value=HIDDEN)
