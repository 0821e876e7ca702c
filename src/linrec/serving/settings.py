"""How an engine behaves, whatever the model and the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from linrec.settings import check, setting
from linrec.types import Seen

Late = Literal["insert", "append", "refuse"]
UnsafeStore = Literal["warn", "refuse"]


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    keep_events: int = setting(
        100_000, "Newest events to keep per user; older ones are deleted with their ids.", min=1
    )
    late: Late = setting(
        "insert",
        "What to do with an event older than the user's newest: insert it by its time (which "
        "rebuilds the state), append it as if it came now, or refuse it.",
        choices=get_args(Late),
    )
    max_future: float = setting(
        86_400.0,
        "Seconds that the time of an event may be ahead of this machine's clock; events further "
        "ahead are refused, because all later ones of their user would be late.",
        min=0,
    )
    cache_mb: int = setting(
        128, "Memory for the states of recent users, in MiB; 0: read them from the store.", min=0
    )
    state_every: int = setting(
        8,
        "Events of a user in memory after which the state is stored again; whoever does not have "
        "it in memory reads the stored one and the events since. 1: with every event.",
        min=1,
    )
    seen: Seen | None = setting(
        None,
        "Seen items in responses to requests that do not say: hide them, or keep them; as the run "
        "was trained if left out.",
        choices=get_args(Seen),
    )
    diversity: float = setting(
        0.0,
        "Re-rank responses to requests that do not say for items that differ by their features: 0 "
        "(off) to 1.",
        min=0,
        max=1,
    )
    batch_size: int = setting(64, "Maximum number of requests in a model call.", min=1)
    batch_wait: float = setting(
        0.0, "Seconds to wait for more requests before a model call.", min=0, max=1
    )
    long_work: int = setting(
        2, "Maximum number of whole histories to encode at the same time.", min=1
    )
    max_waiting: int = setting(
        1024, "Maximum number of requests that wait for a model call; more are refused.", min=1
    )
    max_waiting_long: int = setting(
        32, "Maximum number of requests that wait for a whole history; more are refused.", min=1
    )
    user_ttl: float | None = setting(
        None, "Days without an event after which a user is forgotten; never if left out.", above=0
    )
    unsafe_store: UnsafeStore = setting(
        "warn",
        "Warn about, or refuse, a store whose settings can lose acknowledged events.",
        choices=get_args(UnsafeStore),
    )
    ann_from: int | None = setting(
        None,
        "Number of items from which on to search approximately (linrec\\[ann]); never if left out.",
    )

    def __post_init__(self) -> None:
        check(self)
