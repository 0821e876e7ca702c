"""The values that pass between the packages of linrec, and its errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

PAD = 0
"""The item index of "no event here"; real items count from 1."""

COLD_START = "cold-start"
"""The source of recommendations to users without a known item: the most popular items."""

Seen = Literal["hide", "keep"]
"""What lists do with items that the user has had: leave them out, or rank them like the others."""

_ARGUMENT = re.compile("\x02(.*?)(?:\x1f(.*?))?\x03", re.DOTALL)


def argument(name: str, value: object = None) -> str:
    """An argument inside the sentence of an `InputError`, for each caller in its own language.

    `argument("heads", 4)` reads `heads=4` in Python, is a flag with its value on the command line
    and reads `"heads": 4` over HTTP.
    """
    return f"\x02{name}\x03" if value is None else f"\x02{name}\x1f{value}\x03"


def python_argument(name: str, value: str | None) -> str:
    return f"{name}=" if value is None else f"{name}={value}"


class LinrecError(Exception):
    """An error that is one sentence: what is wrong, where, and what to do.

    Arguments are named with `argument`, and whoever shows the sentence renders them. The command
    line prints it and exits with `exit_code`; it never shows a traceback for it.
    """

    exit_code: ClassVar[int] = 1

    @property
    def field(self) -> str | None:
        """The first argument that the sentence names."""
        named = _ARGUMENT.search(self.args[0])
        return named and named[1]

    def render(self, name: Callable[[str, str | None], str]) -> str:
        """The sentence, with each argument as `name(argument, value)` writes it."""
        return _ARGUMENT.sub(lambda match: name(match[1], match[2]), self.args[0])

    def __str__(self) -> str:
        return self.render(python_argument)


class InputError(LinrecError, ValueError):
    """Something the caller gave is wrong.

    Examples:
        >>> try:
        ...     linrec.prepare("events.csv", min_user_events=0)
        ... except linrec.InputError as error:
        ...     print(error.field)
        min_user_events
    """

    exit_code = 2


def parse_seen(given: object) -> Seen:
    if given == "hide" or given == "keep":
        return given
    raise InputError(f"{argument('seen', given)} must be {' or '.join(get_args(Seen))}")


@dataclass(frozen=True, slots=True, eq=False)
class EventLog:
    """Events in columns, one row per event, with positions in two id tables instead of ids."""

    users: NDArray[np.int32]  # [events], positions in `user_ids`
    items: NDArray[np.int32]  # [events], positions in `item_ids`
    times: NDArray[np.float64]  # [events], seconds where the source had dates
    user_ids: pl.Series  # strings or integers, each once, in the order of first appearance
    item_ids: pl.Series
    ratings: NDArray[np.float64] | None = None  # [events], NaN where missing
    groups: NDArray[np.int32] | None = None  # [events], baskets in the order of first appearance
    context: tuple[NDArray[Any], ...] = ()  # [events] each, what else is known of them

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: NDArray[Any] | slice) -> EventLog:
        """The events of some rows: a mask, positions or a slice."""
        return replace(
            self,
            users=self.users[rows],
            items=self.items[rows],
            times=self.times[rows],
            ratings=None if self.ratings is None else self.ratings[rows],
            groups=None if self.groups is None else self.groups[rows],
            context=tuple(column[rows] for column in self.context),
        )

    def to_polars(self) -> pl.DataFrame:
        """The same events under the source's own ids, which takes much more memory."""
        import polars as pl

        columns = {
            "user": self.user_ids.gather(self.users),
            "item": self.item_ids.gather(self.items),
            "time": pl.Series(self.times),
        }
        if self.ratings is not None:
            columns["rating"] = pl.Series(self.ratings)
        return pl.DataFrame(columns)


class SeenItems(NamedTuple):
    """For each of T targets the items that its user had seen before it."""

    items: Tensor  # [M] int64
    starts: Tensor  # [T] int64: target t has seen items[starts[t] : starts[t] + counts[t]]
    counts: Tensor  # [T] int64
    known: NDArray[np.int64] | None = None  # counts on the host, if the others are on a GPU

    def of(self, targets: slice) -> SeenItems:
        """Those of some targets, in the same list."""
        known = None if self.known is None else self.known[targets]
        return SeenItems(self.items, self.starts[targets], self.counts[targets], known)

    @property
    def pairs(self) -> int:
        """How many items all targets have seen; on a GPU the sum would have to be waited for."""
        return int((self.counts if self.known is None else self.known).sum())


