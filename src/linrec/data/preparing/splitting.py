"""How a dataset is split, as a setting of a run: what is held out, and what of it is predicted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

from pydantic import BeforeValidator, ConfigDict

from linrec.data.preparing.moments import moment
from linrec.settings import check, setting
from linrec.types import InputError, argument

if TYPE_CHECKING:
    from linrec.data.dataset.sequences import Sequences
    from linrec.data.dataset.splits import Part, Regions, Split, Targets
    from linrec.data.dataset.store import SequenceStore

SplitName = Literal["leave-one-out", "last-k", "temporal"]
GROUP = "Split"

# Python may give numbers and dates; stored and compared they are as on the command line
Text = Annotated[str, BeforeValidator(str)]
Bound = Annotated[
    str | float,
    BeforeValidator(lambda given: given.isoformat() if isinstance(given, date) else given),
]


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """What is never trained on, and what validation and test predict of it.

    Examples:
        >>> from linrec.data.preparing.splitting import SplitConfig
        >>> SplitConfig(split="temporal", valid_from="2013-01-01", test_from="2013-02-01").words
        'temporal (valid from 2013-01-01, test from 2013-02-01)'
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    split: SplitName = setting(
        "leave-one-out",
        "What is held out: each user's last event for test and the one before it for validation, "
        "the last k and the k before them, or all events from a time on.",
        group=GROUP,
        choices=get_args(SplitName),
    )
    last: int | None = setting(
        None, "Events that last-k holds out for test, and as many for validation.",
        group=GROUP, min=1,
    )  # fmt: skip
    valid_from: Bound | None = setting(
        None,
        "Time from which on a temporal split trains on nothing and validates, a number or an ISO "
        "date.",
        group=GROUP,
    )
    test_from: Bound | None = setting(
        None, "Time from which on a temporal split tests.", group=GROUP
    )
    targets: Text = setting(
        "next",
        "What is predicted of the held-out events: the next one, the next n (a number), the next "
        "basket, or every one from its own past.",
        group=GROUP,
    )

    targets_where: str | None = setting(
        None,
        "Events that are targets, as type=purchase, type=purchase|cart, type!=view or rating>=4 "
        "of a context column; all events are read, and only these are trained on, held out and "
        "predicted.",
        group=GROUP,
    )

    def __post_init__(self) -> None:
        check(self)
        self._check_used()
        self._check_where()
        if self.targets not in ("next", "basket", "every") and not self._count:
            raise InputError(
                f"{argument('targets', self.targets)} must be next, a number of events, basket or "
                "every"
            )
        self._check_count()

    def _check_count(self) -> None:
        """As many events are held out as are to be predicted together."""
        held_out = {"leave-one-out": 1, "last-k": self.last}.get(self.split)
        if held_out is None or self._count <= held_out:
            return
        events = "one event" if held_out == 1 else f"{held_out} events"
        remedy = argument("last", self.targets)
        if self.split != "last-k":
            remedy = f"{argument('split', 'last-k')} with {remedy}"
        raise InputError(
            f"{argument('split', self.split)} holds out {events}, so there are not "
            f"{argument('targets', self.targets)}; choose {remedy}, or "
            f"{argument('split', 'temporal')}"
        )

    def _check_used(self) -> None:
        """Every setting that the split needs is there, and no other."""
        needed = {"last-k": ("last",), "temporal": ("valid_from", "test_from")}
        for name in ("last", "valid_from", "test_from"):
            value, used = getattr(self, name), name in needed.get(self.split, ())
            if used and value is None:
                raise InputError(f"{argument('split', self.split)} needs {argument(name)}; add it")
            if not used and value is not None:
                owner = next(split for split, names in needed.items() if name in names)
                raise InputError(
                    f"{argument('split', self.split)} has no use for {argument(name)}; leave it "
                    f"out, or choose {argument('split', owner)}"
                )
        if self.split == "temporal" and not self.moments[0] < self.moments[1]:
            raise InputError(
                f"{argument('valid_from', self.valid_from)} is not before "
                f"{argument('test_from', self.test_from)}; swap them"
            )

    def _check_where(self) -> None:
        if self.targets_where is None:
            return
        from linrec.data.dataset.conditions import Condition

        Condition.parse(self.targets_where, "targets_where")
        if self.targets == "basket":
            raise InputError(
                f"{argument('targets', 'basket')} predicts whole baskets, so it has no use for "
                f"{argument('targets_where')}; leave one of the two out"
            )

    @property
    def moments(self) -> tuple[float, float]:
        found = moment(self.valid_from, "valid_from"), moment(self.test_from, "test_from")
        assert found[0] is not None
        assert found[1] is not None
        return found[0], found[1]

    @property
    def _count(self) -> int:
        """How many events are predicted together; 0 unless it is a number."""
        if self.targets == "next":
            return 1
        return int(self.targets) if self.targets.isdecimal() else 0

    @property
    def words(self) -> str:
        """What is held out."""
        words = {
            "leave-one-out": "leave-one-out",
            "last-k": f"last-k ({self.last})",
            "temporal": f"temporal (valid from {self.valid_from}, test from {self.test_from})",
        }[self.split]
        return words if self.targets_where is None else f"{words} of {self.targets_where}"

    def of(self, store: SequenceStore) -> Split:
        """The split of a dataset; the test histories contain the validation events."""
        sequences = store.sequences()
        targets, regions = self._how(store, sequences)
        split = targets.split(sequences, regions)
        for part in ("valid", "test"):
            if not len(split.part(part)):
                raise InputError(self._nobody(part, store))
        return split

    def narrowed(self, store: SequenceStore, part: Part, where: str) -> Split:
        """The same split; of the events that are held out for `part`, only those are predicted that
        fulfil a condition."""
        split, sequences = self.of(store), store.sequences()
        targets, regions = self._how(store, sequences)
        if targets.begins is not None:
            raise InputError(
                f"whole baskets are predicted, so there is no use for {argument('targets_where')}; "
                "leave it out"
            )
        matching = store.where(where)
        own = matching if targets.eligible is None else targets.eligible & matching
        bounds = (
            (regions.valid, regions.test) if part == "valid" else (regions.test, sequences.ends)
        )
        holdout = replace(targets, eligible=own).hold_out(sequences, *bounds)
        if not len(holdout):
            raise InputError(
                f"no event that is held out for {part} has {argument('targets_where', where)}; "
                "choose another condition"
            )
        return replace(split, valid=holdout) if part == "valid" else replace(split, test=holdout)

    def _how(self, store: SequenceStore, sequences: Sequences) -> tuple[Targets, Regions]:
        targets = self._targets(store)
        if self.targets_where is not None:
            targets = replace(targets, eligible=store.where(self.targets_where))
        return targets, self._regions(sequences, store, targets)

    def _targets(self, store: SequenceStore) -> Targets:
        from linrec.data.dataset.splits import Targets

        if self.targets == "every":
            return Targets(every=True)
        if self.targets != "basket":
            return Targets(self._count)
        if store.groups is None and store.times_kind.kind != "real":
            raise InputError(
                f"the times are only an order ({store.times_kind.reason}), so no events are one "
                f"basket; prepare the log with {argument('group')} or with real times"
            )
        return Targets(None, store.basket_starts())

    def _regions(self, sequences: Sequences, store: SequenceStore, targets: Targets) -> Regions:
        from linrec.data.dataset.splits import from_times, last_of_each

        if self.split != "temporal":
            return last_of_each(sequences, self.last or 1, targets.begins, targets.eligible)
        if store.times_kind.kind != "real":
            raise InputError(
                f"the times are only an order ({store.times_kind.reason}), so "
                f"{argument('split', 'temporal')} has no date to split at; choose another split, "
                f"or prepare the log with {argument('times', 'real')} if they are"
            )
        return from_times(sequences, store.times, *self.moments)

    def _nobody(self, part: str, store: SequenceStore) -> str:
        """Why a part is empty, and the remedy."""
        from linrec.data.reading.times import date_text

        if self.split == "temporal":
            first, last = date_text(store.times.min()), date_text(store.times.max())
            when = argument(f"{part}_from", getattr(self, f"{part}_from"))
            which = "" if self.targets_where is None else f" ({self.targets_where})"
            verb = "validate" if part == "valid" else "test"
            return (
                f"no user has a past and an event{which} to {verb} on with {when}; the log is from "
                f"{first} to {last}, choose times inside it"
            )
        if self.targets_where is not None:
            return (
                f"no user has {2 * (self.last or 1)} events with "
                f"{argument('targets_where', self.targets_where)} and one before them, the minimum "
                f"to validate and test on {self.last or 'one'} each; choose another condition, or "
                "give a longer log"
            )
        events = "baskets" if self.targets == "basket" else "events"
        least = 2 * (self.last or 1) + 1
        return (
            f"no user has {least} {events}, the minimum to validate and test on "
            f"{self.last or 'one'} each; give a longer log or loosen the filters of "
            "`linrec prepare`"
        )
