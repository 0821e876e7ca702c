"""Where work runs, as settings of a command."""

from __future__ import annotations

from dataclasses import dataclass

from linrec.cluster.connection import check_address
from linrec.settings import check, setting
from linrec.types import InputError, argument

GROUP = "Engine"


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The engine changes where the work runs, never the result."""

    engine: str = setting(
        "local",
        "Where the work runs: in this process, or on Ray (linrec\\[ray]).",
        group=GROUP,
        choices=("local", "ray"),
    )
    workers: int | None = setting(
        None, "Processes of Ray, with one CPU each; as many as there are CPUs if left out.",
        group=GROUP, min=1,
    )  # fmt: skip
    address: str | None = setting(
        None,
        "A running Ray cluster as HOST:PORT, or auto for the one of this machine; without it Ray "
        "is started here and ended with the command.",
        group=GROUP,
    )

    def __post_init__(self) -> None:
        check(self)
        for name in ("workers", "address"):
            if self.engine != "ray" and getattr(self, name) is not None:
                raise InputError(
                    f"{argument(name, getattr(self, name))} needs {argument('engine', 'ray')}; add "
                    f"it, or leave {argument(name)} out"
                )
        check_address(self.address)
