"""Which past events a score came from: each is left out in turn, and the score computed again."""

from __future__ import annotations

from linrec.serving.model import ServedModel
from linrec.serving.past import Past
from linrec.serving.snapshot import Snapshot

NEWEST = 50  # events that are left out in turn, at most
# events encoded for one explanation by a model without a state, at most
BUDGET = 100_000


def leave_one_out(
    model: ServedModel, past: Past, item: int, at: float
) -> tuple[float, list[float]]:
    """The score of `item` at this time, and by how much each of the newest events raised it.

    A contribution is the score minus the score had that event never happened; oldest event first.
    Contributions need not sum to the score: events overlap. Where nothing is left without the event
    the score counts as 0.
    """
    if len(past) == 1:
        hidden = model.encode([past], [at])
        score = float(model.scores(hidden, [model.counts(past)], [at])[0, item])
        return score, [score]
    # with a state, what came before the newest events is read once and shared
    first = max(len(past) - NEWEST, 0) if model.streams else 0
    snapshot = model.advance([(None, past[:first])])[0] if first else None
    read = past[first:]
    count = max(min(NEWEST, len(read), BUDGET // len(read)), 1)
    rows = [read, *(read.without(n) for n in range(len(read) - count, len(read)))]
    whole, *others = _scores(model, rows, snapshot, item, at)
    return whole, [whole - other for other in others]


def _scores(
    model: ServedModel, rows: list[Past], snapshot: Snapshot | None, item: int, at: float
) -> list[float]:
    """Of each of these continuations of the snapshot."""
    moments = [at] * len(rows)
    if not model.streams:
        hidden, counts = model.encode(rows, moments), [model.counts(row) for row in rows]
    else:
        ends = model.advance([(snapshot, row) for row in rows])
        hidden = model.hidden([end.state for end in ends], moments)
        counts = [end.counts for end in ends]
    scores: list[float] = model.scores(hidden, counts, moments)[:, item].tolist()
    return scores
