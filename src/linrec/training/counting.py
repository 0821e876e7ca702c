"""The training of a baseline: one pass that counts, and no epochs."""

from __future__ import annotations

from dataclasses import replace

from linrec.baselines import BASELINES, Baseline, BaselineConfig
from linrec.data.dataset.splits import Split
from linrec.evaluation.baselines import fit_baseline, validation_ndcg
from linrec.runs.checkpoint import Progress
from linrec.training.loop import Trained
from linrec.training.plan import Plan
from linrec.types import InputError, argument


def count(plan: Plan, split: Split) -> tuple[Plan, Baseline, Trained]:
    """The plan with the settings that validation chose, the baseline, and its validation figure."""
    config = plan.config.model
    assert isinstance(config, BaselineConfig)
    reason = BASELINES[config.backbone].why_not(plan.store.n_items)
    if reason is not None:
        raise InputError(
            f"{config.backbone} does not fit: {reason}; choose another {argument('backbone')}"
        )
    baseline = fit_baseline(config, plan.store, split)
    plan = replace(plan, config=replace(plan.config, model=baseline.config))
    best = validation_ndcg(baseline, plan.store, split, seen=plan.config.seen_in())
    progress = Progress(best=best)
    return plan, baseline, Trained(progress, interrupted=False)
