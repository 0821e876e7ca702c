"""The options of `prepare`, validated before anything is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import polars as pl

from linrec.data.dataset.store import FeatureKind
from linrec.data.reading.events import ReadOptions
from linrec.data.reading.formats import format_by_name
from linrec.data.reading.values import Column, times
from linrec.types import InputError, argument

if TYPE_CHECKING:
    import pandas as pd

Frame: TypeAlias = "pl.DataFrame | pl.LazyFrame | pd.DataFrame"
Moment: TypeAlias = int | float | str | date | datetime


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """How events become sequences.

    Filters act in this order: since and until, rating_at_least, drop_duplicates, then, on each
    user's events sorted by time, drop_repeats, and last min_user_events and min_item_events,
    repeated until neither removes anything more (a k-core).
    """

    user: str | None = None  # column names; None guesses
    item: str | None = None
    time: str | None = None
    rating: str | None = None
    items: str | Path | Frame | None = None  # features of the items
    format: str | None = None
    min_user_events: int = 1
    min_item_events: int = 1
    rating_at_least: float | None = None
    drop_repeats: bool = False  # an event with the same item as the user's event before it
    drop_duplicates: bool = False  # an event with user, item and time of an earlier one
    since: Moment | None = None  # this moment and later
    until: Moment | None = None  # before this moment
    feature_kinds: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.format is not None:
            format_by_name(self.format)
        for name in ("min_user_events", "min_item_events"):
            least = getattr(self, name)
            if isinstance(least, bool) or not isinstance(least, int) or least < 1:
                raise InputError(f"{argument(name, repr(least))} must be a whole number from 1")
        if self.rating_at_least is not None and not math.isfinite(self.rating_at_least):
            raise InputError(
                f"{argument('rating_at_least', self.rating_at_least)} must be a number"
            )
        since, until = moment(self.since, "since"), moment(self.until, "until")
        if since is not None and until is not None and since >= until:
            raise InputError(
                f"{argument('since', self.since)} is not before {argument('until', self.until)}; "
                "swap them"
            )
        for name, kind in self.feature_kinds.items():
            if kind not in get_args(FeatureKind):
                raise InputError(
                    f"the feature {name!r} cannot be {kind!r}; "
                    f"choose from {', '.join(get_args(FeatureKind))}"
                )

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
        return ReadOptions(
            user=self.user,
            item=self.item,
            time=self.time,
            rating=self.rating,
            with_rating=self.rating is not None or self.rating_at_least is not None,
            format=self.format,
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


def moment(value: Moment | None, name: str) -> float | None:
    """A bound in time, on the scale that the events' own times are read to."""
    if value is None:
        return None
    try:
        return float(times(Column(pl.Series(name, [value]), "time", name))[0])
    except (InputError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{argument(name, repr(value))} is not a time; use a number or an ISO date such as "
            "2024-05-31"
        ) from error


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value
