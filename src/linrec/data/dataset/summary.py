"""The statistics of a dataset: the paper's Table 1, lengths, ties and notes.

They are stored in dataset.json and read back, so unknown fields are errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from linrec.data.dataset.repeats import Repeats
from linrec.data.dataset.ties import is_sorted

QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
TIES_WORTH_NOTING = 0.01


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Lengths(_Strict):
    """Events per user."""

    mean: float
    median: float
    p90: float
    p99: float
    min: int
    max: int
    quantiles: dict[str, float]


class TimeRange(_Strict):
    first: float
    last: float


class TimesKind(NamedTuple):
    """Whether times are a clock's, or only the order of the events."""

    kind: Literal["real", "order"]
    reason: str


class Steps(NamedTuple):
    """Seconds between neighbouring events."""

    min: float
    max: float


class Source(_Strict):
    """Where the events came from, and the columns and filters that were applied."""

    name: str
    format: str = "frame"
    columns: dict[str, str] = Field(default_factory=dict)  # our name -> the source's
    columns_guessed: list[str] = Field(default_factory=list)
    events_read: int = 0
    skipped: dict[str, int] = Field(default_factory=dict)  # reason -> rows that were no events
    filters: dict[str, Any] = Field(default_factory=dict)
    removed: dict[str, int] = Field(default_factory=dict)  # filter -> events it removed
    items_file: str | None = None


class Vectors(_Strict):
    """What is known of the item vectors."""

    source: str
    width: int
    items_without_events: int  # that are in the catalogue because they have a vector
    items_without_vector: int


class Summary(_Strict):
    users: int
    items: int
    events: int
    sparsity: float  # in %: pairs of user and item without an event
    repeat_share: float | None = None  # `Repeats.events`; None in datasets of early versions,
    last_repeat_share: float | None = None  # `Repeats.last`; whose sparsity counted every event
    lengths: Lengths
    time: TimeRange
    times: Literal["real", "order"] | None = None  # None in datasets of early versions
    times_reason: str | None = None
    tied_share: float  # of neighbouring events of one user
    ties: Literal["file", "shuffle"] = "file"  # the order of tied events
    ties_seed: int | None = None  # None unless they are shuffled
    ties_ascending: float | None = None  # share in the order of item ids; None: too few, unknown
    baskets: int | None = None  # None without a group column
    one_event_users: int
    exact_duplicates: int  # rows that repeat user, item and time of an earlier one
    items_without_features: int | None = None  # None where there is no items file
    vectors: Vectors | None = None  # None where there are none
    source: Source
    notes: list[str] = Field(default_factory=list)


def lengths_of(offsets: NDArray[np.int64]) -> Lengths:
    """Quantiles are lengths that occur: the higher of two neighbours."""
    lengths = np.diff(offsets)
    points = np.quantile(lengths, QUANTILES, method="higher").astype(float)
    quantiles = {f"{q:g}": float(point) for q, point in zip(QUANTILES, points, strict=True)}
    return Lengths(
        mean=float(lengths.mean()),
        median=float(np.median(lengths)),
        p90=quantiles["0.9"],
        p99=quantiles["0.99"],
        min=int(lengths.min()),
        max=int(lengths.max()),
        quantiles=quantiles,
    )


def sparsity(users: int, items: int, events: int, repeats: Repeats) -> float:
    """The share of the users x items matrix without an event, in %."""
    pairs = round(events * (1.0 - repeats.events))
    return 100.0 * (1.0 - pairs / (users * items))


def tied_share(times: NDArray[np.float64], offsets: NDArray[np.int64]) -> float:
    """The share of equal times among neighbouring events of one user."""
    pairs = int(same_user(offsets).sum())
    return int(tied(times, offsets).sum()) / pairs if pairs else 0.0


def tied(times: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each pair of neighbouring events whether both are of one user and one time."""
    return np.asarray(same_user(offsets) & (times[1:] == times[:-1]), np.bool_)


def guess_times(
    times: NDArray[np.float64],
    offsets: NDArray[np.int64],
    log: NDArray[np.float64] | None = None,
) -> TimesKind:
    """Steps that are all equal count events; a clock has others.

    times: each user's sorted events, the users end to end. log: those of all rows before filters.
    """
    every = times if log is None else log
    return kind_of(step_of(times, offsets), lambda: _number_rows(every))


def step_of(times: NDArray[np.float64], offsets: NDArray[np.int64]) -> Steps | None:
    """The smallest and the largest step between neighbouring events of a user."""
    gaps = np.diff(times)[same_user(offsets)]
    return Steps(float(gaps.min()), float(gaps.max())) if len(gaps) else None


def kind_of(steps: Steps | None, number_rows: Callable[[], bool]) -> TimesKind:
    """number_rows: whether the times of all rows are a whole number each, one after the other."""
    if steps is not None and steps.min == steps.max:
        return TimesKind("order", f"guessed: all neighbouring events are {steps.min:g} apart")
    if number_rows():
        return TimesKind("order", "guessed: they number the rows")
    return TimesKind("real", "guessed: the steps between events differ")


def _number_rows(times: NDArray[np.float64]) -> bool:
    span = times.max() - times.min()
    return bool(span == len(times) - 1 and (np.diff(np.sort(times)) == 1).all())


def same_user(offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each pair of neighbouring events whether both are of one user."""
    same = np.ones(max(int(offsets[-1]) - 1, 0), dtype=bool)
    inner = offsets[1:-1]
    same[inner[(inner > 0) & (inner < offsets[-1])] - 1] = False
    return same


def _sorted_ties(summary: Summary) -> str:
    share = summary.ties_ascending
    assert share is not None
    order, share = ("ascending", share) if share > 0.5 else ("descending", 1 - share)
    return (
        f"{share:.1%} of neighbouring events with equal times are in {order} order of their item "
        "ids, where chance would give 50 %: a sort that tells a model what comes next; prepare the "
        "log again with ties shuffle."
    )


def notes_on(summary: Summary) -> list[str]:
    """What one should know before training on these events."""
    notes = []
    if summary.last_repeat_share is not None:
        notes += notes_on_repeats(Repeats(summary.repeat_share or 0.0, summary.last_repeat_share))
    if summary.tied_share > TIES_WORTH_NOTING and summary.ties == "file":
        notes.append(
            f"{summary.tied_share:.1%} of neighbouring events have equal times and keep the "
            "file's order: what comes next is only as true as that order."
        )
    if summary.ties == "file" and is_sorted(summary.ties_ascending):
        notes.append(_sorted_ties(summary))
    if summary.exact_duplicates:
        notes.append(
            f"{summary.exact_duplicates:,} events repeat user, item and time of an earlier one and "
            "were kept, because a repeat may be real; the filter drop_duplicates removes them."
        )
    if summary.one_event_users:
        notes.append(
            f"{summary.one_event_users:,} users have a single event: they count in the "
            "statistics, but one event can neither be learned from nor tested."
        )
    return notes


def notes_on_repeats(repeats: Repeats) -> list[str]:
    if not repeats.common:
        return []
    return [
        f"{repeats.reason}: a training keeps seen items in its lists and figures, unless it is "
        "told to hide them (seen)."
    ]
