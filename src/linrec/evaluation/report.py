"""An evaluation: every figure beside its baselines, with the protocol it was measured under."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
import polars as pl
from pydantic import AliasChoices, ConfigDict, Field, TypeAdapter, ValidationError

from linrec.data.dataset.sequences import IntArray
from linrec.data.dataset.splits import Holdout, Part, Split
from linrec.data.dataset.store import SequenceStore
from linrec.evaluation.baselines import BASELINES
from linrec.evaluation.by_gap import GapFigures, figures_by_gap
from linrec.evaluation.metrics import intervals, list_figures, means
from linrec.evaluation.negatives import Protocol, check_protocol
from linrec.evaluation.ranks import ProgressCallback, Ranking, RankOptions, Scorer, rank_targets
from linrec.evaluation.resampling import Interval
from linrec.types import InputError, Seen, parse_seen
from linrec.validation import explain

LEARNED_NOTHING = (
    "the loss of this model left them out (seen_aware): it learned nothing about their scores"
)
"""What to know where seen items are shown."""
RequestTime = Literal["known", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """What to measure, and under which protocol."""

    protocol: Protocol = "full"
    split: Part = "test"
    ks: tuple[int, ...] = (5, 10, 20)
    seen: Seen = "hide"  # full ranking only; sampled protocols never hide
    seed: int = 0  # draws the negatives and the bootstrap
    baselines: bool = True
    seen_aware: bool = False  # whether the loss of the scorer left seen items out
    reads: int | None = None  # newest events of a history that the scorer reads; None: all
    reads_time: bool = False  # whether the scorer reads times; if not, request_time has no effect
    request_time: RequestTime = "known"  # whether it is given the time of the target
    progress: ProgressCallback | None = None

    def __post_init__(self) -> None:
        check_protocol(self.protocol)
        parse_seen(self.seen)
        if self.split not in ("valid", "test"):
            raise InputError(f"unknown split {self.split!r}; choose valid or test")
        if self.request_time not in get_args(RequestTime):
            raise InputError(
                f"unknown request_time {self.request_time!r}; choose "
                f"{' or '.join(get_args(RequestTime))}"
            )
        if not self.ks or min(self.ks) < 1:
            raise InputError(f"the cuts k must be positive integers, not {list(self.ks)}")
        if self.seed < 0:
            raise InputError(f"the seed must not be negative; it is {self.seed}")
        object.__setattr__(self, "ks", tuple(sorted(set(self.ks))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Figures, with all that is needed to compare or repeat them."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    protocol: Protocol
    split: Part
    seed: int
    hide_seen: bool
    ks: tuple[int, ...]
    fingerprint: str  # of the dataset
    n_items: int
    n_users: int
    n_targets_seen_before: int  # users whose target was in their history already
    metrics: dict[str, Interval]
    seen_aware: bool = False  # whether the model was trained without seen items in its loss
    baselines: Annotated[  # baseline -> metric -> mean; early versions wrote "floors"
        dict[str, dict[str, float]], Field(validation_alias=AliasChoices("baselines", "floors"))
    ] = field(default_factory=dict)
    request_time: RequestTime | None = None  # None: the model reads no times
    by_gap: dict[str, GapFigures] = field(default_factory=dict)  # from the last event to the target

    def __getitem__(self, metric: str) -> float:
        """The mean of a metric: `evaluation["ndcg@10"]`."""
        if metric not in self.metrics:
            raise InputError(f"{metric!r} was not measured; choose from {', '.join(self.metrics)}")
        return self.metrics[metric].mean

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks that a reader of the figures needs."""
        notes = []
        if self.protocol == "full" and self.n_targets_seen_before:
            share = self.n_targets_seen_before / self.n_users
            effect = "seen items are kept, so that these can be hits"
            if self.hide_seen:
                effect = (
                    "with seen items hidden these count as misses (evaluate again with seen items "
                    "kept to rank them too)"
                )
            notes.append(
                f"{self.n_targets_seen_before:,} of {self.n_users:,} users ({share:.1%}) came back "
                f"to an item of their own history; {effect}"
            )
        if self.seen_aware and not self.hide_seen:
            notes.append(f"seen items are ranked too, and {LEARNED_NOTHING}")
        if max(self.ks) > self.n_items:
            notes.append(
                f"the catalogue has {self.n_items:,} items, fewer than k = {max(self.ks)}: that "
                "cut leaves nothing out"
            )
        return tuple(notes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> str:
        return _EVALUATION.dump_json(self, indent=2).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Evaluation:
        try:
            return _EVALUATION.validate_json(text)
        except ValidationError as error:
            raise InputError(
                f"these are not the results of an evaluation ({explain(error)}); "
                "make them again with `linrec evaluate`"
            ) from error


_EVALUATION = TypeAdapter(Evaluation)


def evaluate(
    scorer: Scorer, store: SequenceStore, split: Split, options: EvaluationOptions | None = None
) -> tuple[Evaluation, pl.DataFrame]:
    """Rank the held-out item of every user; return the figures and the rank of each user.

    The frame has one row per user: user and target in the caller's own ids, history_length, and
    rank (0 = best).
    """
    options = options or EvaluationOptions()
    holdout = split.part(options.split)
    popularity = split.train.item_counts(store.n_items)
    given = holdout if options.request_time == "known" else holdout.at_unknown_times()
    ranking = rank_targets(scorer, store, given, options.protocol, _rank_options(options))
    listed = list_figures(ranking.recommended, popularity)
    evaluation = Evaluation(
        protocol=options.protocol,
        split=options.split,
        seed=options.seed,
        hide_seen=options.seen == "hide" and options.protocol == "full",
        ks=options.ks,
        fingerprint=store.fingerprint,
        n_items=store.n_items,
        n_users=len(holdout),
        n_targets_seen_before=int(np.count_nonzero(ranking.seen)),
        seen_aware=options.seen_aware,
        metrics=intervals(ranking.ranks, options.ks, options.seed)
        | {name: Interval(value) for name, value in listed.items()},
        baselines=_baselines(store, split, options, popularity) if options.baselines else {},
        request_time=options.request_time if options.reads_time else None,
        by_gap=figures_by_gap(holdout, ranking.ranks, options.ks),
    )
    return evaluation, user_ranks(store, holdout, ranking)


def user_ranks(store: SequenceStore, holdout: Holdout, ranking: Ranking) -> pl.DataFrame:
    """One row per user, in the caller's own ids."""
    return pl.DataFrame(
        {
            "user": store.users.ids_of(holdout.users),
            "target": store.catalogue.ids_of(holdout.targets),
            "history_length": holdout.histories.lengths,
            "rank": ranking.ranks,
        }
    )


def _baselines(
    store: SequenceStore, split: Split, options: EvaluationOptions, popularity: IntArray
) -> dict[str, dict[str, float]]:
    """The same figures for every baseline, on the same users and candidates."""
    # baselines read one event and score in float64, twice as wide as a model
    limits = replace(_rank_options(options), reads=1, max_scores=8_000_000, progress=None)
    figures = {}
    for name, baseline in BASELINES.items():
        scorer = baseline(split.train, store.n_items)
        ranking = rank_targets(scorer, store, split.part(options.split), options.protocol, limits)
        listed = list_figures(ranking.recommended, popularity)
        figures[name] = means(ranking.ranks, options.ks) | listed
    return figures


def _rank_options(options: EvaluationOptions) -> RankOptions:
    return RankOptions(
        part=options.split,
        seed=options.seed,
        hide_seen=options.seen == "hide",
        ks=options.ks,
        reads=options.reads,
        progress=options.progress,
    )
