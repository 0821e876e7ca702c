"""An evaluation: every figure beside its baselines, with the protocol it was measured under."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
import polars as pl
from pydantic import AliasChoices, ConfigDict, Field, TypeAdapter, ValidationError

from linrec.baselines import BASELINES
from linrec.data.dataset.sequences import IntArray
from linrec.data.dataset.similarity import ItemSimilarity, similarity_of
from linrec.data.dataset.splits import Holdout, Part, Split
from linrec.data.dataset.store import SequenceStore
from linrec.evaluation.baselines import Choice, chosen_baselines, hidden_note, rank_baselines
from linrec.evaluation.by_gap import GapFigures, figures_by_gap
from linrec.evaluation.by_seen import SeenFigures, figures_by_seen
from linrec.evaluation.list_metrics import ListMeasures, list_intervals, list_means
from linrec.evaluation.metrics import intervals, means
from linrec.evaluation.negatives import Protocol, check_protocol
from linrec.evaluation.ranks import (
    ProgressCallback,
    RankedBatches,
    Ranker,
    Ranking,
    RankOptions,
    Scorer,
    rank_targets,
)
from linrec.evaluation.reranking import Reranker, check_diversity
from linrec.evaluation.resampling import Interval
from linrec.evaluation.verdict import AgainstBaseline, against_best
from linrec.types import InputError, Seen, argument, parse_seen
from linrec.validation import explain

LEARNED_NOTHING = (
    "the loss of this model left them out (seen_aware): it learned nothing about their scores"
)
"""What to know where seen items are shown."""
LEAVE_ONE_OUT, NEXT = "leave-one-out", "next"
RequestTime = Literal["known", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """What to measure, and under which protocol."""

    protocol: Protocol = "full"
    split: Part = "test"
    ks: tuple[int, ...] = (5, 10, 20)
    seen: Seen = "hide"  # full ranking only; sampled protocols never hide
    seed: int = 0  # draws the negatives and the bootstrap
    baselines: Choice = True  # which: see `Choice`
    own: str | None = None  # the baseline that is evaluated, which is not compared with itself
    seen_aware: bool = False  # whether the loss of the scorer left seen items out
    reads: int | None = None  # newest events of a history that the scorer reads; None: all
    shares: bool = False  # whether the scorer reads histories that begin alike only once
    reads_time: bool = False  # whether the scorer reads times; if not, request_time has no effect
    request_time: RequestTime = "known"  # whether it is given the time of the target
    splitting: str = LEAVE_ONE_OUT  # how the split was made, in words
    targets: str = NEXT  # what is predicted of it
    targets_where: str | None = None  # which of the held-out events alone are predicted
    diversity: float = 0.0  # how strongly the lists of the scorer are re-ranked; full ranking only
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
        check_diversity(self.diversity)
        if self.diversity and self.protocol != "full":
            raise InputError(
                f"{argument('diversity', self.diversity)} re-ranks lists of all items, and "
                f"{self.protocol} ranks a sample; leave it out, or evaluate the full ranking"
            )
        if not self.ks or min(self.ks) < 1:
            raise InputError(f"the cuts k must be positive integers, not {list(self.ks)}")
        if self.seed < 0:
            raise InputError(f"the seed must not be negative; it is {self.seed}")
        chosen_baselines(self.baselines, hidden=False)
        object.__setattr__(self, "ks", tuple(sorted(set(self.ks))))

    @property
    def hides(self) -> bool:
        """Whether seen items are hidden, which the sampled protocols never do."""
        return self.seen == "hide" and self.protocol == "full"


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
    n_targets_seen_before: int  # targets that were in the user's history already
    metrics: dict[str, Interval]
    seen_aware: bool = False  # whether the model was trained without seen items in its loss
    baselines: Annotated[  # baseline -> metric -> mean; early versions wrote "floors"
        dict[str, dict[str, float]], Field(validation_alias=AliasChoices("baselines", "floors"))
    ] = field(default_factory=dict)
    request_time: RequestTime | None = None  # None: the model reads no times
    by_gap: dict[str, GapFigures] = field(default_factory=dict)  # from the last event to the target
    by_seen: dict[str, SeenFigures] = field(default_factory=dict)  # empty if seen ones are hidden
    splitting: str = LEAVE_ONE_OUT  # how the split was made, in words
    targets: str = NEXT  # what was predicted of it: next, a number, basket or every
    targets_where: str | None = None  # which of the held-out events alone were predicted
    n_rows: int | None = None  # histories that were predicted from; None: one for each user
    n_targets: int | None = None  # None: one for each user
    n_users_left_out: int = 0  # of the dataset, because nothing of them is in this part
    own: str | None = None  # the baseline that was evaluated; None: a trained model
    baseline_settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # with those chosen
    left_out: dict[str, str] = field(default_factory=dict)  # baseline -> why it was not computed
    against: AgainstBaseline | None = None  # the best baseline
    diversity: float = 0.0  # how strongly the lists were re-ranked
    compared_by: tuple[str, ...] = ()  # what diversity is measured by; empty: it is not

    def __getitem__(self, metric: str) -> float:
        """The mean of a metric: `evaluation["ndcg@10"]`."""
        if metric not in self.metrics:
            raise InputError(f"{metric!r} was not measured; choose from {', '.join(self.metrics)}")
        return self.metrics[metric].mean

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks that a reader of the figures needs."""
        notes = [] if self.against is None else [self.against.sentence]
        notes += [f"{name} is left out: {reason}" for name, reason in self.left_out.items()]
        if self.hide_seen and self.own is not None:
            notes += hidden_note(self.own)
        if self.protocol == "full" and self.n_targets_seen_before:
            notes.append(self._came_back())
        if self.targets_where is not None:
            notes.append(f"of the held-out events only those with {self.targets_where} are targets")
        chosen = self.splitting != LEAVE_ONE_OUT or self.targets_where is not None
        if chosen and self.n_users_left_out:
            notes.append(
                f"{self.n_users_left_out:,} other users are left out, because they have no event "
                "to predict in this part, or none before it"
            )
        if self.seen_aware and not self.hide_seen:
            notes.append(f"seen items are ranked too, and {LEARNED_NOTHING}")
        if self.diversity:
            notes.append(
                f"the lists of the model are re-ranked for diversity {self.diversity:g} by "
                f"{' and '.join(self.compared_by)}; those of the baselines are not"
            )
        if max(self.ks) > self.n_items:
            notes.append(
                f"the catalogue has {self.n_items:,} items, fewer than k = {max(self.ks)}: that "
                "cut leaves nothing out"
            )
        return tuple(notes)

    def _came_back(self) -> str:
        seen, several = self.n_targets_seen_before, self.n_targets is not None
        count = self.n_users if self.n_targets is None else self.n_targets
        what = (
            f"{seen:,} of {count:,} targets ({seen / count:.1%}) were"
            if several
            else f"{seen:,} of {count:,} users ({seen / count:.1%}) came back to"
        )
        effect = "seen items are kept, so that these can be hits"
        if self.hide_seen:
            effect = (
                "with seen items hidden these count as misses (evaluate again with seen items kept "
                "to rank them too)"
            )
        return f"{what} an item of their own history; {effect}"

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
    scorer: Scorer,
    store: SequenceStore,
    split: Split,
    options: EvaluationOptions | None = None,
    rank: Ranker = rank_targets,
) -> tuple[Evaluation, pl.DataFrame]:
    """Rank the held-out items of every user; return the figures and the rank of each target.

    rank: how the targets of the scorer are ranked; baselines are ranked here.

    The frame has one row per target: user and target in the caller's own ids, history_length,
    rank (0 = best, `MISS` if it is hidden), and the metrics of the list that it was looked for in.
    """
    options = options or EvaluationOptions()
    holdout = split.part(options.split)
    owners = holdout.owners
    given, limits, similarity = _inputs(store, split, options)
    ranking = rank(scorer, store, given, options.protocol, limits)
    beside = _beside(store, split, options, replace(limits, reranker=None))
    evaluation = Evaluation(
        protocol=options.protocol,
        split=options.split,
        seed=options.seed,
        hide_seen=options.hides,
        ks=options.ks,
        fingerprint=store.fingerprint,
        n_items=store.n_items,
        n_users=holdout.n_users,
        n_targets_seen_before=int(np.count_nonzero(ranking.seen)),
        seen_aware=options.seen_aware,
        metrics=intervals(ranking.ranks, options.ks, options.seed, owners)
        | list_intervals(ranking.recommended, ranking.listed, owners, options.seed),
        baselines=beside.figures,
        own=options.own,
        baseline_settings=beside.settings,
        left_out=beside.left_out,
        against=against_best(ranking.ranks, beside.ranks, options.ks, options.seed, owners),
        request_time=options.request_time if options.reads_time else None,
        by_gap=figures_by_gap(holdout, ranking.ranks, options.ks),
        by_seen={}
        if options.hides
        else figures_by_seen(ranking.seen, ranking.ranks, beside.ranks, options.ks),
        splitting=options.splitting,
        targets=options.targets,
        targets_where=options.targets_where,
        n_rows=None if owners is None else len(holdout),
        n_targets=None if owners is None else len(holdout.targets),
        n_users_left_out=store.n_users - holdout.n_users,
        diversity=options.diversity,
        compared_by=() if similarity is None else similarity.by,
    )
    return evaluation, user_ranks(store, holdout, ranking)


