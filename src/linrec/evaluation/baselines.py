"""The baselines of an evaluation: which ones, with settings chosen on validation, and their ranks.

A baseline is ranked on the same users and candidates, and by the same code, as the model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from linrec.baselines import BASELINES, Baseline, BaselineConfig
from linrec.data.dataset.splits import Holdout, Split
from linrec.data.dataset.store import SequenceStore
from linrec.evaluation.metrics import per_user
from linrec.evaluation.negatives import Protocol
from linrec.evaluation.ranks import Ranking, RankOptions, rank_targets
from linrec.types import InputError, Seen, argument

USERS_TO_CHOOSE = 4_000
"""Validation users, evenly spread, on whom open settings are chosen."""

Choice = bool | str | Collection[str]
"""True: those that are quick, False or "none": none, "all", or names (a list, or with commas)."""


def chosen_baselines(choice: Choice, *, hidden: bool) -> list[str]:
    """The names of the chosen baselines in the order of the catalogue.

    hidden: whether the items that a user has had are hidden; a baseline that then only repeats
    another one is left out unless it is named.
    """
    if isinstance(choice, bool) or choice in ("quick", "none"):
        if choice is False or choice == "none":
            return []
        return [
            name for name, kind in BASELINES.items() if _tells(kind, hidden) and not kind.costly
        ]
    if choice == "all":
        return [name for name, kind in BASELINES.items() if _tells(kind, hidden)]
    if isinstance(choice, str):
        names = [name.strip() for name in choice.split(",")]
    else:
        names = list(choice) if isinstance(choice, Collection) else [choice]
    for name in names:
        if name not in BASELINES:
            raise InputError(
                f"unknown baseline {name!r}; give {argument('baselines')} as quick, all, none or "
                f"names from {', '.join(BASELINES)}"
            )
    return [name for name in BASELINES if name in names]


def hidden_note(name: str) -> tuple[str, ...]:
    """What to know of a baseline where seen items are hidden."""
    other = BASELINES[name].same_if_hidden if name in BASELINES else None
    if other is None:
        return ()
    return (
        f"{name} is about items that the user has had, which are hidden: what is left is {other} "
        "(keep seen items to see what it can do)",
    )


def _tells(kind: type[Baseline], hidden: bool) -> bool:
    return not (hidden and kind.same_if_hidden)


def fit_baseline(config: BaselineConfig, store: SequenceStore, split: Split) -> Baseline:
    """Count the training part; settings that are left open are chosen on validation.

    One after the other, in the order of the settings: the value with the best NDCG@10 of a full
    ranking that keeps seen items, of at most `USERS_TO_CHOOSE` users.
    """
    kind, train = BASELINES[config.backbone], split.train
    fitted = kind.fit(train, store.n_items, config)
    for name in config.open:
        tried = (fitted.with_config(each, train) for each in fitted.config.variants(name))
        fitted = max(tried, key=lambda each: validation_ndcg(each, store, split, USERS_TO_CHOOSE))
    return fitted


def validation_ndcg(
    baseline: Baseline,
    store: SequenceStore,
    split: Split,
    users: int | None = None,
    seen: Seen = "keep",
) -> float:
    """NDCG@10 on the validation events, full ranking."""
    holdout = split.valid if users is None else some_of(split.valid, users)
    options = RankOptions(hide_seen=seen == "hide")
    ranks = rank_targets(baseline, store, holdout, "full", _limits(options))
    return float(per_user("ndcg@10", ranks.ranks, holdout.owners).mean())


def some_of(holdout: Holdout, count: int) -> Holdout:
    """At most so many of its rows, evenly spread."""
    if len(holdout) <= count:
        return holdout
    rows = np.linspace(0, len(holdout) - 1, count).astype(np.int64)
    return replace(
        holdout,
        users=holdout.users[rows],
        histories=holdout.histories.take(rows),
        targets=holdout.targets[holdout.targets_of(rows)[0]],
        at=None if holdout.at is None else holdout.at[rows],
        counts=None if holdout.counts is None else holdout.counts[rows],
    )


def rank_baselines(
    names: Collection[str],
    store: SequenceStore,
    split: Split,
    protocol: Protocol,
    options: RankOptions,
) -> Iterator[tuple[Baseline, Ranking]]:
    """Each of the named baselines with its ranks of the part that the options name."""
    for name in names:
        baseline = fit_baseline(BASELINES[name].Config(), store, split)
        holdout = split.part(options.part)
        yield baseline, rank_targets(baseline, store, holdout, protocol, _limits(options))


def _limits(options: RankOptions) -> RankOptions:
    """Baselines pad nothing, and score in float64, twice as wide as a model."""
    return replace(options, reads=1, shares=False, max_scores=8_000_000, progress=None)
