"""Two evaluations of the same users under the same protocol, metric by metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

from linrec.data.dataset.splits import Owners
from linrec.data.dataset.store import same_dataset
from linrec.evaluation.metrics import Values, metric_names, per_user
from linrec.evaluation.report import Evaluation
from linrec.evaluation.significance import PairedTest, paired
from linrec.types import InputError

UserRanks = tuple[Evaluation, pl.DataFrame]
"""What `evaluate` and `Run.load_evaluation` return."""

Comparison = dict[str, PairedTest]
"""Metric -> its paired test."""


def compare(a: UserRanks, b: UserRanks, metrics: Sequence[str] = ()) -> Comparison:
    """Test whether b differs from a; without names, in every metric at the cuts both have."""
    _check_comparable(a[0], b[0])
    both = _align(a[1], b[1])
    cuts = sorted(set(a[0].ks) & set(b[0].ks))
    rank_a, rank_b, owners = both["rank"].to_numpy(), both["rank_b"].to_numpy(), owners_of(both)
    listed = [name for name in both.columns if f"{name}_b" in both.columns and "@" in name]

    def values(name: str, suffix: str) -> Values:
        if name in listed:
            return _of_lists(both[name + suffix].to_numpy(), owners)
        return per_user(name, rank_b if suffix else rank_a, owners)

    return {
        name: paired(values(name, ""), values(name, "_b"), a[0].seed)
        for name in metrics or [*metric_names(cuts, owners), *listed]
    }


def _of_lists(values: Values, owners: Owners | None) -> Values:
    """[targets], equal within a row -> [users]."""
    if owners is None:
        return values
    _, first = np.unique(owners.rows, return_index=True)
    return owners.user_means(values[first])


def owners_of(ranks: pl.DataFrame) -> Owners | None:
    """Whose the ranks of an evaluation are; None where every user has one.

    Rows have one history, and each user's rows stand together.
    """
    user = ranks["user"].rle_id().to_numpy().astype(np.int64)
    row = ranks.select(pl.struct("user", "history_length").rle_id()).to_series().to_numpy()
    if len(ranks) == 0 or user[-1] == len(ranks) - 1:
        return None
    _, first = np.unique(row, return_index=True)
    return Owners(row.astype(np.int64), user[first])


def comparison_to_dict(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """For JSON, which has no infinity: a t statistic without spread becomes null."""
    plain = {metric: asdict(test) for metric, test in comparison.items()}
    for values in plain.values():
        if not math.isfinite(values["t_statistic"]):
            values["t_statistic"] = None
    return plain


def _check_comparable(a: Evaluation, b: Evaluation) -> None:
    datasets = a.fingerprint, b.fingerprint
    conditions: dict[str, tuple[object, object]] = {
        "dataset": ("", "") if same_dataset(*datasets) else datasets,
        "split": (a.split, b.split),
        "way of splitting": (a.splitting, b.splitting),
        "condition on targets": (a.targets_where, b.targets_where),
        "targets": (a.targets, b.targets),
        "protocol": (a.protocol, b.protocol),
        "hiding of seen items": (a.hide_seen, b.hide_seen),
    }
    if a.protocol != "full":  # a full ranking draws nothing
        conditions["seed of the negatives"] = (a.seed, b.seed)
    if a.request_time is not None and b.request_time is not None:
        conditions["request time"] = (a.request_time, b.request_time)
    for condition, (of_a, of_b) in conditions.items():
        if of_a != of_b:
            raise InputError(
                f"the two evaluations differ in their {condition} ({of_a} against {of_b}), so "
                "their users cannot be compared; evaluate both alike with `linrec evaluate`"
            )


def _align(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    """Join the ranks of both on the users, whatever their order."""
    if a["user"].dtype != b["user"].dtype:
        raise InputError(f"the user ids differ in type: {a['user'].dtype}, {b['user'].dtype}")
    both = a.join(
        b,
        on=["user", "history_length", "target"],
        how="inner",
        suffix="_b",
        validate="1:1",
        maintain_order="left",  # sums in another order would differ in the last bit
    )
    differ = len(a) + len(b) - 2 * len(both)
    if differ:
        raise InputError(
            f"{differ:,} users (or their held-out items) are in only one of the two evaluations; "
            "evaluate both on the same data with `linrec evaluate`"
        )
    return both