def ranked_batches(
    scorer: Scorer, store: SequenceStore, split: Split, options: EvaluationOptions
) -> RankedBatches:
    """What `evaluate` ranks, for a worker that ranks some of it."""
    given, limits, _ = _inputs(store, split, options)
    return RankedBatches.of(scorer, store, given, options.protocol, limits)


def _inputs(
    store: SequenceStore, split: Split, options: EvaluationOptions
) -> tuple[Holdout, RankOptions, ItemSimilarity | None]:
    holdout, full = split.part(options.split), options.protocol == "full"
    similarity = similarity_of(store.item_table, store.item_vectors) if full else None
    measures = ListMeasures.of(split.train.item_counts(store.n_items), similarity)
    reranker = Reranker.of(options.diversity, similarity)
    limits = replace(_rank_options(options), measures=measures, reranker=reranker)
    given = holdout if options.request_time == "known" else holdout.at_unknown_times()
    return given, limits, similarity


def user_ranks(store: SequenceStore, holdout: Holdout, ranking: Ranking) -> pl.DataFrame:
    """One row per target, in the caller's own ids, with the metrics of its list."""
    return pl.DataFrame(
        {
            "user": store.users.ids_of(np.repeat(holdout.users, holdout.target_counts)),
            "target": store.catalogue.ids_of(holdout.targets),
            "history_length": np.repeat(holdout.histories.lengths, holdout.target_counts),
            "rank": ranking.ranks,
            **{
                name: np.repeat(values, holdout.target_counts)
                for name, values in ranking.listed.items()
            },
        }
    )


