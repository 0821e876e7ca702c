"""How much is tried, and where; nothing here changes what a trial computes but `pruning`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from pydantic import ConfigDict

from linrec.settings import check, setting
from linrec.types import InputError, argument

EngineName = Literal["local", "ray"]
TRIALS = 20  # where no budget is given


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    trials: int | None = setting(
        None,
        f"Trials in all, earlier ones of the same study included; {TRIALS} if no budget is given.",
        min=1,
    )
    hours: float | None = setting(
        None,
        "Hours in all; a trial that is not done by then is stopped, and repeated if the study is "
        "continued.",
        above=0,
    )
    total_epochs: int | None = setting(
        None, "Epochs in all: once so many are trained, no further trial begins.", min=1
    )
    pruning: bool = setting(
        True, "End a trial early if its validation NDCG@10 stays below the median of the others."
    )
    final: bool = setting(
        True, "Train the winner once more, keep it as a run and evaluate it on test."
    )
    engine: EngineName = setting(
        "local", "Where trials run: this process, or a Ray cluster.", choices=get_args(EngineName)
    )
    address: str | None = setting(
        None, "Address of a Ray cluster, as host:6379 or auto; one of its own if left out."
    )
    concurrent: int = setting(1, "Most trials at once, with Ray.", min=1)
    cpus_per_trial: int = setting(1, "CPUs that Ray reserves for a trial, its threads.", min=1)
    gpus_per_trial: float = setting(0.0, "GPUs that Ray reserves for a trial.", min=0)

    def __post_init__(self) -> None:
        check(self)
        if self.engine == "ray":
            return
        for name in ("address", "concurrent", "cpus_per_trial", "gpus_per_trial"):
            if getattr(self, name) != getattr(type(self), name):
                raise InputError(
                    f"{argument(name)} is for a Ray cluster; add {argument('engine', 'ray')}, or "
                    "leave it out"
                )

    @property
    def most_trials(self) -> int | None:
        """None: as many as the other budgets allow."""
        others = self.hours is not None or self.total_epochs is not None
        return TRIALS if self.trials is None and not others else self.trials
