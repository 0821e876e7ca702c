"""The options of `prepare`, validated before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast, get_args

from linrec.data.preparing.moments import Moment, moment
from linrec.settings import check, setting
from linrec.types import InputError, argument

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from linrec.data.dataset.context import ContextKind
    from linrec.data.reading.chunks import ReadOptions

Frame: TypeAlias = "pl.DataFrame | pl.LazyFrame | pd.DataFrame"

COLUMNS, FILTERS, ITEMS = "Columns", "Filters", "Items"


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """How events become sequences.

    Filters act in this order: since and until, rating_at_least, drop_duplicates, then, on each
    user's events sorted by time, drop_repeats, and last min_user_events and min_item_events,
    repeated until neither removes anything more (a k-core).

    Examples:
        >>> options = linrec.PrepareOptions(min_user_events=5, since="1990-01-01")
        >>> linrec.prepare("events.csv", options=options).n_users
        150
    """

    user: str | None = setting(None, "Column of the user id; guessed if left out.", group=COLUMNS)
    item: str | None = setting(None, "Column of the item id; guessed if left out.", group=COLUMNS)
    time: str | None = setting(
        None,
        "Column of the time, or order for the order of the rows; guessed if left out.",
        group=COLUMNS,
    )
    time_unit: str | None = setting(
        None,
        "Unit of times that are numbers; recognised if left out.",
        group=COLUMNS,
        choices=("s", "ms", "us", "ns"),
    )
    time_format: str | None = setting(
        None,
        "Format of times that are text, such as %d/%m/%Y %H:%M; ISO dates if left out.",
        group=COLUMNS,
    )
    times: str | None = setting(
        None,
        "What the times are: real ones, or only the order of the events, which models then leave "
        "out; guessed if left out.",
        group=COLUMNS,
        choices=("real", "order"),
    )
    rating: str | None = setting(None, "Column of the rating; guessed if left out.", group=COLUMNS)
    group: str | None = setting(
        None,
        "Column of the basket or session of an event; without it a basket is one time of one user.",
        group=COLUMNS,
    )
    context: tuple[str, ...] | str | None = setting(
        None,
        "Other columns of the events to keep, as type,rating,price=numeric: categories or "
        "numbers that models can read, weigh targets by or select them by; kinds are guessed if "
        "left out.",
        group=COLUMNS,
    )
    format: str | None = setting(
        None,
        "Format of the events: csv, tsv, jsonl, parquet, atomic, movielens, movielens-100k or "
        "gowalla; guessed if left out.",
    )
    ties: str = setting(
        "file",
        "Order of a user's events with equal times: as in the file, or drawn at random, where the "
        "file's order is a sort that tells what comes next.",
        choices=("file", "shuffle"),
    )
    ties_seed: int = setting(0, "Seed of shuffled ties.", min=0, below=2**63)
    max_expansion: int = setting(
        250, "Times its size that a compressed file may expand to; more is refused.", min=1
    )
    skip_bad_rows: bool = setting(
        False,
        "Leave out rows that cannot be events, such as one without an item, instead of refusing "
        "the file; counts are shown, and skipped.csv in the dataset has a sample.",
    )
    since: Moment | None = setting(
        None,
        "Keep events from this time on: an ISO date, or a number in the unit of the times.",
        group=FILTERS,
    )
    until: Moment | None = setting(None, "Keep events before this time.", group=FILTERS)
    rating_at_least: float | None = setting(
        None, "Keep events with this rating or a better one.", group=FILTERS
    )
    drop_duplicates: bool = setting(
        False, "Keep one of the events equal in user, item and time.", group=FILTERS
    )
    drop_repeats: bool = setting(
        False, "Drop an event with the same item as the user's event before it.", group=FILTERS
    )
    min_user_events: int = setting(
        1, "Keep users with at least this many events.", group=FILTERS, min=1
    )
    min_item_events: int = setting(
        1,
        "Keep items with at least this many events; together with the minimum per user, both are "
        "repeated until both hold.",
        group=FILTERS,
        min=1,
    )
    items: str | Path | Frame | None = setting(
        None,
        "File with the features of the items, one row per item; .item, movies.dat and u.item are "
        "recognised beside the events.",
        group=ITEMS,
    )
    item_vectors: str | Path | Frame | Mapping[Any, Any] | tuple[Any, Any] | None = setting(
        None,
        "File with a vector per item, of its text or image: .parquet, .npz, or .npy with the ids "
        "in NAME.ids.txt; items without events are added to the catalogue.",
        group=ITEMS,
    )
    feature_kinds: Mapping[str, str] = field(default_factory=dict)  # by the column of `items`

    def __post_init__(self) -> None:
        # here, so that the options can be listed without polars
        from linrec.data.dataset.feature import FeatureKind
        from linrec.data.reading.formats import format_by_name

        check(self)
        if self.ties_seed and self.ties == "file":
            raise InputError(
                f"{argument('ties', 'file')} has no use for {argument('ties_seed')}; leave it out, "
                f"or choose {argument('ties', 'shuffle')}"
            )
        if self.format is not None:
            format_by_name(self.format)
        since, until = self.bounds
        if since is not None and until is not None and since >= until:
            raise InputError(
                f"{argument('since', self.since)} is not before {argument('until', self.until)}; "
                "swap them"
            )
        self.context_kinds  # noqa: B018 - checked here, used later
        for name, kind in self.feature_kinds.items():
            if kind not in get_args(FeatureKind):
                raise InputError(
                    f"the feature {name!r} cannot be {kind!r}; "
                    f"choose from {', '.join(get_args(FeatureKind))}"
                )

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The filters since and until, in seconds where the events' times are."""
        unit = self.time_unit
        return moment(self.since, "since", unit), moment(self.until, "until", unit)

    @property
    def context_kinds(self) -> dict[str, ContextKind | None]:
        """The context columns by name; None where the kind is to be guessed."""
        given = self.context.split(",") if isinstance(self.context, str) else self.context or ()
        found: dict[str, ContextKind | None] = {}
        for each in (part.strip() for part in given):
            name, equals, kind = each.partition("=")
            if not name or (equals and kind not in ("categorical", "numeric")):
                raise InputError(
                    f"{argument('context', each)} is not NAME or NAME=KIND with the kind "
                    "categorical or numeric"
                )
            found[name.strip()] = cast("ContextKind", kind) if equals else None
        return found

    def with_overrides(self, given: Mapping[str, Any]) -> PrepareOptions:
        known = [option.name for option in fields(self)]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise InputError(
                f"prepare has no option {unknown[0]!r}; its options are {', '.join(known)}"
            )
        return replace(self, **given)

    @property
    def reading(self) -> ReadOptions:
        """The part of the options that the readers need."""
        from linrec.data.reading.chunks import ReadOptions

        return ReadOptions(
            user=self.user,
            item=self.item,
            time=self.time,
            rating=self.rating,
            group=self.group,
            with_rating=self.rating is not None or self.rating_at_least is not None,
            format=self.format,
            time_unit=self.time_unit,
            time_format=self.time_format,
            max_expansion=self.max_expansion,
            skip_bad_rows=self.skip_bad_rows,
            context=tuple(self.context_kinds),
        )

    def filters(self) -> dict[str, Any]:
        """The filters that were set, as the summary has them."""
        chosen = {
            "since": self.since,
            "until": self.until,
            "rating_at_least": self.rating_at_least,
            "drop_duplicates": self.drop_duplicates or None,
            "drop_repeats": self.drop_repeats or None,
            "min_user_events": self.min_user_events if self.min_user_events > 1 else None,
            "min_item_events": self.min_item_events if self.min_item_events > 1 else None,
        }
        plain = {name: _plain(value) for name, value in chosen.items()}
        return {name: value for name, value in plain.items() if value is not None}


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value