class PastCounts(NamedTuple):
    """For each of T targets its user's past items: how often each occurred, and how long ago.

    One row per event: the decayed counts of its item right after it. For a target only the newest
    event of each item is of interest, because what is older is part of its counts.
    """

    items: Tensor  # [Q] int64
    sums: Tensor  # [Q, K] float32, one count for each half-life of `data.dataset.half_lives`
    places: Tensor  # [Q] int64, the event's position in its user's history
    times: Tensor | None  # [Q] float64, seconds, NaN where unknown; None: only positions decay
    newest: Tensor  # [P] int64, rows of the above, those of each target end to end
    counts: Tensor  # [T] int64, how many of `newest` each target has
    ends: Tensor  # [T] int64, events before each target
    moments: Tensor | None  # [T] float64, when each target is requested, NaN where unknown
    seen: SeenItems | None = None  # the same items as `newest`, for a loss that samples items
    known: NDArray[np.int64] | None = None  # counts on the host, if the others are on a GPU

    def pairs(self, targets: slice) -> int:
        """How many of `newest` these targets have; on a GPU it would have to be waited for."""
        return int((self.counts if self.known is None else self.known)[targets].sum())

    def to(self, device: torch.device) -> PastCounts:
        """The same counts on a device."""
        tensors: Any = [part if part is None else part.to(device) for part in self[:8]]
        seen = self.seen
        if seen is not None:
            items, starts, counts = (part.to(device) for part in seen[:3])
            seen = SeenItems(items, starts, counts, seen.known)
        return PastCounts(*tensors)._replace(seen=seen, known=self.known)


class Events(NamedTuple):
    """Events with all that a backbone reads of them: [B, N] each."""

    items: Tensor  # int64, PAD where there is none
    keep: Tensor  # bool, True on real events
    previous: Tensor | None = None  # float64, seconds since the event before; NaN is unknown
    following: Tensor | None = None  # float64, to the next event, or to the request; NaN is unknown
    context: Tensor | None = None  # int64, [B, N, fields], codes of what else is known of an event

    @property
    def gaps(self) -> tuple[Tensor, Tensor] | None:
        """Seconds before and after each event; None if nothing is known of time."""
        if self.previous is None or self.following is None:
            return None
        return self.previous, self.following

    def to(self, device: torch.device) -> Events:
        """The same events on a device."""
        items, keep, *rest = (None if part is None else part.to(device) for part in self)
        assert items is not None
        assert keep is not None
        return Events(items, keep, *rest)


class BatchPart(NamedTuple):
    """Where the rows of one worker are in the batch that several share."""

    first_row: int
    first_target: int
    targets: int  # of the whole batch
    share: float  # of the whole batch's targets, or of their weights


class SequenceBatch(NamedTuple):
    """Some stretches of history, padded on the right to the longest of them."""

    items: Tensor  # [B, N] int64, PAD after the last event
    keep: Tensor  # [B, N] bool, True on real events
    targets: Tensor  # [B, N] int64, the item to be predicted at each position, PAD where none is
    previous: Tensor | None = None  # [B, N], as in `Events`; None if the model reads no time
    following: Tensor | None = None
    seen: SeenItems | None = None  # for the targets row by row, if the loss leaves seen items out
    past: PastCounts | None = None  # for the targets row by row, if the model has a repeat head
    context: Tensor | None = None  # [B, N, fields], as in `Events`; None if the model reads none
    weights: Tensor | None = None  # [targets] float32, row by row; None: all count alike
    part: BatchPart | None = None  # None: the whole batch

    @property
    def events(self) -> Events:
        """What the encoder reads."""
        return Events(self.items, self.keep, self.previous, self.following, self.context)

    def rows(self, rows: slice) -> SequenceBatch:
        """Some rows, padded as they were, before anything is known of their targets' pasts."""
        counts = (self.targets != PAD).sum(1)
        first, total = int(counts[: rows.start].sum()), int(counts.sum())
        own = slice(first, first + int(counts[rows].sum()))
        share, weights = (own.stop - first) / max(total, 1), None
        if self.weights is not None:
            weights, whole = self.weights[own], float(self.weights.double().sum())
            share = float(weights.double().sum()) / whole if whole else 0.0
        tensors: Any = [None if part is None else part[rows] for part in self[:5]]
        return SequenceBatch(*tensors)._replace(
            context=None if self.context is None else self.context[rows],
            weights=weights,
            part=BatchPart(rows.start, first, total, share),
        )


@dataclass(frozen=True, slots=True)
class Recommendations:
    """What to show to whom, best first, in the caller's own ids.

    `table` has one row per recommendation: user (or the row number of a given history), rank
    (from 1), item, score, source ("model", or "cold-start" for users without a known item), and
    title where the items file had one.

    Examples:
        >>> recommended = linrec.load("run").recommend([["film-001", "not-a-film"]], k=3)
        >>> len(recommended)
        3
        >>> recommended.to_polars().columns
        ['user', 'rank', 'item', 'score', 'source', 'title']
        >>> recommended.notes
        ('skipped 1 events with items the model does not know',)
    """

    table: pl.DataFrame
    notes: tuple[str, ...] = ()  # what the caller should know: skipped items, fallbacks

    def to_polars(self) -> pl.DataFrame:
        return self.table

    def to_pandas(self) -> pd.DataFrame:
        return self.table.to_pandas()

    def to_dicts(self) -> list[dict[str, Any]]:
        return self.table.to_dicts()

    def __len__(self) -> int:
        return len(self.table)
