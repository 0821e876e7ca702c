"""How events are brought into a store, whatever the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from linrec.serving.settings import EngineSettings, Late
from linrec.settings import check, override, setting

WhenStates = Literal["now", "later"]


@dataclass(frozen=True, kw_only=True)
class IngestSettings:
    batch: int = setting(50_000, "Events per commit.", min=1, max=1_000_000)
    states: WhenStates = setting(
        "later",
        "Bring the states of users up to date with each batch, or leave that to the next request "
        "for a user, which stores events several times as fast.",
        choices=get_args(WhenStates),
    )
    keep_events: int = override(EngineSettings, "keep_events", 100_000)
    late: Late = override(EngineSettings, "late", "insert")
    max_future: float = override(EngineSettings, "max_future", 86_400.0)
    cache_mb: int = override(EngineSettings, "cache_mb", 128)

    def __post_init__(self) -> None:
        check(self)

    def engine(self) -> EngineSettings:
        return EngineSettings(
            keep_events=self.keep_events, late=self.late, max_future=self.max_future,
            cache_mb=self.cache_mb,
        )  # fmt: skip