@dataclass(frozen=True, slots=True)
class _Beside:
    """The baselines of an evaluation, by name."""

    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    ranks: dict[str, IntArray] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def _beside(
    store: SequenceStore, split: Split, options: EvaluationOptions, limits: RankOptions
) -> _Beside:
    """The same figures for every baseline, on the same users and candidates."""
    beside, fitting = _Beside(), []
    for name in chosen_baselines(options.baselines, hidden=options.hides):
        reason = BASELINES[name].why_not(store.n_items)
        if reason is not None:
            beside.left_out[name] = reason
        elif name != options.own:
            fitting.append(name)
    owners = split.part(options.split).owners
    for baseline, ranking in rank_baselines(fitting, store, split, options.protocol, limits):
        settings = asdict(baseline.config)
        name = settings.pop("backbone")
        listed = list_means(ranking.recommended, ranking.listed, owners)
        beside.figures[name] = means(ranking.ranks, options.ks, owners) | listed
        beside.ranks[name] = ranking.ranks
        if settings:
            beside.settings[name] = settings
    return beside


def _rank_options(options: EvaluationOptions) -> RankOptions:
    return RankOptions(
        part=options.split,
        seed=options.seed,
        hide_seen=options.seen == "hide",
        ks=options.ks,
        reads=options.reads,
        # with unknown request times the newest event of each history is read otherwise
        shares=options.shares and not (options.reads_time and options.request_time == "unknown"),
        progress=options.progress,
    )
