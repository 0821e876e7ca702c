"""What is known of the events of a dataset, and its summary from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset import summary as summaries
from linrec.data.dataset.repeats import RepeatCounts, count_repeats
from linrec.data.dataset.ties import TieCounts, count_ties
from linrec.data.preparing.features import ItemTable
from linrec.data.preparing.filtering import first_of_each
from linrec.data.preparing.options import PrepareOptions
from linrec.data.preparing.vectors import PlacedVectors
from linrec.data.reading.columns import FILE_ORDER
from linrec.data.reading.events import ReadInfo
from linrec.types import EventLog, InputError, argument


@dataclass(frozen=True, slots=True)
class Facts:
    """Counts of events in order, the users end to end; those of several ranges of users add up."""

    time: summaries.TimeRange
    repeats: RepeatCounts
    ties: TieCounts  # of neighbours that are also of one group
    tied: int  # neighbours of one user and one time
    groups: int  # runs of events of one group, or users where there are no groups
    duplicates: int

    @classmethod
    def of(
        cls, kept: EventLog, offsets: NDArray[np.int64], orders: Sequence[NDArray[np.int64]]
    ) -> Facts:
        """orders: those of the item ids, as `orders_of` gives them."""
        tied = summaries.tied(kept.times, offsets)
        same = summaries.same_user(offsets)
        if kept.groups is not None:
            same &= kept.groups[1:] == kept.groups[:-1]
        return cls(
            time=summaries.TimeRange(first=float(kept.times.min()), last=float(kept.times.max())),
            repeats=count_repeats(kept.items, offsets),
            ties=count_ties(kept.items, tied & same, orders),
            tied=int(tied.sum()),
            groups=len(kept) - int(same.sum()),
            duplicates=len(kept) - int(first_of_each(kept).sum()),
        )

    def __add__(self, other: Facts) -> Facts:
        one, two = self.time, other.time
        pairs = zip(self.ties.ascending, other.ties.ascending, strict=True)
        return Facts(
            summaries.TimeRange(first=min(one.first, two.first), last=max(one.last, two.last)),
            RepeatCounts(*map(add, self.repeats, other.repeats)),
            TieCounts(self.ties.pairs + other.ties.pairs, tuple(map(sum, pairs))),
            self.tied + other.tied,
            self.groups + other.groups,
            self.duplicates + other.duplicates,
        )


def total(facts: Sequence[Facts]) -> Facts:
    return reduce(add, facts)


@dataclass(frozen=True, slots=True)
class Made:
    """All that the summary of a dataset is made from."""

    read: ReadInfo
    options: PrepareOptions
    removed: dict[str, int]
    offsets: NDArray[np.int64]
    facts: Facts
    times: summaries.TimesKind
    table: ItemTable
    vectors: PlacedVectors | None


def check_order(read: ReadInfo, options: PrepareOptions) -> None:
    """Options about times have no use where the order of the rows is all there is."""
    if "time" in read.columns:
        return
    given = {
        name: getattr(options, name) for name in ("time_unit", "time_format", "since", "until")
    }
    if options.times == "real":
        given["times"] = options.times
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"{argument('time', FILE_ORDER)} is the order of the rows, without times, so it "
                f"has no use for {argument(name, value)}; leave it out, or set {argument('time')} "
                "to the column of the times"
            )


def given_times_kind(read: ReadInfo, options: PrepareOptions) -> summaries.TimesKind | None:
    """What the options say of the times; None if it is to be guessed."""
    if "time" not in read.columns:
        return summaries.TimesKind("order", "the order of the rows")
    if options.times is not None:
        return summaries.TimesKind("order" if options.times == "order" else "real", "given")
    return None


def summary_of(made: Made) -> dict[str, Any]:
    offsets, facts = made.offsets, made.facts
    users, events = len(offsets) - 1, int(offsets[-1])
    repeats, n_items = facts.repeats.shares, len(made.table.table)
    summary = summaries.Summary(
        users=users,
        items=n_items,
        events=events,
        sparsity=summaries.sparsity(users, n_items, events, repeats),
        repeat_share=repeats.events,
        last_repeat_share=repeats.last,
        lengths=summaries.lengths_of(offsets),
        time=facts.time,
        times=made.times.kind,
        times_reason=made.times.reason,
        tied_share=facts.tied / (events - users) if events > users else 0.0,
        **_ties(facts, made.options),
        one_event_users=int((np.diff(offsets) == 1).sum()),
        exact_duplicates=facts.duplicates,
        items_without_features=made.table.missing,
        vectors=_vectors(made.vectors),
        source=_source(made),
    )
    notes = [*made.read.notes, *summaries.notes_on(summary), *made.table.notes]
    notes += [] if made.vectors is None else made.vectors.notes
    return summary.model_copy(update={"notes": notes}).model_dump()


def _source(made: Made) -> summaries.Source:
    read = made.read
    return summaries.Source(
        name=read.source,
        format=read.format,
        columns=read.columns if "time" in read.columns else read.columns | {"time": FILE_ORDER},
        columns_guessed=list(read.guessed),
        events_read=read.rows,
        skipped=dict(read.skipped.counts),
        filters=made.options.filters(),
        removed=made.removed,
        items_file=made.table.source,
    )


def _vectors(placed: PlacedVectors | None) -> summaries.Vectors | None:
    if placed is None:
        return None
    return summaries.Vectors(
        source=placed.source,
        width=placed.table.shape[1],
        items_without_events=placed.without_events,
        items_without_vector=placed.without_vector,
    )


def _ties(facts: Facts, options: PrepareOptions) -> dict[str, Any]:
    """How tied events are ordered, and how many baskets there are where a column says."""
    return {
        "ties": options.ties,
        "ties_seed": options.ties_seed if options.ties == "shuffle" else None,
        "ties_ascending": facts.ties.share,
        "baskets": None if options.group is None else facts.groups,
    }
